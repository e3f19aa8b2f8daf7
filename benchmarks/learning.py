"""Largest error of the couplings of Ising models: every private way to learn them, and what there is without privacy.

    OMP_NUM_THREADS=1 uv run --group benchmarks python benchmarks/learning.py --jobs 2 [--quick]

Random 3-regular graphs and grids, couplings of size .3 with random signs, no fields; p variables, n records under
replace-one neighbours, budget rho. Five populations a cell; one for the paper's calibration at 20 million spins,
where it takes thousands of steps; two for l1-logistic regression at p = 200. Error: the largest over all pairs,
coupled or not. Frank-Wolfe is told the true width (.9 and 1.2); SelectMeasure is told one neighbour more than the
nodes (inside) have, 4 and 5, and 2 and 8 beside it; "moments" measures all pairs and fits those that stand out, like
SelectMeasure. Steps, choices and penalties are made without the truth; likelihood alone knows the graph. Every cell
is cached under benchmarks/results/cache/learning, so that an interrupted run goes on: delete it after a change to
the library. Writes benchmarks/results/learning.csv.
"""

from __future__ import annotations

import argparse
import time
import warnings
from itertools import product

import joblib
import numpy as np
import pandas as pd
from learning_models import CACHE, RESULTS, drawn, kept
from papers.frank_wolfe import PaperFrankWolfe
from rich.progress import track

from bayesprivmrf.mechanisms import PrivateFrankWolfe, SelectMeasure

GRAPHS, VARIABLES = ("3-regular", "grid"), (10, 20, 50, 200)
RECORDS, BUDGETS = (3_000, 10_000, 30_000, 100_000), (0.01, 0.1, 1.0, 10.0)
POPULATIONS, SEED = 5, 20_201_206
OTHER_DEGREES = (2, 8)
LARGE, LARGE_POPULATIONS = 20_000_000, 1
WIDE, WIDE_POPULATIONS = 200, 2
INFORMATIVE = 0.2
SELECTED = "SelectMeasure"
RIVALS = ("Frank-Wolfe, tight", "Frank-Wolfe, paper", "moments")

type Row = dict[str, object]


def mechanisms(
    graph: str, variables: int, width: float, rho: float
) -> dict[str, PrivateFrankWolfe | SelectMeasure]:
    common = {"rho": rho, "adjacency": "replace-one"}
    believed = 3 if graph == "3-regular" else 4
    if variables <= 50:
        others = OTHER_DEGREES
    else:
        others = ()
    return {
        "Frank-Wolfe, tight": PrivateFrankWolfe(width=width, single_share=0, **common),
        "moments": SelectMeasure(degree=variables - 1, **common),
        SELECTED: SelectMeasure(degree=believed + 1, **common),
        **{f"SelectMeasure, degree {d}": SelectMeasure(degree=d, **common) for d in others},
        "Frank-Wolfe, paper": PaperFrankWolfe(width=width, **common),
    }


def private(graph: str, variables: int, index: int, records: int, rho: float, method: str) -> Row:
    """One release."""
    population, codes = drawn(graph, variables, max(RECORDS), SEED + index)
    mechanism = mechanisms(graph, variables, population.width, rho)[method]
    seed = np.random.SeedSequence([SEED, index, variables, records, int(1000 * rho), len(graph)])
    data = population.frame(codes[:records])
    begin = time.perf_counter()
    learned = mechanism.release(population.network, data, rng=np.random.default_rng(seed))
    return {
        "error": population.error(learned.coupling_matrix),
        "seconds": time.perf_counter() - begin,
        "status": learned.status,
        "steps": learned.details.get("steps"),
    }


def public(graph: str, variables: int, index: int, records: list[int]) -> list[Row]:
    """What there is without privacy, at all sizes; l1-logistic regression on few populations where it is slow."""
    population, codes = drawn(graph, variables, max(RECORDS), SEED + index)
    rows: list[Row] = []
    if variables < WIDE or index < WIDE_POPULATIONS:
        begin = time.perf_counter()
        errors = population.lasso_errors(codes, records)
        seconds = (time.perf_counter() - begin) / len(records)
        for n, error in zip(records, errors, strict=True):
            found = {"records": n, "error": error, "seconds": seconds}
            rows.append({"method": "l1-logistic, not private", **found})
    for n in records:
        begin = time.perf_counter()
        error, how = population.likelihood_error(codes[:n])
        seconds = time.perf_counter() - begin
        name = "likelihood of the true graph, not private"
        rows.append(
            {"method": name, "records": n, "error": error, "seconds": seconds, "status": how}
        )
    return rows


def cells(graph: str, variables: int, index: int, quick: bool, large: bool) -> list[Row]:
    """All methods on one population."""
    warnings.simplefilter("ignore")
    if quick:
        records = [3_000, 10_000]
        budgets = [0.1, 1.0]
    else:
        records = list(RECORDS)
        budgets = list(BUDGETS)
    where: Row = {"graph": graph, "variables": variables, "population": index}
    folder = CACHE / "learning" / f"{graph}-{variables}-{index}"
    rows: list[Row] = []
    for n, rho in product(records, budgets):
        for method in mechanisms(graph, variables, 1.0, rho):
            if (
                "paper" in method
                and variables * n >= LARGE
                and (index >= LARGE_POPULATIONS or not large)
            ):
                continue
            path = folder / f"{n}-{rho:g}-{method.replace(', ', '-').replace(' ', '-')}.json"
            found = kept(
                path,
                lambda n=n, rho=rho, method=method: private(
                    graph, variables, index, n, rho, method
                ),
            )
            rows.append({**where, "records": n, "rho": rho, "method": method, **found})
    path = folder / f"public-{'-'.join(map(str, records))}.json"
    return rows + [
        {**where, **row} for row in kept(path, lambda: public(graph, variables, index, records))
    ]


def report(frame: pd.DataFrame) -> str:
    """Markdown tables of mean errors, one a graph and size, and how they compare."""
    parts = []
    for (graph, variables), part in frame.groupby(["graph", "variables"], sort=False):
        budgeted = part[part["rho"].notna()]
        free = part[part["rho"].isna()]
        order = list(dict.fromkeys(budgeted["method"]))
        mean = budgeted.pivot_table(index=["records", "rho"], columns="method", values="error")[
            order
        ]
        lines = [
            f"### {graph}, p = {variables}",
            "",
            "| n | ρ | " + " | ".join(order) + " |",
            "|---" * (len(order) + 2) + "|",
        ]
        for (n, rho), row in mean.iterrows():
            best = row.min()
            shown = [f"**{v:.3f}**" if v == best and v < INFORMATIVE else f"{v:.3f}" for v in row]
            lines.append(f"| {n:,} | {rho:g} | " + " | ".join(shown) + " |")
        for method, own in free.groupby("method", sort=False):
            by_size = ", ".join(f"{e:.3f}" for e in own.groupby("records")["error"].mean())
            lines.append(f"\n{method}, n ascending: {by_size}.")
        parts.append("\n".join(lines))
    return "\n\n".join([*parts, summary(frame), crossovers(frame)])


def crossovers(frame: pd.DataFrame) -> str:
    """A map for each graph and size: who has the least error, all within a tenth of it, where it is informative."""
    names = {SELECTED: "S", "moments": "M", "Frank-Wolfe, tight": "F", "Frank-Wolfe, paper": "P"}
    own = frame[frame["method"].isin(list(names)) & frame["rho"].notna()]
    mean = own.pivot_table(
        index=["graph", "variables", "records", "rho"], columns="method", values="error"
    )
    parts = []
    for (graph, variables), part in mean.groupby(["graph", "variables"], sort=False):
        budgets = sorted(part.index.unique("rho"))
        lines = [
            f"{graph}, p = {variables}:",
            "",
            "| n | " + " | ".join(f"ρ = {b:g}" for b in budgets) + " |",
        ]
        lines.append("|---" * (len(budgets) + 1) + "|")
        for n in sorted(part.index.unique("records")):
            row = []
            for rho in budgets:
                errors = part.loc[(graph, variables, n, rho)]
                near = "".join(
                    short for name, short in names.items() if errors[name] <= 1.1 * errors.min()
                )
                row.append(f"{near} {errors.min():.3f}" if errors.min() < INFORMATIVE else "–")
            lines.append(f"| {n:,} | " + " | ".join(row) + " |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def summary(frame: pd.DataFrame) -> str:
    """Over informative cells: SelectMeasure against its best private rival, tight against paper."""
    mean = frame.dropna(subset="rho").pivot_table(
        index=["graph", "variables", "records", "rho"], columns="method", values="error"
    )
    rivals = mean[list(RIVALS)].min(axis=1)
    ratio = (mean[SELECTED] / rivals)[mean[[SELECTED, *RIVALS]].min(axis=1) < INFORMATIVE]
    tight = mean["Frank-Wolfe, tight"]
    paper = mean["Frank-Wolfe, paper"]
    own = (tight / paper)[(np.minimum(tight, paper) < INFORMATIVE)]
    lines = []
    for name, found in (
        (f"{SELECTED} / best private rival", ratio),
        ("Frank-Wolfe tight / paper", own),
    ):
        worst = found.groupby(["graph", "variables"]).agg(["count", "median", "max"])
        lines.append(f"### {name}, informative cells\n")
        lines += ["| graph | p | cells | median | worst |", "|---|---|---|---|---|"]
        lines += [
            f"| {g} | {p} | {int(c)} | {m:.2f} | {w:.2f} |"
            for (g, p), (c, m, w) in worst.iterrows()
        ]
        lines.append("")
    return "\n".join(lines)


def main() -> None:
    """Run the grid and print its tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--populations", type=int, default=POPULATIONS)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(VARIABLES))
    parser.add_argument("--quick", action="store_true", help="one population, p = 10 and 20")
    parser.add_argument(
        "--not-large", action="store_true", help="leave the paper's largest cells for later"
    )
    options = parser.parse_args()
    if options.quick:
        populations = 1
    else:
        populations = options.populations
    if options.quick:
        sizes = [10, 20]
    else:
        sizes = options.sizes
    tasks = [(g, p, k) for k in range(populations) for p in sizes for g in GRAPHS]
    work = joblib.Parallel(n_jobs=options.jobs, return_as="generator")(
        joblib.delayed(cells)(*task, options.quick, not options.not_large) for task in tasks
    )
    frame = pd.DataFrame([row for part in track(work, total=len(tasks)) for row in part])
    frame = frame.sort_values(["graph", "variables"], kind="stable")
    if not options.quick:
        frame.to_csv(RESULTS / "learning.csv", index=False, float_format="%.6g")
    print(report(frame))


if __name__ == "__main__":
    main()
