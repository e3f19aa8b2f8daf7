"""Shares of releases in which a table of distant times accuses a chain of a longer memory.

2,000 people are followed over twelve months at epsilon 1. Each step is measured, or the sum of all steps and the
first month, and besides the table of the first with the last month. Either all people move by one matrix, so that a
chain of order 1 is right, or half of them hardly move and half of them move often, so that it is wrong.

    OMP_NUM_THREADS=1 uv run python benchmarks/chain_order.py --first 5000 --right 300 --out FILE.csv

The right chains have three states; three states that hardly change; or four states. Columns: model, what was measured
of the steps, people, estimator, releases; shares of releases that any test accuses ("not trusted"), that the test of
the order accuses, or a remark on an omitted interaction, and that the misfit accuses, whose level is 1 %; and the
share of p-values of the order below 5 %. Seeds are counted from `--first` in each row.
"""

from __future__ import annotations

import argparse
import itertools
import os
import warnings
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pandas as pd

import bayesprivmrf as bpm
from bayesprivmrf import queries as q
from bayesprivmrf.mechanisms import LaplaceStatistics

MONTHS = [f"m{month}" for month in range(1, 13)]
STEPS = list(itertools.pairwise(MONTHS))
DISTANT = q.table(MONTHS[0], MONTHS[-1])
MEASURED = {
    "each step": [*(q.table(*step) for step in STEPS), DISTANT],
    "sum of steps": [q.pooled(STEPS), q.table(MONTHS[0]), DISTANT],
}
PEOPLE = 2000
# Level of the misfit's test, and a level at which the distribution of p-values is looked at
MISFIT_LEVEL = 0.01
COMMON_LEVEL = 0.05


@dataclass(frozen=True)
class People:
    """People of one kind or of several, each of whom moves by one matrix."""

    name: str
    first: tuple[float, ...]
    matrices: tuple[np.ndarray, ...]

    @property
    def states(self) -> list[str]:
        """Names of the states."""
        return ["in work", "unemployed", "away", "in school"][: len(self.first)]

    @property
    def is_right(self) -> bool:
        """Whether a chain of order 1 is right."""
        return len(self.matrices) == 1

    def draw(self, rng: np.random.Generator) -> pd.DataFrame:
        """Draw the states of all people."""
        kind = rng.integers(len(self.matrices), size=PEOPLE)
        codes = np.empty((PEOPLE, len(MONTHS)), int)
        codes[:, 0] = rng.choice(len(self.first), PEOPLE, p=self.first)
        for month in range(1, len(MONTHS)):
            rows = np.array(self.matrices)[kind, codes[:, month - 1]].cumsum(axis=1)
            codes[:, month] = (rng.random(PEOPLE)[:, np.newaxis] > rows).sum(axis=1)
        return pd.DataFrame(np.array(self.states)[codes], columns=MONTHS)

    def network(self, model: str):
        """Return the network of one kind of chain."""
        if model == "pairs":
            return bpm.declare(states=dict.fromkeys(MONTHS, self.states), cliques=STEPS)
        return bpm.markov_chain(self.states, len(MONTHS), share=model, names=MONTHS)


THREE = (0.5, 0.3, 0.2)
ONE = np.array([[0.85, 0.10, 0.05], [0.10, 0.80, 0.10], [0.05, 0.15, 0.80]])
STICKY = np.array([[0.99, 0.007, 0.003], [0.01, 0.98, 0.01], [0.003, 0.007, 0.99]])
FOUR = np.array(
    [
        [0.80, 0.10, 0.06, 0.04],
        [0.15, 0.70, 0.10, 0.05],
        [0.05, 0.10, 0.75, 0.10],
        [0.02, 0.08, 0.15, 0.75],
    ]
)
STAYERS = np.array([[0.97, 0.02, 0.01], [0.02, 0.96, 0.02], [0.01, 0.02, 0.97]])
MOVERS = np.array([[0.5, 0.3, 0.2], [0.3, 0.4, 0.3], [0.2, 0.3, 0.5]])
KINDS = [
    People("one kind", THREE, (ONE,)),
    People("one kind, sticky", THREE, (STICKY,)),
    People("one kind, four states", (0.4, 0.3, 0.2, 0.1), (FOUR,)),
    People("two kinds", THREE, (STAYERS, MOVERS)),
]
ROWS = [
    ("transitions", "each step", bpm.NoiseAwareMAP()),
    ("transitions", "each step", bpm.NaiveMLE()),
    ("transitions", "sum of steps", bpm.NoiseAwareMAP()),
    ("potentials", "each step", bpm.NoiseAwareMAP()),
    ("pairs", "each step", bpm.NoiseAwareMAP()),
    ("pairs", "each step", bpm.NaiveMLE()),
]


def judged(model: str, measured: str, people: People, estimator, seed: int) -> dict[str, float]:
    """Fit a chain to one release, and return which tests accuse it."""
    mechanism = LaplaceStatistics(epsilon=1.0, queries=MEASURED[measured])
    data = people.draw(np.random.default_rng(seed))
    release = mechanism.release(people.network(model), data, rng=seed)
    with warnings.catch_warnings(action="ignore"):
        fit = estimator.fit(release)
    speaks_of_order = ["order of this chain" in one or "omits" in one for one in fit.problems]
    return {
        "accused": fit.status == "not trusted",
        "of order": any(speaks_of_order),
        "of misfit": fit.stats.get("misfit_tail", 1.0) < MISFIT_LEVEL,
        "order below 5 %": fit.stats.get("order_tail", np.nan) < COMMON_LEVEL,
        "order_tail": fit.stats.get("order_tail", np.nan),
        "misfit_tail": fit.stats.get("misfit_tail", np.nan),
        "margin_tail": fit.stats.get("margin_tail", np.nan),
    }


def main() -> None:
    """Run and print a table."""
    parser = argparse.ArgumentParser(description="Level and power of the test of a chain's order.")
    parser.add_argument("--first", type=int, default=0, help="seed of the first release of a row")
    parser.add_argument("--wrong", type=int, default=20)
    parser.add_argument("--right", type=int, default=100)
    parser.add_argument("--models", nargs="+", default=sorted({model for model, _, _ in ROWS}))
    parser.add_argument("--measured", nargs="+", default=list(MEASURED))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--tails", type=Path, help="file of the p-values of each release")
    given = parser.parse_args()
    lines = []
    tails = []
    for (model, measured, estimator), people in itertools.product(ROWS, KINDS):
        if model not in given.models or measured not in given.measured:
            continue
        repeats = given.right if people.is_right else given.wrong
        seeds = range(given.first, given.first + repeats)
        found = pd.DataFrame([judged(model, measured, people, estimator, s) for s in seeds])
        line = {
            "model": model,
            "measured": measured,
            "people": people.name,
            "estimator": estimator.method,
            "releases": repeats,
        }
        tails.append(found.assign(**line))
        shares = found[["accused", "of order", "of misfit", "order below 5 %"]].mean()
        lines.append(line | shares.to_dict())
        print(lines[-1], flush=True)
    if given.out:
        pd.DataFrame(lines).to_csv(given.out, index=False, float_format="%.5g")
    if given.tails:
        pd.concat(tails).to_csv(given.tails, index=False)


if __name__ == "__main__":
    main()
