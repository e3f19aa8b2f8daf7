"""Projections of noisy tables towards marginals, before naive maximum likelihood."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.inference.least_squares import least_squares
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
    evidence: Evidence, projection: str, *, has_own_ridges: bool = False, pooled: Pooled | None = None
) -> FloatArray:
    r"""Return the tables of the model's cliques to match by maximum likelihood, shape (model size,).

    Tables of the cliques (`pool`) are divided by N, and projected:

    - ``"simplex"``: each table on the probability simplex (Bernstein et al. 2017, section 3.1);
    - ``"none"``: not at all; cells may be negative;
    - ``"consistent"``: on the tables that are probabilities *and* agree on every shared margin, by Dykstra's
      alternating projections.

    Afterwards each result is replaced by its least-squares consistent one, zero at impossible cells, the tables
    weighted alike, or by :math:`1/λ_C` if each has a ridge of its own (`has_own_ridges`, `Pooled.ridges`). That
    changes no estimate: adding potentials that cancel leaves A(θ) as it is, so θ'μ - A(θ) depends on the
    inconsistent part of μ only through potentials that change no probability, and the ridge
    :math:`\sum_C λ_C |θ_C|^2` keeps those at the optimum apart from the rest. Without it, the likelihood of
    inconsistent tables is unbounded.
    """
    model = evidence.specification
    pooled = pool(evidence) if pooled is None else pooled
    weights = 1 / pooled.ridges if has_own_ridges else np.ones(len(model.scopes))
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
    target = pooled.flat / evidence.total
    if projection == "simplex":
        target = simplexes(target)
    elif projection == "consistent":
        target = _dykstra(target, simplexes, consistent)
    return consistent(target)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pooled:
    r"""Tables of the model's cliques that all measurements give together.

    Parameters
    ----------
    flat
        Pooled counts, records, shape (model size,).
    ridges
        Ridge of each clique by the error of its noisy marginals, :math:`λ_C = K_C σ_C^2/N^2 + 1/N`, shape (cliques,).
        Near a maximum the naive likelihood is :math:`-\tfrac12 \sum_i (\barμ_i - μ_i)^2 / F_i`, F being their
        variance :math:`μ_i(1-μ_i) ≈ 1/K_C` for a table of :math:`K_C` cells. The error of a noisy marginal really
        has variance :math:`v = σ_C^2/N^2 + F/N` (:math:`σ_C^2` of the pooled noise, the mean over the table's cells),
        so the honest log-likelihood is F/v times the naive one, and a normal prior of variance τ² on each potential,
        :math:`-θ^2/(2τ^2)`, weighs as a ridge of :math:`\frac{v}{2 τ^2 F}` on the naive scale. With τ² = 1/2 that is
        the formula above. τ was chosen on 32 simulated releases, where the estimate came within 15 % of the best λ in
        hindsight (docs/explanation/estimators.md).
    undetermined
        Number of cells that the evidence does not determine; they have the uniform share.
    unseen
        Changes of the cells that the evidence does not see, as `LeastSquares` has them.
    """

    flat: FloatArray
    ridges: FloatArray
    undetermined: int = 0
    unseen: FloatArray | None = None


def pool(evidence: Evidence) -> Pooled:
    """Average tables of the cliques by the precision of their noise, and fit others by generalized least squares."""
    model, undetermined, unseen = evidence.specification, 0, None
    cliques = set(map(frozenset, model.scopes))
    if evidence.queries is None and cliques.issuperset(map(frozenset, evidence.scopes)):
        precisions = 1 / np.maximum(evidence.spread([law.variance for law in evidence.noise]), 1e-12)
        pooled = evidence.scattered(precisions)
        counts = evidence.scattered(precisions * evidence.noisy_counts) / pooled
        # all cells of a clique have the same noise
        sums = np.diff(model.offsets) * (1 / pooled[np.array(model.offsets[:-1], dtype=int)])
    else:
        found = least_squares(evidence)
        counts, unseen, undetermined = found.counts, found.unseen, int(found.undetermined.sum())
        sums = np.array([found.variances[a:b].sum() for a, b in pairwise(model.offsets)])
    ridges = sums / evidence.total**2 + 1 / evidence.total
    return Pooled(flat=counts, ridges=ridges, undetermined=undetermined, unseen=unseen)


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
    values: FloatArray, first: Callable[[FloatArray], FloatArray], second: Callable[[FloatArray], FloatArray]
) -> FloatArray:
    """Project on the intersection of a convex set (first) and an affine one (second), by Dykstra's method."""
    current, correction = second(values), np.zeros_like(values)
    for _ in range(_ALTERNATIONS):
        inner = first(current + correction)
        correction = current + correction - inner
        following = second(inner)
        if np.abs(following - current).max(initial=0.0) < _SETTLED:
            return following
        current = following
    return current
