"""Size and power of the test of independence through the noise, by the warp-speed bootstrap.

Null hypotheses are drawn afresh in each replication: margins of Dirichlet(4) within strata that have equal
probabilities. One table is released with Laplace noise. Each replication gives one statistic of the release and one
of a replicate of it; a size is the share of the first above the 0.95 quantile of the second (Giacomini, Politis and
White 2013). A row for each setting: the size, the size of Pearson's test of the noisy counts (negative ones taken as
0), and the power against log odds ratios with a standard deviation of 0.3.

    OMP_NUM_THREADS=1 uv run python benchmarks/analysis_tests.py --replications 2000 --seed 1
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
from itertools import product

import numpy as np
import pandas as pd
from scipy.stats import chi2

from bayesprivmrf.analysis.independence import distances, independent_means
from bayesprivmrf.noise import DiscreteLaplace

SHAPES = {"2x2": (1, 2, 2), "3x4": (1, 3, 4), "2x2 in three strata": (3, 2, 2)}
RECORDS = (500, 2_000, 10_000)
EPSILONS = (0.1, 1.0, 10.0)
LEVEL = 0.05
SPREAD = 0.3  # of log odds ratios under the alternative
CONCENTRATION = 4.0


def truths(rng, shape, replications, spread):
    """Joint tables, shape (replications, strata, K_a, K_b)."""
    strata, rows, columns = shape
    one = rng.dirichlet(np.full(rows, CONCENTRATION), (replications, strata))
    other = rng.dirichlet(np.full(columns, CONCENTRATION), (replications, strata))
    table = one[..., :, np.newaxis] * other[..., np.newaxis, :]
    logs = np.zeros(table.shape)
    logs[..., 1:, 1:] = rng.normal(0, spread, logs[..., 1:, 1:].shape)
    table = table * np.exp(logs)
    return table / table.sum(axis=(1, 2, 3), keepdims=True)


def released(rng, tables, records, noise):
    """Noisy counts of records from some tables."""
    flat = tables.reshape(len(tables), -1)
    counts = rng.multinomial(records, flat).reshape(tables.shape)
    return counts + noise.draw(tables.shape, rng)


def pearson(tables, records):
    """P-values of Pearson's test of noisy counts, as if they had no noise."""
    cut = np.maximum(tables, 0.0)
    means = independent_means(cut, records)
    _, strata, rows, columns = tables.shape
    statistic = ((cut - means) ** 2 / means).sum(axis=(1, 2, 3))
    return chi2.sf(statistic, strata * (rows - 1) * (columns - 1))


def setting(rng, shape, records, epsilon, replications):
    """Size, size of Pearson's test, and power of one setting."""
    noise = DiscreteLaplace(2 / epsilon)
    variances = np.full(shape, noise.variance)
    null = released(rng, truths(rng, shape, replications, 0.0), records, noise)
    means = independent_means(null, records)
    again = released(rng, means / means.sum(axis=(1, 2, 3), keepdims=True), records, noise)
    critical = np.quantile(distances(again, variances, records), 1 - LEVEL)
    size = (distances(null, variances, records) > critical).mean()
    other = released(rng, truths(rng, shape, replications, SPREAD), records, noise)
    power = (distances(other, variances, records) > critical).mean()
    return size, (pearson(null, records) < LEVEL).mean(), power


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--replications", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    rows = []
    for (name, shape), records, epsilon in product(SHAPES.items(), RECORDS, EPSILONS):
        rng = np.random.default_rng([arguments.seed, *shape, records, int(10 * epsilon)])
        size, naive, power = setting(rng, shape, records, epsilon, arguments.replications)
        rows.append([name, records, epsilon, size, naive, power])
    columns = ["table", "records", "epsilon", "size", "size of Pearson's test", "power"]
    print(pd.DataFrame(rows, columns=columns).round(4).to_csv(index=False), end="")


if __name__ == "__main__":
    main()
