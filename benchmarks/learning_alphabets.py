"""Largest error of the couplings of variables of three, four and five states: Frank-Wolfe's forms, and the others.

    OMP_NUM_THREADS=1 uv run --group benchmarks python benchmarks/learning_alphabets.py --jobs 2 [--quick]

Random 3-regular graphs on 12 variables; a coupling is a centred table of independent normal entries, scaled so that
its largest is .3; n records under replace-one neighbours, budget rho; five populations, of the paper's calibration at
n = 100,000 three for three and four states and one for five. Error: the largest over all pairs of variables and of
states. Frank-Wolfe is told the true width, SelectMeasure degree 4. "paper" is Algorithm 3 with its own constants and
steps, at its own rho, within which it stays. Cells are cached under benchmarks/results/cache/learning-alphabets.
Writes benchmarks/results/learning-alphabets.csv.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from itertools import product

os.environ.setdefault("OMP_NUM_THREADS", "1")

import joblib
import numpy as np
import pandas as pd
from learning_models import CACHE, COUPLING, RESULTS, edges_of, kept
from papers.frank_wolfe import PaperFrankWolfe
from rich.progress import track

import bayesprivmrf as bpm
from bayesprivmrf.marginals import sample
from bayesprivmrf.mechanisms import PrivateFrankWolfe, SelectMeasure

VARIABLES, STATES, POPULATIONS, SEED = 12, (3, 4, 5), 5, 20_201_207
CELLS = ((10_000, 0.1), (10_000, 1.0), (10_000, 10.0), (100_000, 0.1), (100_000, 1.0))
LARGE, LARGE_POPULATIONS = 100_000, {3: 3, 4: 3, 5: 1}

type Row = dict[str, object]


def mechanisms(width: float, rho: float) -> dict[str, PrivateFrankWolfe | SelectMeasure]:
    common = {"rho": rho, "adjacency": "replace-one"}
    return {
        "Frank-Wolfe, softmax": PrivateFrankWolfe(width=width, single_share=0, **common),
        "Frank-Wolfe, corrected pairs": PrivateFrankWolfe(
            width=width, method="pairs", single_share=0, **common
        ),
        "Frank-Wolfe, paper": PaperFrankWolfe(width=width, **common),
        "all tables": SelectMeasure(degree=VARIABLES - 1, **common),
        "SelectMeasure": SelectMeasure(degree=4, **common),
    }


def centred(table: np.ndarray) -> np.ndarray:
    return table - table.mean(axis=0) - table.mean(axis=1, keepdims=True) + table.mean()


def cells(states: int, index: int, quick: bool) -> list[Row]:
    """All methods on one population."""
    warnings.simplefilter("ignore")
    wanted = CELLS[1:2] if quick else CELLS
    edges = sorted((min(e), max(e)) for e in edges_of("3-regular", VARIABLES, SEED + index))
    rng = np.random.default_rng([SEED, states, index])
    truth = np.zeros((VARIABLES * states,) * 2)
    flat = []
    for i, j in edges:
        table = centred(rng.standard_normal((states, states)))
        table *= COUPLING / np.abs(table).max()
        flat.append(table.ravel())
        truth[i * states : (i + 1) * states, j * states : (j + 1) * states] = table
        truth[j * states : (j + 1) * states, i * states : (i + 1) * states] = table.T
    sizes = np.abs(truth).reshape(VARIABLES, states, VARIABLES, states).max(axis=3).sum(axis=2)
    width = float(sizes.max())
    codes = sample(
        (states,) * VARIABLES, edges, np.concatenate(flat), max(n for n, _ in wanted), rng
    )
    names = [f"v{i}" for i in range(VARIABLES)]
    network = bpm.declare(states={name: list(range(states)) for name in names})
    rows: list[Row] = []
    for n, rho in wanted:
        for method, mechanism in mechanisms(width, rho).items():
            if "paper" in method and n >= LARGE and index >= LARGE_POPULATIONS[states]:
                continue

            def release(n: int = n, rho: float = rho, mechanism=mechanism) -> Row:
                seed = np.random.SeedSequence([SEED, states, index, n, int(1000 * rho)])
                begin = time.perf_counter()
                learned = mechanism.release(
                    network, pd.DataFrame(codes[:n], columns=names), rng=np.random.default_rng(seed)
                )
                seconds = time.perf_counter() - begin
                return {
                    "error": float(np.abs(learned.coupling_matrix - truth).max()),
                    "seconds": seconds,
                    "steps": learned.details.get("steps"),
                    "status": learned.status,
                }

            name = (
                f"{states}-{index}-{n}-{rho:g}-{method.replace(', ', '-').replace(' ', '-')}.json"
            )
            found = kept(CACHE / "learning-alphabets" / name, release)
            rows.append(
                {
                    "states": states,
                    "population": index,
                    "records": n,
                    "rho": rho,
                    "method": method,
                    "width": width,
                    **found,
                }
            )
    return rows


def report(frame: pd.DataFrame) -> str:
    """Markdown table of mean errors, and the best corrected form over the paper's."""
    methods = list(dict.fromkeys(frame["method"]))
    mean = frame.pivot_table(index=["states", "records", "rho"], columns="method", values="error")[
        methods
    ]
    ratio = mean[methods[:2]].max(axis=1) / mean["Frank-Wolfe, paper"]
    lines = [
        "| k | n | ρ | " + " | ".join(methods) + " | worse corrected form / paper |",
        "|---" * (len(methods) + 4) + "|",
    ]
    for (k, n, rho), row in mean.iterrows():
        shown = " | ".join(f"{v:.3f}" for v in row)
        lines.append(f"| {k} | {n:,} | {rho:g} | {shown} | {ratio[k, n, rho]:.2f} |")
    return "\n".join(lines)


def main() -> None:
    """Run the cells and print their table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument(
        "--quick", action="store_true", help="one population, one cell for each alphabet"
    )
    options = parser.parse_args()
    tasks = list(product(STATES, range(1 if options.quick else POPULATIONS)))
    work = joblib.Parallel(n_jobs=options.jobs, return_as="generator")(
        joblib.delayed(cells)(*task, options.quick) for task in tasks
    )
    frame = pd.DataFrame([row for part in track(work, total=len(tasks)) for row in part])
    if not options.quick:
        frame.to_csv(RESULTS / "learning-alphabets.csv", index=False, float_format="%.6g")
    print(report(frame))


if __name__ == "__main__":
    main()
