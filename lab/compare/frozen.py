#!/usr/bin/env python3
"""Compares the bytes of blocks with those of DuckDB's file for the same rows.

    lab/compare/frozen.py                      1,000,000 order lines, each kind of strings
    lab/compare/frozen.py --rows 5000000 ch

Needs the binary of the profile dist and the Python module duckdb (pip install duckdb). DuckDB checkpoints its file once after the load, in
the order of the rows, with its newest storage format; its bytes are the file's, and beside that those of the blocks in use.
"""

import argparse
import json
import pathlib
import subprocess
import tempfile

import duckdb

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BINARY = ROOT / "target" / "dist" / "thermocline-lab"
COLUMNS = {
    "ol_o_id": "INTEGER", "ol_d_id": "SMALLINT", "ol_w_id": "INTEGER", "ol_number": "SMALLINT", "ol_i_id": "INTEGER",
    "ol_supply_w_id": "INTEGER", "ol_delivery_d": "TIMESTAMP", "ol_quantity": "SMALLINT", "ol_amount": "DECIMAL(6,2)",
    "ol_dist_info": "VARCHAR",
}


def duckdb_bytes(csv, file, version):
    """Bytes of DuckDB's file, and of what is in use of it."""
    storage = f" (STORAGE_VERSION '{version}')" if version else ""
    base = duckdb.connect()
    base.execute(f"ATTACH '{file}' AS db{storage}")
    columns = ", ".join(f"{name} {ty}" for name, ty in COLUMNS.items())
    base.execute(f"CREATE TABLE db.order_line ({columns})")
    base.execute("SET preserve_insertion_order = true")
    base.execute("SET threads = 1")
    base.execute(f"INSERT INTO db.order_line SELECT * FROM read_csv('{csv}', header = false, columns = {COLUMNS})")
    base.execute("CHECKPOINT db")
    sizes = base.execute("SELECT block_size, used_blocks FROM pragma_database_size() WHERE database_name = 'db'").fetchone()
    methods = base.execute(
        "SELECT column_name, string_agg(DISTINCT compression, ' ') FROM pragma_storage_info('db.order_line') "
        "WHERE segment_type <> 'VALIDITY' GROUP BY column_name, column_id ORDER BY column_id").fetchall()
    base.close()
    return pathlib.Path(file).stat().st_size, sizes[0] * sizes[1], dict(methods)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("strings", nargs="*", default=["ch", "tpcc", "long"])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--storage-version", default="latest", help="DuckDB's; empty: its default")
    arguments = parser.parse_args()
    print(f"DuckDB {duckdb.__version__}, {arguments.rows} rows")
    for strings in arguments.strings:
        with tempfile.TemporaryDirectory() as folder:
            csv, result = f"{folder}/lines.csv", f"{folder}/result.json"
            command = [BINARY, "bench", "freeze", "--rows", str(arguments.rows), "--strings", strings]
            for smallest in [], ["--smallest"]:
                subprocess.run([*command, *smallest, "--csv", csv, "--json", result], check=True, stdout=subprocess.DEVNULL)
                ours = json.loads(pathlib.Path(result).read_text())["block_bytes_per_row"]
                if not smallest:
                    file, used, methods = duckdb_bytes(csv, f"{folder}/lines.duckdb", arguments.storage_version)
                    print(f"{strings}: DuckDB {file / arguments.rows:.2f} bytes a row ({used / arguments.rows:.2f} in use)")
                    print("   ", ", ".join(f"{name} {method}" for name, method in methods.items()))
                name = "smallest" if smallest else "point reads"
                print(f"    blocks, {name}: {ours:.2f} bytes a row, {ours * arguments.rows / file:.2f} of the file")


if __name__ == "__main__":
    main()
