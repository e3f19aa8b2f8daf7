"""Figures of Chakraborty, Chatterjee and Dalal 2024: settings and cells of each.

The settings are those that the paper states: n = 2000, p = n^(-1/3), delta = 1/n, epsilon = 5 and 500 repetitions of
Figure 1, beta 0.5 and 1.5 of Figures 2 to 5, the networks and couplings of Figures 6 to 13. Where it does not state a
grid, one is chosen here; docs/benchmarks/papers.md lists these grids.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bayesprivmrf.errors import ArgumentError

from .cells import Cell
from .experiments import CostCell, LayoutCell, SimulationCell
from .registry import FIGURES, DataName, NetworkName
from .sources import ErdosRenyi, Source

THIRD = 1 / 3
LOW, HIGH = 0.5, 1.5
"""The paper's beta on either side of the phase change."""

PUBLISHED_ESTIMATES: dict[NetworkName, float] = {"hiv": 1.8, "blogs": 2.85}
"""The paper's estimates on the real networks, around which Figure 13 simulates."""

_FIGURE_EPSILON = 5.0


def _steps(first: float, step: float, count: int) -> tuple[float, ...]:
    return tuple(round(first + step * k, 10) for k in range(count))


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Size of the figures; in full by default.

    Parameters
    ----------
    name
        ``"full"`` or ``"quick"``.
    repetitions
        Repetitions of every simulation.
    burn_in
        Sweeps before a draw.
    noise_draws
        Draws of noise on real outcomes.
    nodes
        n of the Erdős-Rényi graphs where it does not vary.
    betas
        True betas of Figure 1.
    network_betas
        True betas of Figures 7 and 10.
    sizes
        n of Figures 2 and 3.
    exponents
        alpha in p = n^-alpha of Figures 4 and 5.
    epsilons
        Budgets of Figures 2 to 5 and 13.
    wide_epsilons
        Budgets of Figures 8, 11 and 12.
    offsets
        Distances from the published estimate in Figure 13.
    """

    name: str = "full"
    repetitions: int = 500
    burn_in: int = 500
    noise_draws: int = 20_000
    nodes: int = 2000
    betas: tuple[float, ...] = _steps(0.0, 0.1, 21)
    network_betas: tuple[float, ...] = _steps(0.0, 0.2, 21)
    sizes: tuple[int, ...] = (500, 1000, 1500, 2000, 3000, 4000)
    exponents: tuple[float, ...] = (0.1, 0.2, THIRD, 0.4, 0.5, 2 / 3)
    epsilons: tuple[float, ...] = (1.0, 2.0, 5.0, 10.0)
    wide_epsilons: tuple[float, ...] = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)
    offsets: tuple[float, ...] = _steps(-0.5, 0.1, 11)


FULL = Scale()
QUICK = Scale(
    name="quick",
    repetitions=48,
    burn_in=300,
    noise_draws=2000,
    betas=_steps(0.0, 0.25, 9),
    network_betas=_steps(0.0, 0.5, 9),
    sizes=(500, 1000, 2000),
    exponents=(0.1, THIRD, 2 / 3),
    epsilons=(1.0, 5.0),
    wide_epsilons=(1.0, 5.0, 20.0, 100.0),
    offsets=_steps(-0.5, 0.25, 5),
)


def cells_of(name: str, scale: Scale, published: Mapping[DataName, Any], seed: int) -> list[Cell]:
    """Return the cells of a figure; none where the networks that it needs are lacking.

    Parameters
    ----------
    name
        A key of `FIGURES`.
    scale
        `FULL`, `QUICK` or another.
    published
        The networks at hand.
    seed
        Seed of graphs, outcomes and noise.

    Raises
    ------
    ArgumentError
        There is no such figure.
    """
    if name not in FIGURES:
        raise ArgumentError(f"the figure must be one of {', '.join(FIGURES)}, got {name!r}.")
    at_hand: list[Any] = [published[need] for need in FIGURES[name].needs if need in published]

    def graph(nodes: int = scale.nodes, exponent: float = THIRD) -> ErdosRenyi:
        return ErdosRenyi(nodes=nodes, exponent=exponent, seed=seed)

    def simulated(source: Source, beta: float, epsilons: tuple[float, ...]) -> Cell:
        return SimulationCell(
            source=source,
            beta=beta,
            epsilons=epsilons,
            repetitions=scale.repetitions,
            burn_in=scale.burn_in,
            seed=seed,
        )

    match name.removeprefix("prising-"):
        case "fig1":
            return [simulated(graph(), beta, (_FIGURE_EPSILON,)) for beta in scale.betas]
        case "fig2" | "fig3" as which:
            beta = LOW if which == "fig2" else HIGH
            return [simulated(graph(nodes=n), beta, scale.epsilons) for n in scale.sizes]
        case "fig4" | "fig5" as which:
            beta = LOW if which == "fig4" else HIGH
            return [simulated(graph(exponent=a), beta, scale.epsilons) for a in scale.exponents]
        case "fig6" | "fig9":
            return [LayoutCell(source=source, seed=seed) for source in at_hand]
        case "fig7" | "fig10":
            return [
                simulated(s, beta, (_FIGURE_EPSILON,))
                for s in at_hand
                for beta in scale.network_betas
            ]
        case "fig8" | "fig11":
            return [
                CostCell(source=source, epsilon=epsilon, noise_draws=scale.noise_draws, seed=seed)
                for source in at_hand
                for epsilon in scale.wide_epsilons
            ]
        case "fig12":
            return [
                simulated(source, beta, scale.wide_epsilons)
                for source in (graph(), *at_hand)
                for beta in (LOW, HIGH)
            ]
        case _:
            return [
                simulated(
                    source, round(PUBLISHED_ESTIMATES[source.name] + offset, 10), scale.epsilons
                )
                for source in at_hand
                for offset in scale.offsets
            ]
