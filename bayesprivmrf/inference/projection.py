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

    Tables of one scope are averaged by precision (answers to queries become tables by generalised least squares:
    `bayesprivmrf.inference.least_squares`), divided by N, and projected:

    - ``"simplex"``: each table on the probability simplex (Bernstein et al. 2017, section 3.1);
    - ``"none"``: not at all; cells may be negative;
    - ``"consistent"``: on the tables that are probabilities *and* agree on every shared margin, by Dykstra's
      alternating projections.

    Afterwards each result is replaced by its least-squares consistent one, zero at impossible cells, the tables
    weighted alike, or by :math:`1/λ_C` if each has a ridge of its own (`has_own_ridges`, `Pooled.ridges`). That
    changes no estimate: adding potentials that cancel leaves A(θ) as it is, so θ'μ - A(θ) depends on the
    inconsistent part of μ only through potentials that change no probability, and the ridge
    :math:`\sum_C λ_C |θ_C|^2` keeps those at the optimum apart from the rest. Without it, the likelihood of
    inconsistent tables is unbounded. (Where several releases measured nested scopes, it is also what joins them.)
    """
    cards = evidence.specification.cardinalities
    pooled = pool(evidence) if pooled is None else pooled
    weights = 1 / pooled.ridges if has_own_ridges else np.ones(len(pooled.scopes))

    def simplexes(values: FloatArray) -> FloatArray:
        result = np.zeros_like(values)
        for block in pooled.blocks:
            inside = np.arange(block.start, block.stop)[pooled.possible[block]]
            result[inside] = project_on_simplex(values[inside])
        return result

    def consistent(values: FloatArray) -> FloatArray:
        return _consistent_with_zeros(cards, pooled.scopes, values, weights, pooled.possible)

    if not pooled.scopes:
        return np.zeros(0)
    target = pooled.flat / evidence.total
    if projection == "simplex":
        target = simplexes(target)
    elif projection == "consistent":
        target = _dykstra(target, simplexes, consistent)
    return _of_cliques(evidence, pooled, consistent(target))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pooled:
    """Tables of equal scope averaged by precision.

    Parameters
    ----------
    scopes, blocks
        Each scope once, and the place of its table in the flat views.
    flat, possible
        Pooled counts, records, and the cells that may occur, shape (size,).
    ridges
        Ridge of each table, :math:`K_C σ_C^2/N^2 + 1/N`, with the variance :math:`σ_C^2` of the pooled noise: the
        error of a noisy marginal over the variance that the naive likelihood believes it to have
        (`bayesprivmrf.inference.naive_mle.default_ridge`), shape (tables,). For answers to queries, the mean variance
        of the table's cells stands for :math:`σ_C^2`.
    undetermined
        Number of cells that the evidence does not determine; they have the uniform share.
    unseen
        Changes of the cells that the evidence does not see, as `LeastSquares` has them.
    """

    scopes: list[tuple[int, ...]]
    blocks: list[slice]
    flat: FloatArray
    possible: np.ndarray
    ridges: FloatArray
    undetermined: int = 0
    unseen: FloatArray | None = None


def pool(evidence: Evidence) -> Pooled:
    """Average the tables of one scope by the precision of their noise."""
    if evidence.queries is not None:
        return _fitted(evidence)
    cards = evidence.specification.cardinalities
    sums: dict[frozenset[int], tuple[tuple[int, ...], FloatArray, float, np.ndarray]] = {}
    for position, scope in enumerate(evidence.scopes):
        block = slice(evidence.offsets[position], evidence.offsets[position + 1])
        shape = [cards[v] for v in scope]
        table = evidence.noisy_counts[block].reshape(shape)
        possible = evidence.possible[block].reshape(shape)
        precision = 1 / max(evidence.noise[position].variance, 1e-12)
        key = frozenset(scope)
        if key not in sums:
            sums[key] = (scope, precision * table, precision, possible)
            continue
        first, weighted, summed, mask = sums[key]
        axes = [scope.index(v) for v in first]
        weighted = weighted + precision * table.transpose(axes)
        sums[key] = (first, weighted, summed + precision, mask & possible.transpose(axes))
    found = list(sums.values())
    cells = np.array([mask.size for _, _, _, mask in found], dtype=float)
    variances = np.array([1 / precision for _, _, precision, _ in found])
    offsets = np.cumsum([0, *cells]).astype(int).tolist()
    return Pooled(
        scopes=[scope for scope, _, _, _ in found],
        blocks=[slice(a, b) for a, b in pairwise(offsets)],
        flat=np.concatenate([np.zeros(0), *((weighted / p).ravel() for _, weighted, p, _ in found)]),
        possible=np.concatenate([np.zeros(0, bool), *(mask.ravel() for _, _, _, mask in found)]),
        ridges=cells * variances / evidence.total**2 + 1 / evidence.total,
    )


def _fitted(evidence: Evidence) -> Pooled:
    """Return the tables of the model's cliques that fit answers to queries best."""
    model, found = evidence.specification, least_squares(evidence)
    variances = [found.variances[a:b].sum() for a, b in pairwise(model.offsets)]  # K_C of them, of mean σ_C^2
    return Pooled(
        scopes=list(model.scopes),
        blocks=[slice(a, b) for a, b in pairwise(model.offsets)],
        flat=found.counts,
        possible=np.ones(model.size, bool) if evidence.supported is None else evidence.supported,
        ridges=np.array(variances) / evidence.total**2 + 1 / evidence.total,
        undetermined=int(found.undetermined.sum()),
        unseen=found.unseen,
    )


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


def _of_cliques(evidence: Evidence, pooled: Pooled, flat: FloatArray) -> FloatArray:
    """Return the tables of the model's cliques among all pooled tables, axes as the cliques declare them."""
    model = evidence.specification
    found = {frozenset(scope): k for k, scope in enumerate(pooled.scopes)}
    parts = [np.zeros(0)]
    for scope in model.scopes:
        own = pooled.scopes[found[frozenset(scope)]]
        table = flat[pooled.blocks[found[frozenset(scope)]]].reshape([model.cardinalities[v] for v in own])
        parts.append(table.transpose([own.index(v) for v in scope]).ravel())
    return np.concatenate(parts)
