"""Parities and t-wise models of two-state variables: which release, which fit, at which n and rho.

Run: python benchmarks/parities.py [parities|coefficients|fits|oracle] [--quick] [--repetitions 5]
``parities``: largest error of all parities of the records up to order t, by Gaussian noise, the same with a
fitted model, multiplicative weights and sepFEM; ``coefficients``: largest error of the coefficients of random models
of order 3, by private Frank-Wolfe (Algorithms 4 and 5) and by Gaussian parities with a fitted model; ``fits``: that
of this fit and of a plain ridge, for sparse models and for indicators of rare events, with seconds;
``oracle``: seconds of sepFEM's mixed-integer program. Each cell is kept in benchmarks/results/cache/parities, so that
an interrupted run goes on where it stopped: delete the cache after a change. Writes Markdown to stdout.
"""

from __future__ import annotations

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import argparse
import itertools
import json
import math
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from separator_fem import SeparatorFEM, best_by_enumeration, best_by_program

import bayesprivmrf as bpm
from bayesprivmrf.learning.parities import default_ridges, fit_parities, walsh_hadamard
from bayesprivmrf.mechanisms import ParityQueries, PrivateFrankWolfe
from bayesprivmrf.mechanisms.parities import parity_sums
from bayesprivmrf.model import Monomials
from bayesprivmrf.noise import SimulatedNoise
from bayesprivmrf.privacy import Adjacency, selection_scale

CACHE = Path(__file__).parent / "results" / "cache" / "parities"
REPLACE = Adjacency.REPLACE_ONE
DENSITY = 0.15  # of monomials whose coefficient is not zero


def kept(slug: str, cell: Callable[[], dict[str, float]]) -> dict[str, float]:
    """A cell from its file, or computed and filed."""
    path = CACHE / f"{slug}.json"
    if not path.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(cell()))
    return json.loads(path.read_text())


def random_model(
    p: int, order: int, width: float, rng: np.random.Generator
) -> tuple[Monomials, np.ndarray]:
    """Sparse normal coefficients, scaled to a width."""
    sets = Monomials.complete(p, order)
    h = rng.normal(size=len(sets)) * (rng.random(len(sets)) < DENSITY) * (sets.orders > 0)
    masks = sets.masks
    sums = [np.abs(h[(masks >> v & 1) == 1]).sum() for v in range(p)]
    return sets, h * width / max(max(sums), 1e-9)


def records_of(sets: Monomials, h: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """Codes 0 and 1 of n records, shape (n, p), drawn exactly."""
    spectrum = np.zeros(2**sets.variables)
    spectrum[sets.masks] = h
    energy = walsh_hadamard(spectrum)
    weights = np.exp(energy - energy.max())
    states = rng.choice(weights.size, size=n, p=weights / weights.sum())
    return (1 - (states[:, None] >> np.arange(sets.variables) & 1)).astype(np.uint8)


def parity_cell(
    p: int, order: int, n: int, rho: float, width: float, seed: int
) -> dict[str, float]:
    rng = np.random.default_rng([seed, p, n, round(10 * width)])
    sets, h = random_model(p, order, width, rng)
    codes = records_of(sets, h, n, rng)
    exact = parity_sums(2 * codes.astype(np.int8) - 1, np.ones(n, np.int64), sets)[1:] / n
    network = bpm.declare(states={v: [0, 1] for v in range(p)})
    data = pd.DataFrame(codes, columns=range(p))
    found = {"zero": float(np.abs(exact).max())}
    for method in ("gaussian", "pmw", "auto"):
        mechanism = ParityQueries(rho=rho, order=order, method=method, adjacency=REPLACE)
        begin = time.perf_counter()
        release = mechanism.release(network, data, rng=seed)
        found[f"{method} seconds"] = time.perf_counter() - begin
        found[method] = float(np.abs(release.values.to_numpy() - exact).max())
        if method == "gaussian":
            fitted = release.fit()
            found["fitted"] = float(
                np.abs(expectations(sets, fitted.coefficients)[1:] - exact).max()
            )
    begin = time.perf_counter()
    means = by_separator_fem(sets, np.rint(n * exact).astype(np.int64), n, rho, seed)
    found["sepfem seconds"] = time.perf_counter() - begin
    found["sepfem"] = float(np.abs(means - exact).max())
    return found


def by_separator_fem(
    sets: Monomials, sums: np.ndarray, n: int, rho: float, seed: int
) -> np.ndarray:
    """Expectations of all but the empty set, under replace-one neighbours, where a choice has range 4."""
    rounds = max(5, min(3 * math.ceil(0.63 * (n * math.sqrt(rho) / 2) ** (2 / 3)), 200))
    algorithm = SeparatorFEM(rounds=rounds, choice_scale=selection_scale(4.0, rho, rounds))
    source = SimulatedNoise(np.random.default_rng(seed))
    return algorithm.expectations(np.concatenate([[n], sums]), sets, float(n), source)[1:]


def expectations(sets: Monomials, h: np.ndarray) -> np.ndarray:
    spectrum = np.zeros(2**sets.variables)
    spectrum[sets.masks] = h
    energy = walsh_hadamard(spectrum)
    weights = np.exp(energy - energy.max())
    return walsh_hadamard(weights / weights.sum())[sets.masks]


def coefficient_cell(p: int, n: int, rho: float, width: float, seed: int) -> dict[str, float]:
    rng = np.random.default_rng([seed, p, n, round(10 * width), 3])
    sets, h = random_model(p, 3, width, rng)
    codes, counts = np.unique(records_of(sets, h, n, rng), axis=0, return_counts=True)
    maximal = np.array([h[i] != 0 or k == 3 for i, k in enumerate(sets.orders)])
    members = list(sets)
    for place in np.flatnonzero(h):  # a monomial inside another that is not zero is not maximal
        for size in range(1, len(members[place])):
            for inner in itertools.combinations(members[place], size):
                maximal[sets.positions[inner]] = False
    found = {"zero": float(np.abs(h).max())}

    def keep(name: str, estimate: np.ndarray) -> None:
        found[name] = float(np.abs(estimate - h)[1:].max())
        found[f"{name}, maximal"] = float(np.abs(estimate - h)[maximal].max())

    network = bpm.declare(states={v: [0, 1] for v in range(p)})
    data = pd.DataFrame(np.repeat(codes, counts, axis=0), columns=range(p))
    for target in ("l1", "linf"):
        learner = PrivateFrankWolfe(
            rho=rho, width=width, order=3, target=target, single_share=0, adjacency=REPLACE
        )
        begin = time.perf_counter()
        keep(target, learner.release(network, data, rng=seed).coefficients)
        found[f"{target} seconds"] = time.perf_counter() - begin
    begin = time.perf_counter()
    release = ParityQueries(rho=rho, order=3, method="gaussian", adjacency=REPLACE).release(
        network, data, rng=seed
    )
    keep("gaussian", release.fit().coefficients)
    found["gaussian seconds"] = time.perf_counter() - begin
    keep("no ridge", release.fit(ridge=1e-6).coefficients)
    exact = ParityQueries(rho=1e9, order=3, method="gaussian", adjacency=REPLACE).release(
        network, data, rng=seed
    )
    keep("no noise", exact.fit().coefficients)
    return found


def mean_of(cells: list[dict[str, float]]) -> dict[str, float]:
    return {name: float(np.mean([cell[name] for cell in cells])) for name in cells[0]}


def parities(options: argparse.Namespace) -> None:
    print(
        "| p, t, width | n | rho | n sqrt(rho) | all zero | Gaussian | + fit | pmw | sepFEM | auto |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    if not options.quick:
        sizes = [(8, 3), (10, 2), (10, 3), (12, 3), (14, 3)]
    else:
        sizes = [(8, 3)]
    grid = [(300, 0.1), (1000, 0.1), (1000, 1.0), (3000, 0.1), (10_000, 0.1), (10_000, 1.0)]
    for (p, order), width, (n, rho) in itertools.product(sizes, (1.0, 2.5), grid):
        cells = [
            kept(
                f"parities-{p}-{order}-{n}-{rho:g}-{width:g}-{seed}",
                lambda p=p, order=order, n=n, rho=rho, width=width, seed=seed: parity_cell(
                    p, order, n, rho, width, seed
                ),
            )
            for seed in range(options.repetitions)
        ]
        m = mean_of(cells)
        names = ("zero", "gaussian", "fitted", "pmw", "sepfem", "auto")
        row = " | ".join(f"{m[name]:.3f}" for name in names)
        print(
            f"| {p}, {order}, {width:g} | {n:,} | {rho:g} | {n * rho**0.5:,.0f} | {row} |",
            flush=True,
        )


def coefficients(options: argparse.Namespace) -> None:
    print(
        "| p, width | n | rho | all zero | l1 | linf | Gaussian | no noise | l1, maximal | linf, maximal |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    grid = [(3000, 0.1), (3000, 1.0), (30_000, 0.1), (30_000, 1.0), (300_000, 0.1)]
    for p, width, (n, rho) in itertools.product(
        (8, 10, 12) if not options.quick else (8,), (0.8, 2.0), grid
    ):
        cells = [
            kept(
                f"coefficients-{p}-{n}-{rho:g}-{width:g}-{seed}",
                lambda p=p, n=n, rho=rho, width=width, seed=seed: coefficient_cell(
                    p, n, rho, width, seed
                ),
            )
            for seed in range(options.repetitions)
        ]
        m = mean_of(cells)
        names = ("zero", "l1", "linf", "gaussian", "no noise", "l1, maximal", "linf, maximal")
        row = " | ".join(f"{m[name]:.3f}" for name in names)
        print(f"| {p}, {width:g} | {n:,} | {rho:g} | {row} |", flush=True)


def rare_model(p: int, order: int, rng: np.random.Generator) -> tuple[Monomials, np.ndarray]:
    """Indicators that hardly anybody has, each coupled to the next two; no triples."""
    sets = Monomials.complete(p, order)
    h = np.zeros(len(sets))
    for members, place in sets.positions.items():
        if len(members) == 1:
            h[place] = -rng.uniform(0.2, 0.8)
        elif len(members) == 2 and members[1] - members[0] <= 2:
            h[place] = rng.uniform(0.2, 0.6)
    return sets, h


def fit_cell(p: int, order: int, kind: str, n: int, rho: float, seed: int) -> dict[str, float]:
    rng = np.random.default_rng([seed, p, n, order])
    if kind == "rare":
        sets, h = rare_model(p, order, rng)
    else:
        sets, h = random_model(p, order, 2.5, rng)
    data = pd.DataFrame(records_of(sets, h, n, rng), columns=range(p))
    network = bpm.declare(states={v: [0, 1] for v in range(p)})
    release = ParityQueries(rho=rho, order=order, method="gaussian").release(
        network, data, rng=seed
    )
    begin = time.perf_counter()
    fitted = release.fit()
    found = {
        "seconds": time.perf_counter() - begin,
        "fit": float(np.abs(fitted.coefficients - h).max()),
    }
    found["converged"] = float(fitted.status == "converged")
    ridges = default_ridges(sets, release.means, release.standard_deviation**2, release.total)
    found["ridge"] = float(np.abs(fit_parities(sets, release.means, ridges)[0] - h).max())
    return found | {"zero": float(np.abs(h).max())}


def fits(options: argparse.Namespace) -> None:
    print("| p, t | model | n | rho | all zero | ridge | fit | seconds | converged |")
    print("|---|---|---|---|---|---|---|---|---|")
    sizes = itertools.product((8, 12, 16) if not options.quick else (8,), (2, 3))
    grid = list(itertools.product(("sparse", "rare"), (10_000, 100_000), (0.1, 1.0)))
    for (p, order), (kind, n, rho) in itertools.product(sizes, grid):
        cells = [
            kept(
                f"fits-{p}-{order}-{kind}-{n}-{rho:g}-{seed}",
                lambda p=p, order=order, kind=kind, n=n, rho=rho, seed=seed: fit_cell(
                    p, order, kind, n, rho, seed
                ),
            )
            for seed in range(options.repetitions)
        ]
        m = mean_of(cells)
        row = " | ".join(f"{m[name]:.3f}" for name in ("zero", "ridge", "fit"))
        ends = f"{m['seconds']:.2f} | {m['converged']:.0%}"
        print(f"| {p}, {order} | {kind} | {n:,} | {rho:g} | {row} | {ends} |", flush=True)


def oracle(options: argparse.Namespace) -> None:
    print(
        "| p | parities weighted | program, seconds | enumeration, seconds | same optimum |\n|---|---|---|---|---|"
    )
    rng = np.random.default_rng(1)
    for p, weighted in ((10, 20), (10, 60), (16, 20), (16, 60), (24, 20)):
        sets = Monomials.complete(p, 3)
        weights = np.zeros(len(sets))
        for place in rng.integers(1, len(sets), weighted):
            weights[place] += rng.choice([-1.0, 1.0])
        eta = 6 * rng.laplace(size=(1, p))
        begin = time.perf_counter()
        programmed = best_by_program(weights, sets, eta[0])
        between = time.perf_counter()
        same = "not looked for"
        if p <= 16:
            same = str(bool((best_by_enumeration(weights, sets, eta)[0] == programmed).all()))
        if p <= 16:
            end = time.perf_counter()
        else:
            end = float("nan")
        print(
            f"| {p} | {weighted} | {between - begin:.2f} | {end - between:.4f} | {same} |",
            flush=True,
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parts = {"parities": parities, "coefficients": coefficients, "fits": fits, "oracle": oracle}
    parser.add_argument("part", nargs="?", choices=list(parts))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--repetitions", type=int, default=5)
    options = parser.parse_args()
    warnings.simplefilter("error")
    for title, part in parts.items():
        if options.part in (None, title):
            print(f"\n## {title}\n")
            part(options)
