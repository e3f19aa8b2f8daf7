"""Shares of wrong and of right releases, and of wrong settings, that a fit does not trust.

Each case draws a population, its records and noisy tables, of which something is wrong: the noise is not as stated,
or the estimator has a setting that the release contradicts. The case "right" has nothing wrong; its releases are
spread over models, numbers of records from 10 to a million, noise and estimators.

    python -m benchmarks.wrong_releases > benchmarks/results/wrong-releases.csv

Columns: case, model, estimator, releases, accused (share of fits with a problem, but for releases whose number of
records may be zero), falsely (number of accused fits with nothing wrong whose estimate is within four deviations of
noise and sampling of the truth in every cell), silent (number of fits that are trusted although fewer than 0.8 of
their unmarked rows hold), held (share of unmarked rows of trusted fits whose 90 percent interval holds the truth;
without intervals, of cells within 1.645 deviations of noise and sampling), chi_square (share that a chi-squared test
at size 0.001 rejects, which knows what is compared; empty without one).
"""

from __future__ import annotations

import argparse
import csv
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np
from scipy.special import chdtrc

import bayesprivmrf as bpm
from bayesprivmrf.noise import DiscreteGaussian, DiscreteLaplace, Gaussian, Laplace

Tables = dict[tuple[str, ...], np.ndarray]

# size of the chi-squared tests that the detection is compared with
SIZE = 0.001
# share of unmarked rows below which a trusted fit counts as silent
SILENT = 0.8
# simulated right releases of that test
RIGHT = 20_000
# deviations from the truth up to which an estimate is right, in every cell
FAR = 4.0
# beginning of the problem of releases that are all noise, which is no accusation
MAY_BE_NONE = "the number of records may be zero"
# half width of a normal 90 percent interval, standard deviations
HALF = 1.645


@dataclass(frozen=True)
class Model:
    """Cliques, numbers of states, and the strength of the interactions, nats."""

    cliques: tuple[tuple[str, ...], ...]
    states: dict[str, int]
    strength: float = 0.7

    @property
    def network(self) -> object:
        return bpm.declare({v: list(range(k)) for v, k in self.states.items()}, list(self.cliques))

    def joint(self, rng: np.random.Generator) -> np.ndarray:
        """Probabilities of all joint states, an axis for each variable."""
        names = list(self.states)
        logs = np.zeros(tuple(self.states.values()))
        for clique in self.cliques:
            shape = [self.states[v] if v in clique else 1 for v in names]
            logs = logs + self.strength * rng.normal(size=shape)
        law = np.exp(logs - logs.max())
        return law / law.sum()

    def margins(self, joint: np.ndarray) -> Tables:
        """The tables of the cliques."""
        names = list(self.states)
        return {
            clique: joint.sum(axis=tuple(k for k, v in enumerate(names) if v not in clique))
            for clique in self.cliques
        }


def pairs(text: str) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(each) for each in text.split())


def grid() -> Model:
    names = [[f"g{i}{j}" for j in range(4)] for i in range(3)]
    along = [(names[i][j], names[i][j + 1]) for i in range(3) for j in range(3)]
    down = [(names[i][j], names[i + 1][j]) for i in range(2) for j in range(4)]
    return Model((*along, *down), {v: 2 for row in names for v in row}, 1.0)


MODELS = {
    "tree": Model(pairs("ab bc bd"), {"a": 3, "b": 2, "c": 3, "d": 2}),
    "cycle": Model(pairs("ab bc cd ad"), {"a": 3, "b": 2, "c": 3, "d": 2}),
    "shared margins": Model(pairs("abc bcd bce"), {"a": 2, "b": 3, "c": 3, "d": 2, "e": 2}),
    "one state": Model(pairs("ab bc"), {"a": 8, "b": 1, "c": 3}),
    "large table": Model(pairs("ab"), {"a": 10, "b": 10}, 2.5),
    "grid": grid(),
}
ESTIMATORS = (bpm.NoiseAwareMAP(), bpm.NaiveMLE(), bpm.CGM())


@dataclass(frozen=True)
class Case:
    """What is wrong: the noise that is drawn and changed, and the noise that is stated.

    Parameters
    ----------
    model, records
        The name of the model, and the number of records.
    noise, drawn
        The stated distribution, and the one that is drawn.
    change
        What happens to noisy tables before they are published.
    estimators
        The estimators, each with its own row.
    drift
        Standard deviation of what the potentials of a second and a third wave differ by, nats; 0 for one wave.
    """

    model: str
    records: int
    noise: object
    drawn: object
    change: Callable[[np.ndarray], np.ndarray] = np.asarray
    estimators: Sequence[object] = field(default=(bpm.NoiseAwareMAP(),))
    drift: float = 0.0


def rounded(base: int) -> Callable[[np.ndarray], np.ndarray]:
    return lambda table: base * np.rint(table / base)


def clipped(table: np.ndarray) -> np.ndarray:
    return np.maximum(table, 0.0)


WRONG = {
    "scale=.01": Case(
        "tree", 2000, Laplace(2.0), Laplace(2.0), estimators=[bpm.NoiseAwareMAP(scale=0.01)]
    ),
    "ridge=2": Case("tree", 2000, Laplace(2.0), Laplace(2.0), estimators=[bpm.NaiveMLE(ridge=2)]),
    "tolerance=1e308": Case(
        "tree",
        2000,
        Laplace(2.0),
        Laplace(2.0),
        estimators=[bpm.NaiveMLE(tolerance=1e308), bpm.NoiseAwareMAP(tolerance=1e308)],
    ),
    "loopy on a grid": Case(
        "grid", 20_000, Laplace(2.0), Laplace(2.0), estimators=[bpm.CGM(inference="loopy")]
    ),
    "clipped at 0": Case("large table", 300, Laplace(5.0), Laplace(5.0), clipped, ESTIMATORS),
    "clipped at 0, whole": Case(
        "large table", 300, DiscreteLaplace(5.0), DiscreteLaplace(5.0), clipped
    ),
    "clipped at 0, normal": Case("large table", 300, Gaussian(5.0), Gaussian(5.0), clipped),
    "rounded to 100": Case(
        "tree", 20_000, Laplace(1.0), Laplace(1.0), rounded(100), estimators=ESTIMATORS
    ),
    "rounded to 10, whole": Case(
        "large table", 5000, DiscreteLaplace(1.0), DiscreteLaplace(1.0), rounded(10)
    ),
    "noise three times as large": Case("shared margins", 5000, Laplace(5.0), Laplace(15.0)),
    "noise three times as large, cycle": Case("cycle", 5000, Laplace(5.0), Laplace(15.0)),
    "noise three times as large, normal": Case(
        "shared margins", 5000, Gaussian(5.0), Gaussian(15.0)
    ),
    "noise three times as large, sparse": Case("large table", 300, Laplace(5.0), Laplace(15.0)),
    "waves drift by 0.1": Case("tree", 3000, Laplace(2.0), Laplace(2.0), drift=0.1),
    "waves drift by 0.2": Case("tree", 3000, Laplace(2.0), Laplace(2.0), drift=0.2),
    "waves drift by 0.4": Case("tree", 3000, Laplace(2.0), Laplace(2.0), drift=0.4),
}
SIZES = (10, 100, 1000, 10_000, 100_000, 1_000_000)
LAWS = (
    Laplace(1.0),
    DiscreteLaplace(2.0),
    DiscreteGaussian(3.0),
    Gaussian(10.0),
    DiscreteLaplace(20.0),
)


@dataclass
class Drawn:
    """Releases of one case, the true probabilities, and the p-value of the test that knows what is compared."""

    releases: list[object]
    truth: Tables
    deviations: Tables
    tail: float = float("nan")


def drawn(case: Case, rng: np.random.Generator) -> Drawn:
    """Draw the population, the records and the noise of a case."""
    model = MODELS[case.model]
    first = model.joint(rng)
    joints = [first]
    for _ in range(2 if case.drift else 0):
        change = np.exp(case.drift * rng.normal(size=first.shape))
        joints.append(first * change / (first * change).sum())
    releases, published = [], []
    for joint in joints:
        counts = rng.multinomial(case.records, joint.ravel()).reshape(joint.shape)
        tables = {
            clique: case.change(table + case.drawn.draw(table.shape, rng))
            for clique, table in model.margins(counts).items()
        }
        published.append(tables)
        releases.append(bpm.NoisyStatistics.from_tables(model.network, tables, noise=case.noise))
    truth = model.margins(np.mean(joints, axis=0))
    total = case.records * len(joints)
    deviations = {
        clique: np.sqrt(total * law * (1 - law) + len(joints) * case.noise.variance) / total
        for clique, law in truth.items()
    }
    if case.drift:
        tail = homogeneity(published, truth, case)
    else:
        tail = contrasts(published[0], case)
    return Drawn(releases, truth, deviations, tail)


def homogeneity(published: list[Tables], truth: Tables, case: Case) -> float:
    """P-value that the waves' tables differ by no more than sampling and noise, of the first clique."""
    clique = next(iter(truth))
    law = truth[clique].ravel()
    tables = np.array([tables[clique].ravel() for tables in published])
    one = case.records * (np.diag(law) - np.outer(law, law)) + case.noise.variance * np.eye(
        law.size
    )
    root = np.linalg.cholesky(one)
    strains = np.linalg.solve(root, (tables - tables.mean(axis=0)).T)
    return float(chdtrc((len(tables) - 1) * law.size, float(np.square(strains).sum())))


def contrasts(tables: Tables, case: Case) -> float:
    """P-value of what two tables say of each variable they share, by a chi-squared test; NaN if none is shared."""
    model = MODELS[case.model]
    values = []
    for one, other in product(tables, tables):
        shared = tuple(v for v in one if v in other)
        if one >= other or not shared:
            continue
        sums, cells = [], []
        for clique in (one, other):
            axes = tuple(k for k, v in enumerate(clique) if v not in shared)
            kept = [v for v in clique if v in shared]
            table = tables[clique].sum(axis=axes)
            sums.append(np.moveaxis(table, range(len(kept)), [shared.index(v) for v in kept]))
            cells.append(np.prod([model.states[v] for v in clique if v not in shared]))
        values.append((sums[0] - sums[1]).ravel() ** 2 / (case.noise.variance * sum(cells)))
    if not values:
        return float("nan")
    flat = np.concatenate(values)
    return float(chdtrc(flat.size, flat.sum()))


def fit(estimator: object, releases: list[object]) -> object:
    """The fit, without its warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if len(releases) > 1:
            return estimator.fit(releases, population="waves")
        return estimator.fit(releases)


def held(found: object, data: Drawn) -> np.ndarray:
    """Return for each unmarked row whether it holds the truth."""
    inside = []
    for clique, law in data.truth.items():
        if found.method == bpm.NoiseAwareMAP.method:
            frame = found.interval(list(clique))
            is_told = (frame["status"] == "ok").to_numpy()
            is_in = (frame["lower"] <= law.ravel()) & (law.ravel() <= frame["upper"])
            inside.append(is_in.to_numpy()[is_told])
        else:
            own = found.marginal(list(clique)).to_numpy()
            inside.append((np.abs(own - law) <= HALF * data.deviations[clique]).ravel())
    return np.concatenate(inside)


def distance(found: object, data: Drawn) -> float:
    """Largest distance of the estimate from the truth, in deviations of noise and sampling."""
    return max(
        float(
            (np.abs(found.marginal(list(clique)).to_numpy() - law) / data.deviations[clique]).max()
        )
        for clique, law in data.truth.items()
    )


@dataclass
class Tally:
    """Counts of one row of the result."""

    releases: int = 0
    accused: int = 0
    falsely: int = 0
    silent: int = 0
    rejected: int = 0
    is_tested: bool = False
    inside: list[np.ndarray] = field(default_factory=list)

    def add(self, estimator: object, data: Drawn) -> None:
        found = fit(estimator, data.releases)
        self.releases += 1
        if np.isfinite(data.tail):
            self.is_tested = True
            self.rejected += data.tail < SIZE
        if any(not problem.startswith(MAY_BE_NONE) for problem in found.problems):
            self.accused += 1
            self.falsely += distance(found, data) <= FAR
            return
        if found.status.value == "not trusted":
            return
        inside = held(found, data)
        self.inside.append(inside)
        self.silent += inside.size > 0 and inside.mean() < SILENT

    def row(self) -> list[object]:
        inside = np.concatenate([np.zeros(0), *self.inside])
        share = f"{inside.mean():.3f}" if inside.size else ""
        power = f"{self.rejected / self.releases:.2f}" if self.is_tested else ""
        accused = f"{self.accused / self.releases:.3f}"
        return [self.releases, accused, self.falsely, self.silent, share, power]


def right(seed: int, number: int) -> dict[tuple[str, str], Tally]:
    """Tallies of releases with nothing wrong, by model and estimator, whose records may be counted."""
    names = [name for name in MODELS if name != "grid"]
    found: dict[tuple[str, str], Tally] = {}
    for k in range(number):
        rng = np.random.default_rng([seed, 1, k])
        name = names[k % len(names)]
        size = SIZES[k // len(names) % len(SIZES)]
        law = LAWS[rng.integers(len(LAWS))]
        estimator = ESTIMATORS[rng.integers(len(ESTIMATORS))]
        data = drawn(Case(name, size, law, law), rng)
        key = (name, estimator.method)
        found.setdefault(key, Tally()).add(estimator, data)
    return found


def power_of_contrasts(case: Case, seed: int) -> tuple[float, float]:
    """Return the size of the chi-squared test at its nominal size, and its power at the true size `SIZE`."""
    model = MODELS[case.model]

    def tails(law: object, repeats: int, rng: np.random.Generator) -> np.ndarray:
        found = []
        for _ in range(repeats):
            counts = model.margins(case.records * model.joint(rng))
            noisy = {clique: table + law.draw(table.shape, rng) for clique, table in counts.items()}
            found.append(contrasts(noisy, case))
        return np.array(found)

    right_tails = tails(case.noise, RIGHT, np.random.default_rng([seed, 2]))
    wrong_tails = tails(case.drawn, RIGHT // 5, np.random.default_rng([seed, 3]))
    critical = np.quantile(right_tails, SIZE)
    return float((right_tails < SIZE).mean()), float((wrong_tails < critical).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=20, help="releases of each wrong case")
    parser.add_argument("--right", type=int, default=400, help="releases with nothing wrong")
    parser.add_argument("--cases", nargs="*", default=[*WRONG])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--power", help="case whose chi-squared test is simulated, alone")
    given = parser.parse_args()
    if given.power:
        size, power = power_of_contrasts(WRONG[given.power], given.seed)
        print(f"size of the chi-squared test {size:.4f}, power at a size of {SIZE} {power:.3f}")
        return
    writer = csv.writer(sys.stdout)
    head = ["case", "model", "estimator", "releases", "accused", "falsely"]
    head += ["silent", "held", "chi_square"]
    writer.writerow(head)
    for place, name in enumerate(WRONG):
        if name not in given.cases:
            continue
        case = WRONG[name]
        for estimator in case.estimators:
            tally = Tally()
            for k in range(given.repeats):
                tally.add(estimator, drawn(case, np.random.default_rng([given.seed, 0, place, k])))
            row = tally.row()
            row[2] = ""  # something is wrong with each
            writer.writerow([name, case.model, estimator.method, *row])
            sys.stdout.flush()
    for (model, method), tally in sorted(right(given.seed, given.right).items()):
        writer.writerow(["right", model, method, *tally.row()])


if __name__ == "__main__":
    main()
