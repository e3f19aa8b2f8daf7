"""Intervals of `NoiseAwareMAP` where margins are exact beside noisy tables.

    OMP_NUM_THREADS=1 uv run python -m benchmarks.exact_margins --releases 24 > exact-margins.csv

A chain of three variables with 3, 3 and 2 states and normal log-linear effects: none, weak, moderate or strong ones,
or few; 1,000 people. The tables of its two pairs have discrete Laplace noise; the margins of all variables, or of the
first alone, are exact, or the number of people is. A row a case: the share of 90 % intervals that hold the
probabilities of the pairs, the counts, and the local odds ratios; root mean square errors of probabilities and log
odds ratios; the median standard error of log odds ratios; the share of odds ratios with status `ok`, and the share of
these that is held; and the fits that are not trusted.
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
FIRST_SEED = 7_500
QUANTILE = 1.6449  # of the standard normal distribution at 0.95


class Truth(NamedTuple):
    """Standard deviation of the effects of a cell, and the share of cells that have one."""

    spread: float
    share: float = 1.0


class Case(NamedTuple):
    """Which margins are exact, the scale of the noise, and the name of the truths."""

    exact: tuple[str, ...]
    scale: float
    truth: str


TRUTHS = {
    "none": Truth(0.0),
    "weak": Truth(0.3),
    "moderate": Truth(0.7),
    "strong": Truth(1.2),
    "few": Truth(1.4, 0.3),
}
NOISE = ((NAMES, 20.0), (NAMES, 200.0), (("a",), 60.0), ((), 60.0), ((), 10.0))
CASES = tuple(Case(exact, scale, truth) for exact, scale in NOISE for truth in TRUTHS)


def chain(truth: Truth, rng: np.random.Generator) -> np.ndarray:
    """Return the probabilities of all joint states, shape `SHAPE`."""
    first, second = (
        rng.normal(0, truth.spread, shape) * (rng.random(shape) < truth.share)
        for shape in (SHAPE[:2], SHAPE[1:])
    )
    weights = np.exp(first[:, :, np.newaxis] + second)
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
        shares = chain(TRUTHS[case.truth], rng)
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
                "is ok": (of_ratios["status"] == "ok").to_numpy(),
                "width": np.log(of_ratios["upper"].to_numpy() / of_ratios["lower"].to_numpy()),
                "error": np.square(of_cells["estimate"].to_numpy() - truth.ravel()),
                "error of log odds ratios": np.square(
                    np.log(of_ratios["estimate"].to_numpy() / ratios.ravel())
                ),
            }
            for name, values in each.items():
                found.setdefault(name, []).append(values)
    whole = {name: np.concatenate(values) for name, values in found.items()}
    is_ok = whole.pop("is ok")
    widths = whole.pop("width")
    means = {name: float(values.mean()) for name, values in whole.items()}
    for name in ("error", "error of log odds ratios"):
        means[name] = means[name] ** 0.5
    of_ok = float("nan")
    if is_ok.any():
        of_ok = float(whole["odds ratios"][is_ok].mean())
    return {
        "exact": " ".join(case.exact) or "number of people",
        "scale": case.scale,
        "effects": case.truth,
        **means,
        "standard error of log odds ratios": float(np.median(widths)) / (2 * QUANTILE),
        "ok": float(is_ok.mean()),
        "ok odds ratios": of_ok,
        "not trusted": not_trusted,
    }


def main() -> None:
    """Print a row a case."""
    parser = argparse.ArgumentParser(description="Intervals where margins are exact.")
    parser.add_argument("--releases", type=int, default=24)
    releases = parser.parse_args().releases
    warnings.simplefilter("ignore")
    found = pd.DataFrame([row(case, releases) for case in CASES])
    found.to_csv(sys.stdout, index=False, float_format="%.3g")


if __name__ == "__main__":
    main()
