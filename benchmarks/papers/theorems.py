r"""Theorems of Zhang, Kamath, Kulkarni and Wu 2020 on the number of records that suffices.

The paper gives orders. A number from them takes every constant as 1, those in exponents such as
:math:`e^{O(\lambda)}` too: it shows how the number of records grows, and must not be used for planning.

Lemma 6.1, which runs a learner on blocks, is the exception: docs/explanation/lower-bounds.md derives its constant.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from .lower_bounds import Goal, Task
from .table_1 import Privacy


@dataclass(frozen=True, slots=True, kw_only=True)
class Slopes:
    """Exponents in one term of an upper bound, logarithms left out.

    Parameters
    ----------
    variables, inverse_error, rho
        Those of p, of 1 / error and of the budget.
    """

    variables: float
    inverse_error: float
    rho: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class UpperBound:
    """Upper bound on the number of records that suffices, up to constants.

    Parameters
    ----------
    source
        Its number, and the algorithm's.
    statement
        The order, as the paper has it.
    goal, privacy
        The goal of learning and the form of privacy; ``"none"`` for no privacy.
    covers
        Which tasks it is about.
    needed
        The order with all constants 1, from the task and rho, or from the task, epsilon and delta under approximate
        privacy; without privacy from the task alone.
    sampling, private
        Exponents of its term without the budget and of its term with it.
    """

    source: str
    statement: str
    goal: Goal
    privacy: Privacy
    covers: Callable[[Task], bool]
    needed: Callable[..., float]
    sampling: Slopes
    private: Slopes | None = None


def _exp(x: float) -> float:
    return math.exp(min(x, 700.0))


def _ising(task: Task, rho: float) -> float:
    p = task.variables
    alpha = task.size
    width = task.width
    log = math.log(p)
    return width**2 * (
        log * _exp(12 * width) / alpha**4 + math.sqrt(p / rho) * log**2 * _exp(9 * width) / alpha**3
    )


def _pairwise(task: Task, rho: float) -> float:
    p = task.variables
    k = task.states
    alpha = task.size
    width = task.width
    log = math.log(p * k)
    return (
        width**2
        * _exp(width)
        * (k**5 * log / alpha**4 + math.sqrt(p / rho) * k**5.5 * log**2 / alpha**3)
    )


def _all_monomials(task: Task, rho: float) -> float:
    p = task.variables
    t = task.order
    alpha = task.size
    log = math.log(p)
    terms = p ** (4.0 * t) * log / alpha**4 + p ** (3.0 * t + 0.5) * log**2 / (
        math.sqrt(rho) * alpha**3
    )
    return (2.0 * t) ** t * _exp(task.width * t) * terms


def _maximal_monomials(task: Task, rho: float) -> float:
    p = task.variables
    t = task.order
    alpha = task.size
    width = task.width
    log = math.log(p)
    return (
        _exp(5 * width * t) * math.sqrt(p / rho) * log**2 / alpha**4.5
        + t * width**2 * math.sqrt(p / rho) * log / alpha**2
        + _exp(6 * width * t) * log / alpha**6
    )


def _structure(task: Task) -> float:
    p = task.variables
    k = task.states
    eta = task.size
    width = task.width
    if task.order > 2:
        return _exp(width * task.order) * max(math.log(p / eta), 0.0) / eta**4
    return width**2 * k**4 * _exp(14 * width) * math.log(p * k) / eta**4


def _stable_structure(task: Task, epsilon: float, delta: float) -> float:
    return _structure(task) * max(math.log(1 / delta) / epsilon, 1.0)


UPPER_BOUNDS = (
    UpperBound(
        source="Theorem 3.8 (Algorithm 2)",
        statement="L^2 log(p) e^(12 L) / a^4 + sqrt(p / rho) L^2 log(p)^2 e^(9 L) / a^3",
        goal="parameters",
        privacy="zero-concentrated",
        covers=lambda task: task.states == 2 and task.order == 2,
        needed=_ising,
        sampling=Slopes(variables=0, inverse_error=4),
        private=Slopes(variables=0.5, inverse_error=3, rho=-0.5),
    ),
    UpperBound(
        source="Theorem 3.11 (Algorithm 3)",
        statement="L^2 k^5 log(p k) e^O(L) / a^4 + sqrt(p / rho) L^2 k^5.5 log(p k)^2 e^O(L) / a^3",
        goal="parameters",
        privacy="zero-concentrated",
        covers=lambda task: task.order == 2,
        needed=_pairwise,
        sampling=Slopes(variables=0, inverse_error=4),
        private=Slopes(variables=0.5, inverse_error=3, rho=-0.5),
    ),
    UpperBound(
        source="Theorem 4.2 (Algorithm 4)",
        statement="(2t)^O(t) e^O(L t) (p^(4t) log(p) / a^4 + p^(3t + 1/2) log(p)^2 / (sqrt(rho) a^3)), "
        "in l1 distance",
        goal="parameters",
        privacy="zero-concentrated",
        covers=lambda task: task.states == 2 and task.order > 2,
        needed=_all_monomials,
        sampling=Slopes(variables=12, inverse_error=4),
        private=Slopes(variables=9.5, inverse_error=3, rho=-0.5),
    ),
    UpperBound(
        source="Theorem 4.7 (Algorithm 5)",
        statement="e^(5 L t) sqrt(p / rho) log(p)^2 / a^4.5 + t L^2 sqrt(p / rho) log(p) / a^2 "
        "+ e^(6 L t) log(p) / a^6, maximal monomials",
        goal="parameters",
        privacy="zero-concentrated",
        covers=lambda task: task.states == 2 and task.order > 2,
        needed=_maximal_monomials,
        sampling=Slopes(variables=0, inverse_error=6),
        private=Slopes(variables=0.5, inverse_error=4.5, rho=-0.5),
    ),
    UpperBound(
        source="Corollaries 6.3 and 6.5 (blocks)",
        statement="L^2 k^4 e^(14 L) log(p k) log(1/delta) / (epsilon a^4); for t > 2 "
        "e^O(L t) log(p / a) log(1/delta) / (epsilon a^4)",
        goal="structure",
        privacy="approximate",
        covers=lambda task: True,
        needed=_stable_structure,
        sampling=Slopes(variables=0, inverse_error=4),
    ),
    UpperBound(
        source="Theorems 6.2 and 6.4 (no privacy)",
        statement="L^2 k^4 e^(14 L) log(p k) / a^4; for t > 2 e^O(L t) log(p / a) / a^4",
        goal="structure",
        privacy="none",
        covers=lambda task: True,
        needed=_structure,
        sampling=Slopes(variables=0, inverse_error=4),
    ),
)
"""The paper's upper bounds; a is the error of the couplings or the smallest of an edge, L the width, t = 3 in
slopes."""


def for_algorithm(number: int) -> UpperBound:
    """Return the theorem about Algorithm 2, 3, 4 or 5."""
    return UPPER_BOUNDS[number - 2]
