r"""Residuals of the measured numbers that depend on the noise alone, whatever the true tables are.

With U an orthonormal basis of what consistent tables can answer, among those that give the answers without noise, and
of the change with N where that is private, they are

.. math:: r = P D^{-1/2} (y - A n_1) = P D^{-1/2} η, \qquad P = 1 - U U' .

**Whole tables**, of noise that has one variance in all cells of a table, need no basis. The nearest consistent tables
are known in closed form (as in `bayesprivmrf.model.cliques.consistent_projection`): the effect of a set S of
variables is the mean of the effects in the tables t that hold it, with the weights :math:`w_{tS} = p_t K_S / K_t`,
where :math:`p_t` is the precision of a cell, and :math:`K_t` and :math:`K_S` are the numbers of cells. The effect has
:math:`d_S = \prod_{v ∈ S} (K_v - 1)` coordinates, and by symmetry all cells of a table have the same leverage:

.. math:: P_{ii} = 1 - \frac{1}{K_t} \sum_{S ⊆ t} d_S \frac{w_{tS}}{\sum_u w_{uS}} .

The empty set, whose effect is N, has one coordinate, and none where N is public.

**Other answers** are solved by a QR decomposition.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.inference.least_squares import EXACT, HELD, noisy_rows, unconstrained
from bayesprivmrf.model.cliques import consistent_projection
from bayesprivmrf.model.effects import Effects
from bayesprivmrf.model.tables import FloatArray, IntArray, subsets

# Residual, as a share of the largest number, below which it is a rounding error
_ROUNDING = 1e-13


@dataclass(frozen=True, eq=False, kw_only=True)
class NoiseResiduals:
    """Residuals of noisy answers, and how they depend on the noise.

    Parameters
    ----------
    residuals
        r, shape (answers,), standard deviations of the noise of each answer.
    own
        Diagonal of P, shape (answers,).
    seen
        Places of the answers in the evidence, shape (answers,).
    projected
        Function that returns P.
    """

    residuals: FloatArray
    own: FloatArray
    seen: IntArray
    projected: Callable[[], FloatArray]

    @cached_property
    def projection(self) -> FloatArray:
        """The matrix P, shape (answers, answers)."""
        return self.projected()


def noise_residuals(evidence: Evidence, limit: int) -> NoiseResiduals | None:
    """Return the residuals of the noisy answers; None for more than `limit` answers or effects.

    Parameters
    ----------
    evidence
        The releases.
    limit
        Largest number of answers, and of effects, for which the least squares are solved.
    """
    model = evidence.specification
    effects = Effects.of(model.cardinalities, model.scopes)
    if max(int(evidence.possible.sum()), effects.size) > limit:
        return None
    if (scopes := _whole_tables(evidence)) is not None:
        return _without_rounding(evidence, _of_whole_tables(evidence, scopes))
    return _without_rounding(evidence, _of_answers(evidence))


def _without_rounding(evidence: Evidence, found: NoiseResiduals) -> NoiseResiduals:
    """Return residuals of which those that are rounding errors are 0: noise may be smaller than these."""
    numbers = evidence.noisy_counts[found.seen]
    deviations = evidence.noise_deviation[found.seen]
    least = _ROUNDING * np.abs(numbers).max(initial=0.0)
    is_rounding = np.abs(found.residuals) * deviations < least
    return replace(found, residuals=np.where(is_rounding, 0.0, found.residuals))


def _whole_tables(evidence: Evidence) -> list[tuple[int, ...]] | None:
    """Return the scopes of the tables; None if some answer has another variance or none, or is no whole table."""
    deviations = evidence.noise_deviation
    if not evidence.possible.all() or evidence.supported is not None:
        return None
    if not (deviations > EXACT * deviations.max(initial=0.0)).all():
        return None
    scopes: list[tuple[int, ...]] = []
    for position, law in enumerate(evidence.noise):
        wave, scope = evidence.table_at(position)
        if wave is not None or scope is None or not law.is_additive:
            return None
        scopes.append(scope)
    return scopes


def _of_whole_tables(evidence: Evidence, scopes: list[tuple[int, ...]]) -> NoiseResiduals:
    """Return the residuals of whole tables, each with noise of one variance."""
    effects = Effects.of(evidence.specification.cardinalities, scopes)
    sizes = np.diff(evidence.offsets)
    deviations = evidence.noise_deviation
    precision = 1 / np.square(deviations)
    parts = [
        _effects_in(effects, scope, precision[start])
        for scope, start in zip(scopes, evidence.offsets, strict=False)
    ]
    whole: defaultdict[frozenset[int], float] = defaultdict(float)
    for own in parts:
        for subset, _, weight in own:
            whole[subset] += weight
    if evidence.total_standard_error > 0:
        weights = precision / np.repeat(sizes, sizes)
        total = float(weights @ evidence.noisy_counts) / whole[frozenset()]
    else:
        total = evidence.total
        whole[frozenset()] = math.inf  # no table tells more of N
    # each effect is the weighted mean of those in the tables that hold it
    scale = [whole[frozenset(subset)] for subset in effects.subsets]
    sums = effects.coordinates(precision * evidence.noisy_counts)
    beta = sums / np.repeat(scale, np.diff(effects.offsets))
    nearest = total / np.repeat(sizes, sizes) + effects.margins(beta)
    told = np.array(
        [sum(size * weight / whole[subset] for subset, size, weight in own) for own in parts]
    )
    return NoiseResiduals(
        residuals=(evidence.noisy_counts - nearest) / deviations,
        own=np.repeat(1 - told / sizes, sizes),
        seen=np.arange(len(deviations)),
        projected=lambda: _of_answers(evidence).projection,
    )


def _effects_in(
    effects: Effects, scope: tuple[int, ...], precision: float
) -> list[tuple[frozenset[int], int, float]]:
    """Return each set S of variables of a table, with its number of coordinates and the weight of the table."""
    states = [effects.cardinalities[v] for v in scope]
    cells = math.prod(states)
    found = []
    for axes in subsets(range(len(scope))):
        size = math.prod(states[axis] - 1 for axis in axes)
        weight = precision * math.prod(states[axis] for axis in axes) / cells
        found.append((frozenset(scope[axis] for axis in axes), size, weight))
    return found


def _of_answers(evidence: Evidence) -> NoiseResiduals:
    """Return the residuals of any answers, by an orthonormal basis of what tables can answer."""
    model = evidence.specification
    effects = Effects.of(model.cardinalities, model.scopes)
    even = consistent_projection(model.cardinalities, model.scopes, np.zeros(model.size), total=1.0)
    rows, answers, deviations = noisy_rows(evidence)
    tables = effects.margins(np.eye(effects.size))
    if evidence.total_standard_error > 0:
        tables = np.vstack([tables, even])
    is_noisy = deviations > EXACT * deviations.max(initial=0.0)
    wanted = answers - evidence.total * (rows @ even)
    _, _, design, told = unconstrained(rows, tables, wanted, deviations, ~is_noisy)
    basis = _basis(design)
    seen = np.flatnonzero(evidence.possible)
    return NoiseResiduals(
        residuals=told - basis @ (basis.T @ told),
        own=1 - np.square(basis).sum(axis=1),
        seen=seen[is_noisy[: seen.size]],
        projected=lambda: np.eye(len(told)) - basis @ basis.T,
    )


def _basis(columns: FloatArray) -> FloatArray:
    """Return an orthonormal basis of columns, without directions that are due to rounding."""
    from scipy.linalg import qr

    if not columns.size:
        return columns[:, :0]
    found: Any = qr(columns, mode="economic", pivoting=True, check_finite=False)
    basis, triangle, _ = found
    sizes = np.abs(np.diag(triangle))
    return basis[:, sizes > HELD * sizes.max()]
