"""Seconds of the tests of `bayesprivmrf.analysis` with 999 replicates, on a model of six variables of four states.

The records are simulated: each answer copies a common one with a probability of 0.4. Four sets of tables are
released: all pairs, all triples, two overlapping tables of four variables, and one of all six. The tests of panels
take the six variables for times. A row for each test: processor and wall seconds, and its degrees of freedom.

    OMP_NUM_THREADS=1 uv run python benchmarks/speed_of_tests.py --out tests.csv
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import itertools
import time
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

import bayesprivmrf as bpm
from bayesprivmrf import analysis
from bayesprivmrf.errors import ModelError
from bayesprivmrf.mechanisms import LaplaceStatistics

NAMES = tuple("abcdef")
STATES = 4
RECORDS = 5_000
COPIED = 0.4  # probability of the common answer
EPSILON = 2.0
PAIRS = tuple(itertools.combinations(NAMES, 2))
STEPS = tuple(itertools.pairwise(NAMES))
TABLES = {
    "all pairs": PAIRS,
    "all triples": tuple(itertools.combinations(NAMES, 3)),
    "two tables of four": (NAMES[:4], NAMES[2:]),
    "all six": (NAMES,),
}
ASKED = {
    "independence of two": partial(analysis.independence_test, a="a", b="b"),
    "independence given one": partial(analysis.independence_test, a="a", b="b", given=["c"]),
    "independence given two": partial(analysis.independence_test, a="a", b="b", given=["c", "d"]),
    "equal odds ratios": partial(analysis.equal_odds_test, a="a", b="b", over=["c"]),
    "equal groups": partial(analysis.compare_groups, by="a"),
    "fit of a chain": partial(analysis.goodness_of_fit, model=STEPS),
    "fit of all pairs": partial(analysis.goodness_of_fit, model=PAIRS),
    "symmetry": partial(analysis.symmetry, a="a", b="b"),
    "stationarity": partial(analysis.stationarity_test, times=NAMES),
    "homogeneity": partial(analysis.homogeneity, times=NAMES),
}


def records(rng):
    """Simulated answers."""
    common = rng.integers(0, STATES, RECORDS)
    answers = {}
    for name in NAMES:
        is_copied = rng.random(RECORDS) < COPIED
        answers[name] = np.where(is_copied, common, rng.integers(0, STATES, RECORDS))
    return pd.DataFrame(answers)


def timed(test, release):
    """Processor and wall seconds and degrees of freedom of a test; None if no released number is about it."""
    processor = time.process_time()
    wall = time.perf_counter()
    try:
        result = test(release, rng=1, progress_bar=False)
    except ModelError:
        return None
    return (
        round(time.process_time() - processor, 2),
        round(time.perf_counter() - wall, 2),
        result.df,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("speed-of-tests.csv"))
    arguments = parser.parse_args()
    data = records(np.random.default_rng(0))
    rows = []
    for title, cliques in TABLES.items():
        network = bpm.declare({name: list(range(STATES)) for name in NAMES}, list(cliques))
        release = LaplaceStatistics(epsilon=EPSILON).release(network, data, rng=1)
        ASKED["independence of two"](release, draws=99, rng=1)  # imports
        for name, test in ASKED.items():
            found = timed(test, release)
            if found is not None:
                rows.append([title, name, *found])
    columns = ["tables", "test", "processor seconds", "wall seconds", "df"]
    pd.DataFrame(rows, columns=columns).to_csv(arguments.out, index=False)


if __name__ == "__main__":
    main()
