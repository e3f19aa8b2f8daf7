"""Size and power of the tests of `bayesprivmrf.analysis` through the noise, by the warp-speed bootstrap.

Each replication draws a true distribution of the null hypothesis afresh, releases it with Laplace noise, and gives
one statistic of the release and one of a replicate of it. A size is the share of the first above the 0.95 quantile of
the second (Giacomini, Politis and White 2013). A row for each setting:

- ``size``: that size.
- ``size without the noise``: the same statistic of the noisy counts as if they were exact (Pearson's, for a test of
  independence), against the 0.95 quantile of its chi-square distribution.
- ``power``: against alternatives with log odds, or log ratios, of a standard deviation of 0.3.
- ``power of exact records``: that of the same statistic of counts without noise.

Settings that are in ``--out`` already are left out, so that a run goes on where it was stopped.

With `--draws` each replication is a whole test with as many replicates, as a user runs it, on a true hypothesis.
A row has the shares of rejections at the levels 0.05 and 0.1.

    OMP_NUM_THREADS=1 uv run python benchmarks/analysis_tests.py --replications 2000 --seed 2 --out tests.csv
    OMP_NUM_THREADS=1 uv run python benchmarks/analysis_tests.py --replications 200 --draws 999 --seed 41 \
        --kinds "independence, 2x2 in three strata" --settings 2000 1 --out whole.csv
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.linalg import block_diag
from scipy.stats import chi2

from bayesprivmrf.analysis._measured import TableNumbers
from bayesprivmrf.analysis._score import LogLinearNull, hierarchical_design
from bayesprivmrf.analysis.hypothesis_tests import bootstrapped
from bayesprivmrf.analysis.panels import ChainNull, EqualMargins, StepsChain
from bayesprivmrf.noise import DiscreteLaplace, NoNoise

RECORDS = (500, 2_000, 10_000)
EPSILONS = (0.1, 1.0, 10.0)
LEVEL = 0.05
SPREAD = 0.3  # of logarithms under the alternative
CONCENTRATION = 4.0  # of Dirichlet distributions
STAY = 0.4  # share of the records of a chain that stay in any case
SENSITIVITY = 2  # of one table, when one record is replaced


@dataclass(frozen=True)
class Kind:
    """A test, the tables that it reads, and the truths that it is tried on.

    Parameters
    ----------
    shape
        Shape of the joint table.
    scopes
        Axes of each released table; each has an equal part of epsilon.
    null
        Makes the null hypothesis from the released numbers.
    counts
        Draws counts of the joint table: records, standard deviation of the departure, generator.
    """

    shape: tuple[int, ...]
    scopes: tuple[tuple[int, ...], ...]
    null: Callable[[TableNumbers], Any]
    counts: Callable[[int, float, np.random.Generator], np.ndarray]


def hierarchical(shape, cliques):
    """Null hypothesis of a hierarchical log-linear model."""
    design = hierarchical_design(shape, cliques)
    return lambda measured: LogLinearNull(measured=measured, design=design)


def symmetric(states, measured):
    """Null hypothesis of a symmetric table."""
    rows, columns = np.triu_indices(states)
    design = np.zeros((states, states, len(rows)))
    design[rows, columns, np.arange(len(rows))] = 1.0
    design[columns, rows, np.arange(len(rows))] = 1.0
    return LogLinearNull(measured=measured, design=design.reshape(states**2, -1))


def sampled(records, shares, rng):
    """Counts of a simple random sample."""
    return rng.multinomial(records, (shares / shares.sum()).ravel())


def independent(shape, records, spread, rng):
    """Counts of tables of strata, rows and columns; the log odds ratios have a standard deviation of `spread`."""
    strata, rows, columns = shape
    one = rng.dirichlet(np.full(rows, CONCENTRATION), strata)
    other = rng.dirichlet(np.full(columns, CONCENTRATION), strata)
    table = one[..., :, np.newaxis] * other[..., np.newaxis, :]
    logs = np.zeros(shape)
    logs[:, 1:, 1:] = rng.normal(0, spread, logs[:, 1:, 1:].shape)
    table = table * np.exp(logs)
    return sampled(records, table / table.sum(axis=(1, 2), keepdims=True), rng)


def loglinear(shape, cliques, beyond, records, spread, rng):
    """Counts of a log-linear table, whose effects beyond its cliques have a standard deviation of `spread`."""
    inside = hierarchical_design(shape, cliques)[:, 1:]
    every = hierarchical_design(shape, beyond)[:, 1:]
    outside = every[:, ~(every.T[:, np.newaxis] == inside.T).all(axis=2).any(axis=1)]
    logs = inside @ rng.normal(0, 0.5, inside.shape[1])
    logs = logs + outside @ rng.normal(0, spread, outside.shape[1])
    return sampled(records, np.exp(logs), rng)


def mirrored(states, records, spread, rng):
    """Counts of a table that is symmetric but for log ratios with a standard deviation of `spread`."""
    shares = rng.dirichlet(np.full(states**2, CONCENTRATION)).reshape(states, states)
    shares = (shares + shares.T) * np.exp(rng.normal(0, spread, shares.shape))
    return sampled(records, shares, rng)


def walked(states, steps, is_level, records, spread, rng):
    """Counts of the steps of a chain; either its first state or its last transitions depart."""
    moves = STAY * np.eye(states) + (1 - STAY) * rng.dirichlet(
        np.full(states, CONCENTRATION), states
    )
    values, vectors = np.linalg.eig(moves.T)
    level = np.abs(np.real(vectors[:, np.argmax(np.real(values))]))
    last = moves
    if is_level:
        first = level * np.exp(rng.normal(0, spread, states))
    else:
        first = rng.dirichlet(np.full(states, CONCENTRATION))
        last = moves * np.exp(rng.normal(0, spread, moves.shape))
        last = last / last.sum(axis=1, keepdims=True)
    now = rng.multinomial(records, first / first.sum())
    found = []
    for own in [moves] * (steps - 1) + [last]:
        table = np.stack([rng.multinomial(one, row) for one, row in zip(now, own, strict=True)])
        found.append(table.ravel())
        now = table.sum(axis=0)
    return np.concatenate(found)


def independence(*shape):
    """Test of independence within strata in one table."""
    null = hierarchical(shape, [(0, 1), (0, 2)])
    return Kind(shape, ((0, 1, 2),), null, partial(independent, shape))


def fit(shape, cliques, beyond, scopes):
    """Test of fit of a log-linear model."""
    counts = partial(loglinear, shape, cliques, beyond)
    return Kind(shape, scopes, hierarchical(shape, cliques), counts)


PAIRS = ((0, 1), (0, 2), (1, 2))
PATH = ((0, 1), (1, 2), (2, 3))
STEPS = ((0, 1, 2),)
PANEL = (2, 3, 3)
FEW = ((2_000, 0.1), (2_000, 1.0), (10_000, 10.0))
ALL = tuple(product(RECORDS, EPSILONS))

KINDS = {
    "independence, 2x2": (independence(1, 2, 2), ALL),
    "independence, 3x4": (independence(1, 3, 4), ALL),
    "independence, 2x2 in three strata": (independence(3, 2, 2), ALL),
    "three groups, 2x3": (independence(1, 3, 6), ALL),
    "homogeneity, three times of three states": (
        Kind(
            PANEL,
            STEPS,
            lambda measured: EqualMargins(measured=measured),
            partial(walked, 3, 2, True),
        ),
        ALL,
    ),
    "equal odds ratios, 2x2 in three strata": (
        fit((3, 2, 2), PAIRS, ((0, 1, 2),), ((0, 1, 2),)),
        FEW,
    ),
    "fit of a path, tables of three of four variables": (
        fit((2, 2, 2, 2), PATH, ((0, 1, 2), (1, 2, 3)), ((0, 1, 2), (1, 2, 3))),
        FEW,
    ),
    "symmetry, 3x3": (
        Kind((3, 3), ((0, 1),), partial(symmetric, 3), partial(mirrored, 3)),
        FEW,
    ),
    "stationarity, three times of three states": (
        Kind(
            PANEL,
            STEPS,
            lambda measured: ChainNull(
                measured=measured, design=hierarchical_design(PANEL, [(0, 1), (1, 2)])
            ),
            partial(walked, 3, 2, False),
        ),
        FEW,
    ),
}


def template(kind, records, noise):
    """Released numbers of a test, whose counts are still to come."""
    cells = np.arange(np.prod(kind.shape)).reshape(kind.shape)
    rows = []
    for scope in kind.scopes:
        size = int(np.prod([kind.shape[axis] for axis in scope]))
        own = np.zeros(kind.shape, int)
        place = np.arange(size).reshape([kind.shape[axis] for axis in scope])
        own += place.reshape([n if axis in scope else 1 for axis, n in enumerate(kind.shape)])
        matrix = np.zeros((size, cells.size))
        matrix[own.ravel(), cells.ravel()] = 1.0
        rows.append(matrix)
    matrix = np.concatenate(rows)
    if kind.shape == PANEL:  # a table for each step
        matrix = block_diag(*[np.eye(9)] * 2)
        rows = [matrix[:9], matrix[9:]]
    return TableNumbers(
        variables=tuple(range(len(kind.shape))),
        shape=kind.shape,
        matrix=matrix,
        counts=np.zeros(len(matrix)),
        noise=(noise,) * len(rows),
        sizes=tuple(map(len, rows)),
        scopes=tuple(map(frozenset, kind.scopes)) * (len(rows) // len(kind.scopes)),
        possible=np.ones(cells.size, bool),
        total=records,
        is_simulated=True,
    )


def log_linear_statistics(null, noisy, rng, is_refitted):
    """Statistics of noisy numbers, and of a replicate of each, all at once."""
    measured = null.measured
    theta = null.estimates(noisy)
    means = null.means(theta)
    shares = means / means.sum(axis=1, keepdims=True)
    if isinstance(null, ChainNull):
        drawn = np.concatenate(
            [
                StepsChain.of(one.reshape(null.measured.shape), measured.total).drawn(1, rng)
                for one in shares
            ]
        )
    else:
        drawn = rng.multinomial(measured.total, shares)
    again = measured.perturbed(drawn.astype(float), rng)
    own = theta
    if is_refitted:
        own = null.estimates(again)
    return null.distances(noisy, theta), null.distances(again, own)


def statistics(kind, measured, spread, replications, rng, is_refitted):
    """Statistics of releases, of a replicate of each, of each as if it were exact, and of exact counts."""
    exact = replace(measured, noise=(NoNoise(),) * len(measured.noise))
    counts = np.array([kind.counts(measured.total, spread, rng) for _ in range(replications)])
    counts = counts.astype(float)
    noisy = measured.perturbed(counts, rng)
    naive = np.maximum(noisy, 0.0)
    true = counts @ measured.matrix.T
    null = kind.null(replace(measured, counts=noisy[0]))
    if isinstance(null, LogLinearNull):
        plain = kind.null(replace(exact, counts=naive[0]))
        own, again = log_linear_statistics(null, noisy, rng, is_refitted)
        as_exact = [plain.distances(each, plain.estimates(each)) for each in (naive, true)]
        return (own, again, *as_exact), null.degrees_of_freedom
    found = []
    for one, cut, right in zip(noisy, naive, true, strict=True):
        null = kind.null(replace(measured, counts=one))
        again = measured.perturbed(null.drawn(1, rng).astype(float), rng)
        plain = [kind.null(replace(exact, counts=each)).statistic for each in (cut, right)]
        found.append([null.statistic, null.statistics(again)[0], *plain])
    return np.array(found).T, null.degrees_of_freedom


def setting(kind, records, epsilon, replications, rng, is_refitted):
    """Size, size without the noise, power, and power of exact records, of one setting."""
    measured = released(kind, records, epsilon)
    (own, again, naive, _), df = statistics(kind, measured, 0.0, replications, rng, is_refitted)
    critical = np.quantile(again, 1 - LEVEL)
    nominal = chi2.ppf(1 - LEVEL, df)
    (other, _, _, true), _ = statistics(kind, measured, SPREAD, replications // 2, rng, False)
    return (
        (own > critical).mean(),
        (naive > nominal).mean(),
        (other > critical).mean(),
        (true > nominal).mean(),
    )


def released(kind, records, epsilon):
    """Released numbers of a test, whose counts are still to come."""
    tables = len(kind.scopes)
    if kind.shape == PANEL:
        tables = kind.shape[0]
    return template(kind, records, DiscreteLaplace(SENSITIVITY * tables / epsilon))


def whole(kind, measured, replications, draws, rng):
    """Shares of true hypotheses that whole tests reject at the level 0.05 and at twice that level."""
    found = []
    for _ in range(replications):
        counts = kind.counts(measured.total, 0.0, rng).astype(float)
        noisy = measured.perturbed(counts[np.newaxis], rng)[0]
        null = kind.null(replace(measured, counts=noisy))
        found.append(bootstrapped(null, "", draws, rng).p_value)
    return [(np.array(found) <= level).mean() for level in (LEVEL, 2 * LEVEL)]


COLUMNS = [
    "test",
    "records",
    "epsilon",
    "size",
    "size without the noise",
    "power",
    "power of exact records",
]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--replications", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("tests.csv"))
    parser.add_argument("--refit", action="store_true", help="estimate each replicate anew")
    parser.add_argument("--kinds", nargs="*", default=list(KINDS))
    parser.add_argument("--draws", type=int, help="replicates of whole tests")
    parser.add_argument("--settings", type=float, nargs=2, help="one setting: records and epsilon")
    arguments = parser.parse_args()
    columns = COLUMNS
    if arguments.draws:
        columns = [*COLUMNS[:3], "rejected at 0.05", "rejected at 0.1"]
    done = pd.DataFrame(columns=columns)
    if arguments.out.exists():
        done = pd.read_csv(arguments.out)
    for place, (name, (kind, settings)) in enumerate(KINDS.items()):
        for records, epsilon in settings:
            is_done = (done[COLUMNS[:3]] == [name, records, epsilon]).all(axis=1).any()
            is_asked = arguments.settings in (None, [records, epsilon])
            if is_done or not is_asked or name not in arguments.kinds:
                continue
            rng = np.random.default_rng([arguments.seed, place, records, int(10 * epsilon)])
            replications = arguments.replications
            if arguments.draws:
                measured = released(kind, records, epsilon)
                figures = whole(kind, measured, replications, arguments.draws, rng)
            else:
                figures = setting(kind, records, epsilon, replications, rng, arguments.refit)
            row = pd.DataFrame([[name, records, epsilon, *figures]], columns=columns).round(4)
            row.to_csv(arguments.out, mode="a", header=not arguments.out.exists(), index=False)


if __name__ == "__main__":
    main()
