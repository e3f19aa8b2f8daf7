"""The joint table that an analysis is about, with the labels of its rows."""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bayesprivmrf.checks import object_with, require
from bayesprivmrf.errors import ModelError
from bayesprivmrf.inference import JointEstimate, Result
from bayesprivmrf.model.tables import FloatArray

if TYPE_CHECKING:
    import pandas as pd

type GivenStates = Mapping[Hashable, Any] | list[Any]
"""Conditions, or a list of variables whose states are taken in turn."""


@dataclass(frozen=True, kw_only=True, eq=False)
class AskedTable:
    """The joint table of some variables, within each state of others.

    Parameters
    ----------
    joint
        The joint table with its uncertainty. The axes of the variables taken in turn come first.
    in_turn
        Number of variables whose states are taken in turn.
    """

    joint: JointEstimate
    in_turn: int

    @property
    def blocks(self) -> int:
        """Number of joint states that are taken in turn."""
        return math.prod(self.joint.shape[: self.in_turn])

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of states of each variable that was asked about."""
        return self.joint.shape[self.in_turn :]

    def blocked(self, tables: FloatArray) -> FloatArray:
        """Return tables of shape (..., blocks, K_v for each asked variable), one block a state taken in turn."""
        lead = tables.shape[: tables.ndim - len(self.joint.shape)]
        return tables.reshape(*lead, self.blocks, *self.shape)

    def index(self, *labels: Sequence[Hashable], names: Sequence[Hashable]) -> pd.Index:
        """Return labels of rows: the states taken in turn, and then the product of some labels.

        Parameters
        ----------
        *labels
            Labels of each further level.
        names
            Their names.
        """
        states = [*self.joint.states[: self.in_turn], *labels]
        every = [*self.joint.variables[: self.in_turn], *names]
        return product_index(states, every)


def product_index(states: Sequence[Sequence[Hashable]], names: Sequence[Hashable]) -> pd.Index:
    """Return the product of labels in C order; a plain Index for one level."""
    import pandas as pd

    if len(states) == 1:
        return pd.Index(list(states[0]), name=names[0], tupleize_cols=False)
    return pd.MultiIndex.from_product([list(own) for own in states], names=list(names))


def asked_table(
    solution: Result, variables: Sequence[Hashable], given: GivenStates | None = None
) -> AskedTable:
    """Return the joint table of some variables of a result.

    Parameters
    ----------
    solution
        A result with intervals.
    variables
        The variables, each once, each with at least two states.
    given
        Conditions, or a list of variables whose states are taken in turn.

    Raises
    ------
    ArgumentError
        `solution` is not a result, or `given` neither a mapping nor a list.
    ModelError
        A variable is unknown or repeated, or has one state.
    NoIntervalError
        The result has no measure of its error.
    """
    remedy = "fit a release by NoiseAwareMAP() or LatentCounts()"
    object_with("joint_estimate", "solution", solution, "be a result of an estimator", remedy)
    is_list = isinstance(given, list)
    must = "map variables to states, or list variables whose states are taken in turn"
    is_known = given is None or is_list or isinstance(given, Mapping)
    require(is_known, "given", must, type(given).__name__, "write {variable: state} or [variable]")
    if is_list:
        require(given, "given", "name at least one variable", "an empty list")
        in_turn = list(given)
    else:
        in_turn = []
    require_contrasts(solution, variables)
    for variable in in_turn:
        must = "name other variables than those compared"
        seen = f"{variable!r} in both"
        require(variable not in variables, "given", must, seen, error=ModelError)
    conditions = given if isinstance(given, Mapping) else None
    joint = solution.joint_estimate([*in_turn, *variables], given=conditions)
    return AskedTable(joint=joint, in_turn=len(in_turn))


def require_contrasts(solution: Result, variables: Sequence[Hashable]) -> None:
    """Raise a ModelError unless the variables are declared, different, and have at least two states each."""
    _, positions = solution.specification.positions_of(list(variables))
    domain = solution.specification.domain
    for position in positions:
        require(
            domain.cardinalities[position] > 1,
            "variables",
            "have at least two states to compare",
            f"{domain.variables[position]!r} with one",
            "ask about other variables",
            error=ModelError,
        )


def against(states: Sequence[Hashable], pairs: Sequence[tuple[int, int]]) -> list[str]:
    """Return texts for comparisons of states, such as ``"yes vs no"``."""
    return [f"{states[one]} vs {states[other]}" for one, other in pairs]


def flattened(numbers: FloatArray, axes: int) -> FloatArray:
    """Return numbers with their last axes as one."""
    return numbers.reshape(*numbers.shape[: numbers.ndim - axes], -1)


def neighboring_pairs(states: int) -> list[tuple[int, int]]:
    """Return each state but the first with the one before it."""
    return [(later, earlier) for earlier, later in itertools.pairwise(range(states))]


def with_first(states: int) -> list[tuple[int, int]]:
    """Return each state but the first with the first."""
    return [(state, 0) for state in range(1, states)]
