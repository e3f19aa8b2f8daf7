"""Figures of Bernstein et al. 2017: settings and cells of each.

The settings are those that the paper states: ten nodes, the states and budgets of Figure 1, Dirichlet(1) potentials,
five data sets by five draws of noise, the 20 states of Figure 3(a), a quarter of the people held out and delta = 1/N
in Figure 3(b). Where it states none, a grid is chosen here; docs/benchmarks/papers.md lists these grids.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bayesprivmrf.errors import ArgumentError

from .cells import Cell
from .cgm_cells import (
    COMPARED,
    FIXED,
    NO_PROJECTION,
    NO_PROJECTION_FIXED,
    NON_PRIVATE,
    RANDOM,
    RAW,
    EdgeCell,
    GraphCell,
    SequenceCell,
    with_ridge,
)
from .graphs import Graph, GraphKind
from .panels import SimulatedPanel
from .registry import FIGURES, DataName

GRAPHS: tuple[GraphKind, ...] = ("third-order chain", "Erdős-Rényi")


_RIDGES = tuple(10.0**power for power in range(-8, 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Size of the figures; in full by default.

    Parameters
    ----------
    name
        ``"full"`` or ``"quick"``.
    nodes
        Variables of every graph.
    chain_states, graph_states, grid_states
        States in Figures 1(a) and (c), in 1(b) and 3(a), and in 2.
    totals, grid_records
        N of Figures 1(a) and (b), and of Figure 2.
    fixed_records
        N of Figure 1(c).
    edge_records
        N of Figure 3(a).
    ridges
        Those of Figure 1(c).
    epsilons
        Budgets of Figure 2.
    populations, draws
        Data sets and draws of noise for each in Figures 1 and 2.
    people, people_length, people_states
        People, steps and states of the simulation of Figure 3(b).
    people_epsilons, repetitions
        Budgets and draws of noise of Figure 3(b).
    steps, clips
        The settings that the search in Figure 3(b) tries.
    """

    name: str = "full"
    nodes: int = 10
    chain_states: int = 10
    graph_states: int = 20
    grid_states: int = 5
    totals: tuple[int, ...] = (1_000, 10_000, 100_000, 1_000_000)
    grid_records: tuple[int, ...] = (1_000, 10_000, 100_000, 1_000_000)
    fixed_records: int = 100_000
    edge_records: int = 10_000
    ridges: tuple[float, ...] = _RIDGES
    epsilons: tuple[float, ...] = (0.01, 0.1, 0.5, 1.0)
    populations: int = 5
    draws: int = 5
    people: int = 10_000
    people_length: int = 6
    people_states: int = 10
    people_epsilons: tuple[float, ...] = (0.01, 0.1, 1.0)
    repetitions: int = 3
    steps: tuple[int, ...] = (100, 400)
    clips: tuple[float, ...] = (1.0, 3.0)


FULL = Scale()
QUICK = Scale(
    name="quick",
    graph_states=5,
    grid_states=3,
    totals=(1_000, 10_000, 100_000),
    grid_records=(1_000, 10_000),
    ridges=_RIDGES[1::2],
    epsilons=(0.1, 1.0),
    populations=2,
    draws=1,
    people=4_000,
    people_epsilons=(0.1, 1.0),
    repetitions=1,
    steps=(100,),
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
        The sequences at hand.
    seed
        Seed of graphs, records and noise.

    Raises
    ------
    ArgumentError
        There is no such figure.
    """
    match name:
        case "cgm-fig1":
            return _pathologies(scale, seed)
        case "cgm-fig2":
            methods = (RANDOM, NON_PRIVATE, *COMPARED)
            return [
                _simulated(kind, scale.grid_states, records, epsilon, methods, scale, seed, kind)
                for kind in GRAPHS
                for epsilon in scale.epsilons
                for records in scale.grid_records
            ]
        case "cgm-fig3a":
            graph = Graph(
                kind="Erdős-Rényi", nodes=scale.nodes, states=scale.graph_states, seed=seed
            )
            methods = (NON_PRIVATE, "naive MLE", "CGM", "noise-aware")
            return [
                EdgeCell(
                    graph=graph, total=scale.edge_records, epsilon=1.0, method=method, seed=seed
                )
                for method in methods
            ]
        case "cgm-fig3b":
            return _sequences(scale, published, seed)
        case _:
            raise ArgumentError(f"the figure must be one of {', '.join(FIGURES)}, got {name!r}.")


def _pathologies(scale: Scale, seed: int) -> list[Cell]:
    """Return Figure 1: error against N, the projection, the ridge."""
    projections = ("naive MLE", NO_PROJECTION, FIXED, NO_PROJECTION_FIXED)
    ridges = tuple(
        with_ridge(method, ridge) for method in ("naive MLE", NON_PRIVATE) for ridge in scale.ridges
    )
    cells: list[Cell] = [
        _simulated(
            "chain",
            scale.chain_states,
            n,
            0.1,
            (NON_PRIVATE, RAW, "naive MLE"),
            scale,
            seed,
            "a",
            draws=1,
        )
        for n in scale.totals
    ]
    cells += [
        _simulated(
            "Erdős-Rényi", scale.graph_states, n, 0.5, projections, scale, seed, "b", draws=1
        )
        for n in scale.totals
    ]
    n = scale.fixed_records
    return [
        *cells,
        _simulated("chain", scale.chain_states, n, 0.1, ridges, scale, seed, "c", draws=1),
    ]


def _simulated(
    kind: GraphKind,
    states: int,
    records: int,
    epsilon: float,
    methods: tuple[str, ...],
    scale: Scale,
    seed: int,
    panel: str,
    draws: int | None = None,
) -> Cell:
    return GraphCell(
        graph=Graph(kind=kind, nodes=scale.nodes, states=states, seed=seed),
        total=records,
        epsilon=epsilon,
        methods=methods,
        populations=scale.populations,
        draws=scale.draws if draws is None else draws,
        seed=seed,
        panel=panel,
    )


def _sequences(scale: Scale, published: Mapping[DataName, Any], seed: int) -> list[Cell]:
    """Return Figure 3(b): simulated hours, of six steps in the paper; and the user's sequences."""
    at_hand = [published[need] for need in FIGURES["cgm-fig3b"].needs if need in published]
    can_ascend = importlib.util.find_spec("dp_accounting") is not None
    simulated = SimulatedPanel(
        people=scale.people, length=scale.people_length, states=scale.people_states, seed=seed
    )
    return [
        SequenceCell(
            panel=panel,
            epsilon=epsilon,
            repetitions=scale.repetitions,
            methods=COMPARED,
            steps=scale.steps if can_ascend else (),
            clips=scale.clips,
            seed=seed,
        )
        for panel in (simulated, *at_hand)
        for epsilon in (None, *scale.people_epsilons)
    ]
