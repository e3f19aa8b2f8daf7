"""Smaller models on a saturated release: coverage and width of intervals beside those of the saturated fit.

    OMP_NUM_THREADS=1 uv run python benchmarks/smaller_models.py --jobs 2 --replications 20

One table of all variables is released, and the truth is a smaller log-linear model. Every effect of the true model is
drawn afresh for each release from a normal distribution, so that the truth is of no prior of the library. Both models
are fitted on the same release. Coverage is that of 90 % intervals over all cells of all scopes that are asked, with
its standard error over releases. The width is the mean of the smaller model's over that of the saturated one's.
With `--posterior` the posterior of `LatentCounts` takes the place of the mode, for three variables and 5,000 records.
Writes a CSV file with `--out`. `--rows` keeps the rows of the releases that are done, should the run be interrupted.
"""

from __future__ import annotations

import argparse
import itertools
import os
from pathlib import Path
from typing import Any, Literal

os.environ.setdefault("OMP_NUM_THREADS", "1")

import joblib
import numpy as np
import pandas as pd

from bayesprivmrf import LatentCounts, NoiseAwareMAP, NoisyStatistics, declare
from bayesprivmrf.noise import DiscreteLaplace

SEED = 61_803
PROB = 0.9
# Standard deviation of the effects of the true model, nats
SPREAD = 0.7
SHAPES = {3: (2, 3, 2), 4: (2, 3, 2, 2)}
RECORDS = (500, 5_000, 100_000)
BUDGETS = (0.1, 1.0, 10.0)
MODELS = ("independent", "chain", "pairs")
DRAWS = 500
# Added to widths, records or probability: the ratio of two intervals without width is 1
NOTHING = 1e-12
# Settings of the posterior, each fit of which takes half a minute
SAMPLED_VARIABLES = (3,)
SAMPLED_RECORDS = (5_000,)

type Of = Literal["population", "records"]


def cliques_of(kind: str, names: list[str]) -> list[tuple[str, ...]]:
    """Return the cliques of a smaller model."""
    if kind == "independent":
        return [(name,) for name in names]
    if kind == "chain":
        return list(itertools.pairwise(names))
    return list(itertools.combinations(names, 2))


def truth_of(
    cliques: list[tuple[str, ...]],
    names: list[str],
    shape: tuple[int, ...],
    rng: np.random.Generator,
) -> np.ndarray:
    """Return probabilities of a log-linear model of the cliques, with effects drawn from a normal distribution."""
    logits = np.zeros(shape)
    for clique in [*cliques, *[(name,) for name in names]]:
        axes = [names.index(name) for name in clique]
        own = [shape[axis] if axis in axes else 1 for axis in range(len(shape))]
        logits = logits + rng.normal(0, SPREAD, own)
    weights = np.exp(logits - logits.max())
    return weights / weights.sum()


def asked_of(names: list[str]) -> list[list[str]]:
    """Return every scope of at most three variables."""
    sizes = range(1, min(len(names), 3) + 1)
    return [list(scope) for size in sizes for scope in itertools.combinations(names, size)]


def rows_of(solution: Any, target: np.ndarray, names: list[str], of: Of) -> pd.DataFrame:
    """Return hits, widths and statuses of the rows of every scope."""
    parts = []
    for scope in asked_of(names):
        frame = solution.interval(scope, prob=PROB, of=of)
        left_out = tuple(axis for axis, name in enumerate(names) if name not in scope)
        true = target.sum(axis=left_out).ravel()
        lower = frame["lower"].to_numpy()
        upper = frame["upper"].to_numpy()
        holds = (lower <= true) & (true <= upper)
        parts.append(
            pd.DataFrame(
                {"holds": holds, "width": upper - lower, "status": frame["status"].to_numpy()}
            )
        )
    return pd.concat(parts)


def one(
    variables: int, kind: str, records: int, epsilon: float, index: int, posterior: bool
) -> pd.DataFrame:
    """Fit both models on one release."""
    rng = np.random.default_rng(
        [SEED, variables, MODELS.index(kind), records, int(10 * epsilon), index]
    )
    shape = SHAPES[variables]
    names = list("abcd"[:variables])
    cliques = cliques_of(kind, names)
    truth = truth_of(cliques, names, shape, rng)
    counts = rng.multinomial(records, truth.ravel()).reshape(shape)
    noise = DiscreteLaplace(1 / epsilon)
    network = declare(
        states={
            name: [str(state) for state in range(size)]
            for name, size in zip(names, shape, strict=True)
        },
        cliques=[tuple(names)],
    )
    release = NoisyStatistics.from_tables(
        network, {tuple(names): counts + noise.draw(counts.shape, rng)}, noise=noise
    )
    found = []
    for label, model in (("saturated", None), ("smaller", cliques)):
        if posterior:
            solution = LatentCounts().fit(release, rng=index + 1, draws=DRAWS, model=model)
        else:
            solution = NoiseAwareMAP().fit(release, model=model)
        for of, target in (("population", truth), ("records", counts)):
            rows = rows_of(solution, target, names, of)
            found.append(rows.assign(fit=label, of=of, result=str(solution.status)))
    setting = {
        "variables": variables,
        "model": kind,
        "N": records,
        "epsilon": epsilon,
        "index": index,
    }
    return pd.concat(found).assign(**setting)


def summary(rows: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each setting: coverage of the smaller fit, its error, widths and statuses."""
    lines = []
    keys = ["variables", "model", "N", "epsilon", "of"]
    for key, group in rows.groupby(keys, sort=False):
        smaller = group[group["fit"] == "smaller"]
        saturated = group[group["fit"] == "saturated"]
        by = smaller.groupby("index")["holds"].mean()
        line: dict[str, Any] = dict(zip(keys, key, strict=True))
        line["coverage"] = smaller["holds"].mean()
        line["error"] = by.std() / max(len(by), 1) ** 0.5
        line["saturated coverage"] = saturated["holds"].mean()
        widths = [fit["width"].mean() + NOTHING for fit in (smaller, saturated)]
        line["width ratio"] = widths[0] / widths[1]
        line["converged"] = smaller.groupby("index")["result"].first().eq("converged").mean()
        line["ok or model"] = smaller["status"].isin(["ok", "model"]).mean()
        lines.append(line)
    return pd.DataFrame(lines)


def main() -> None:
    """Run and print a table."""
    parser = argparse.ArgumentParser(
        description="Coverage of smaller models on saturated releases."
    )
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--replications", type=int, default=20)
    parser.add_argument("--posterior", action="store_true")
    parser.add_argument("--first", type=int, default=0, help="index of the first release")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--rows", type=Path, help="file of all rows, written after each release")
    arguments = parser.parse_args()
    shapes = SHAPES
    records = RECORDS
    if arguments.posterior:
        shapes = SAMPLED_VARIABLES
        records = SAMPLED_RECORDS
    indices = range(arguments.first, arguments.first + arguments.replications)
    # the releases of an index in every setting before the next index, so that less than all is balanced
    settings = [
        (variables, kind, size, epsilon, index, arguments.posterior)
        for index, variables, kind, size, epsilon in itertools.product(
            indices, shapes, MODELS, records, BUDGETS
        )
    ]
    parts = []
    parallel = joblib.Parallel(n_jobs=arguments.jobs, return_as="generator")
    for part in parallel(joblib.delayed(one)(*setting) for setting in settings):
        parts.append(part)
        if arguments.rows:
            pd.concat(parts).to_csv(arguments.rows, index=False, float_format="%.8g")
    rows = pd.concat(parts)
    table = summary(rows)
    print(table.to_string(index=False, float_format="{:.3f}".format))
    if arguments.out:
        table.to_csv(arguments.out, index=False, float_format="%.5g")


if __name__ == "__main__":
    main()
