"""DuckDB as one more server: a line of JSON asks, a line of JSON answers. Needs the package duckdb; see duck.rs."""
import datetime
import json
import sys
import threading
import time

import duckdb

connection = duckdb.connect()
connection.execute(f"set threads = {int(sys.argv[1])}")
# A bar would stand among the answers.
connection.execute("set enable_progress_bar = false")
print(json.dumps({"version": duckdb.__version__}), flush=True)


def text(value):
    """A value as PostgreSQL writes it."""
    if isinstance(value, bool):
        return "t" if value else "f"
    if isinstance(value, datetime.datetime):
        return value.isoformat(" ")
    return None if value is None else str(value)


for line in sys.stdin:
    asked = json.loads(line)
    timer = threading.Timer(asked["seconds"], connection.interrupt)
    timer.start()
    began = time.perf_counter()
    try:
        rows = connection.execute(asked["sql"]).fetchall()
        seconds = time.perf_counter() - began
        answer = {"seconds": seconds, "rows": [[text(value) for value in row] for row in rows]}
    except Exception as error:
        answer = {"error": " ".join(str(error).split())}
    timer.cancel()
    print(json.dumps(answer), flush=True)
