"""Size and power of the tests of independence through the noise, beside those of three papers on the same tables.

The rivals are written afresh. Those of the first two papers follow descriptions of these tests, without the authors'
code. That of the third follows the code, because the text was not at hand.

- Gaboardi, Lim, Rogers and Vadhan (2016): Pearson's statistic of the noisy counts at the two-step estimate, with
  replicates of sampling and noise (their Monte Carlo test). Nothing is rejected if an expected count is at most 5.
- Kifer and Rogers (2017): the projected minimum chi-square statistic, whose covariance has the noise in it, against
  replicates, or against its chi-square distribution. Nothing is rejected if an expected count is at most 5.
- Romanus, Boulaguiem and Molinari (2025, FIMA, arXiv 2507.11762): Pearson's statistic of the noisy counts, cut at 0
  and raised by a half, against counts that are drawn from fiducial margins. A margin is the noisy one less fresh
  noise, taken through the beta distribution of its binomial. This is `fima_chi2` of the package in
  RobMoLab/Differential-Privacy-Project (d4546a7c), but for one thing: it takes from a margin of rows as many noises
  as there are rows, and here it is as many as there are columns. The simulations in that repository have another
  test, ``FIMA, as in its simulations``: margins keep their noise, empty cells alone are raised, and counts that are
  drawn are cut at 0 as well.

The papers test two variables. In strata the first and the third sum the statistics of the strata, and the second fits
the model of conditional independence, which its general theorem covers. Each replication draws a true distribution
afresh. FIMA has its own p-value, by 199 replicates of each release. All other tests with replicates are judged by the
warp-speed bootstrap (Giacomini, Politis and White 2013): one replicate for each release, and the 0.95 quantile of all
replicates. ``ours, N private`` has noise for add-or-remove neighbors, and
replicates of the estimated number of records. ``no noise`` is our statistic of the exact counts against its
chi-square distribution.

    OMP_NUM_THREADS=1 uv run python benchmarks/rivals_of_tests.py --replications 1000 --seed 31 --out rivals.csv
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import sys
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import chi2

sys.path.insert(0, str(Path(__file__).parent))
from analysis_tests import EPSILONS, LEVEL, RECORDS, SENSITIVITY, SPREAD, independence, template

from bayesprivmrf.analysis._score import hierarchical_design
from bayesprivmrf.noise import DiscreteLaplace, NoNoise

SHAPES = {"2x2": (1, 2, 2), "3x4": (1, 3, 4), "2x2 in three strata": (3, 2, 2)}
FEWEST = 5.0  # expected records of a cell at or below which the rivals do not reject
SEARCH = 30  # steps of the minimum chi-square estimate
LONGEST = 1.0  # largest change of a log probability in such a step
LEAST = 1e-6  # smallest probability of a state
FIDUCIAL = 199  # replicates of each release in FIMA
HALF = 0.5  # records that FIMA adds to counts
COLUMNS = ["table", "records", "epsilon", "test", "size", "power"]


@dataclass(frozen=True)
class Judged:
    """Statistics of releases and of one replicate of each, and whether a release can be rejected at all."""

    own: np.ndarray
    again: np.ndarray
    is_free: np.ndarray | bool = True

    def rejected(self, critical=None):
        """Share of rejected releases, against the quantile of the replicates unless a critical value is given."""
        if critical is None:
            critical = np.quantile(self.again, 1 - LEVEL)
        return float(((self.own > critical) & self.is_free).mean())


def on_simplex(counts, total):
    """Nearest counts that are not negative and have the right sum, shape (releases, cells)."""
    falling = -np.sort(-counts, axis=1)
    places = np.arange(1, counts.shape[1] + 1)
    shifts = (np.cumsum(falling, axis=1) - total) / places
    last = (falling > shifts).sum(axis=1) - 1
    shift = np.take_along_axis(shifts, last[:, np.newaxis], axis=1)
    return np.maximum(counts - shift, 0.0)


def independent_counts(counts, shape):
    """Expected counts of conditional independence with the margins of some counts, shape (releases, cells)."""
    table = counts.reshape(-1, *shape)
    rows = table.sum(axis=3, keepdims=True)
    columns = table.sum(axis=2, keepdims=True)
    sums = np.maximum(table.sum(axis=(2, 3), keepdims=True), LEAST)
    return (rows * columns / sums).reshape(len(counts), -1)


def perturbed(expected, total, noise, rng):
    """Noisy counts of a sample of each distribution."""
    drawn = rng.multinomial(total, expected / expected.sum(axis=1, keepdims=True))
    return drawn + noise.draw(drawn.shape, rng)


def gaboardi(noisy, total, shape):
    """Pearson's statistic of noisy counts, and the counts that the two-step estimate expects."""
    expected = independent_counts(on_simplex(noisy, total), shape)
    own = np.maximum(expected, LEAST)
    return (np.square(noisy - own) / own).sum(axis=1), expected


def kifer(noisy, total, shape, noise):
    """Projected minimum chi-square statistic, and the counts at its minimum."""
    cells = noisy.shape[1]
    shares = noisy / total
    start = independent_counts(on_simplex(noisy, total), shape) / total
    start = np.maximum(start, LEAST)
    start = start / start.sum(axis=1, keepdims=True)
    spread = covariance(start) + noise.variance / total * np.eye(cells)
    off = np.eye(cells) - 1 / cells
    weight = off @ np.linalg.inv(spread) @ off
    design = hierarchical_design(shape, [(0, 1), (0, 2)])[:, 1:]
    theta = np.log(start) @ np.linalg.pinv(np.column_stack([np.ones(cells), design])).T[:, 1:]
    best = np.full(len(noisy), np.inf)
    fitted = start
    for _ in range(SEARCH):
        weights = np.exp(theta @ design.T)
        now = weights / weights.sum(axis=1, keepdims=True)
        left = shares - now
        value = total * np.einsum("ri,rij,rj->r", left, weight, left)
        fitted = np.where((value < best)[:, np.newaxis], now, fitted)
        best = np.minimum(value, best)
        along = covariance(now) @ design
        turned = np.swapaxes(along, 1, 2) @ weight
        gram = turned @ along
        ridge = LEAST * np.trace(gram, axis1=1, axis2=2) / gram.shape[1]
        gram = gram + ridge[:, np.newaxis, np.newaxis] * np.eye(gram.shape[1])
        step = np.linalg.solve(gram, turned @ left[..., np.newaxis])[..., 0]
        theta = theta + np.clip(step, -LONGEST, LONGEST)
    return best, fitted * total


def covariance(shares):
    """Covariance of one record's cell, shape (releases, cells, cells)."""
    return shares[:, :, np.newaxis] * (np.eye(shares.shape[1]) - shares[:, np.newaxis, :])


def ours(null, noisy, totals, rng):
    """Our statistic of noisy counts, and of one replicate of each with some number of records."""
    theta = null.estimates(noisy)
    means = null.means(theta)
    drawn = rng.multinomial(totals, means / means.sum(axis=1, keepdims=True))
    again = null.measured.perturbed(drawn.astype(float), rng)
    return Judged(null.distances(noisy, theta), null.distances(again, theta))


def summed_pearson(tables):
    """Pearson's statistic of tables of strata, rows and columns, summed over the strata, shape (...,)."""
    rows = tables.sum(axis=-1, keepdims=True)
    columns = tables.sum(axis=-2, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):  # replicates of FIMA may have margins of 0
        expected = rows * columns / tables.sum(axis=(-2, -1), keepdims=True)
        return (np.square(tables - expected) / expected).sum(axis=(-3, -2, -1))


def counts_of_margins(rows, columns, total, rng):
    """Counts of tables with independent rows and columns in strata, from shares (replicates, strata, states)."""
    strata = rows.sum(axis=-1)[..., np.newaxis, np.newaxis]
    joint = rows[..., np.newaxis] * columns[..., np.newaxis, :] / strata
    flat = joint.reshape(len(joint), -1)
    drawn = rng.multinomial(total, flat / flat.sum(axis=1, keepdims=True))
    return drawn.reshape(joint.shape)


def fiducial(margin, summands, total, noise, rng):
    """Fiducial draws of the shares of a margin whose noise has some summands, shape (replicates, strata, states)."""
    drawn = noise.draw((FIDUCIAL, *margin.shape, summands), rng).sum(axis=-1)
    counts = margin - drawn
    inside = np.clip(counts, 0.0, total)
    shares = rng.beta(inside + HALF, total - inside + HALF)
    shares[counts <= 0] = LEAST
    shares[counts >= total] = 1 - LEAST
    return shares


def fima(noisy, total, noise, rng):
    """P-value of FIMA for a noisy table of strata, rows and columns."""
    own = np.maximum(noisy, 0.0) + HALF
    _, rows, columns = own.shape
    shares = (
        fiducial(own.sum(axis=2), columns, total, noise, rng),
        fiducial(own.sum(axis=1), rows, total, noise, rng),
    )
    counts = counts_of_margins(*shares, total, rng) + HALF
    again = summed_pearson(counts + noise.draw(counts.shape, rng))
    return (1 + (again >= summed_pearson(own)).sum()) / (1 + FIDUCIAL)


def filled(tables):
    """Counts cut at 0, with half a record in the cells that are then empty."""
    return np.where(tables > 0, tables, HALF)


def simulated_fima(noisy, noise, rng):
    """P-value of the test in FIMA's simulations for a noisy table of strata, rows and columns."""
    own = filled(noisy)
    total = own.sum()
    shares = []
    for axis in (2, 1):
        margin = own.sum(axis=axis)
        shares.append(rng.beta(margin + HALF, total - margin + HALF, (FIDUCIAL, *margin.shape)))
    counts = filled(counts_of_margins(*shares, int(total), rng))
    again = summed_pearson(filled(counts + noise.draw(counts.shape, rng)))
    return (again >= summed_pearson(own)).mean()


def rejections(shape, records, epsilon, spread, replications, rng):
    """Share of rejected releases by each test."""
    kind = independence(*shape)
    noise = DiscreteLaplace(SENSITIVITY / epsilon)
    measured = template(kind, records, noise)
    counts = np.array([kind.counts(records, spread, rng) for _ in range(replications)])
    noisy = measured.perturbed(counts.astype(float), rng)
    null = kind.null(replace(measured, counts=noisy[0]))
    nominal = chi2.ppf(1 - LEVEL, null.degrees_of_freedom)
    found = {"ours": ours(null, noisy, records, rng).rejected()}

    private = replace(measured, noise=(DiscreteLaplace(1 / epsilon),))
    hidden = private.perturbed(counts.astype(float), rng)
    totals = np.maximum(np.rint(hidden.sum(axis=1)), 1).astype(int)
    own = kind.null(replace(private, counts=hidden[0]))
    found["ours, N private"] = ours(own, hidden, totals, rng).rejected()

    values, expected = gaboardi(noisy, records, shape)
    again = gaboardi(perturbed(expected, records, noise, rng), records, shape)[0]
    is_free = (expected > FEWEST).all(axis=1)
    found["Gaboardi et al."] = Judged(values, again, is_free).rejected()
    found["Gaboardi et al., rule of 5 left out"] = Judged(values, again).rejected()

    values, expected = kifer(noisy, records, shape, noise)
    again = kifer(perturbed(expected, records, noise, rng), records, shape, noise)[0]
    is_free = (expected > FEWEST).all(axis=1)
    judged = Judged(values, again, is_free)
    found["Kifer and Rogers"] = judged.rejected()
    found["Kifer and Rogers, rule of 5 left out"] = Judged(values, again).rejected()
    found["Kifer and Rogers, chi-square"] = judged.rejected(nominal)

    tables = noisy.reshape(-1, *shape)
    p_values = [fima(table, records, noise, rng) for table in tables]
    found["FIMA"] = float((np.array(p_values) <= LEVEL).mean())
    p_values = [simulated_fima(table, noise, rng) for table in tables]
    found["FIMA, as in its simulations"] = float((np.array(p_values) <= LEVEL).mean())

    plain = kind.null(replace(measured, noise=(NoNoise(),), counts=counts[0].astype(float)))
    exact = plain.distances(counts, plain.estimates(counts.astype(float)))
    found["no noise"] = float((exact > nominal).mean())
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--replications", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("rivals.csv"))
    arguments = parser.parse_args()
    done = pd.DataFrame(columns=COLUMNS)
    if arguments.out.exists():
        done = pd.read_csv(arguments.out)
    for (place, (name, shape)), records, epsilon in product(
        enumerate(SHAPES.items()), RECORDS, EPSILONS
    ):
        if (done[COLUMNS[:3]] == [name, records, epsilon]).all(axis=1).any():
            continue
        seed = [arguments.seed, place, records, int(10 * epsilon)]
        size, power = (
            rejections(
                shape,
                records,
                epsilon,
                spread,
                arguments.replications,
                np.random.default_rng([*seed, index]),
            )
            for index, spread in enumerate((0.0, SPREAD))
        )
        rows = [[name, records, epsilon, test, size[test], power[test]] for test in size]
        frame = pd.DataFrame(rows, columns=COLUMNS)
        frame.to_csv(arguments.out, mode="a", header=not arguments.out.exists(), index=False)


if __name__ == "__main__":
    main()
