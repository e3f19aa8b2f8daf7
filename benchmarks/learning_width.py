"""What telling private Frank-Wolfe too small or too large a width costs.

    OMP_NUM_THREADS=1 uv run --group benchmarks python benchmarks/learning_width.py [--quick]

Random 3-regular Ising models, couplings of size .3 with random signs, no fields, so a true width of .9; replace-one
neighbours; five populations, three of 200 variables. Largest error of a coupling, and the mean estimate of those of
.3, by multiples of the true width. Releases are cached under benchmarks/results/cache/learning-width: delete it after
a change to the library. Writes benchmarks/results/learning-width.csv.
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np
import pandas as pd
from learning_models import CACHE, COUPLING, RESULTS, drawn, kept
from rich.progress import track

from bayesprivmrf.mechanisms import PrivateFrankWolfe

MULTIPLES, SEED = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0), 20_201_209
CELLS = {  # by number of variables: records and rho
    20: ((100_000, 1.0), (10_000, 0.1), (3_000, 0.1)),
    50: ((100_000, 1.0), (10_000, 1.0), (10_000, 0.1)),
    200: ((30_000, 1.0), (10_000, 1.0), (10_000, 0.1)),
}
POPULATIONS = {20: 5, 50: 5, 200: 3}


def released(
    variables: int, records: int, rho: float, multiple: float, index: int
) -> dict[str, float]:
    """Errors of one release."""
    population, codes = drawn("3-regular", variables, records, SEED + index)
    seed = np.random.SeedSequence(
        [SEED, index, variables, records, int(1000 * rho), int(10 * multiple)]
    )
    mechanism = PrivateFrankWolfe(
        rho=rho, width=multiple * population.width, single_share=0, adjacency="replace-one"
    )
    begin = time.perf_counter()
    learned = mechanism.release(
        population.network, population.frame(codes), rng=np.random.default_rng(seed)
    ).coupling_matrix
    coupled = population.couplings != 0
    return {
        "error": population.error(learned),
        "estimate": COUPLING * float((learned[coupled] / population.couplings[coupled]).mean()),
        "seconds": time.perf_counter() - begin,
    }


def report(frame: pd.DataFrame) -> str:
    """Markdown table."""
    lines = [
        "| p, n, ρ | | "
        + " | ".join(f"{m:g} times" for m in sorted(frame["multiple"].unique()))
        + " |",
        "|---" * (2 + frame["multiple"].nunique()) + "|",
    ]
    for (p, n, rho), own in frame.groupby(["variables", "records", "rho"], sort=False):
        mean = own.groupby("multiple")[["error", "estimate", "seconds"]].mean()
        for name, shown in (("largest error", "error"), ("mean estimate of .3", "estimate")):
            if shown == "error":
                where = f"{p}, {n:,}, {rho:g}"
            else:
                where = ""
            lines.append(
                f"| {where} | {name} | " + " | ".join(f"{v:.3f}" for v in mean[shown]) + " |"
            )
    return "\n".join(lines)


def main() -> None:
    """Run what is not cached and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--quick", action="store_true", help="20 variables and at most 10,000 records alone"
    )
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    cells = [
        (p, n, rho, multiple, k)
        for p, own in CELLS.items()
        for n, rho in own
        for k in range(POPULATIONS[p])
        for multiple in MULTIPLES
        if not options.quick or (p == 20 and n <= 10_000)
    ]
    rows = []
    for cell in track(cells):
        p, n, rho, multiple, k = cell
        path = CACHE / "learning-width" / f"{p}-{n}-{rho:g}-{multiple:g}-{k}.json"
        found = kept(path, lambda cell=cell: released(*cell))
        rows.append(
            {
                "variables": p,
                "records": n,
                "rho": rho,
                "multiple": multiple,
                "population": k,
                **found,
            }
        )
    frame = pd.DataFrame(rows)
    if not options.quick:
        frame.to_csv(RESULTS / "learning-width.csv", index=False, float_format="%.6g")
    print(report(frame))


if __name__ == "__main__":
    main()
