"""Why `SelectMeasure` is as it is: how pairs are ranked, how the budget is shared, how the model is fitted.

    OMP_NUM_THREADS=1 uv run --group benchmarks python benchmarks/select_measure.py [--quick]

Ising models of benchmarks/learning_models.py with couplings of size .3, five populations a cell, replace-one
neighbours, degree 4. Mean largest error of a coupling for

- one ranking of all pairs against the four best of each variable, at equal budgets;
- shares of the budget for the choice;
- the fit: closed form (the fixed point of loopy belief propagation), Gibbs sampling, exact, all of one release.

Noise is simulated, common random numbers within a row. Prints Markdown tables; results are not kept.
"""

from __future__ import annotations

import argparse
import os
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pandas as pd
from learning_models import IsingPopulation

from bayesprivmrf.inference.loglinear_fit import fit as pair_fit
from bayesprivmrf.learning.models.pairs import pair_arrays
from bayesprivmrf.learning.select_measure import (
    MeasurementPlan,
    PairTargets,
    all_pairs,
    dependence_scores,
    pair_sums,
    pairs_sensitivity,
    public_shares,
    score_range,
    singles_sensitivity,
)
from bayesprivmrf.learning.select_measure.couplings import fit_targets
from bayesprivmrf.learning.select_measure.measurement import Measured
from bayesprivmrf.mechanisms import discrete_gaussian_laws
from bayesprivmrf.mechanisms.select_measure.one_choice import measured_on_rows
from bayesprivmrf.noise import SimulatedNoise
from bayesprivmrf.privacy import Adjacency, selection_scale

CELLS = (
    ("3-regular", 50, 3_000, 0.1),
    ("3-regular", 50, 10_000, 0.01),
    ("3-regular", 50, 10_000, 10.0),
    ("grid", 50, 10_000, 0.01),
    ("3-regular", 200, 3_000, 1.0),
    ("3-regular", 200, 10_000, 0.1),
    ("3-regular", 200, 30_000, 0.01),
    ("grid", 200, 10_000, 0.1),
)
SHARES, DEGREE, ONE_WAY, POPULATIONS, SEED = (0.2, 0.4, 0.6), 4, 0.1, 5, 20_201_209
REPLACE = Adjacency.REPLACE_ONE


def plan(variables: int, rho: float, share: float, choices: int, most: int) -> MeasurementPlan:
    """Public settings: `choices` at once, of which at most `most` different pairs come."""
    cards = (2,) * variables
    (one_way,) = discrete_gaussian_laws(
        [1.0], ONE_WAY * rho, singles_sensitivity(cards, "moments", REPLACE)
    )
    sensitivity = pairs_sensitivity(variables, most, "moments", REPLACE)
    (two_way,) = discrete_gaussian_laws([1.0], (1 - ONE_WAY - share) * rho, sensitivity)
    return MeasurementPlan(
        cardinalities=cards,
        form="moments",
        candidates=all_pairs(cards),
        count=most,
        one_way=one_way,
        two_way=two_way,
        selection_scale=selection_scale(score_range(REPLACE), share * rho, choices, at_once=True),
    )


def by_variable(codes: np.ndarray, public: MeasurementPlan, source: SimulatedNoise) -> Measured:
    """The best neighbours of every variable by itself; a pair that both choose is measured once."""
    counts = np.ones(len(codes), dtype=np.int64)
    sums = pair_sums(codes, counts, public.cardinalities)
    one_way = source.add(2 * sums.joint.diagonal() - sums.total, public.one_way)
    scores = dependence_scores(
        sums, public.cardinalities, public_shares(one_way, float(len(codes)), public)
    )
    eligible = ~np.eye(len(scores), dtype=bool)
    assert public.selection_scale is not None
    chosen = source.choose_several(scores, public.selection_scale, DEGREE, eligible)
    pairs = sorted({(min(i, j), max(i, j)) for i, row in enumerate(chosen.tolist()) for j in row})
    i, j = np.array(pairs).T
    n = sums.joint.diagonal()
    products = sums.total - 2 * n[i] - 2 * n[j] + 4 * sums.joint[i, j]
    return Measured(
        one_way=one_way, pairs=np.array(pairs), two_way=source.add(products, public.two_way)
    )


def couplings(
    measured: Measured, public: MeasurementPlan, total: float, how: str | None
) -> np.ndarray:
    """Fit as the mechanism does, or by one way to fit."""
    targets = PairTargets.of(measured, public, total, 0.0)
    if how == "closed form":
        kept = np.flatnonzero(targets.standing_out())
        scopes = (
            *map(tuple, targets.pairs[kept].tolist()),
            *((v,) for v in range(len(public.cardinalities))),
        )
        effects = pair_fit.Effects.of(public.cardinalities, scopes)
        tables = targets.tables()
        beta = pair_fit.closed_form(effects, [tables[k] for k in kept], targets.shares())
        return pair_arrays(effects, beta)[0]
    before = pair_fit.LARGEST_WORK
    try:
        if how is not None:
            if how == "Gibbs":
                pair_fit.LARGEST_WORK = 0.0
            else:
                pair_fit.LARGEST_WORK = 1e10
        fit = fit_targets(targets, np.random.default_rng(1))
        return pair_arrays(fit.effects, fit.coordinates)[0]
    finally:
        pair_fit.LARGEST_WORK = before


def row(graph: str, variables: int, records: int, rho: float, populations: int) -> dict[str, float]:
    """Mean errors in one cell, and mean seconds of the fits."""
    found: dict[str, list[float]] = {}

    def note(name: str, value: float) -> None:
        found.setdefault(name, []).append(value)

    pairs = variables * DEGREE // 2
    for index in range(populations):
        population = IsingPopulation.of(graph, variables, SEED + index)
        codes = population.codes(records, SEED + index)
        counts = np.ones(records, dtype=np.int64)
        for share in SHARES:
            public = plan(variables, rho, share, pairs, pairs)
            source = SimulatedNoise(np.random.default_rng([SEED, index]))
            measured = measured_on_rows(codes, counts, float(records), public, source)
            if share != SHARES[1]:
                note(
                    f"share {share:g}", population.error(couplings(measured, public, records, None))
                )
                continue
            for how in (None, "closed form", "Gibbs"):
                begin = time.perf_counter()
                error = population.error(couplings(measured, public, records, how))
                note("as it is" if how is None else how, error)
                note(f"{'as it is' if how is None else how}, s", time.perf_counter() - begin)
        public = plan(variables, rho, SHARES[1], variables * DEGREE, variables * DEGREE)
        source = SimulatedNoise(np.random.default_rng([SEED, index]))
        measured = by_variable(codes, public, source)
        note("four a variable", population.error(couplings(measured, public, records, None)))
    return {name: float(np.mean(values)) for name, values in found.items()}


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="two cells, one population")
    quick = parser.parse_args().quick
    cells = CELLS[:2] if quick else CELLS
    rows = {
        f"{g}, p = {p}, n = {n:,}, ρ = {rho:g}": row(g, p, n, rho, 1 if quick else POPULATIONS)
        for g, p, n, rho in cells
    }
    frame = pd.DataFrame(rows).T
    order = ["as it is", "four a variable", "share 0.2", "share 0.6", "closed form", "Gibbs"]
    order += [name for name in frame if name.endswith(", s")]
    print("| cell | " + " | ".join(order) + " |")
    print("|---" * (len(order) + 1) + "|")
    for name, values in frame[order].iterrows():
        print(f"| {name} | " + " | ".join(f"{v:.3f}" for v in values) + " |")


if __name__ == "__main__":
    main()
