"""Populations that no prior here was made from, and the settings of the robustness study.

A population is a field with known potentials. Those of *potentials* and *three-way* draw each table's by a law: weak,
N(0, .05); strong, N(0, 2); sparse, N(0, 1.5) on 30 % of the tables and 0 on the rest; or logs of Dirichlet(.2) draws,
many cells next to empty. *Sticky* are panels: whoever is in a state stays there with the probability named, and moves
to each other state alike; *uneven* ones go elsewhere by a Dirichlet(.3) draw. *Empty* are chains of ten-state
variables where each state has two successors, Dirichlet(1), and the other eight, 80 % of the cells, share a
millionth or a hundredth of the row.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np
from calibration_cells import UNEQUAL
from models import chain, grid
from noise_aware import drawn_potentials

from bayesprivmrf.marginals import marginal_engine
from bayesprivmrf.model import Domain, ModelSpecification
from bayesprivmrf.privacy import DiscreteLaplace
from bayesprivmrf.release import NoisyStatistics

__all__ = ["GRAPHS", "LAWS", "STUDIES", "Cell", "Population"]

GRAPHS = {
    "chain, 3 states": chain(4, 3),
    "grid, 2 states": grid(3, 2),
    "grid, 3 states": grid(3, 3),
    "three-way": UNEQUAL,
    "T = 6, 3 states": chain(6, 3),
    "T = 6, 4 states": chain(6, 4),
    "T = 12, 3 states": chain(12, 3),
    "T = 12, 4 states": chain(12, 4),
    "T = 4, 10 states": chain(4, 10),
}
LAWS = ("N(0, .05)", "N(0, 2)", "sparse", "Dirichlet(.2)")
STICKY = ("stay .9", "stay .97", "stay .99")
EMPTY = ("empty 1e-06", "empty .01")
SEED = 31_415_926
_MANY = 100_000
"""Joint states beyond which records are drawn along the chain."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One setting of the study."""

    graph: str
    law: str
    records: int
    epsilon: float

    def slug(self, index: int) -> str:
        """Name of one replication; more cells change no name."""
        if self.law in LAWS:
            law = LAWS.index(self.law)
        else:
            law = self.law.replace(" ", "-")
        return f"{list(GRAPHS).index(self.graph)}-{law}-{self.records}-{self.epsilon:g}-{index}"

    def rng(self, index: int) -> np.random.Generator:
        """The generator of one replication."""
        return np.random.default_rng([SEED, *map(ord, self.slug(index))])


_FOUR = ((1_000, 0.1), (1_000, 1.0), (10_000, 1.0), (10_000, 10.0))
_PANELS = tuple(product((500, 2_000, 20_000), (0.3, 1.0, 3.0)))
_CHAINS = [name for name in GRAPHS if name.startswith("T") and "10 states" not in name]


def _cells(
    graphs: list[str], laws: tuple[str, ...], settings: tuple[tuple[int, float], ...]
) -> list[Cell]:
    return [Cell(graph, law, *setting) for graph, law, setting in product(graphs, laws, settings)]


STUDIES = {
    "potentials": _cells(["chain, 3 states", "grid, 2 states", "grid, 3 states"], LAWS, _FOUR),
    "three-way": _cells(["three-way"], LAWS, _FOUR),
    "sticky": _cells(_CHAINS, STICKY, _PANELS),
    "uneven": _cells(["T = 12, 4 states"], ("uneven .9", "uneven .97"), _PANELS),
    "empty": _cells(["T = 4, 10 states"], EMPTY, _FOUR),
}


class Population:
    """A field with known potentials, and records from it."""

    def __init__(self, graph: str, law: str, rng: np.random.Generator) -> None:
        states, scopes = GRAPHS[graph]
        domain = Domain(
            variables=tuple(range(len(states))), states=tuple(tuple(range(k)) for k in states)
        )
        self.model = ModelSpecification(domain=domain, cliques=scopes)
        sizes = np.diff(self.model.offsets)
        if law in LAWS:
            drawn = drawn_potentials(law, len(scopes), int(max(sizes)), rng)
            self.potentials = np.concatenate(
                [row[:size] for row, size in zip(drawn, sizes, strict=True)]
            )
        else:
            self.potentials = np.log(chain_probabilities(law, len(scopes), states[0], rng)).ravel()
        self.engine = marginal_engine(states, scopes)
        self.log_partition, self.marginals = self.engine.marginals(self.potentials)

    @cached_property
    def tables(self) -> list[np.ndarray]:
        """The marginal of each clique, flat."""
        return np.split(self.marginals, self.model.offsets[1:-1])

    def counts(self, records: int, rng: np.random.Generator) -> np.ndarray:
        """Tables of N records drawn from the model, flat."""
        states = self.model.cardinalities
        scopes = self.model.scopes
        if np.prod(states, dtype=float) > _MANY:
            return self._counts_along(records, rng)
        cells = np.indices(states).reshape(len(states), -1)
        log_joint = np.zeros(cells.shape[1])
        flat = [
            np.ravel_multi_index(tuple(cells[v] for v in scope), tuple(states[v] for v in scope))
            for scope in scopes
        ]
        for k, where in enumerate(flat):
            log_joint += self.potentials[self.model.offsets[k] : self.model.offsets[k + 1]][where]
        chosen = rng.multinomial(records, np.exp(log_joint - self.log_partition))
        sizes = np.diff(self.model.offsets)
        return np.concatenate(
            [np.bincount(where, chosen, size) for where, size in zip(flat, sizes, strict=True)]
        )

    def _counts_along(self, records: int, rng: np.random.Generator) -> np.ndarray:
        """The same for a chain, table after table."""
        tables = [table.reshape(self.model.cardinalities[:2]) for table in self.tables]
        here = rng.multinomial(records, tables[0].sum(axis=1) / tables[0].sum())
        drawn = []
        for table in tables:
            drawn.append(rng.multinomial(here, table / table.sum(axis=1, keepdims=True)))
            here = drawn[-1].sum(axis=0)
        return np.ravel(drawn)

    def divergence(self, potentials: np.ndarray) -> float:
        """KL divergence of a model's potentials from the truth, nats."""
        log_partition, _ = self.engine.marginals(potentials)
        return float(
            self.marginals @ (self.potentials - potentials) - self.log_partition + log_partition
        )

    def release(
        self, counts: np.ndarray, epsilon: float, rng: np.random.Generator
    ) -> NoisyStatistics:
        """Counts with discrete Laplace noise of scale m / epsilon; the number of records is private."""
        scale = len(self.model.cliques) / epsilon
        stop = 1 - np.exp(-1 / scale)
        noisy = counts + rng.geometric(stop, counts.size) - rng.geometric(stop, counts.size)
        return NoisyStatistics.from_tables(
            self.model, dict(self.model.tables(noisy)), noise=DiscreteLaplace(scale)
        )


def chain_probabilities(law: str, pairs: int, states: int, rng: np.random.Generator) -> np.ndarray:
    """Conditional tables along a chain, shape (pairs, states, states); the first is the joint one."""
    kind, share = law.split()
    if kind == "empty":
        rows = np.full((pairs, states, states), float(share) / (states - 2))
        for row in rows.reshape(-1, states):
            own = rng.choice(states, 2, replace=False)
            row[own] = (1 - float(share)) * rng.dirichlet(np.ones(2))
        rows[0] *= rng.dirichlet(np.ones(states))[:, np.newaxis]
        return rows
    stay = float(share)
    others = states - 1
    away = np.full((states, others), 1 / others)
    start = np.full(states, 1 / states)
    if kind == "uneven":
        away = rng.dirichlet(np.full(others, 0.3), states)
        start = rng.dirichlet(np.ones(states))
    row = np.diag(np.full(states, stay))
    row[~np.eye(states, dtype=bool)] = (1 - stay) * np.maximum(away, 1e-12).ravel()
    return np.stack([start[:, np.newaxis] * row, *[row] * (pairs - 1)])
