r"""Compiled Metropolis moves of what the margins of several tables have in common.

The log weight of a state in a table's margin is :math:`w_C = σ c + τ z_C` (`shape_prior`), with c in common. Two
kinds of moves take turns, because neither mixes alone (Yu and Meng 2011).

- A number of c moves by a random step while the other positions stay. The shapes of all tables that have it change,
  and the likelihood of their rows decides. Such moves mix if records say little about the margins.
- With all w_C fixed, and so with fixed shapes, c is drawn from its conditional distribution. For T tables it is
  normal with the precision :math:`1 + T σ^2 / τ^2` and the mean :math:`σ τ^{-2} \sum_C w_C` over the precision. Such
  moves mix if records determine the margins.

References
----------
Yu and Meng (2011). To center or not to center: that is not the question: an ancillarity-sufficiency interweaving
strategy (ASIS) for boosting MCMC efficiency. Journal of Computational and Graphical Statistics 20, 531-570.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from bayesprivmrf.compiled import INNER
from bayesprivmrf.inference.posterior.shape_prior import clique_shapes, own_spread, shared_spread


@njit(nogil=True, **INNER)
def _log_likelihood(clique, state, data):
    """Return the log likelihood of a clique's shapes given its counts, with the rows integrated out."""
    found = 0.0
    for row in range(data.clique_rows[clique], data.clique_rows[clique + 1]):
        mass = 0.0
        total = 0
        for i in range(data.row_starts[row], data.row_starts[row + 1]):
            count = state.counts[i]
            mass += state.shapes[i]
            if count > 0:
                total += count
                found += math.lgamma(state.shapes[i] + count) - math.lgamma(state.shapes[i])
        if total > 0:
            found += math.lgamma(mass) - math.lgamma(mass + total)
    return found


@njit(nogil=True, **INNER)
def _members(shared, prior):
    """Return the margins that have a part in common, and the clique of each."""
    margins = np.flatnonzero(prior.shared_groups == shared)
    return margins, np.searchsorted(prior.clique_groups, margins, side="right") - 1


@njit(nogil=True, **INNER)
def _move_place(place, cliques, before, position, state, data, prior, rng):
    """Move one number, on which the shapes of the cliques depend, and return their log likelihood."""
    for step in (0.1, 0.5):
        old = position[place]
        change = step * rng.standard_normal()
        mark = math.log(rng.random())
        position[place] = old + change
        after = 0.0
        for clique in cliques:
            clique_shapes(clique, position, prior, state.shapes)
            after += _log_likelihood(clique, state, data)
        if mark < after - before - 0.5 * change * (2.0 * old + change):
            before = after
        else:
            position[place] = old
    for clique in cliques:
        clique_shapes(clique, position, prior, state.shapes)
    return before


@njit(nogil=True, **INNER)
def _draw_common(shared, margins, position, prior, rng):
    """Draw the part in common given the log weights of all tables, which stay."""
    spread = shared_spread(margins[0], prior)
    own = own_spread(margins[0], prior)
    ratio = spread / own
    start = prior.group_starts[shared]
    precision = 1.0 + margins.size * ratio * ratio
    for k in range(prior.group_starts[shared + 1] - start):
        old = position[start + k]
        linear = 0.0
        for group in margins:
            # w / τ times σ / τ
            linear += ratio * (position[prior.group_starts[group] + k] + ratio * old)
        new = linear / precision + rng.standard_normal() / math.sqrt(precision)
        for group in margins:
            position[prior.group_starts[group] + k] += ratio * (old - new)
        position[start + k] = new


@njit(nogil=True, **INNER)
def move_shared(position, state, data, prior, rng):
    """Move what margins have in common, given the tables."""
    tables = prior.clique_groups[-1]
    for shared in range(tables, prior.group_starts.size - 1):
        margins, cliques = _members(shared, prior)
        likelihood = 0.0
        for clique in cliques:
            likelihood += _log_likelihood(clique, state, data)
        for place in range(prior.group_starts[shared], prior.group_starts[shared + 1]):
            likelihood = _move_place(place, cliques, likelihood, position, state, data, prior, rng)
        _draw_common(shared, margins, position, prior, rng)
        for clique in cliques:
            clique_shapes(clique, position, prior, state.shapes)
