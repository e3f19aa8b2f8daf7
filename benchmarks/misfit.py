"""Shares of wrong and of right models that a fit rejects, by estimator and family of models.

For each family a population departs from the model along a random direction, as far as makes the mean of the misfit
0, 2, 4 or 8 of its standard deviations. That is found by the misfit of the population's expected tables, without
sampling or noise. Then records are drawn, and noise is added.

    python -m benchmarks.misfit --repeats 100 > benchmarks/results/misfit.csv

Columns: family, records, noise scale, estimator, misfit in standard deviations, fits, share that is "not trusted" for
the misfit.
"""

from __future__ import annotations

import argparse
import csv
import sys
import warnings
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
from scipy.optimize import brentq

import bayesprivmrf as bpm
from bayesprivmrf import queries as q
from bayesprivmrf.inference.criticism.noise_misfit import SMALLEST_MISFIT_TAIL
from bayesprivmrf.noise import Laplace
from bayesprivmrf.release import Measurement, NoisyStatistics

TIMES = ("x1", "x2", "x3", "x4", "x5")
STATES = ["u", "v", "w"]
PAIRS = tuple(pairwise(TIMES))
SETTINGS = ((500, 2.0), (5000, 2.0), (5000, 20.0))
POINT = (bpm.NaiveMLE(), bpm.CGM(), bpm.NoiseAwareMAP())


class Family:
    """A model, the tables that are measured, and a population some way off the model."""

    def __init__(
        self,
        network: object,
        scopes: Sequence[tuple[str, ...]],
        joint: Callable[[float], Sequence[np.ndarray]],
        variables: Sequence[str],
    ) -> None:
        self.network, self.scopes, self.joint, self.variables = (
            network,
            scopes,
            joint,
            list(variables),
        )

    def releases(
        self, size: float, records: int, scale: float, rng: np.random.Generator | None
    ) -> list[NoisyStatistics]:
        """Releases of drawn records, or without `rng` the tables expected of them; one a wave."""
        found = []
        for wave, law in enumerate(self.joint(size)):
            own = records + wave * records // 5
            if rng is None:
                counts = own * law
            else:
                counts = rng.multinomial(own, law.ravel()).reshape(law.shape)
            given = []
            for scope in self.scopes:
                axes = tuple(k for k, name in enumerate(self.variables) if name not in scope)
                table = counts.sum(axis=axes).ravel()
                if rng is not None:
                    table = table + np.rint(rng.laplace(scale=scale, size=table.size))
                given.append(Measurement(q.table(*scope), table, Laplace(scale)))
            found.append(NoisyStatistics.from_measurements(self.network, given))
        return found

    def fit(self, estimator: object, releases: list[NoisyStatistics], **settings: object) -> object:
        """The fit, without its warnings."""
        if len(releases) > 1:
            population = "waves"
        else:
            population = "one"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return estimator.fit(releases, population=population, **settings)


def normalized(logs: np.ndarray) -> np.ndarray:
    law = np.exp(logs - logs.max())
    return law / law.sum()


def transitions(seed: int) -> Family:
    rng = np.random.default_rng(seed)
    base = rng.normal(size=(3, 3)) + 1.5 * np.eye(3)
    drift = rng.normal(size=(4, 3, 3))

    def joint(size: float) -> list[np.ndarray]:
        law = np.array([0.5, 0.3, 0.2])
        for step in range(4):
            rows = np.exp(base + size * drift[step])
            law = law[..., None] * (rows / rows.sum(axis=1, keepdims=True))
        return [law]

    return Family(bpm.markov_chain(STATES, 5, share="transitions"), PAIRS, joint, TIMES)


def potentials(seed: int) -> Family:
    rng = np.random.default_rng(seed)
    base = rng.normal(size=(3, 3)) + np.eye(3)
    drift = rng.normal(size=(4, 3, 3))

    def joint(size: float) -> list[np.ndarray]:
        logs = np.zeros((3,) * 5)
        for step in range(4):
            shape = [1] * 5
            shape[step : step + 2] = 3, 3
            logs = logs + (base + size * drift[step]).reshape(shape)
        return [normalized(logs)]

    return Family(bpm.markov_chain(STATES, 5), PAIRS, joint, TIMES)


def scores(seed: int) -> Family:
    rng = np.random.default_rng(seed)
    base = 0.7 * np.multiply.outer(np.linspace(-1, 1, 4), np.linspace(-1, 1, 4))
    sides = rng.normal(size=(2, 4)) / 2
    drift = rng.normal(size=(4, 4))
    network = bpm.declare(
        {"a": [1, 2, 3, 4], "b": [1, 2, 3, 4]}, cliques=[("a", "b")], ordinal=["a", "b"]
    )

    def joint(size: float) -> list[np.ndarray]:
        return [normalized(base + sides[0][:, None] + sides[1] + size * drift)]

    return Family(network, [("a", "b")], joint, "ab")


def waves(seed: int) -> Family:
    rng = np.random.default_rng(seed)
    base = rng.normal(size=(3, 3, 2)) / 2
    drift = rng.normal(size=(3, 3, 3, 2))
    network = bpm.declare({"a": STATES, "b": STATES, "c": [0, 1]}, cliques=[("a", "b"), ("b", "c")])
    pairs = base.mean(axis=2, keepdims=True) + base.mean(axis=0, keepdims=True)

    def joint(size: float) -> list[np.ndarray]:
        return [normalized(pairs + size * one.mean(axis=2, keepdims=True)) for one in drift]

    return Family(network, [("a", "b"), ("b", "c")], joint, "abc")


FAMILIES = {
    "shared transitions": transitions,
    "tied potentials": potentials,
    "linear scores": scores,
    "waves": waves,
}


def size_of(family: Family, records: int, scale: float, wanted: float) -> float:
    """Return the distance of the population from the model at which its expected misfit has a given size."""

    def misfit(size: float) -> float:
        return family.fit(
            bpm.NaiveMLE(ridge=1e-9), family.releases(size, records, scale, None)
        ).stats["misfit"]

    low = 0.0
    high = 0.01
    start = misfit(0.0)
    while (reached := misfit(high) - start) < wanted:
        low = high
        high = 2 * high
        if high > 20:
            return float("nan")
    if low == 0.0:
        # it grows with the square of a small distance
        return float(high * np.sqrt(wanted / reached))
    return brentq(lambda size: misfit(size) - start - wanted, low, high, rtol=0.01)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=200)
    parser.add_argument("--posteriors", type=int, default=0)
    parser.add_argument("--families", nargs="*", default=[*FAMILIES])
    parser.add_argument(
        "--settings", type=int, default=len(SETTINGS), help="how many of them, the first ones"
    )
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    writer = csv.writer(sys.stdout)
    writer.writerow(["family", "records", "scale", "estimator", "misfit", "fits", "caught"])
    estimators = [(one, {}, given.repeats) for one in POINT]
    estimators.append((bpm.LatentCounts(), {"draws": 300, "chains": 2}, given.posteriors))
    for name in given.families:
        for records, scale in SETTINGS[: given.settings]:
            populations = [FAMILIES[name](given.seed + k) for k in range(10)]
            for wanted in (0, 2, 4, 8):
                sizes = [
                    size_of(each, records, scale, wanted) if wanted else 0.0 for each in populations
                ]
                for estimator, settings, repeats in estimators:
                    if name == "shared transitions" and isinstance(estimator, bpm.CGM):
                        continue
                    caught = []
                    for k in range(repeats):
                        rng = np.random.default_rng([given.seed, k])
                        family = populations[k % 10]
                        size = sizes[k % 10]
                        if not np.isfinite(size):
                            continue
                        own = settings and {**settings, "rng": k}
                        found = family.fit(
                            estimator, family.releases(size, records, scale, rng), **own
                        )
                        caught.append(found.stats["misfit_tail"] < SMALLEST_MISFIT_TAIL)
                    if caught:
                        row = [name, records, scale, estimator.method, wanted, len(caught)]
                        writer.writerow([*row, f"{np.mean(caught):.3f}"])
                        sys.stdout.flush()


if __name__ == "__main__":
    main()
