"""Simulation-based calibration of LatentCounts: do its intervals cover what they say?

    OMP_NUM_THREADS=1 uv run --group benchmarks python benchmarks/calibration.py --jobs 2

Every replication draws a truth from the model's own prior (potentials or Dirichlet tables, their scales, the
number of records where it is private), true counts from the truth, and noisy tables from the counts; fits
`LatentCounts` on that release alone; and ranks each true number among thinned draws (Talts, Betancourt, Simpson,
Vehtari, Gelman 2018). Where the posterior is right, ranks are uniform, whatever the signal. Ties, of whole numbers
and of ranks, are broken at random, so that coverage is exact for any number of draws.

Noise is what a mechanism adds for (epsilon, tables): discrete Laplace of scale tables / epsilon, or discrete
Gaussian of variance tables / epsilon² (ρ = ε² / 2), add-or-remove-one. Private totals are log-uniform on
(N / 2, 2N), and the fit is told that range.

A cell's coverage is the mean over its numbers and replications, with the standard error of the replications'
means (numbers of one data set are correlated); it is called off beyond three. Blocks of replications are cached
under benchmarks/results/cache, so that an interrupted run goes on where it stopped: delete the cache after a
change to the engines. Writes benchmarks/results/calibration.csv and calibration-ranks.csv.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
import zlib
from dataclasses import asdict
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import joblib
import numpy as np
import pandas as pd
from calibration_cells import CELLS, Cell
from rich.progress import track
from scipy import stats

from bayesprivmrf.inference import gather
from bayesprivmrf.privacy import NoiseDistribution
from bayesprivmrf.release import NoisyStatistics

RESULTS = Path(__file__).parent / "results"
CACHE = RESULTS / "cache" / "calibration"
SEED = 20_451_201
BLOCK = 25
LEVELS = (0.5, 0.9, 0.95)
BINS = 20
CHAINS, TUNE, DRAWS, RANKED = 2, 300, 400, 100
FLAGGED = 1.05
"""R-hat of the short chains beyond which a fit counts as not mixed; a user's fit is judged by 1.01."""


def noise_of(law: NoiseDistribution, size: int, rng: np.random.Generator) -> np.ndarray:
    """Draws of an integer law, by inversion of its probabilities on all the integers that a double can tell."""
    reach = int(np.ceil(40 * max(law.scale, 1.0)))
    support = np.arange(-reach, reach + 1)
    weights = np.exp(law.log_density(support))
    return rng.choice(support, size=size, p=weights / weights.sum())


def uniform_rank(truth: np.ndarray, draws: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Position of each truth among its draws, in (0, 1), ties broken at random; draws along the first axis."""
    below = (draws < truth).sum(0)
    equal = (draws == truth).sum(0)
    place = below + np.floor(rng.random(truth.shape) * (equal + 1))
    return (place + rng.random(truth.shape)) / (len(draws) + 1)


def release_of(
    cell: Cell, counts: np.ndarray, total: int, rng: np.random.Generator
) -> NoisyStatistics:
    """Counts with the cell's noise, as a mechanism would publish them."""
    model = cell.model
    noisy = counts + noise_of(cell.noise, counts.size, rng)
    if cell.total == "known":
        public = total
    else:
        public = None
    return NoisyStatistics.from_tables(
        model, dict(model.tables(noisy)), noise=cell.noise, total=public
    )


def truths(cell: Cell, block: int, size: int) -> dict[str, np.ndarray]:
    """True numbers of a block's replications, from the prior of the formulation that will be fitted."""
    rng = np.random.default_rng([SEED, zlib.crc32(cell.slug.encode()), block])
    anything = release_of(cell, np.zeros(cell.model.size), cell.records, rng)
    formulation = cell.estimator._formulation(gather(anything), size)
    return numbers(formulation.prior_draws(size, rng))


def numbers(finished: Any) -> dict[str, np.ndarray]:
    """What is ranked, by name, each flattened over chains and draws: shape (draws, numbers)."""
    kept = {
        "marginals": finished.marginals,
        "counts": finished.counts,
        "potentials": finished.effects,
    }
    kept["total"] = finished.total[..., np.newaxis]
    if finished.scales is not None:
        kept["log scale"] = np.log(finished.scales)
    return {name: values.reshape(-1, values.shape[-1]) for name, values in kept.items()}


def replicate(cell: Cell, truth: dict[str, np.ndarray], entropy: list[int]) -> dict[str, Any]:
    """Ranks of one truth, and how the sampler fared."""
    rng = np.random.default_rng(entropy)
    release = release_of(cell, truth["counts"], int(truth["total"][0]), rng)
    begin = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # short chains: what they warn of is recorded instead
        posterior = cell.estimator.fit(
            release, rng=int(rng.integers(2**32)), chains=CHAINS, tune=TUNE, draws=DRAWS, cores=1
        )
    seconds = time.perf_counter() - begin
    draws = numbers(posterior._draws.finished)
    kept = np.linspace(0, CHAINS * DRAWS - 1, RANKED).round().astype(int)
    ranks = {}
    for name, values in truth.items():
        thinned = draws[name][kept]
        # Relaxed counts stand for the whole numbers that they round to.
        if name in ("counts", "total"):
            thinned = np.rint(thinned)
        ranks[name] = uniform_rank(values, thinned, rng).astype(np.float32)
    facts = {
        name: posterior.stats[name] for name in ("r_hat", "ess_bulk", "diverging", "saturated")
    }
    return {**ranks, **facts, "seconds": seconds, "status": posterior.status.value}


def _path(cell: Cell, block: int, size: int) -> Path:
    return CACHE / f"{cell.slug}-{block}-{size}.npz"


def run_block(cell: Cell, block: int, size: int) -> Path:
    """Replications of one block; read from the cache by the caller."""
    path = _path(cell, block, size)
    if path.exists():
        return path
    truth = truths(cell, block, size)
    rows = []
    for index in range(size):
        own = {name: values[index] for name, values in truth.items()}
        rows.append(replicate(cell, own, [SEED, zlib.crc32(cell.slug.encode()), block, index]))
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".part.npz")
    np.savez_compressed(
        temporary, **{name: np.stack([row[name] for row in rows]) for name in rows[0]}
    )
    temporary.replace(path)
    return path


def load(cell: Cell, blocks: int, size: int) -> dict[str, np.ndarray]:
    """All replications of one cell that are in the cache."""
    parts = [np.load(_path(cell, block, size)) for block in range(blocks)]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0].files}


QUANTITIES = ("marginals", "potentials", "counts", "total", "log scale")


def coverage(cell: Cell, found: dict[str, np.ndarray]) -> list[dict[str, object]]:
    """One row a quantity: coverage at each level, its clustered standard error, and the verdict."""
    rows = []
    for quantity in QUANTITIES:
        if quantity not in found or (quantity == "total" and cell.total == "known"):
            continue
        away = 2 * np.abs(found[quantity].astype(float) - 0.5)
        row: dict[str, object] = {**asdict(cell), "quantity": quantity, "replications": len(away)}
        worst = 0.0
        for level in LEVELS:
            each = (away <= level).mean(1)
            # at least the error of independent numbers: coverages of few replications may happen to be equal
            independent = (level * (1 - level) / away.size) ** 0.5
            error = max(each.std(ddof=1) / len(each) ** 0.5, independent)
            z = (each.mean() - level) / error
            worst = max(worst, abs(z))
            row |= {
                f"coverage {level:g}": each.mean(),
                f"error {level:g}": error,
                f"z {level:g}": z,
            }
        row |= {"worst z": worst, "within three errors": worst <= 3}
        row |= {
            "median seconds": np.median(found["seconds"]),
            "median smallest ESS": np.median(found["ess_bulk"]),
            "fits not mixed": np.mean(~(found["r_hat"] < FLAGGED)),
            "fits with divergences": np.mean(found["diverging"] > 0),
            "fits saturated": np.mean(found["saturated"] > 0.05),
        }
        rows.append(row)
    return rows


def histograms(cell: Cell, found: dict[str, np.ndarray]) -> list[dict[str, object]]:
    """Counts of ranks by bin, for plots."""
    rows = []
    for quantity in QUANTITIES:
        if quantity in found and not (quantity == "total" and cell.total == "known"):
            heights = np.histogram(found[quantity], bins=BINS, range=(0, 1))[0]
            rows.append(
                {
                    "cell": cell.slug,
                    "quantity": quantity,
                    **{f"bin {i}": h for i, h in enumerate(heights)},
                }
            )
    return rows


def report(frame: pd.DataFrame) -> str:
    """Markdown: a line for each cell and quantity, and how many verdicts chance alone would spoil."""
    lines = [
        "| graph | N | epsilon | noise | N is | prior | quantity | 50 % | 90 % | 95 % | worst z | s/fit "
        "| not mixed | |",
        "|---" * 14 + "|",
    ]
    for row in frame.to_dict("records"):
        shares = [f"{row[f'coverage {p:g}']:.3f} ± {row[f'error {p:g}']:.3f}" for p in LEVELS]
        if row["within three errors"]:
            mark = ""
        else:
            mark = "**off**"
        prior = {"auto": "default"}.get(row["formulation"], row["formulation"])
        parts = [
            row["graph"],
            f"{row['records']:,}",
            f"{row['epsilon']:g}",
            row["law"],
            row["total"],
            prior,
        ]
        parts += [row["quantity"], *shares, f"{row['worst z']:.1f}", f"{row['median seconds']:.2f}"]
        parts += [f"{row['fits not mixed']:.0%}", mark]
        lines.append("| " + " | ".join(map(str, parts)) + " |")
    off = int((~frame["within three errors"]).sum())
    chance = len(frame) * len(LEVELS) * 2 * stats.norm.sf(3)
    lines += [
        "",
        f"{off} of {len(frame)} lines are off; chance alone would spoil up to {chance:.1f}.",
    ]
    return "\n".join(lines)


def main() -> None:
    """Run the study and print its table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--replications", type=int, default=200)
    parser.add_argument(
        "--cells", default="", help="run the cells whose names contain this, e.g. grid-1000"
    )
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument(
        "--quick", action="store_true", help="one block of every cell; nothing is written"
    )
    arguments = parser.parse_args()
    cells = [cell for cell in CELLS if arguments.cells in cell.slug]
    if arguments.quick:
        blocks = 1
    else:
        blocks = -(-arguments.replications // BLOCK)
    # Cells of one compiled model follow each other, so that each process compiles few models at a time.
    tasks = [(cell, block) for cell in sorted(cells, key=_compiled) for block in range(blocks)]
    work = joblib.Parallel(
        n_jobs=arguments.jobs, return_as="generator_unordered", pre_dispatch=arguments.jobs
    )(joblib.delayed(run_block)(cell, block, BLOCK) for cell, block in tasks)
    for _ in track(work, total=len(tasks), description="blocks"):
        pass
    results = {cell: load(cell, blocks, BLOCK) for cell in cells}
    frame = pd.DataFrame([row for cell, found in results.items() for row in coverage(cell, found)])
    if cells == CELLS and not arguments.quick:
        frame.to_csv(RESULTS / "calibration.csv", index=False, float_format="%.5g")
        ranks = pd.DataFrame(
            [row for cell, found in results.items() for row in histograms(cell, found)]
        )
        ranks.to_csv(RESULTS / "calibration-ranks.csv", index=False)
    print(report(frame))


def _compiled(cell: Cell) -> tuple[str, ...]:
    return cell.graph, cell.formulation, cell.law, cell.total


if __name__ == "__main__":
    main()
