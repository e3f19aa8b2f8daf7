r"""Main effects and interactions of a log-linear model as linear maps of its zero-sum coordinates.

The model has the expansion :math:`\log p(x) = -A + \sum_S e_S(x_S)` of `bayesprivmrf.model.effects`, whose tables sum
to zero along each axis.

**Reference coding** compares each state with the first. With :math:`Δ_v` the difference from the first state of v,
and 0 the first state of every variable outside of S, the effect is

.. math:: f_S(x_S) = \Bigl(\prod_{v ∈ S} Δ_v\Bigr) \sum_{R ⊇ S} e_R(x_S, 0),

the difference of log probabilities at the first states of all other variables. For two variables of two states that
share no larger clique it is the log odds ratio.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from bayesprivmrf.checks import require
from bayesprivmrf.errors import ModelError
from bayesprivmrf.inference.criticism.assumptions import variable_marks
from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.inference.interval_frame import Mark, RowStatus
from bayesprivmrf.inference.joint_estimate import (
    Covariances,
    DrawnTables,
    TableFunction,
    prior_share_mark,
)
from bayesprivmrf.inference.limits import Limits
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.effects import Effects
from bayesprivmrf.model.tables import FloatArray

if TYPE_CHECKING:
    import pandas as pd

type EffectCoding = Literal["zero-sum", "reference"]

# Name of a row's variables and states: a colon between them, as in the formulas of regressions
_BETWEEN = ":"
# Why an effect has no number
_ZEROS = "structural zeros leave it undefined"


@dataclass(frozen=True, kw_only=True, eq=False)
class EffectTable:
    """Effects of the believed model, one row for each entry.

    Parameters
    ----------
    matrix
        The rows as sums of coordinates, shape (rows, d).
    subsets
        Variables of the effect of each row, by position.
    index
        Labels of the rows: the effect and its states.
    """

    matrix: FloatArray
    subsets: tuple[tuple[int, ...], ...]
    index: pd.Index

    @classmethod
    def of(cls, effects: Effects, model: ModelSpecification, coding: EffectCoding) -> EffectTable:
        """Return the effects of a model in some coding.

        Parameters
        ----------
        effects
            Coordinates of the fit, which may be those of larger tables.
        model
            The believed model.
        coding
            ``"zero-sum"`` or ``"reference"``.
        """
        import pandas as pd

        every = effects.full.subsets
        require(effects.size, "model", "have effects", "none", error=ModelError)
        tables = dict(zip(every, effects.tables(np.eye(effects.size)), strict=True))
        blocks = []
        rows: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
        for subset in every:
            if not any(set(subset) <= set(scope) for scope in model.scopes):
                continue
            if coding == "zero-sum":
                table = tables[subset]
                first = 0
            else:
                table = _from_first(tables, subset)
                first = 1
            blocks.append(table.reshape(len(table), -1).T)
            states = [range(first, model.cardinalities[v]) for v in subset]
            rows += [(subset, codes) for codes in itertools.product(*states)]
        domain = model.domain
        labels = [
            (
                _BETWEEN.join(str(domain.variables[v]) for v in subset),
                _BETWEEN.join(
                    str(domain.states[v][code]) for v, code in zip(subset, codes, strict=True)
                ),
            )
            for subset, codes in rows
        ]
        return cls(
            matrix=np.concatenate(blocks),
            subsets=tuple(subset for subset, _ in rows),
            index=pd.MultiIndex.from_tuples(labels, names=["effect", "state"]),
        )

    def marks(self, evidence: Evidence) -> list[Mark]:
        """Return the remarks on the rows by what was measured."""
        marks = []
        for subset in dict.fromkeys(self.subsets):
            is_own = np.array([own == subset for own in self.subsets])
            marks += [
                Mark(mark.status, mark.note, is_own) for mark in variable_marks(evidence, subset)
            ]
        return marks

    def undefined(self, model: ModelSpecification) -> np.ndarray:
        """Return a mask of the rows whose variables lie in a clique with structural zeros."""
        if model.possible is None:
            return np.zeros(len(self.subsets), dtype=bool)
        with_zeros = [
            set(scope)
            for scope, start, stop in zip(
                model.scopes, model.offsets, model.offsets[1:], strict=False
            )
            if not model.possible[start:stop].all()
        ]
        return np.array(
            [any(set(subset) & scope for scope in with_zeros) for subset in self.subsets]
        )

    def limits_of_draws(self, drawn: DrawnTables, evidence: Evidence, prob: float) -> Limits:
        """Return limits from draws of the coordinates, shape (chain, draw, d)."""
        function = TableFunction(values=lambda beta: beta @ self.matrix.T)
        found = drawn.limits(function, prob, is_simultaneous=False)
        return self._finished(found, evidence)

    def limits_of_normal(
        self,
        beta: FloatArray,
        covariances: Covariances,
        evidence: Evidence,
        prob: float,
    ) -> Limits:
        """Return normal limits.

        Parameters
        ----------
        beta
            Coordinates, shape (d,).
        covariances
            Covariances of the rows.
        evidence
            The measurements of the fit.
        prob
            Probability of each interval.
        """
        from scipy.special import ndtri

        middle = self.matrix @ beta
        errors = np.sqrt(np.maximum(np.diag(covariances.whole), 0.0))
        reach = float(ndtri(0.5 + prob / 2)) * errors
        marks = []
        if covariances.noise is not None and covariances.prior is not None:
            left = np.sqrt(np.maximum(np.diag(covariances.noise), 0.0))
            marks.append(prior_share_mark(left, np.sqrt(np.diag(covariances.prior))))
        limits = Limits(middle, middle - reach, middle + reach, tuple(marks))
        return self._finished(limits, evidence)

    def _finished(self, limits: Limits, evidence: Evidence) -> Limits:
        """Return limits with all remarks, NaN where an effect is not defined."""
        is_undefined = self.undefined(evidence.specification)
        estimates, lower, upper = (np.where(is_undefined, np.nan, each) for each in limits[:3])
        undefined = Mark(RowStatus.NOT_TRUSTED, _ZEROS, is_undefined)
        marks = (*limits.marks, undefined, *self.marks(evidence))
        return Limits(estimates, lower, upper, marks, limits.status)


def _from_first(tables: dict[tuple[int, ...], FloatArray], subset: Sequence[int]) -> FloatArray:
    """Return an effect in reference coding, shape (d, K_v - 1 for v in the subset)."""
    total: FloatArray | float = 0.0
    for own, table in tables.items():
        if set(subset) <= set(own):
            index = tuple(slice(None) if v in subset else 0 for v in own)
            total = total + table[(slice(None), *index)]
    found = np.asarray(total)
    for axis in range(1, len(subset) + 1):
        first = np.take(found, [0], axis=axis)
        found = np.delete(found, 0, axis=axis) - first
    return found
