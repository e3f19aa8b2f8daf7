"""A model and its records, a way to run a command, and arguments that tests of the command line share."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

import bayesprivmrf as bpm
from bayesprivmrf.cli import main

MODEL = """
title = "A toy"
cliques = [["a", "b"], ["b", "c"]]
[variables.a]
states = ["x", "y"]
[variables.b]
states = ["low", "high"]
breaks = [5]
[variables.c]
states = ["01", "02", "NA"]
"""


RECORDS = 1234


def run(capsys, *arguments: str) -> tuple[int, str, str]:
    code = main(arguments)
    printed = capsys.readouterr()
    return code, printed.out, printed.err


QUICK = ("--methods", "uniform", "mle", "naive-mle", "cgm")  # all that neither samples nor compiles


RELEASE = ("release", "data.csv", "--model", "model.toml", "--epsilon", "5", "--out", "toy.release")


AB_MODEL = (
    'cliques = [["a", "b"]]\n[variables.a]\nstates = [0, 1]\n[variables.b]\nstates = [0, 1]\n'
)


def never(self, *_):
    raise AssertionError("the data was read")


WIDE = [
    f"v{i}" for i in range(10)
]  # every pair of ten variables of eight states: one clique of 8^10 cells


WIDE_MODEL = f"cliques = {[[v, w] for v in WIDE for w in WIDE if v < w]}\n" + "".join(
    f"[variables.{v}]\nstates = {list(range(8))}\n" for v in WIDE
)


def wide_frame():
    """Four thousand records of independent variables, so that messages settle at once."""
    return pd.DataFrame(np.random.default_rng(1).integers(0, 8, (4000, len(WIDE))), columns=WIDE)


@dataclass(frozen=True, kw_only=True)
class Halved:
    """An estimator from outside: the naive one's potentials, halved."""

    def fit(self, releases):
        naive = bpm.NaiveMLE().fit(releases)
        flat = 0.5 * naive.potentials.flat
        return replace(
            naive, potentials=naive.specification.tables(flat), method="halved", references=()
        )
