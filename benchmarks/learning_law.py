"""The laws of `bayesprivmrf.planning.records_needed`, fitted to the errors that learning.py measured.

    uv run --group benchmarks python benchmarks/learning_law.py

Reads benchmarks/results/learning.csv: mean largest errors of five populations a cell, couplings of size .3, cells
with a mean below .2. error^2 = A log p / n + B p^u / (n sqrt rho)^v, least squares of logarithms; v = 2 for
SelectMeasure, whose noise is Gaussian of a given size (free, it comes out at 1.95). Prints constants, spread, and the
factor over the law that 19 of 20 single errors stay below.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import least_squares

METHODS = {"SelectMeasure": 2.0, "Frank-Wolfe, tight": None}
"""Mechanism, and v where it is given."""

LARGEST = 0.2
KEYS = ["graph", "variables", "rho", "records"]


def fitted(errors: pd.DataFrame, method: str) -> dict[str, float]:
    """Return the constants of a law, and the standard deviation of what is left."""
    own: Any = errors[(errors["method"] == method) & errors["rho"].notna()]
    cells = own.groupby(KEYS)["error"].mean().reset_index()
    cells = cells[cells["error"] < LARGEST]
    p, n, rho, error = (
        cells[name].to_numpy(float) for name in ("variables", "records", "rho", "error")
    )
    given = METHODS[method]

    def left(x: np.ndarray) -> np.ndarray:
        private = (
            np.exp(x[1]) * p ** x[2] / (n * np.sqrt(rho)) ** (x[3] if given is None else given)
        )
        return 0.5 * np.log(np.exp(x[0]) * np.log(p) / n + private) - np.log(error)

    found = least_squares(left, [0.0, 0.0, 1.0] + ([1.0] if given is None else []))
    stated = pd.Series(left(found.x) + np.log(error), index=pd.MultiIndex.from_frame(cells[KEYS]))
    single = own.join(stated.rename("stated"), on=KEYS, how="inner")
    return {
        "sampling": float(np.exp(found.x[0])),
        "private": float(np.exp(found.x[1])),
        "variables_power": float(found.x[2]),
        "total_power": float(found.x[3]) if given is None else given,
        "spread": float(found.fun.std()),
        "single": float((single["error"] / np.exp(single["stated"])).quantile(0.95)),
        "cells": float(len(cells)),
    }


if __name__ == "__main__":
    measured = pd.read_csv(Path(__file__).parent / "results" / "learning.csv")
    for name in METHODS:
        print(name, {key: round(value, 4) for key, value in fitted(measured, name).items()})
