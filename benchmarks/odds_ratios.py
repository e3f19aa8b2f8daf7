"""Coverage of 90 % intervals of odds ratios and standardized risk differences, from the mode or the posterior.

Truths are drawn afresh in each replication: tables of two, three or four variables whose conditional log odds ratios
are normal with a standard deviation of 0.7, which is not the prior of the fit. One table of all variables is
released with Laplace noise. A row for each setting and status: the number of intervals, the share that holds the
truth, and the median width on the scale of logarithms (or of probabilities). Rows of the quantity "odds ratios
jointly" are of simultaneous limits: an interval counts all odds ratios of one fit, and holds if all of them do. The
median ratio of the widths to those of the usual interval of the exact counts goes to standard error, and so does
the coverage by the smallest fitted count of the four cells behind an odds ratio.

`--posterior` fits by `LatentCounts` instead of `NoiseAwareMAP`. `--out` keeps a row for each setting and status, with
the ratio of widths. Settings that it has are left out, so that a run goes on where it was stopped.

    OMP_NUM_THREADS=1 uv run python benchmarks/odds_ratios.py --replications 100 --seed 1
    OMP_NUM_THREADS=1 uv run python benchmarks/odds_ratios.py --replications 100 --seed 23 --posterior --ways 2 \
        --out posterior.csv
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import sys
import warnings
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import norm

import bayesprivmrf as bpm
from bayesprivmrf import analysis
from bayesprivmrf.noise import DiscreteLaplace
from bayesprivmrf.release import NoisyStatistics

SHAPES = {2: (2, 3), 3: (2, 2, 3), 4: (2, 2, 2, 3)}
RECORDS = (500, 5_000, 100_000)
EPSILONS = (0.1, 1.0, 10.0)
SPREAD = 0.7  # of conditional log odds ratios
PROB = 0.9
SETTING = ["ways", "records", "epsilon"]


def truth(rng, shape):
    """A joint table with main effects, and interactions of all pairs, normal in the log odds ratios."""
    logs = np.zeros(shape)
    for axis, states in enumerate(shape):
        own = np.append(0.0, rng.normal(0, 0.5, states - 1))
        logs += own.reshape([-1 if a == axis else 1 for a in range(len(shape))])
    for one in range(len(shape)):
        for other in range(one + 1, len(shape)):
            table = np.zeros((shape[one], shape[other]))
            table[1:, 1:] = rng.normal(0, SPREAD, (shape[one] - 1, shape[other] - 1))
            sides = [shape[a] if a in (one, other) else 1 for a in range(len(shape))]
            logs += table.reshape(sides)
    weights = np.exp(logs)
    return weights / weights.sum()


def reference_log_ratios(table):
    """Log odds ratios of the first and the last variable against their first states, within states of the others."""
    blocks = np.log(np.moveaxis(table, 0, -2).reshape(-1, table.shape[0], table.shape[-1]))
    return blocks[:, 1:, 1:] + blocks[:, :1, :1] - blocks[:, 1:, :1] - blocks[:, :1, 1:]


def standardized(table):
    """Standardized risk differences of the last variable between the states of the first."""
    blocks = np.moveaxis(table, 0, -2).reshape(-1, table.shape[0], table.shape[-1])
    risks = blocks / blocks.sum(axis=-1, keepdims=True)
    total = (risks * blocks.sum(axis=(1, 2))[:, None, None]).sum(axis=0)
    return total[1:] - total[:1]


def smallest_cells(table):
    """Smallest of the four cells behind each odds ratio, in the order of `reference_log_ratios`."""
    blocks = np.moveaxis(table, 0, -2).reshape(-1, table.shape[0], table.shape[-1])
    corners = (
        blocks[:, 1:, 1:],
        blocks[:, 1:, :1],
        blocks[:, :1, 1:],
        np.broadcast_to(blocks[:, :1, :1], blocks[:, 1:, 1:].shape),
    )
    return np.minimum.reduce(np.broadcast_arrays(*corners))


def usual_widths(counts):
    """Widths of Woolf's intervals of the exact counts, on the log scale, with half a record added to each cell."""
    blocks = np.moveaxis(counts + 0.5, 0, -2).reshape(-1, counts.shape[0], counts.shape[-1])
    inverse = 1 / blocks
    variance = inverse[:, 1:, 1:] + inverse[:, :1, :1] + inverse[:, 1:, :1] + inverse[:, :1, 1:]
    return 2 * norm.ppf(0.5 + PROB / 2) * np.sqrt(variance)


def fitted_by(method, release, rng):
    """Fit of a release by the mode or the posterior."""
    if method == "mode":
        return bpm.NoiseAwareMAP().fit(release)
    return bpm.LatentCounts().fit(release, rng=rng, progress_bar=False, cores=1)


def replication(rng, setting, method):
    """Rows of one simulated release of a setting: ways, records, epsilon."""
    ways, records, epsilon = setting
    shape = SHAPES[ways]
    names = [f"v{axis}" for axis in range(ways)]
    network = bpm.declare(
        {name: list(range(states)) for name, states in zip(names, shape, strict=True)}, [names]
    )
    table = truth(rng, shape)
    counts = rng.multinomial(records, table.ravel()).reshape(shape)
    noise = DiscreteLaplace(2 / epsilon)  # one record that is replaced moves two counts
    noisy = counts + noise.draw(shape, rng)
    release = NoisyStatistics.from_tables(
        network, {tuple(names): noisy}, noise=noise, total=records
    )
    solution = fitted_by(method, release, rng)
    others = names[1:-1] or None
    asked = {"kind": "reference", "given": others, "prob": PROB}
    ratios = analysis.odds_ratios(solution, names[0], names[-1], **asked)
    fitted = np.asarray(solution.marginal(names))
    found = ratios.assign(
        truth=np.exp(reference_log_ratios(table)).ravel(),
        width=np.log(ratios["upper"] / ratios["lower"]),
        usual=usual_widths(counts).ravel(),
        expected=records * smallest_cells(table).ravel(),
        fitted=records * smallest_cells(fitted).ravel(),
        noise=np.sqrt(noise.variance),
        quantity="odds ratio",
    )
    joint = analysis.odds_ratios(solution, names[0], names[-1], simultaneous=True, **asked)
    together = joint.assign(
        truth=found["truth"],
        width=np.log(joint["upper"] / joint["lower"]),
        quantity="odds ratios jointly",
    )
    rows = [found.reset_index(drop=True), together.reset_index(drop=True)]
    if others:
        frame = analysis.standardize(solution, names[-1], on=names[0], over=others, prob=PROB)
        frame = frame.loc["difference"]
        frame = frame.assign(
            truth=standardized(table).ravel(),
            width=frame["upper"] - frame["lower"],
            expected=records * table.min(),
            quantity="standardized difference",
        )
        rows.append(frame.reset_index(drop=True))
    return pd.concat(rows)


def summary(every, by):
    """Coverage and widths of intervals, by setting and status; one interval of a fit for joint limits."""
    every = every.assign(holds=every["truth"].between(every["lower"], every["upper"]))
    every["over the usual"] = every["width"] / every["usual"]
    is_joint = every["quantity"] == "odds ratios jointly"
    fits = every[is_joint].groupby(["quantity", *SETTING, "fit"])
    joint = fits.agg(holds=("holds", "all"), width=("width", "median")).reset_index()
    every = pd.concat([every[~is_joint], joint.assign(status="any")], ignore_index=True)
    found = every.groupby(["quantity", *by, "status"]).agg(
        intervals=("holds", "size"),
        coverage=("holds", "mean"),
        width=("width", "median"),
        ratio=("over the usual", "median"),
    )
    return found.rename(columns={"ratio": "over the usual"}).round(4).reset_index()


def written(arguments):
    """Intervals of all settings, each of which is added to the files that the arguments name when it is done."""
    parts = []
    done = set()
    if arguments.out and arguments.out.exists():
        stored = pd.read_csv(arguments.out)
        done = set(stored[SETTING].itertuples(index=False, name=None))
    for setting in product(arguments.ways, arguments.records, arguments.epsilons):
        if setting in done:
            continue
        ways, records, epsilon = setting
        seed = [arguments.seed, ways, records, int(10 * epsilon)]
        method = "posterior" if arguments.posterior else "mode"
        rows = [
            replication(np.random.default_rng([*seed, index]), setting, method).assign(fit=index)
            for index in range(arguments.replications)
        ]
        own = pd.concat(rows).assign(**dict(zip(SETTING, setting, strict=True)))
        parts.append(own)
        if arguments.raw:  # what is done is kept, if the run is stopped
            pd.concat(parts, ignore_index=True).to_csv(arguments.raw, index=False)
        if arguments.out:
            is_new = not arguments.out.exists()
            summary(own, SETTING).to_csv(arguments.out, mode="a", header=is_new, index=False)
    if not parts:
        sys.exit(f"{arguments.out} has all settings already")
    return pd.concat(parts, ignore_index=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--replications", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--posterior", action="store_true", help="fit by LatentCounts")
    parser.add_argument("--ways", type=int, nargs="*", default=list(SHAPES))
    parser.add_argument("--records", type=int, nargs="*", default=RECORDS)
    parser.add_argument("--epsilons", type=float, nargs="*", default=EPSILONS)
    parser.add_argument("--raw", help="a CSV file for every interval")
    parser.add_argument("--out", type=Path, help="a CSV file for a row of each setting and status")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    every = written(arguments)
    shown = summary(every, ["records", "epsilon"]).drop(columns="over the usual")
    print(shown.to_csv(index=False), end="")
    ratios = every[every["quantity"] == "odds ratio"]
    for epsilon, own in ratios.groupby("epsilon"):
        wider = np.median(own["width"] / own["usual"])
        print(f"# epsilon {epsilon}: median width over the usual one {wider:.3f}", file=sys.stderr)
    by_size(ratios)


def by_size(ratios) -> None:
    """Print the coverage by the smallest fitted count of four cells, in units of its standard deviation."""
    shown = ratios[ratios["status"] != "prior"]
    shown = shown.assign(holds=shown["truth"].between(shown["lower"], shown["upper"]))
    spread = np.sqrt(shown["fitted"] + shown["noise"] ** 2)
    bins = pd.cut(shown["fitted"] / spread, [0, 0.5, 1, 1.5, 2, 3, 5, np.inf])
    found = shown.groupby(bins, observed=True)["holds"].agg(["size", "mean"])
    print(f"# smallest fitted count in its standard deviations\n{found.round(3)}", file=sys.stderr)


if __name__ == "__main__":
    main()
