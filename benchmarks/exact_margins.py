"""Intervals of `NoiseAwareMAP` where margins are exact beside noisy tables.

    OMP_NUM_THREADS=1 uv run python -m benchmarks.exact_margins --releases 40 > exact-margins.csv

A chain of three variables with 3, 3 and 2 states, normal log-linear effects of standard deviation 0.7, or none; 1,000
people. The tables of its two pairs have discrete Laplace noise; the margins of all variables, or of the first alone,
are exact, or the number of people is. A row a case: the share of 90 % intervals that hold the probabilities of the
pairs, the counts, and the local odds ratios; root mean square errors of probabilities and log odds ratios; and the
fits that are not trusted.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from typing import Any, NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pandas as pd

from bayesprivmrf import NoiseAwareMAP, NoisyStatistics, Status, analysis, declare
from bayesprivmrf.noise import DiscreteLaplace, NoNoise

NAMES = ("a", "b", "c")
SHAPE = (3, 3, 2)
PAIRS = (("a", "b"), ("b", "c"))
PEOPLE = 1_000
SPREAD = 0.7
FIRST_SEED = 7_400


class Case(NamedTuple):
    """Which margins are exact, the scale of the noise, and the standard deviation of the effects."""

    exact: tuple[str, ...]
    scale: float
    spread: float


CASES = (
    Case(NAMES, 20.0, SPREAD),
    Case(NAMES, 200.0, SPREAD),
    Case(NAMES, 60.0, 0.0),
    Case(("a",), 60.0, SPREAD),
    Case((), 60.0, SPREAD),
)


def chain(spread: float, rng: np.random.Generator) -> np.ndarray:
    """Return the probabilities of all joint states, shape `SHAPE`."""
    energy = rng.normal(0, spread, SHAPE[:2])[:, :, np.newaxis] + rng.normal(0, spread, SHAPE[1:])
    weights = np.exp(energy)
    return weights / weights.sum()


def margin(table: np.ndarray, names: tuple[str, ...]) -> np.ndarray:
    """Return the sums of a table of all variables over the others."""
    others = tuple(axis for axis, name in enumerate(NAMES) if name not in names)
    return table.sum(axis=others)


def released(case: Case, counts: np.ndarray, rng: np.random.Generator) -> NoisyStatistics:
    """Return the release of one table of people."""
    law = DiscreteLaplace(case.scale)
    stop = 1 - np.exp(-1 / case.scale)
    tables: dict[Any, Any] = {}
    noise: dict[Any, Any] = {}
    for names in PAIRS:
        own = margin(counts, names)
        tables[names] = own + rng.geometric(stop, own.shape) - rng.geometric(stop, own.shape)
        noise[names] = law
    for name in case.exact:
        tables[name] = margin(counts, (name,))
        noise[name] = NoNoise()
    states: dict[Any, Any] = {
        name: list(range(size)) for name, size in zip(NAMES, SHAPE, strict=True)
    }
    network = declare(states=states, cliques=list(PAIRS))
    return NoisyStatistics.from_tables(network, tables, noise=noise, total=PEOPLE)


def compared(frame: pd.DataFrame, truth: np.ndarray) -> np.ndarray:
    """Return the mask of the rows whose interval holds the truth."""
    values = truth.ravel()
    return (frame["lower"].to_numpy() <= values) & (values <= frame["upper"].to_numpy())


def row(case: Case, releases: int) -> dict[str, object]:
    """Return the figures of one case."""
    found: dict[str, list[np.ndarray]] = {}
    not_trusted = 0
    for seed in range(FIRST_SEED, FIRST_SEED + releases):
        rng = np.random.default_rng(seed)
        shares = chain(case.spread, rng)
        counts = rng.multinomial(PEOPLE, shares.ravel()).reshape(SHAPE)
        fit = NoiseAwareMAP().fit(released(case, counts, rng))
        not_trusted += fit.status is Status.NOT_TRUSTED
        for names in PAIRS:
            truth = margin(shares, names)
            ratios = truth[:-1, :-1] * truth[1:, 1:] / (truth[:-1, 1:] * truth[1:, :-1])
            of_cells = fit.interval(list(names))
            of_records = fit.interval(list(names), of="records")
            of_ratios = analysis.odds_ratios(fit, *names)
            each = {
                "probabilities": compared(of_cells, truth),
                "counts": compared(of_records, margin(counts, names)),
                "odds ratios": compared(of_ratios, ratios),
                "error": np.square(of_cells["estimate"].to_numpy() - truth.ravel()),
                "error of log odds ratios": np.square(
                    np.log(of_ratios["estimate"].to_numpy() / ratios.ravel())
                ),
            }
            for name, values in each.items():
                found.setdefault(name, []).append(values)
    means = {name: float(np.concatenate(values).mean()) for name, values in found.items()}
    for name in ("error", "error of log odds ratios"):
        means[name] = means[name] ** 0.5
    return {
        "exact": " ".join(case.exact) or "number of people",
        "scale": case.scale,
        "effects": case.spread,
        **means,
        "not trusted": not_trusted,
    }


def main() -> None:
    """Print a row a case."""
    parser = argparse.ArgumentParser(description="Intervals where margins are exact.")
    parser.add_argument("--releases", type=int, default=40)
    releases = parser.parse_args().releases
    warnings.simplefilter("ignore")
    found = pd.DataFrame([row(case, releases) for case in CASES])
    found.to_csv(sys.stdout, index=False, float_format="%.3g")


if __name__ == "__main__":
    main()
