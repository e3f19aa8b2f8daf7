"""Projections of noisy tables towards marginals: on simplexes, and on tables that agree on every shared margin."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.inference.least_squares import PooledTables, pool
from bayesprivmrf.model.cliques import consistent_projection
from bayesprivmrf.model.tables import FloatArray

# ways in which noisy tables become probabilities, by the names that settings take
PROJECTIONS = ("simplex", "none", "consistent")
# most rounds of alternating projections; arbitrary
_ALTERNATIONS = 200
# largest change of a probability in a round that counts as none
_SETTLED = 1e-10


def project_on_simplex(values: FloatArray) -> FloatArray:
    r"""Return the nearest point of the probability simplex, :math:`\max(v - τ, 0)` with sum one.

    Parameters
    ----------
    values
        Shape (K,), K at least 1.

    References
    ----------
    Duchi, Shalev-Shwartz, Singer and Chandra (2008), Figure 1.
    """
    ordered = np.sort(values)[::-1]
    excess = np.cumsum(ordered) - 1
    rank = np.arange(1, len(values) + 1)
    last = int(np.nonzero(ordered * rank > excess)[0][-1])
    return np.maximum(values - excess[last] / (last + 1), 0.0)


def pseudo_marginals(
    evidence: Evidence,
    projection: str,
    *,
    has_own_ridges: bool = False,
    pooled: PooledTables | None = None,
) -> FloatArray:
    r"""Return the tables of the model's cliques to match by maximum likelihood, shape (model size,).

    Tables of the cliques (`pool`) are divided by N, and projected:

    - ``"simplex"``: each table on the probability simplex (Bernstein et al. 2017, section 3.1);
    - ``"none"``: not at all; cells may be negative;
    - ``"consistent"``: on the tables that are probabilities *and* agree on every shared margin, by Dykstra's
      alternating projections.

    Afterwards each result is replaced by its least-squares consistent one, zero at impossible cells, the tables
    weighted alike, or by :math:`1/λ_C` if each has a ridge of its own (`has_own_ridges`, `PooledTables.ridges`). That
    changes no estimate: adding potentials that cancel leaves A(θ) as it is, so θ'μ - A(θ) depends on the
    inconsistent part of μ only through potentials that change no probability, and the ridge
    :math:`\sum_C λ_C |θ_C|^2` keeps those at the optimum apart from the rest. Without it, the likelihood of
    inconsistent tables is unbounded.
    """
    model = evidence.specification
    if pooled is None:
        pooled = pool(evidence)
    if has_own_ridges:
        weights = 1 / pooled.ridges(evidence)
    else:
        weights = np.ones(len(model.scopes))
    possible = evidence.supported_cells

    def simplexes(values: FloatArray) -> FloatArray:
        result = np.zeros_like(values)
        for start, stop in pairwise(model.offsets):
            inside = np.arange(start, stop)[possible[start:stop]]
            result[inside] = project_on_simplex(values[inside])
        return result

    def consistent(values: FloatArray) -> FloatArray:
        return _consistent_with_zeros(model.cardinalities, model.scopes, values, weights, possible)

    if not model.scopes:
        return np.zeros(0)
    target = pooled.counts / evidence.total
    if projection == "simplex":
        target = simplexes(target)
    elif projection == "consistent":
        target = _dykstra(target, simplexes, consistent)
    return consistent(target)


def _consistent_with_zeros(
    cards: Sequence[int],
    scopes: Sequence[tuple[int, ...]],
    values: FloatArray,
    weights: FloatArray,
    possible: np.ndarray,
) -> FloatArray:
    """Project on consistent tables that vanish at impossible cells, two subspaces in turn (von Neumann)."""
    current = consistent_projection(
        cards, scopes, np.where(possible, values, 0.0), weights=list(weights), total=1.0
    )
    if possible.all():
        return current
    for _ in range(_ALTERNATIONS):
        inside = np.where(possible, current, 0.0)
        current = consistent_projection(cards, scopes, inside, weights=list(weights), total=1.0)
        if np.abs(current[~possible]).max() < _SETTLED:
            break
    return np.where(possible, current, 0.0)


def _dykstra(
    values: FloatArray,
    first: Callable[[FloatArray], FloatArray],
    second: Callable[[FloatArray], FloatArray],
) -> FloatArray:
    """Project on the intersection of a convex set (first) and an affine one (second), by Dykstra's method."""
    current = second(values)
    correction = np.zeros_like(values)
    for _ in range(_ALTERNATIONS):
        inner = first(current + correction)
        correction = current + correction - inner
        following = second(inner)
        if np.abs(following - current).max(initial=0.0) < _SETTLED:
            return following
        current = following
    return current
