"""Effective draws per second: LatentCounts against NUTS on the normal approximation of NAPSU-MQ.

    OMP_NUM_THREADS=1 uv run --group benchmarks python benchmarks/samplers.py

The rival is NAPSU-MQ's own formulation (Räisä, Jälkö, Kaski, Honkela 2023; napsu_mq.py), helped where that leaves
its posterior as it is: the redundant directions of the tables (where nothing depends on θ) are projected out, so
that the covariance has the dimension of θ; variables are summed out by compiled messages between rows of them; and
the Laplace approximation that scales the space has the Fisher information in place of the Hessian, which is free.
Σ comes by automatic differentiation of the log-partition, as its authors have it, or, a further help, in closed
form.

Both get the same release with Gaussian noise and public N, one core, and for the log-linear engine the same prior.
Seconds are processor seconds on one core, compiling left out. The latent counts of LatentCounts are judged, and for
NAPSU-MQ the marginals, which are a function of what it samples; marginals of LatentCounts have fresh noise in every
draw and mix better. Writes benchmarks/results/samplers.csv.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault(
    "XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
)

import numpy as np
import pandas as pd
from models import chain, grid
from napsu_mq import napsu_run

from bayesprivmrf.marginals import sample
from bayesprivmrf.model import Domain, Effects, ModelSpecification
from bayesprivmrf.privacy import DiscreteGaussian
from bayesprivmrf.release import NoisyStatistics

RESULTS = Path(__file__).parent / "results"
SEED = 20_230_425
PRIOR_SCALE = 1.0


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A release, and rows of variables such that every clique lies in one row or two neighbouring ones."""

    name: str
    model: ModelSpecification
    rows: tuple[tuple[int, ...], ...]
    release: NoisyStatistics
    scale: float
    records: int
    prior_scale: float = PRIOR_SCALE


def problem(
    name: str, records: int, rows: tuple[tuple[int, ...], ...], states, scopes, epsilon=1.0
) -> Problem:
    domain = Domain(
        variables=tuple(range(len(states))), states=tuple(tuple(range(k)) for k in states)
    )
    model = ModelSpecification(domain=domain, cliques=scopes)
    rng = np.random.default_rng([SEED, records])
    effects = Effects.of(model.cardinalities, model.scopes)
    potentials = effects.potentials(PRIOR_SCALE * rng.normal(size=effects.size))
    x = sample(model.cardinalities, model.scopes, potentials, records, rng)
    counts = np.concatenate(
        [
            np.bincount(
                np.ravel_multi_index(tuple(x[:, v] for v in scope), shape),
                minlength=int(np.prod(shape)),
            )
            for scope, shape in zip(model.scopes, model.shapes, strict=True)
        ]
    )
    # ρ = ε² / 2 for all tables together, each of sensitivity one: σ² = tables / (2 ρ)
    scale = len(scopes) ** 0.5 / epsilon
    noisy = counts + np.rint(rng.normal(0, scale, counts.size))
    release = NoisyStatistics.from_tables(
        model, dict(model.tables(noisy)), noise=DiscreteGaussian(scale), total=records
    )
    return Problem(name=name, model=model, rows=rows, release=release, scale=scale, records=records)


def problems() -> dict[str, Problem]:
    side = 4
    length = 10
    across = tuple(tuple(range(side * i, side * i + side)) for i in range(side))
    return {
        "grid": problem("grid 4x4, two states", 5_000, across, *grid(side, 2)),
        "chain": problem(
            "chain of ten, ten states",
            10_000,
            tuple((v,) for v in range(length)),
            *chain(length, 10),
        ),
    }


def own_run(
    task: Problem, formulation: str, chains: int, tune: int, draws: int
) -> dict[str, object]:
    """LatentCounts on the same release, the chains one after the other; a second fit, which compiles nothing."""
    from bayesprivmrf.inference import LatentCounts

    if formulation == "log-linear":
        scale = PRIOR_SCALE
    else:
        scale = None
    estimator = LatentCounts(formulation=formulation, scale=scale)
    settings = {"chains": chains, "tune": tune, "cores": 1}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a few chains
        first = estimator.fit(task.release, rng=SEED, draws=draws, **settings)
        begin = time.process_time()
        estimator.fit(task.release, rng=SEED + 1, draws=1, **settings)
        warm = time.process_time() - begin
        begin = time.process_time()
        posterior = estimator.fit(task.release, rng=SEED + 1, draws=draws, **settings)
        whole = time.process_time() - begin
    finished = posterior._draws.finished
    return {
        "marginals": finished.marginals, "judged": finished.counts, "seconds": whole - warm, "warm_seconds": warm,
        "compile_seconds": first.stats["compile_seconds"],
        "steps": float(posterior.tree["sample_stats"]["n_steps"].mean()),
        "divergences": int(posterior.tree["sample_stats"]["diverging"].sum()),
    }  # fmt: skip


def effective(values: np.ndarray, kind: str = "bulk") -> np.ndarray:
    """Effective draws of each number, shape (numbers,), given draws of shape (chain, draw, numbers)."""
    import arviz as az
    import xarray as xr

    data = xr.Dataset({"x": (("chain", "draw", "cell"), values)})
    return az.ess(data, method=kind)["x"].to_numpy()


def summary(task: Problem, name: str, found: dict[str, object]) -> dict[str, object]:
    """One row: smallest and median bulk ESS of what is judged, a second, with and without warming up."""
    judged = effective(found["judged"])
    marginals = effective(found["marginals"])
    seconds = float(found["seconds"])
    warm = float(found["warm_seconds"])
    return {
        "problem": task.name, "sampler": name, "draws": int(np.prod(found["judged"].shape[:2])),
        "smallest ESS": judged.min(), "median ESS": np.median(judged), "smallest ESS, marginals": marginals.min(),
        "seconds": seconds, "warm-up seconds": warm, "compile seconds": found["compile_seconds"],
        "smallest ESS/s": judged.min() / seconds, "median ESS/s": np.median(judged) / seconds,
        "smallest ESS/s with warm-up": judged.min() / (seconds + warm),
        "steps a draw": found["steps"], "divergences": found["divergences"],
    }  # fmt: skip


RUNS = {
    "grid": [
        ("LatentCounts, log-linear", own_run, ("log-linear", 2, 500, 1000)),
        ("NAPSU-MQ, Σ by automatic differentiation", napsu_run, ("automatic", 2, 500, 1000)),
        ("NAPSU-MQ, Σ in closed form", napsu_run, ("closed", 2, 500, 1000)),
    ],
    "chain": [
        ("LatentCounts, hyper-Dirichlet", own_run, ("hyper-dirichlet", 2, 500, 1000)),
        ("LatentCounts, log-linear", own_run, ("log-linear", 2, 500, 1000)),
        ("NAPSU-MQ, Σ by automatic differentiation", napsu_run, ("automatic", 1, 75, 100)),
        ("NAPSU-MQ, Σ in closed form", napsu_run, ("closed", 1, 75, 100)),
    ],
}


def agreement(task: Problem, runs: dict[str, dict[str, object]]) -> list[str]:
    """Largest difference of posterior means, in standard deviations, and range of the ratio of those."""
    lines = []
    reference = next(name for name in runs if name.endswith("closed form"))
    truth = runs[reference]["marginals"]
    mean = truth.mean((0, 1))
    sd = truth.std((0, 1))
    for name, found in runs.items():
        if name != reference:
            away = np.abs(found["marginals"].mean((0, 1)) - mean) / sd
            ratio = found["marginals"].std((0, 1)) / sd
            low, middle, high = np.quantile(ratio, [0.05, 0.5, 0.95])
            lines.append(
                f"{task.name}: {name} against {reference}: means differ by {np.median(away):.2f} (median) and "
                f"{away.max():.2f} (largest) standard deviations; their ratio is {low:.2f}, {middle:.2f}, {high:.2f}"
            )
    return lines


def main() -> None:
    """Run both problems and print a table, and how far the posteriors agree."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--problem", choices=("grid", "chain"), help="one alone; nothing is written"
    )
    parser.add_argument("--skip-napsu", action="store_true")
    arguments = parser.parse_args()
    rows = []
    notes = []
    rival = not arguments.skip_napsu
    if rival and importlib.util.find_spec("numpyro") is None:
        rival = False
        notes.append("NAPSU-MQ is left out: NumPyro is not installed (uv sync --group benchmarks).")
    for key, task in problems().items():
        if arguments.problem not in (None, key):
            continue
        runs = {}
        for name, run, settings in RUNS[key]:
            if run is napsu_run and not rival:
                continue
            runs[name] = run(task, *settings)
            rows.append(summary(task, name, runs[name]))
            print(rows[-1], flush=True)
        if rival:
            notes += agreement(task, runs)
    frame = pd.DataFrame(rows)
    if rival and arguments.problem is None:
        frame.to_csv(RESULTS / "samplers.csv", index=False, float_format="%.4g")
    print(table(frame))
    print("\n".join(notes))


def table(frame: pd.DataFrame) -> str:
    """Markdown."""
    text = frame.map(lambda value: f"{value:.3g}" if isinstance(value, float) else str(value))
    lines = ["| " + " | ".join(text.columns) + " |", "|---" * text.shape[1] + "|"]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in text.to_numpy())])


if __name__ == "__main__":
    main()
