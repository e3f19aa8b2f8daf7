"""How often intervals of learned couplings hold the truth, how wide they are, and what they cost.

    OMP_NUM_THREADS=1 uv run --group benchmarks python benchmarks/learning_intervals.py [--quick]

Random 3-regular graphs, couplings of size .3 with random signs, fields uniform in (-.3, .3); p variables, n records
under replace-one neighbours, budget rho; intervals at 90 %. Each cell has several releases, each of a population of
its own: more of them where they are cheap. SelectMeasure is told degree 4, or p - 1, which measures all pairs; Frank-
Wolfe is told the true width. The basic bootstrap is there for comparison in a few cells. Coverage is over pairs, or
fields, of all releases of a cell; seconds are of one core's processor time. Every release is cached under
benchmarks/results/cache/learning-intervals, so that an interrupted run goes on: delete it after a change to the
library.
Writes benchmarks/results/learning_intervals.csv.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import numpy as np
import pandas as pd
from learning_models import CACHE, RESULTS, IsingPopulation, drawn, kept
from rich.progress import track

from bayesprivmrf.learning import calibrated
from bayesprivmrf.learning.calibrated import replicates_of
from bayesprivmrf.mechanisms import PrivateFrankWolfe, SelectMeasure

PROB, REPLICATES, SEED, LARGEST_FIELD = 0.9, 100, 20_261_122, 0.3
NAMES = ("coupled", "free", "fields")
RECORDS, BUDGETS = (3_000, 10_000, 100_000), (0.1, 1.0)
MEASURED, ALL, FRANK_WOLFE = "SelectMeasure, degree 4", "moments", "Frank-Wolfe"
BASIC = ", basic"
RELEASES = {  # by method, then variables and records; 0 for all
    MEASURED: {(20, 0): 10, (50, 0): 6, (200, 10_000): 2},
    ALL: {(20, 0): 10, (50, 0): 6},
    FRANK_WOLFE: {(20, 3_000): 8, (20, 10_000): 8, (20, 100_000): 2, (50, 10_000): 2},
    FRANK_WOLFE + BASIC: {(20, 3_000): 4, (20, 10_000): 1},
    MEASURED + BASIC: {(20, 3_000): 2, (20, 10_000): 1},
}

type Cell = tuple[str, int, int, float, int]
type Row = dict[str, object]


def mechanism(
    method: str, population: IsingPopulation, rho: float
) -> SelectMeasure | PrivateFrankWolfe:
    if method.startswith(FRANK_WOLFE):
        return PrivateFrankWolfe(
            rho=rho, width=population.width, single_share=0, adjacency="replace-one"
        )
    if method.startswith(ALL):
        degree = len(population.couplings) - 1
    else:
        degree = 4
    return SelectMeasure(rho=rho, degree=degree, adjacency="replace-one")


def measured(method: str, variables: int, records: int, rho: float, index: int) -> Row:
    """Hits and widths of one release."""
    warnings.simplefilter("ignore")
    population, codes = drawn("3-regular", variables, records, SEED + index, LARGEST_FIELD)
    seed = np.random.SeedSequence([SEED, index, variables, records, int(1000 * rho)])
    rng = np.random.default_rng(seed)
    learned = mechanism(method, population, rho).release(
        population.network, population.frame(codes), rng=rng
    )
    begin = time.process_time()
    lower, upper = limits_of(learned, method, rng)
    result: Row = {"seconds": time.process_time() - begin}
    truth = population.couplings[np.triu_indices(variables, 1)]
    fields = population.fields
    (low, least), (high, most) = (np.split(limits, [truth.size]) for limits in (lower, upper))
    for name, own, part in (
        ("coupled", (low, high, truth), truth != 0),
        ("free", (low, high, truth), truth == 0),
        ("fields", (least, most, fields), np.ones(variables, bool)),
    ):
        below, above, true = (array[part] for array in own)
        result[f"{name}_hits"] = int(((below <= true) & (true <= above)).sum())
        result[f"{name}_of"] = int(part.sum())
        result[f"{name}_width"] = float(np.median(above - below))
    return result


def limits_of(learned: Any, method: str, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper limits of couplings and fields, as `learned.interval` has them, from one simulation."""
    if method.endswith(BASIC):
        draws = [draw.vector() for draw in replicates_of(learned, REPLICATES, rng)]
        upper, lower = 2 * learned.vector() - np.quantile(
            draws, [(1 - PROB) / 2, (1 + PROB) / 2], axis=0
        )
        return lower, upper
    if method.startswith(FRANK_WOLFE):
        return calibrated.limits(learned, PROB, REPLICATES, rng, None)
    return learned.map.linearised(learned, PROB, learned.total, rng)


def cells(quick: bool) -> list[Cell]:
    """All releases, the cheap ones first."""
    found: list[Cell] = []
    for method, counts in RELEASES.items():
        for (variables, only), count in counts.items():
            for records in [only] if only else RECORDS:
                for rho in BUDGETS:
                    found += [(method, variables, records, rho, k) for k in range(count)]
    if quick:
        found = [cell for cell in found if cell[1] == 20 and cell[2] < 100_000]
    return sorted(
        found, key=lambda cell: (cell[0] not in (MEASURED, ALL), cell[1], cell[2], cell[4])
    )


def report(frame: pd.DataFrame) -> str:
    """Markdown table, one row a cell."""
    lines = [
        "| method | p | n | ρ | releases | coupled | free | fields | width, coupled | free | fields | s |",
        "|---" * 12 + "|",
    ]
    order = {name: place for place, name in enumerate(RELEASES)}
    keys = ["method", "variables", "records", "rho"]
    for (method, p, n, rho), own in sorted(
        frame.groupby(keys), key=lambda item: (order[item[0][0]], *item[0][1:])
    ):
        shares = [own[f"{name}_hits"].sum() / max(own[f"{name}_of"].sum(), 1) for name in NAMES]
        widths = [own[f"{name}_width"].median() for name in NAMES]
        shown = [f"{v:.2f}" for v in shares] + [f"{v:.3f}" for v in widths]
        lines.append(
            f"| {method} | {p} | {n:,} | {rho:g} | {len(own)} | "
            + " | ".join(shown)
            + f" | {own['seconds'].median():.1f} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Run what is not cached and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="p = 20 and few records alone")
    parser.add_argument("--methods", nargs="+", choices=list(RELEASES), default=list(RELEASES))
    parser.add_argument(
        "--minutes", type=float, default=np.inf, help="begin no release after so long"
    )
    options = parser.parse_args()
    rows = []
    begin = time.monotonic()
    chosen = [cell for cell in cells(options.quick) if cell[0] in options.methods]
    for method, p, n, rho, k in track(chosen):
        name = method.replace(", ", "-").replace(" ", "-")
        path = CACHE / "learning-intervals" / f"{name}-{p}-{n}-{rho:g}-{k}.json"
        if not path.exists() and time.monotonic() - begin > 60 * options.minutes:
            continue
        found = kept(path, lambda cell=(method, p, n, rho, k): measured(*cell))
        rows.append(
            {"method": method, "variables": p, "records": n, "rho": rho, "release": k, **found}
        )
    frame = pd.DataFrame(rows)
    if not options.quick and len(options.methods) == len(RELEASES):
        frame.to_csv(RESULTS / "learning_intervals.csv", index=False, float_format="%.6g")
    print(report(frame))


if __name__ == "__main__":
    main()
