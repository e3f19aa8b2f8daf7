"""Experiments on Zhang et al. 2020: errors of their algorithms, and learners on the hard instances."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bayesprivmrf.privacy import Adjacency, PrivacyGuarantee

from .cells import Cell, Row, generator_of
from .hard_instances import Grouped, fingerprinting_error, random_means, random_member
from .lower_bounds import Task, packing_records
from .zhang_learners import REPLACE_ONE, learned_couplings, released

SIZE = 0.5
"""Couplings of the models of Table 1, nats, and their width: each variable has one."""

_FRESH = 20_000  # records on which a regression is judged

ALGORITHMS = {
    1: "Algorithm 1: PrivateLogisticRegression",
    2: "Algorithm 2: PrivateFrankWolfe",
    3: "Algorithm 3: PrivateFrankWolfe, 3 states",
    4: "Algorithm 4: PrivateFrankWolfe(order=3), l1",
    5: "Algorithm 5: PrivateFrankWolfe(order=3), linf",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AlgorithmCell(Cell):
    """Error of one of the five algorithms, with the tight constants of this library, at one setting.

    The model is a random member of the packing: all variables in groups, couplings of size 0.5 with random signs.

    Parameters
    ----------
    algorithm
        1 to 5.
    variables, rho, total
        p, the budget, and n.
    repetitions
        Models, with one data set and one draw of noise each.
    seed
        Seed of everything.
    """

    _experiment: ClassVar[str] = "zhang, algorithms"

    algorithm: int
    variables: int
    rho: float
    total: int
    repetitions: int
    seed: int

    def rows(self) -> list[Row]:
        """Return one row a repetition."""
        rng = generator_of(self)
        common = {name: getattr(self, name) for name in ("algorithm", "variables", "rho", "total")}
        return [
            common | {"repetition": r, "error": self._error(rng)} for r in range(self.repetitions)
        ]

    def _error(self, rng: np.random.Generator) -> float:
        """Excess risk (1), largest error of a coupling (2, 3), error in l1 (4), largest of a triple (5)."""
        from bayesprivmrf.mechanisms import PrivateFrankWolfe, PrivateLogisticRegression

        order = 3 if self.algorithm > 3 else 2
        states = 3 if self.algorithm == 3 else 2
        groups = self.variables // order
        model = random_member(self.variables, SIZE, groups, rng, order=order, states=states)
        codes = model.codes(self.total, rng)
        common: dict[str, Any] = REPLACE_ONE | {"rho": self.rho}
        if self.algorithm == 1:
            mechanism = PrivateLogisticRegression(radius=2 * SIZE, target="v0", **common)
            return _excess_risk(released(mechanism, model.specification, codes, rng), model, rng)
        if order == 2:
            learned = released(
                PrivateFrankWolfe(width=SIZE, single_share=0, **common),
                model.specification,
                codes,
                rng,
            )
            truth = dict(zip(model.groups, model.tables, strict=True))
            pairs = [(i, j) for j in range(self.variables) for i in range(j)]
            return max(
                float(np.abs(learned.block(*pair) - truth.get(pair, 0.0)).max()) for pair in pairs
            )
        target = "l1" if self.algorithm == 4 else "linf"
        mechanism = PrivateFrankWolfe(width=SIZE, order=3, target=target, single_share=0, **common)
        return _monomial_error(released(mechanism, model.specification, codes, rng), model, target)


def _excess_risk(learned: Any, model: Grouped, rng: np.random.Generator) -> float:
    """Expected logarithmic loss above that of the truth, nats a record, on fresh records."""
    spins = 2.0 * model.codes(_FRESH, rng) - 1
    effects = learned.effects.reshape(-1, 2)
    slopes = (effects[:, 1] - effects[:, 0]) / 2
    constant = learned.intercept + effects.mean(axis=1).sum()
    true = 2 * spins @ model.coupling_matrix()[0]
    found = constant + spins @ slopes
    probability = 1 / (1 + np.exp(-true))
    return float(
        np.mean(np.logaddexp(0, found) - np.logaddexp(0, true) - probability * (found - true))
    )


def _monomial_error(learned: Any, model: Grouped, target: str) -> float:
    truth = {
        group: float(table[-1, -1, -1])
        for group, table in zip(model.groups, model.tables, strict=True)
    }
    errors = {
        members: abs(float(coefficient) - truth.get(members, 0.0))
        for members, coefficient in zip(map(tuple, learned.sets), learned.coefficients, strict=True)
        if members
    }
    if target == "l1":
        return sum(errors.values())
    return max(error for members, error in errors.items() if len(members) == model.tables[0].ndim)


CERTIFICATES = {"margins": "StableStructure, margins", "blocks": "BlockStructure (section 6)"}

_FEWEST, _MOST = 250, 1_000_000  # records from which and up to which a graph is asked for


@dataclass(frozen=True, slots=True, kw_only=True)
class StructureCell(Cell):
    """Number of records at which the true graph is released under (1, 10^-6)-privacy, at one p.

    The model is that of the algorithms for pairs. New records are drawn at each number of them, a factor of the root
    of two apart.

    Parameters
    ----------
    certificate
        A key of `CERTIFICATES`.
    variables
        p.
    repetitions
        Models.
    seed
        Seed of everything.
    """

    _experiment: ClassVar[str] = "zhang, structure"

    certificate: str
    variables: int
    repetitions: int
    seed: int

    def rows(self) -> list[Row]:
        """Return one row a repetition, whose total is the first at which the true graph was released."""
        rng = generator_of(self)
        common = {"certificate": self.certificate, "variables": self.variables}
        return [
            common | {"repetition": r, "total": self._needed(rng)} for r in range(self.repetitions)
        ]

    def _needed(self, rng: np.random.Generator) -> int:
        from bayesprivmrf.mechanisms import StableStructure

        from .block_structure import BlockStructure

        model = random_member(self.variables, SIZE, self.variables // 2, rng)
        if self.certificate == "blocks":
            kind = BlockStructure
        else:
            kind = StableStructure
        mechanism = kind(epsilon=1.0, delta=1e-6, structure="graph", **REPLACE_ONE)
        true = {(f"v{i}", f"v{j}") for i, j in model.groups}
        total = _FEWEST
        while total < _MOST:
            graph = released(mechanism, model.specification, model.codes(total, rng), rng)
            if not graph.is_refusal and set(graph.edges) == true:
                break
            total = math.ceil(total * math.sqrt(2))
        return total


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchingCell(Cell):
    """Squared errors of a learner whose couplings are drawn as in the fingerprinting bound.

    Parameters
    ----------
    method
        As for `learned_couplings`.
    variables, rho, total
        p, the budget, and n.
    repetitions
        Draws of couplings, with one data set and one draw of noise each.
    seed
        Seed of everything.
    """

    _experiment: ClassVar[str] = "zhang, fingerprinting"

    method: str
    variables: int
    rho: float
    total: int
    repetitions: int
    seed: int

    def rows(self) -> list[Row]:
        """Return one row a repetition."""
        rng = generator_of(self)
        width = 1.0
        guarantee = PrivacyGuarantee(rho=self.rho, adjacency=Adjacency.REPLACE_ONE)
        common = {
            "goal": "parameters",
            "method": self.method,
            "variables": self.variables,
            "rho": self.rho,
            "total": self.total,
            "bound": fingerprinting_error(self.variables, width, self.total, guarantee),
        }
        found = []
        for repetition in range(self.repetitions):
            model = random_means(self.variables, width, rng)
            couplings = learned_couplings(
                self.method, model, model.codes(self.total, rng), width, 1.0, self.rho, rng
            )
            pairs = np.array(model.groups).T
            left = np.clip(couplings, -width, width) - model.coupling_matrix()
            squared = float(np.mean(left[pairs[0], pairs[1]] ** 2))
            found.append(common | {"repetition": repetition, "value": squared})
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphSearchCell(Cell):
    """Frequency with which a learner finds the graph of a random member of the packings.

    Parameters
    ----------
    method
        As for `MatchingCell`.
    variables, rho
        p and the budget.
    multiple
        n over the packing bound.
    repetitions
        Models for each number of edges: a quarter, half, and all of the largest number for p.
    seed
        Seed of everything.
    """

    _experiment: ClassVar[str] = "zhang, packing"

    method: str
    variables: int
    rho: float
    multiple: float
    repetitions: int
    seed: int

    def rows(self) -> list[Row]:
        """Return one row a model: value 1 where its graph was found, 0 otherwise."""
        rng = generator_of(self)
        size = 0.9
        guarantee = PrivacyGuarantee(rho=self.rho, adjacency=Adjacency.REPLACE_ONE)
        bound = packing_records(
            Task(variables=self.variables, size=size, goal="structure"), guarantee
        )
        total = max(1, math.floor(self.multiple * bound))
        found = []
        for edges in sorted({max(1, self.variables // part) for part in (8, 4, 2)}):
            for repetition in range(self.repetitions):
                model = random_member(self.variables, size, edges, rng, with_signs=False)
                degree = 2 * edges / self.variables
                couplings = learned_couplings(
                    self.method, model, model.codes(total, rng), size, degree, self.rho, rng
                )
                graph = {
                    (int(i), int(j))
                    for i, j in np.argwhere(np.triu(np.abs(couplings), 1) > size / 2)
                }
                found.append(
                    {
                        "goal": "structure",
                        "method": self.method,
                        "variables": self.variables,
                        "rho": self.rho,
                        "total": total,
                        "bound": bound,
                        "edges": edges,
                        "repetition": repetition,
                        "value": float(graph == set(model.groups)),
                    }
                )
        return found
