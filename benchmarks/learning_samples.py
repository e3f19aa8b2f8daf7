"""Records needed for a largest error of .1 of the couplings, against the number of variables: Table 1 of the paper.

    OMP_NUM_THREADS=1 uv run --group benchmarks python benchmarks/learning_samples.py --jobs 2 [--quick]

Random 3-regular Ising models, couplings of size .3 with random signs; rho = 1, replace-one neighbours. The mean error
of ten populations (five at p = 64 and 128; three for the paper's calibration at 64, where it ends) is measured at
numbers of records a factor of the root of two apart, upwards until it is below .08; a line through the logarithms of
errors from .06 to .15 gives the crossing.
Slopes are those of a line through log n against log p; Zhang et al. (2020) have 1/2 for parameter learning under
zero-concentrated privacy, and 0, a logarithm, without privacy. Settings as in learning.py. Every release is cached
under benchmarks/results/cache/learning-samples. Writes benchmarks/results/learning-samples.csv.
"""

from __future__ import annotations

import argparse
import math
import os
import warnings

os.environ.setdefault("OMP_NUM_THREADS", "1")

import joblib
import numpy as np
import pandas as pd
from learning_models import CACHE, RESULTS, IsingPopulation, kept
from papers.frank_wolfe import PaperFrankWolfe
from rich.progress import track

from bayesprivmrf.mechanisms import PrivateFrankWolfe, SelectMeasure

VARIABLES, RHO, TARGET, SEED = (8, 16, 32, 64, 128), 1.0, 0.1, 20_201_208
METHODS = ("not private", "SelectMeasure", "moments", "Frank-Wolfe, tight", "Frank-Wolfe, paper")
# Where the search begins for p = 8, and for each doubling of p; below the crossing, so that it ends in few steps.
BEGIN = {
    "not private": (350, 1.15),
    "SelectMeasure": (350, 1.15),
    "moments": (350, 1.3),
    "Frank-Wolfe, tight": (1_000, 1.4),
    "Frank-Wolfe, paper": (6_000, 1.6),
}
BAND = (0.06, 0.08, 0.15)
MOST = 600_000


def error(method: str, variables: int, records: int, index: int) -> float:
    """Error of one release."""
    population = IsingPopulation.of("3-regular", variables, SEED + index)

    def found() -> float:
        codes = population.codes(records, SEED + index)
        if method == "not private":
            return population.likelihood_error(codes)[0]
        common = {"rho": RHO, "adjacency": "replace-one"}
        mechanism = {
            "SelectMeasure": lambda: SelectMeasure(degree=4, **common),
            "moments": lambda: SelectMeasure(degree=variables - 1, **common),
            "Frank-Wolfe, tight": lambda: PrivateFrankWolfe(
                width=population.width, single_share=0, **common
            ),
            "Frank-Wolfe, paper": lambda: PaperFrankWolfe(width=population.width, **common),
        }[method]()
        rng = np.random.default_rng([SEED, index, variables, records])
        learned = mechanism.release(population.network, population.frame(codes), rng=rng)
        return population.error(learned.coupling_matrix)

    name = f"{method.replace(', ', '-').replace(' ', '-')}-{variables}-{records}-{index}.json"
    return kept(CACHE / "learning-samples" / name, found)


def populations(method: str, variables: int) -> int:
    if variables <= 32:
        return 10
    if method == "Frank-Wolfe, paper":
        return 3
    return 5


def needed(method: str, variables: int) -> dict[str, object]:
    """Records at which the mean error crosses the target; none where the search stopped before."""
    warnings.simplefilter("ignore")
    start, growth = BEGIN[method]
    records = start * growth ** math.log2(variables / 8)
    sizes = []
    errors = []
    while not errors or errors[-1] > BAND[1]:
        if records > MOST:
            return {"method": method, "variables": variables, "records": math.nan}
        sizes.append(round(records))
        errors.append(
            float(
                np.mean(
                    [
                        error(method, variables, sizes[-1], k)
                        for k in range(populations(method, variables))
                    ]
                )
            )
        )
        records *= math.sqrt(2)
    near = [
        (math.log(n), math.log(e))
        for n, e in zip(sizes, errors, strict=True)
        if BAND[0] < e < BAND[2]
    ]
    slope, level = np.polyfit(*np.array(near).T, 1)
    crossing = math.exp((math.log(TARGET) - level) / slope)
    return {"method": method, "variables": variables, "records": crossing, "exponent": slope}


def report(frame: pd.DataFrame) -> str:
    """Markdown table with slopes."""
    table = frame.pivot_table(index="method", columns="variables", values="records", dropna=False)
    table = table.loc[[m for m in METHODS if m in table.index]]
    lines = [
        "| | " + " | ".join(f"p = {p}" for p in table.columns) + " | slope |",
        "|---" * (len(table.columns) + 2) + "|",
    ]
    for method, row in table.iterrows():
        known = row.dropna()
        slope = np.polyfit(np.log(np.asarray(known.index, dtype=float)), np.log(known), 1)[0]
        shown = " | ".join("not run" if np.isnan(v) else f"{v:,.0f}" for v in row)
        lines.append(f"| {method} | {shown} | {slope:.2f} |")
    return "\n".join(lines)


def main() -> None:
    """Search all cells and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument(
        "--quick", action="store_true", help="p = 8 and 16, without the paper's calibration"
    )
    options = parser.parse_args()
    if options.quick:
        variables = VARIABLES[:2]
    else:
        variables = VARIABLES
    methods = [m for m in METHODS if not (options.quick and m == "Frank-Wolfe, paper")]
    tasks = [
        (m, p) for m in methods for p in variables if not (m == "Frank-Wolfe, paper" and p > 64)
    ]
    work = joblib.Parallel(n_jobs=options.jobs, return_as="generator")(
        joblib.delayed(needed)(*task) for task in tasks
    )
    frame = pd.DataFrame(list(track(work, total=len(tasks))))
    if not options.quick:
        frame.to_csv(RESULTS / "learning-samples.csv", index=False, float_format="%.6g")
    print(report(frame))


if __name__ == "__main__":
    main()
