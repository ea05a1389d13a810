"""The steps of a client: each is run and counted. A failed one is told, and those after it are run as well."""
import contextlib
import sys

passed = count = 0


@contextlib.contextmanager
def step(name):
    global passed, count
    count += 1
    try:
        yield
        passed += 1
    except Exception as error:
        print(f"    FAILED {name}: {type(error).__name__} {error}")


def ended(client):
    print(f"  {client}: {passed} of {count} steps")
    sys.exit(passed != count)
