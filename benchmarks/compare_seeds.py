"""The first command of the README over many seeds: seconds, statuses, warnings.

    uv run python benchmarks/compare_seeds.py --seeds 401 420

Each run is a process of its own, as a user starts it. Run it once before, so that the engines are built.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path


def run(seed: int) -> tuple[float, float, list[str], list[str]]:
    """Seconds of the clock and of processors, statuses of the posteriors, warnings but those of the noise."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begin = time.perf_counter()
    command = [
        str(Path(sys.executable).with_name("bayesprivmrf")),
        "compare",
        "--seed",
        str(seed),
        "--json",
    ]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds = time.perf_counter() - begin
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processors = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    rows = json.loads(ended.stdout)["results"]
    statuses = [row["status"] for row in rows if row["method"] == "posterior"]
    said = [
        line
        for line in ended.stderr.splitlines()
        if "warning" in line and "the noise is larger" not in line
    ]
    return seconds, processors, statuses, said


def main() -> None:
    """Run the command for each seed and print what the docs show."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, nargs=2, default=(401, 420), metavar=("FIRST", "LAST"))
    first, last = parser.parse_args().seeds
    found = [run(seed) for seed in range(first, last + 1)]
    for name, place in (("clock", 0), ("processors", 1)):
        values = sorted(row[place] for row in found)
        print(
            f"seconds, {name}: least {values[0]:.0f}, median {statistics.median(values):.0f}, most {values[-1]:.0f}"
        )
    print("posteriors:", dict(Counter(status for row in found for status in row[2])))
    for seed, row in zip(range(first, last + 1), found, strict=True):
        for line in row[3]:
            print(f"seed {seed}: {line}")


if __name__ == "__main__":
    main()
