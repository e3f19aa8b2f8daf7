r"""Compiled Metropolis moves of the rows' learned shapes, draws of the rows, and sweeps of records with such rows.

Given the tables n, and with the rows integrated out, the shapes of a clique have the log likelihood

.. math:: \sum_r \bigl[\log Γ(α_{r+}) - \log Γ(α_{r+} + n_{r+})\bigr]
          + \sum_{i: n_i > 0} \bigl[\log Γ(α_i + n_i) - \log Γ(α_i)\bigr],

so only cells with records contribute a term each. A position z of a margin, whose log odds are s z, moves together
with the level, so that α changes only in the cells of its own state. If z grows by d, the log of the margin's sum
grows by :math:`g = \log(1 + m (e^{s d} - 1))`. The bounded level :math:`B = e^x / (1 + e^x / L)` is multiplied by
:math:`e^g` (by :math:`e^{s d - g}` for staying and moving) to cancel this. Then α minus its floor is multiplied by
:math:`e^{s d}` in the cells of the state of z. The reverse move has -d and -g, and the map of (z, x) has the Jacobian
:math:`(1 + e^{x'} / L) / (1 + e^x / L)`. A pass over the states of a margin visits each occupied cell once.

Given tables and shapes, the rows are independent, :math:`p_r \sim \operatorname{Dirichlet}(α_r + n_r)`.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from bayesprivmrf.compiled import INNER, by_reference, kept
from bayesprivmrf.inference.posterior.shape_prior import (
    LARGEST_CONCENTRATION,
    SPREAD_BETWEEN_TABLES,
    SPREAD_COMMON_TO_TABLES,
    clique_shapes,
    log_weights,
    log_whole,
    own_spread,
)
from bayesprivmrf.inference.posterior.whole_records.births import first_records, move_total
from bayesprivmrf.inference.posterior.whole_records.moves import move_records, sum_rows
from bayesprivmrf.inference.posterior.whole_records.shared_shape_moves import move_shared


@njit(nogil=True, inline="always")
def _log_rising(shape, count):
    """Return the log of Γ(α + n) / Γ(α)."""
    if count > 8:  # below, the log of a product is faster than two log gamma functions
        return math.lgamma(shape + count) - math.lgamma(shape)
    product = shape
    for k in range(1, count):
        product *= shape + k
    return math.log(product)


@njit(nogil=True)
def level_after(level, gain):
    """Return the level x whose bounded value e^x / (1 + e^x / L) is larger by e^gain; infinite if L rules it out."""
    bounded = math.exp(level + gain) / (1.0 + math.exp(level) / LARGEST_CONCENTRATION)
    if bounded < LARGEST_CONCENTRATION:
        return math.log(bounded) - math.log1p(-bounded / LARGEST_CONCENTRATION)
    return math.inf


@njit(nogil=True)
def level_gain(stays, weight, change, log_sum):
    """Return the log factor of the level that keeps α of other states if a log weight grows, and that of the sum."""
    grown = math.log1p(math.exp(weight - log_sum) * math.expm1(change))
    return (change - grown if stays else grown), grown


@njit(nogil=True, **INNER)
def _gathered(clique, group, states, state, data, prior):
    """Return the numbers in the likelihood of the rows with records, and of the cells with records."""
    first = data.clique_rows[clique]
    last = data.clique_rows[clique + 1]
    start = prior.clique_groups[clique]
    floors = np.zeros(last - first)
    sums = np.zeros((last - first, states))
    totals = np.zeros(last - first, np.int64)
    rows = 0
    cells = 0
    # count the rows and the cells with records
    for row in range(first, last):
        for i in range(data.row_starts[row], data.row_starts[row + 1]):
            totals[rows] += state.counts[i]
            cells += state.counts[i] > 0
        rows += totals[rows] > 0
    totals = totals[:rows]
    alphas = np.empty(cells)
    fixed = np.empty(cells)
    counts = np.empty(cells, np.int64)
    places = np.zeros(cells, np.int64)
    rows = 0
    cells = 0
    # fill the arrays of rows and of occupied cells
    for row in range(first, last):
        is_empty = True
        for i in range(data.row_starts[row], data.row_starts[row + 1]):
            if state.counts[i] > 0:
                is_empty = False
                break
        if is_empty:
            continue
        for i in range(data.row_starts[row], data.row_starts[row + 1]):
            place = 0
            if group >= 0:
                place = (
                    prior.factors[prior.factor_starts[i] + group - start]
                    - prior.group_starts[group]
                )
            floors[rows] += prior.fixed[i]
            sums[rows, place] += state.shapes[i] - prior.fixed[i]
            if state.counts[i] > 0:
                alphas[cells] = state.shapes[i]
                fixed[cells] = prior.fixed[i]
                counts[cells] = state.counts[i]
                places[cells] = place
                cells += 1
        rows += 1
    return (floors, sums, totals), (alphas, fixed, counts, places)


@njit(nogil=True, **INNER)
def _move_group(clique, group, position, state, data, prior, rng):
    """Move the positions of one margin, or the clique's own part of log A, by a small and by a large step each."""
    own = 1 + clique
    if group < 0:
        start = own
    else:
        start = prior.group_starts[group]
    if group < 0:
        states = 1
    else:
        states = prior.group_starts[group + 1] - start
    (floors, sums, totals), (alphas, fixed, counts, owners) = _gathered(
        clique, group, states, state, data, prior
    )
    wholes = floors.copy()
    terms = np.empty(totals.size)
    for r in range(totals.size):
        wholes[r] += sums[r].sum()
        terms[r] = math.lgamma(wholes[r]) - math.lgamma(wholes[r] + totals[r])
    # sort the occupied cells by state (counting sort)
    starts = np.zeros(states + 1, np.int64)
    for k in owners:
        starts[k + 1] += 1
    starts = np.cumsum(starts)
    filled = starts.copy()
    members = np.empty(owners.size, np.int64)
    for i in range(owners.size):
        members[filled[owners[i]]] = i
        filled[owners[i]] += 1
    weights = np.zeros(1)
    log_sum = 0.0
    spread = 0.0
    if group >= 0:
        weights = log_weights(group, position, prior)
        log_sum = log_whole(weights)
        spread = own_spread(group, prior)
    level = SPREAD_COMMON_TO_TABLES * position[0] + SPREAD_BETWEEN_TABLES * position[own]
    for k in range(states):
        for step in (0.25, 1.0):
            place = position[start + k]
            change = step * rng.standard_normal()
            mark = math.log(rng.random())
            bound = math.log1p(math.exp(level) / LARGEST_CONCENTRATION)
            ratio = -0.5 * change * (2.0 * place + change)
            grown = 0.0
            if group < 0:
                moved = place + change
                level_moved = level + SPREAD_BETWEEN_TABLES * change
                factor = math.expm1(
                    level_moved
                    - level
                    + bound
                    - math.log1p(math.exp(level_moved) / LARGEST_CONCENTRATION)
                )
            else:
                gain, grown = level_gain(prior.stays[group], weights[k], spread * change, log_sum)
                level_moved = level_after(level, gain)
                factor = math.expm1(spread * change)
                if level_moved == math.inf:
                    continue
                moved = position[own] + (level_moved - level) / SPREAD_BETWEEN_TABLES
                # Jacobian, and the prior of the level
                ratio += math.log1p(math.exp(level_moved) / LARGEST_CONCENTRATION) - bound
                ratio -= 0.5 * (moved - position[own]) * (moved + position[own])
            # likelihood of the rows, and of the occupied cells
            for r in range(totals.size):
                if sums[r, k] > 0.0:
                    whole = wholes[r] + factor * sums[r, k]
                    ratio += math.lgamma(whole) - math.lgamma(whole + totals[r]) - terms[r]
            for m in range(starts[k], starts[k + 1]):
                i = members[m]
                ratio += _log_rising(alphas[i] + factor * (alphas[i] - fixed[i]), counts[i])
                ratio -= _log_rising(alphas[i], counts[i])
            if mark < ratio:
                position[start + k] += change
                position[own] = moved
                weights[k] += spread * change
                level = level_moved
                log_sum = log_sum + grown
                for r in range(totals.size):
                    wholes[r] += factor * sums[r, k]
                    sums[r, k] *= 1.0 + factor
                    terms[r] = math.lgamma(wholes[r]) - math.lgamma(wholes[r] + totals[r])
                for m in range(starts[k], starts[k + 1]):
                    i = members[m]
                    alphas[i] += factor * (alphas[i] - fixed[i])
    clique_shapes(clique, position, prior, state.shapes)


@njit(nogil=True, **INNER)
def move_shapes(position, state, data, prior, rng):
    """Move the positions of the shapes given the tables, one at a time."""
    cliques = prior.clique_cells.size - 1
    for k in range(cliques):
        clique_shapes(k, position, prior, state.shapes)
        for group in range(prior.clique_groups[k] - 1, prior.clique_groups[k + 1]):
            if group >= prior.clique_groups[k]:
                own = group
            else:
                own = -1
            _move_group(k, own, position, state, data, prior, rng)
    move_shared(position, state, data, prior, rng)
    # the shared part of log A against the tables' own parts, with fixed shapes: a draw from a normal distribution
    ratio = SPREAD_COMMON_TO_TABLES / SPREAD_BETWEEN_TABLES
    precision = 1.0
    linear = 0.0
    for k in range(cliques):
        precision += ratio * ratio
        linear += ratio * (position[1 + k] + ratio * position[0])
    common = linear / precision + rng.standard_normal() / math.sqrt(precision)
    for k in range(cliques):
        position[1 + k] += ratio * (position[0] - common)
    position[0] = common


@njit(nogil=True, **INNER)
def draw_rows(log_rows, state, data, rng):
    """Draw the logarithms of the rows' probabilities from Dirichlet(α + n)."""
    for row in range(data.row_starts.size - 1):
        start = data.row_starts[row]
        stop = data.row_starts[row + 1]
        top = -np.inf
        total = 0.0
        for i in range(start, stop):
            shape = state.shapes[i] + state.counts[i]
            # log of a gamma variable: Gamma(a) is Gamma(a + 1) times U^(1/a), whose log is finite
            log_rows[i] = (
                math.log(rng.standard_gamma(shape + 1.0)) - rng.standard_exponential() / shape
            )
            top = max(top, log_rows[i])
        for i in range(start, stop):
            total += math.exp(log_rows[i] - top)
        for i in range(start, stop):
            log_rows[i] -= top + math.log(total)


@kept()
def advance(
    total,
    moves,
    births,
    bounds,
    wanted,
    records,
    position,
    log_rows,
    state,
    data,
    prior,
    rng,
    sweeps,
):
    """Sweep records, their number and the shapes of the rows in place, and then draw the rows.

    `records` has space for `births` more records per sweep. Return the number of records.
    """
    state = by_reference(state)
    data = by_reference(data)
    prior = by_reference(prior)
    sum_rows(state, data)
    if not state.counts.any():
        first_records(wanted, records, total, state, data, rng)
    for _ in range(sweeps):
        move_records(moves, records, total, state, data, rng)
        total = move_total(births, bounds, records, total, state, data, rng)
        if position.size:
            move_shapes(position, state, data, prior, rng)
            sum_rows(state, data)
    draw_rows(log_rows, state, data, rng)
    return total
