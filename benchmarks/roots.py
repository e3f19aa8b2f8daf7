"""What the root of a junction forest changes in a posterior with learned shapes.

    OMP_NUM_THREADS=1 uv run --group benchmarks python benchmarks/roots.py --replications 4

Learned rows depend on the root clique (docs/explanation/posterior-mathematics.md, "The choice of a
root"). Here a release is fitted with the root of the library's rule, and with each clique as root in its place, by
``LatentCounts(formulation="hyper-dirichlet")``. Populations are those of robustness_truths.py. Written for each kind:
how far the posterior mean of a marginal moves, in posterior standard deviations (root mean square over the cells, the
part that two samplings with one root differ by taken out, and the largest of a release); how far N moves, likewise;
coverage of 90 % intervals, and the divergence of the posterior mean from the truth, over that of the rule's root.
"""

from __future__ import annotations

import argparse
import os
import warnings
from collections.abc import Sequence
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pandas as pd
from rich.progress import track
from robustness import released
from robustness_truths import Cell, Population

from bayesprivmrf.inference import LatentCounts
from bayesprivmrf.marginals import junction
from bayesprivmrf.release import NoisyStatistics

CELLS = [
    *(Cell("three-way", law, records, epsilon) for law in ("N(0, 2)", "Dirichlet(.2)", "N(0, .05)")
      for records, epsilon in ((1_000, 0.1), (1_000, 1.0), (10_000, 1.0))),
    *(Cell("chain, 3 states", law, 1_000, epsilon) for law in ("N(0, 2)", "sparse") for epsilon in (0.1, 1.0)),
    *(Cell("T = 6, 3 states", f"stay {stay}", 2_000, epsilon) for stay in (".9", ".99") for epsilon in (0.3, 3.0)),
]  # fmt: skip
PROB = 0.9
_OWN_RULE = junction.rooted


def with_root(root: int | None) -> None:
    """Make every junction forest begin at a clique; None for the library's own rule."""

    def rooted(
        cardinalities: Sequence[int],
        scopes: Sequence[tuple[int, ...]],
        neighbours: Sequence[Sequence[int]],
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        order = []
        parents = [-1] * len(scopes)
        for clique, parent, _ in junction._walk(root or 0, neighbours):
            order.append(clique)
            parents[clique] = parent
        return tuple(order), tuple(parents)

    if root is None:
        junction.rooted = _OWN_RULE
    else:
        junction.rooted = rooted


def fitted(release: NoisyStatistics, root: int | None, seed: int) -> Any:
    """Marginals, N and the share of mixed chains of one posterior."""
    with_root(root)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what they say is in the status
            return LatentCounts(formulation="hyper-dirichlet").fit(
                release, rng=seed, chains=2, tune=400, draws=1000, time_limit=20, progress_bar=False
            )
    finally:
        with_root(None)


def numbers(posterior: Any) -> tuple[np.ndarray, np.ndarray]:
    """Draws of the marginals and of N, shape (draws, cells) and (draws,)."""
    found = posterior._draws.finished
    return found.marginals.reshape(-1, found.marginals.shape[-1]), found.total.ravel()


def held(marginals: np.ndarray, truth: Population) -> float:
    """Share of the 90 % intervals that hold the truth."""
    low, high = np.quantile(marginals, [0.5 - PROB / 2, 0.5 + PROB / 2], axis=0)
    true = np.concatenate([np.ravel(table) for table in truth.tables])
    return float(np.mean((low <= true) & (true <= high)))


def divergence(truth: Population, posterior: Any) -> float:
    """KL divergence of the posterior's mean marginals from the truth, nats."""
    return truth.divergence(posterior.solution.potentials.flat)


def compare(cell: Cell, index: int) -> list[dict[str, Any]]:
    """One row a root other than the rule's."""
    truth, _, release, _ = released(cell, index)
    cliques = len(truth.model.scopes)
    with_root(None)
    own = fitted(release, None, 1)
    marginals, total = numbers(own)
    again, total_again = numbers(fitted(release, None, 2))
    deviation = marginals.std(axis=0) + 1e-12
    chance = np.mean(((again.mean(axis=0) - marginals.mean(axis=0)) / deviation) ** 2)
    by_chance = (total_again.mean() - total.mean()) / total.std()
    rows = []
    for root in range(cliques):
        other = fitted(release, root, 3)
        moved, moved_total = numbers(other)
        z = (moved.mean(axis=0) - marginals.mean(axis=0)) / deviation
        rows.append(
            {
                "truth": f"{cell.graph}; {cell.law}",
                "epsilon": cell.epsilon,
                "records": cell.records,
                "root": root,
                "mean square": np.mean(z**2) - chance,
                "chance": chance,
                "largest": np.abs(z).max(),
                "N": (moved_total.mean() - total.mean()) / total.std(),
                "N by chance": by_chance,
                "held, rule": held(marginals, truth),
                "held": held(moved, truth),
                "log KL ratio": np.log(divergence(truth, other) / divergence(truth, own)),
            }
        )
    return rows


def report(frame: pd.DataFrame) -> str:
    """Markdown, a row a kind of population."""
    lines = [
        "| truth | N | ε | fits | marginals move by | chance | largest | N moves by | chance "
        "| held, the rule's root | other roots | KL / rule's |",
        "|---" * 12 + "|",
    ]
    for (truth, records, epsilon), rows in frame.groupby(
        ["truth", "records", "epsilon"], sort=False
    ):
        logs = rows["log KL ratio"]
        error = logs.std(ddof=1) / len(logs) ** 0.5
        lines.append(
            f"| {truth} | {records:,} | {epsilon:g} | {len(rows)} | {max(rows['mean square'].mean(), 0) ** 0.5:.2f} "
            f"| {rows['chance'].mean() ** 0.5:.2f} | {rows['largest'].mean():.2f} "
            f"| {(rows['N'] ** 2).mean() ** 0.5:.2f} | {(rows['N by chance'] ** 2).mean() ** 0.5:.2f} "
            f"| {rows['held, rule'].mean():.2f} | {rows['held'].mean():.2f} "
            f"| {np.exp(logs.mean()):.2f} × {np.exp(error):.2f} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Run the study and print its table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--replications", type=int, default=4)
    options = parser.parse_args()
    tasks = [(cell, index) for cell in CELLS for index in range(options.replications)]
    rows = [row for task in track(tasks, description="releases") for row in compare(*task)]
    print(report(pd.DataFrame(rows)))


if __name__ == "__main__":
    main()
