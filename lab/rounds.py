#!/usr/bin/env python3
"""Measures variants of a benchmark against each other: interleaved, several rounds, medians with their spread.

    lab/rounds.py                     all comparisons, three rounds each
    lab/rounds.py tpcc --rounds 5     one of them
    lab/rounds.py --seconds 10        shorter windows

Needs Python 3 only, and builds the binary first. The machine should have nothing else to do.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
BINARY = ROOT / "target" / "dist" / "thermocline-lab"

ASYNC = ["--durability", "async"]
LARGE = ["ycsb", "--workload", "a", "--records", "10000000", "--fields", "1", "--field-bytes", "100", *ASYNC]
TPCC = ["tpcc", "--warehouses", "10"]

# name -> (seconds, [(variant, arguments)]); the first variant is what the others are compared with.
COMPARISONS = {
    "point": (10, [
        ("1 thread", ["point", "--records", "10000000", "--threads", "1"]),
        ("2 threads", ["point", "--records", "10000000", "--threads", "2"]),
    ]),
    "ycsb": (30, [
        ("10 M x 100 B", [*LARGE, "--checkpoint-interval", "15"]),
        ("1 M x 10 x 100 B", ["ycsb", "--workload", "a", "--records", "1000000", *ASYNC,
                              "--checkpoint-interval", "15"]),
    ]),
    "tpcc": (30, [
        ("async", [*TPCC, *ASYNC, "--checkpoint-interval", "15"]),
        ("group", [*TPCC, "--durability", "group", "--checkpoint-interval", "15"]),
        ("serializable", [*TPCC, *ASYNC, "--isolation", "serializable", "--checkpoint-interval", "15"]),
    ]),
    "snapshot": (60, [
        ("none open", LARGE),
        ("one open", [*LARGE, "--hold-snapshot"]),
    ]),
}


def run(arguments, seconds):
    """One run: its report."""
    with tempfile.NamedTemporaryFile(suffix=".json") as report:
        command = [BINARY, "bench", "--quiet", *arguments, "--seconds", str(seconds), "--json", report.name]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return json.load(report)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="|".join(COMPARISONS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, help="length of every window")
    parser.add_argument("--json", help="all reports, as a list")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in COMPARISONS]
    if unknown:
        parser.error(f"no such comparison: {', '.join(unknown)}; there are {', '.join(COMPARISONS)}")
    subprocess.run(["cargo", "build", "--profile", "dist", "--quiet", "-p", "thermocline-lab"], cwd=ROOT, check=True)
    kept = []
    for name in options.names or COMPARISONS:
        seconds, variants = COMPARISONS[name]
        seconds = options.seconds or seconds
        reports = {variant: [] for variant, _ in variants}
        for _ in range(options.rounds):
            for variant, arguments in variants:
                report = run(arguments, seconds)
                reports[variant].append(report)
                kept.append({"comparison": name, "variant": variant, "report": report})
        print(f"\n{name}: {options.rounds} rounds of {seconds} s each, interleaved")
        print(f"{'':18} {'median tx/s':>12} {'least':>12} {'most':>12} {'to first':>9} {'DRAM ns':>8} {'checkpoints'}")
        first = None
        for variant, _ in variants:
            rates = [report["throughput_tps"] for report in reports[variant]]
            dram = statistics.median(r["calibration"]["dram_random_read_ns"] for r in reports[variant])
            first = first or rates
            ratio = statistics.median(rate / base for rate, base in zip(rates, first))
            checkpoints = [report["checkpoints"] for report in reports[variant]]
            print(f"{variant:18} {statistics.median(rates):12,.0f} {min(rates):12,.0f} {max(rates):12,.0f} "
                  f"{ratio:8.0%} {dram:8.0f} {checkpoints}", flush=True)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(kept, indent=1))


if __name__ == "__main__":
    main()
