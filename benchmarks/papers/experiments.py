"""Experiments of the paper: outcomes simulated at a known beta, and real outcomes perturbed many times."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bayesprivmrf.errors import DataError
from bayesprivmrf.network.perturbed_score import PerturbedEstimator
from bayesprivmrf.noise.source import noise_source

from .cells import Cell, Row, generator_of
from .estimators import PRIVATE, private_estimates, summary
from .sources import ErdosRenyi, Published, Source, network_of

BOUNDS = (0.0, 5.0)
"""Bounds of beta for `ObjectivePerturbation`; the paper has none, and infinity where there is no root."""

COLUMNS = (
    "network",
    "nodes",
    "edges",
    "edge_exponent",
    "beta",
    "estimator",
    "epsilon",
    "delta",
    "bounds",
    "curvature",
    "noise_sd",
    "repetitions",
    "mean",
    "sd",
    "mse",
    "mse_error",
    "energy_rhat",
    "order_rhat",
)


def _described(source: Source, beta: float) -> Row:
    network = network_of(source)
    row: Row = dict.fromkeys(COLUMNS)
    return row | {
        "network": source.name,
        "nodes": len(network),
        "edges": network.coupling.nnz // 2,
        "edge_exponent": source.exponent if isinstance(source, ErdosRenyi) else None,
        "beta": beta,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationCell(Cell):
    """Outcomes simulated at one beta, estimated without privacy and by each private estimator at each epsilon.

    Every repetition is a chain of its own, so that repetitions are independent; its moves are the source's.

    Parameters
    ----------
    source
        The network.
    beta
        True inverse temperature.
    epsilons
        Budgets, nats.
    repetitions
        Draws of outcomes; each private estimator gets one draw of noise for each.
    burn_in
        Sweeps before the draw.
    seed
        Seed of everything here but the network.
    """

    _experiment: ClassVar[str] = "simulation"

    source: Source
    beta: float
    epsilons: tuple[float, ...]
    repetitions: int
    burn_in: int
    seed: int

    def settings(self) -> dict[str, Any]:
        """Return what the rows depend on: the fields, and the source's moves."""
        return Cell.settings(self) | {"moves": self.source.moves}

    def rows(self) -> list[Row]:
        """Return one row for the maximum pseudo-likelihood, one for each private estimator and epsilon."""
        from bayesprivmrf.chains.heat_bath import ChainSchedule, simulate

        network = network_of(self.source)
        rng = generator_of(self)
        schedule = ChainSchedule(
            chains=self.repetitions, sweeps=1, burn_in=self.burn_in, moves=self.source.moves
        )
        result = simulate(network.coupling, self.beta, self.repetitions, rng, schedule)
        common = _described(self.source, self.beta) | {
            "bounds": _written(BOUNDS),
            "energy_rhat": result.mixing.energy_rhat,
            "order_rhat": result.mixing.order_rhat,
        }
        mple = [network.maximum_pseudo_likelihood(spins, BOUNDS) for spins in result.spins]
        found = [common | {"estimator": "mple"} | summary(mple, self.beta)]
        for epsilon in self.epsilons:
            for private in PRIVATE:
                constants = private.constants(network, epsilon)
                estimates = private_estimates(network, constants, BOUNDS, result.spins, rng)
                described = private.described(len(network), epsilon, constants)
                found.append(common | described | summary(estimates, self.beta))
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class CostCell(Cell):
    """Mean squared difference from the maximum pseudo-likelihood estimate of real outcomes, over noise alone.

    Parameters
    ----------
    source
        Network with outcomes.
    epsilon
        Budget, nats.
    noise_draws
        Draws of noise.
    seed
        Seed of the noise.
    """

    _experiment: ClassVar[str] = "cost of privacy"

    source: Published
    epsilon: float
    noise_draws: int
    seed: int

    def rows(self) -> list[Row]:
        """Return one row for each private estimator, without bounds (as in the paper) and with."""
        network = network_of(self.source)
        spins = self.source.spins()
        rng = generator_of(self)
        target = network.maximum_pseudo_likelihood(spins)
        if not 0 < target < math.inf:
            raise DataError(
                "the outcomes must have a maximum pseudo-likelihood estimate in (0, inf) to compare with, but "
                "theirs is at the edge."
            )
        found = []
        for private in PRIVATE:
            constants = private.constants(network, self.epsilon)
            noise = noise_source(rng).add(
                np.zeros(self.noise_draws, dtype=np.int64), constants.noise
            )
            for bounds in (None, BOUNDS):
                score = PerturbedEstimator.of(network.coupling, constants, bounds).score(spins)
                common = _described(self.source, target) | {"bounds": _written(bounds)}
                described = private.described(len(network), self.epsilon, constants)
                found.append(common | described | summary(score.estimates(noise), target))
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutCell(Cell):
    """Places of a network's nodes in the plane, with their outcomes, unprotected.

    Parameters
    ----------
    source
        Network with outcomes.
    seed
        Seed of the layout.
    """

    _experiment: ClassVar[str] = "layout"

    source: Published
    seed: int

    def rows(self) -> list[Row]:
        """Return one row for each node, in the order of the graph."""
        import networkx as nx

        real = self.source.read()
        places = nx.spring_layout(real.graph, k=1.5 / len(real.graph) ** 0.5, seed=self.seed)
        return [
            {"network": self.source.name, "x": float(x), "y": float(y), "state": str(state)}
            for (x, y), state in zip(
                (places[node] for node in real.graph), real.outcomes, strict=True
            )
        ]


def _written(bounds: tuple[float, float] | None) -> str:
    if bounds is None:
        return "none"
    return f"{bounds[0]:g} to {bounds[1]:g}"
