"""Figures on Zhang, Kamath, Kulkarni and Wu 2020: the stand-in for Table 1, and its cells.

The paper has no experiments. Its table states how the number of records grows, so slopes are measured here. They are
measured for the five algorithms, with the tight constants of this library, on the hard instances of its lower bounds,
and for graphs under approximate privacy, by blocks as in the paper and by margins.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bayesprivmrf.errors import ArgumentError

from .cells import Cell
from .registry import FIGURES, DataName
from .zhang_cells import (
    ALGORITHMS,
    CERTIFICATES,
    AlgorithmCell,
    GraphSearchCell,
    MatchingCell,
    StructureCell,
)
from .zhang_learners import EXACT, TOLD

METHODS = (EXACT, "ParityQueries", "SelectMeasure", "PrivateFrankWolfe")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Size of the figures; in full by default.

    Parameters
    ----------
    name
        ``"full"`` or ``"quick"``.
    variables, wide_variables
        p of the algorithms for triples, and of the others.
    rho, budgets
        The budget while p varies, and those at the middle p.
    totals
        n.
    repetitions
        Models a cell.
    matching_variables, matching_rho, matching_totals
        p, budget and n of the fingerprinting bound.
    graph_variables, graph_rho, multiples
        p, budget, and n over the bound, of the packing bound.
    trials
        Models a cell of the lower bounds.
    """

    name: str = "full"
    variables: tuple[int, ...] = (6, 12, 18, 24)
    wide_variables: tuple[int, ...] = (8, 16, 32, 64)
    rho: float = 0.1
    budgets: tuple[float, ...] = (0.01, 0.03, 0.3, 1.0)
    totals: tuple[int, ...] = (2_000, 8_000, 32_000, 128_000)
    repetitions: int = 10
    matching_variables: tuple[int, ...] = (8, 32, 64)
    matching_rho: float = 1e-4
    matching_totals: tuple[int, ...] = (300, 1_000, 3_000, 10_000, 30_000, 100_000)
    graph_variables: tuple[int, ...] = (8, 16, 32)
    graph_rho: float = 1e-4
    multiples: tuple[float, ...] = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
    trials: int = 40


FULL = Scale()
QUICK = Scale(
    name="quick",
    variables=(6, 12, 18),
    wide_variables=(6, 12, 24),
    budgets=(0.01, 1.0),
    totals=(2_000, 8_000, 32_000),
    repetitions=6,
    matching_variables=(8, 32),
    matching_totals=(300, 1_000, 3_000, 10_000, 30_000),
    graph_variables=(8, 16),
    multiples=(1.0, 8.0, 32.0),
    trials=8,
)


def cells_of(name: str, scale: Scale, published: Mapping[DataName, Any], seed: int) -> list[Cell]:
    """Return the cells of a figure.

    Parameters
    ----------
    name
        A key of `FIGURES`.
    scale
        `FULL`, `QUICK` or another.
    published
        Not used: everything is simulated.
    seed
        Seed of models, records and noise.

    Raises
    ------
    ArgumentError
        There is no such figure.
    """
    match name:
        case "zhang-table1":
            return _algorithms(scale, seed)
        case "zhang-lower-bounds":
            return [*_matchings(scale, seed), *_graphs(scale, seed)]
        case _:
            raise ArgumentError(f"the figure must be one of {', '.join(FIGURES)}, got {name!r}.")


def _algorithms(scale: Scale, seed: int) -> list[Cell]:
    cells: list[Cell] = []
    for algorithm in ALGORITHMS:
        if algorithm > 3:
            sizes = scale.variables
        else:
            sizes = scale.wide_variables
        middle = sizes[len(sizes) // 2]
        settings = [(p, scale.rho) for p in sizes] + [(middle, rho) for rho in scale.budgets]
        cells += [
            AlgorithmCell(
                algorithm=algorithm,
                variables=p,
                rho=rho,
                total=total,
                repetitions=scale.repetitions,
                seed=seed,
            )
            for p, rho in settings
            for total in scale.totals
        ]
    return cells + [
        StructureCell(
            certificate=certificate, variables=p, repetitions=scale.repetitions, seed=seed
        )
        for certificate in CERTIFICATES
        for p in scale.wide_variables
    ]


def _matchings(scale: Scale, seed: int) -> list[Cell]:
    return [
        MatchingCell(
            method=method,
            variables=p,
            rho=scale.matching_rho,
            total=total,
            repetitions=scale.trials,
            seed=seed,
        )
        for p in scale.matching_variables
        for method in (*METHODS, TOLD)
        for total in scale.matching_totals
    ]


def _graphs(scale: Scale, seed: int) -> list[Cell]:
    return [
        GraphSearchCell(
            method=method,
            variables=p,
            rho=scale.graph_rho,
            multiple=multiple,
            repetitions=scale.trials,
            seed=seed,
        )
        for p in scale.graph_variables
        for method in METHODS
        for multiple in scale.multiples
    ]
