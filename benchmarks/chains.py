"""Intervals of transition matrices from noisy sums over the steps of a chain: coverage and width.

Sticky chains of T times and K states are simulated, N people each: with one transition matrix, or with shared
potentials. Three releases of one budget, Laplace noise at the sensitivity that `queries.sensitivity` gives:

- pooled: the transitions added up over the steps, and the first state's table;
- separate: one table for each step, fitted with the same ties;
- one step: the same, the interval of the middle step's matrix from that step's table alone.

    OMP_NUM_THREADS=1 uv run python benchmarks/chains.py --replications 100 --seed 1
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import time
import warnings
from itertools import pairwise

import numpy as np
import pandas as pd

import bayesprivmrf as bpm
from bayesprivmrf import queries as q
from bayesprivmrf import sequences
from bayesprivmrf.privacy import Laplace
from bayesprivmrf.release import Measurement, NoisyStatistics

PROB = 0.9


def sticky(rng, states, share):
    """First law and one matrix a step: probabilities to stay of .93 to .99, the rest by a Dirichlet law."""
    stay = rng.uniform(0.93, 0.99, states)
    matrix = np.diag(stay)
    for state in range(states):
        others = np.delete(np.arange(states), state)
        matrix[state, others] = (1 - stay[state]) * rng.dirichlet(np.full(states - 1, 3.0))
    return rng.dirichlet(np.full(states, 3.0)), matrix


def laws(first, matrix, length, share):
    """First law and the matrix of each step: one, or that of shared potentials log P + a random field."""
    if share == "transitions":
        return first, [matrix] * (length - 1)
    states = len(first)
    # rows no longer sum to one: the conditionals change with t
    table = matrix * np.exp(0.03 * np.arange(states))
    message = np.ones(states)
    steps = []
    for _ in range(length - 1):
        rows = table * message
        steps.insert(0, rows / rows.sum(axis=1, keepdims=True))
        message = rows.sum(axis=1)
        message /= message.max()
    return first * message / (first * message).sum(), steps


def people(rng, first, steps, size):
    """Codes of records, shape (size, T)."""
    codes = np.empty((size, len(steps) + 1), int)
    codes[:, 0] = rng.choice(len(first), size, p=first)
    for t, matrix in enumerate(steps):
        below = rng.random(size)[:, np.newaxis] > np.cumsum(matrix, axis=1)[codes[:, t]]
        codes[:, t + 1] = below.sum(axis=1)
    return codes


def released(rng, network, asked, answers, epsilon):
    """Simulated noise at the sensitivity of all that is asked."""
    scale = q.sensitivity(asked, network, norm=1).value / epsilon
    noisy = [np.rint(a + rng.laplace(size=len(a)) * scale) for a in answers]
    parts = [
        Measurement(query, values, Laplace(scale))
        for query, values in zip(asked, noisy, strict=True)
    ]
    return NoisyStatistics.from_measurements(network, parts), scale


def transitions(codes, states, t):
    counts = np.zeros((states, states))
    np.add.at(counts, (codes[:, t], codes[:, t + 1]), 1)
    return counts.ravel()


def law_of(matrix):
    values, vectors = np.linalg.eig(matrix.T)
    law = np.real(vectors[:, np.argmax(np.real(values))])
    return law / law.sum()


def judged(kind, release, method, fit, step, matrix, seconds):
    """One row a quantity: how many intervals hold the truth, how wide they are."""
    rows = []
    for name, table, truth in (
        ("transitions", sequences.transition_matrix(fit, PROB, step=step), matrix.ravel()),
        ("stationary law", sequences.stationary_law(fit, PROB, step=step), law_of(matrix)),
    ):
        lower = table["lower"].to_numpy()
        upper = table["upper"].to_numpy()
        rows.append(
            {
                "share": kind,
                "release": release,
                "method": method,
                "of": name,
                "covered": np.mean((lower <= truth) & (truth <= upper)),
                "width": np.mean(upper - lower),
                "error": np.sqrt(np.mean((table["estimate"].to_numpy() - truth) ** 2)),
                "seconds": seconds,
            }
        )
    return rows


def one(rng, share, options):
    length = options.length
    states = options.states
    epsilon = options.epsilon
    first, matrix = sticky(rng, states, share)
    first, steps = laws(first, matrix, length, share)
    codes = people(rng, first, steps, options.records)
    network = bpm.markov_chain(range(states), length, share=share)
    names = [f"x{t + 1}" for t in range(length)]
    pairs = list(pairwise(names))
    tables = [transitions(codes, states, t) for t in range(length - 1)]
    if share == "transitions":
        step = None
    else:
        step = length // 2
    middle = length // 2 - 1
    pooled, _ = released(
        rng,
        network,
        [q.pooled(pairs), q.table(names[0])],
        [np.sum(tables, axis=0), np.bincount(codes[:, 0], minlength=states)],
        epsilon,
    )
    separate, scale = released(rng, network, [q.table(*pair) for pair in pairs], tables, epsilon)
    rows = []
    fits = [
        ("pooled", "noise-aware MAP", pooled, bpm.NoiseAwareMAP()),
        ("separate", "noise-aware MAP", separate, bpm.NoiseAwareMAP()),
    ]
    if options.posterior:
        fits.append(("pooled", "posterior", pooled, bpm.LatentCounts()))
    if options.posterior and share == "transitions":
        fits.append(("pooled", "posterior, α = 1", pooled, bpm.LatentCounts(concentration=1.0)))
    for name, method, release, estimator in fits:
        begin = time.perf_counter()
        if isinstance(estimator, bpm.LatentCounts):
            seed = {"rng": 1}
        else:
            seed = {}
        fit = estimator.fit(release, **seed)
        rows += judged(share, name, method, fit, step, steps[middle], time.perf_counter() - begin)
    # the middle step's table alone, a model of two variables
    alone = bpm.declare({name: range(states) for name in pairs[middle]}, [pairs[middle]])
    if hasattr(separate, "queries"):
        noisy = separate.measurements[middle].values
    else:
        noisy = separate.tables[pairs[middle]]
    own = NoisyStatistics.from_tables(
        alone, {pairs[middle]: noisy.reshape(states, states)}, noise=Laplace(scale)
    )
    begin = time.perf_counter()
    fit = bpm.NoiseAwareMAP().fit(own)
    held = []
    widths = []
    for state in range(states):
        table = fit.interval(pairs[middle][1], PROB, given={pairs[middle][0]: state})
        lower = table["lower"].to_numpy()
        upper = table["upper"].to_numpy()
        held.append((lower <= steps[middle][state]) & (steps[middle][state] <= upper))
        widths.append(upper - lower)
    rows.append(
        {
            "share": share,
            "release": "one step",
            "method": "noise-aware MAP",
            "of": "transitions",
            "covered": np.mean(held),
            "width": np.mean(widths),
            "seconds": time.perf_counter() - begin,
        }
    )
    return rows


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--replications", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--length", type=int, default=12)
    parser.add_argument("--states", type=int, default=4)
    parser.add_argument("--records", type=int, default=2000)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument(
        "--posterior", action="store_true", help="LatentCounts on the pooled release too"
    )
    parser.add_argument("--share", choices=["potentials", "transitions"])
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = []
    for share in [options.share] if options.share else ["transitions", "potentials"]:
        for rng in np.random.default_rng(options.seed).spawn(options.replications):
            rows += one(rng, share, options)
    frame = pd.DataFrame(rows)
    keys = ["share", "release", "method", "of"]
    found = frame.groupby(keys, sort=False)[["covered", "width", "error", "seconds"]].mean()
    found["covered ±"] = frame.groupby(keys, sort=False)["covered"].sem()
    print(found.round(4).to_string())


if __name__ == "__main__":
    main()
