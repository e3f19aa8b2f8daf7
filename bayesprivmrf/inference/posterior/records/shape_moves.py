r"""Compiled Metropolis moves of the rows' learned shapes, draws of the rows, and sweeps of records with such rows.

Given the tables n, and with the rows integrated out, the shapes of a clique have the log likelihood

.. math:: \sum_r \bigl[\log Γ(α_{r+}) - \log Γ(α_{r+} + n_{r+})\bigr]
          + \sum_{i: n_i > 0} \bigl[\log Γ(α_i + n_i) - \log Γ(α_i)\bigr],

so only cells with records contribute a term each. A move of a margin multiplies α minus its floor by one factor in
the cells of one state, and by another factor in all other cells. The new :math:`α_{r+}` therefore follows from the
sums of each row by state, which are computed once for each margin. The cost of a move depends on the number of
occupied cells, and not on the size of the table.

Given tables and shapes, the rows are independent, :math:`p_r \sim \operatorname{Dirichlet}(α_r + n_r)`.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from bayesprivmrf.compiled import INNER, by_reference, kept, put
from bayesprivmrf.inference.posterior.records.births import first_records, move_total
from bayesprivmrf.inference.posterior.records.moves import move_records, sum_rows
from bayesprivmrf.inference.posterior.shape_prior import (
    LARGEST,
    SPREAD_BETWEEN_TABLES,
    SPREAD_IN_COMMON,
    clique_shapes,
    log_whole,
    spread_of,
)

# Number of states of a margin above which a position moves together with the level, in time linear in the states
MANY = 64


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
def growth(clique, group, place, change, position, data):
    """Return the factors of α minus its floor when one position grows: in cells of its own state, and in others."""
    if group < 0:
        level = SPREAD_IN_COMMON * position[0] + SPREAD_BETWEEN_TABLES * position[1 + clique]
        grown = level + SPREAD_BETWEEN_TABLES * change
        bounds = math.log1p(math.exp(level) / LARGEST) - math.log1p(math.exp(grown) / LARGEST)
        ratio = math.exp(grown - level + bounds)
        return ratio, ratio
    spread = spread_of(group, data)
    grown = 1.0 + math.exp(spread * position[place] - log_whole(group, position, data)) * math.expm1(
        spread * change
    )
    if data.stays[group]:
        return grown, grown * math.exp(-spread * change)
    return math.exp(spread * change) / grown, 1.0 / grown


@njit(nogil=True, **INNER)
def _log_evidence(own, others, state, of_rows, of_cells, grown):
    """Return the log likelihood of a clique's shapes if the cells of one state and the others grow by two factors."""
    (floors, sums, totals), (alphas, fixed, counts, states) = of_rows, of_cells
    value = 0.0
    # normalizing terms of the rows, from their sums by state
    for r in range(totals.size):
        whole = floors[r]
        for k in range(grown.size):
            whole += (own if k == state else others) * grown[k] * sums[r, k]
        value += math.lgamma(whole) - math.lgamma(whole + totals[r])
    # terms of the occupied cells
    for i in range(counts.size):
        factor = grown[states[i]] * (own if states[i] == state else others)
        value += _log_rising(fixed[i] + factor * (alphas[i] - fixed[i]), counts[i])
    return value


@njit(nogil=True, **INNER)
def _gathered(clique, group, states, state, data, prior):
    """Return the numbers in the likelihood of the rows with records, and of the cells with records."""
    first, last = data.clique_rows[clique], data.clique_rows[clique + 1]
    start = prior.clique_groups[clique]
    floors, sums = np.zeros(last - first), np.zeros((last - first, states))
    totals, rows, cells = np.zeros(last - first, np.int64), 0, 0
    # count the rows and the cells with records
    for row in range(first, last):
        for i in range(data.row_starts[row], data.row_starts[row + 1]):
            totals[rows] += state.counts[i]
            cells += state.counts[i] > 0
        rows += totals[rows] > 0
    totals = totals[:rows]
    alphas, fixed = np.empty(cells), np.empty(cells)
    counts, places = np.empty(cells, np.int64), np.zeros(cells, np.int64)
    rows, cells = 0, 0
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
                place = prior.factors[prior.factor_starts[i] + group - start] - prior.group_starts[group]
            floors[rows] += prior.fixed[i]
            sums[rows, place] += state.shapes[i] - prior.fixed[i]
            if state.counts[i] > 0:
                alphas[cells], fixed[cells] = state.shapes[i], prior.fixed[i]
                counts[cells], places[cells] = state.counts[i], place
                cells += 1
        rows += 1
    return (floors, sums, totals), (alphas, fixed, counts, places)


@njit(nogil=True, **INNER)
def _move_group(clique, group, position, state, data, prior, rng):
    """Move the positions of one margin, or the clique's own part of log A, by a small and by a large step each."""
    start = 1 + clique if group < 0 else prior.group_starts[group]
    states = 1 if group < 0 else prior.group_starts[group + 1] - start
    of_rows, of_cells = _gathered(clique, group, states, state, data, prior)
    grown = np.ones(states)
    current = _log_evidence(1.0, 1.0, 0, of_rows, of_cells, grown)
    for own_state in range(states):
        place = start + own_state
        for step in (0.25, 1.0):
            change = step * rng.standard_normal()
            own, others = growth(clique, group, place, change, position, prior)
            new = _log_evidence(own, others, own_state, of_rows, of_cells, grown)
            by_prior = 0.5 * change * (2.0 * position[place] + change)
            if math.log(rng.random()) < new - current - by_prior:
                current, position[place] = new, position[place] + change
                grown *= others
                grown[own_state] *= own / others
    clique_shapes(clique, position, prior, state.shapes)


@njit(nogil=True, **INNER)
def _move_states(clique, group, position, state, data, prior, rng):
    r"""Move the positions of a margin with many states, each together with the level, so other cells keep their α.

    If a position z grows by d, the log of the margin's sum grows by :math:`g = \log(1 + m (e^d - 1))`. The bounded
    level :math:`B = e^x / (1 + e^x / L)` is multiplied by :math:`e^g` to cancel this. Then α minus its floor changes
    only in the cells of the state of z, by the factor :math:`e^d`. The reverse move has -d and -g, and the map of
    (z, x) has the Jacobian :math:`(1 + e^{x'} / L) / (1 + e^x / L)`. A pass over K states therefore visits each
    occupied cell once, and not K times.
    """
    start, places = prior.group_starts[group], 1 + clique
    states = prior.group_starts[group + 1] - start
    (floors, sums, totals), (alphas, fixed, counts, own) = _gathered(
        clique, group, states, state, data, prior
    )
    wholes = floors.copy()
    for r in range(totals.size):
        for k in range(states):
            wholes[r] += sums[r, k]
    # sort the occupied cells by state (counting sort)
    starts = np.zeros(states + 1, np.int64)
    for i in range(own.size):
        starts[own[i] + 1] += 1
    for k in range(states):
        starts[k + 1] += starts[k]
    filled, members = starts.copy(), np.empty(own.size, np.int64)
    for i in range(own.size):
        members[filled[own[i]]] = i
        filled[own[i]] += 1
    log_sum = log_whole(group, position, prior)
    level = SPREAD_IN_COMMON * position[0] + SPREAD_BETWEEN_TABLES * position[places]
    for k in range(states):
        for step in (0.25, 1.0):
            change = step * rng.standard_normal()
            mark = math.log(rng.random())
            factor = math.expm1(change)
            gain = math.log1p(math.exp(position[start + k] - log_sum) * factor)
            # the new level, which the bound L may rule out
            bounded = math.exp(level + gain) / (1.0 + math.exp(level) / LARGEST)
            if bounded >= LARGEST:
                continue
            grown = math.log(bounded) - math.log1p(-bounded / LARGEST)
            moved = position[places] + (grown - level) / SPREAD_BETWEEN_TABLES
            # log ratio: Jacobian, prior of both positions, then the likelihood
            ratio = math.log1p(math.exp(grown) / LARGEST) - math.log1p(math.exp(level) / LARGEST)
            ratio -= 0.5 * change * (2.0 * position[start + k] + change)
            ratio -= 0.5 * (moved - position[places]) * (moved + position[places])
            for r in range(totals.size):
                if sums[r, k] > 0.0:
                    whole = wholes[r] + factor * sums[r, k]
                    ratio += math.lgamma(whole) - math.lgamma(whole + totals[r])
                    ratio += math.lgamma(wholes[r] + totals[r]) - math.lgamma(wholes[r])
            for place in range(starts[k], starts[k + 1]):
                i = members[place]
                ratio += _log_rising(alphas[i] + factor * (alphas[i] - fixed[i]), counts[i])
                ratio -= _log_rising(alphas[i], counts[i])
            if mark < ratio:
                position[start + k] += change
                position[places], level, log_sum = moved, grown, log_sum + gain
                for r in range(totals.size):
                    wholes[r] += factor * sums[r, k]
                    sums[r, k] *= 1.0 + factor
                for place in range(starts[k], starts[k + 1]):
                    i = members[place]
                    alphas[i] += factor * (alphas[i] - fixed[i])
    clique_shapes(clique, position, prior, state.shapes)


@njit(nogil=True, **INNER)
def move_shapes(position, state, data, prior, rng):
    """Move the positions of the shapes given the tables, one at a time."""
    cliques = prior.clique_cells.size - 1
    for k in range(cliques):
        clique_shapes(k, position, prior, state.shapes)
        for group in range(prior.clique_groups[k] - 1, prior.clique_groups[k + 1]):
            is_own = group >= prior.clique_groups[k]
            if is_own and prior.group_starts[group + 1] - prior.group_starts[group] > MANY:
                _move_states(k, group, position, state, data, prior, rng)
                continue
            _move_group(
                k, group if group >= prior.clique_groups[k] else -1, position, state, data, prior, rng
            )
    # the shared part of log A against the tables' own parts, with fixed shapes: a draw from a normal distribution
    ratio = SPREAD_IN_COMMON / SPREAD_BETWEEN_TABLES
    precision, linear = 1.0, 0.0
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
        start, stop = data.row_starts[row], data.row_starts[row + 1]
        top, total = -np.inf, 0.0
        for i in range(start, stop):
            shape = state.shapes[i] + state.counts[i]
            # log of a gamma variable: Gamma(a) is Gamma(a + 1) times U^(1/a), whose log is finite
            log_rows[i] = math.log(rng.standard_gamma(shape + 1.0)) - rng.standard_exponential() / shape
            top = max(top, log_rows[i])
        for i in range(start, stop):
            total += math.exp(log_rows[i] - top)
        for i in range(start, stop):
            log_rows[i] -= top + math.log(total)


@kept()
def advance(total, moves, births, bounds, wanted, records, position, state, data, prior, rng, thin, out):
    """Sweep records, their number and the shapes of the rows in place, and store every `thin`-th sweep.

    `out` has arrays of counts, log rows, totals and positions, one draw per row. `records` has space for `births`
    more records per sweep. Return the number of records.
    """
    state, data, prior = by_reference(state), by_reference(data), by_reference(prior)
    counts, rows, totals, positions = out
    sum_rows(state, data)
    if not state.counts.any():
        first_records(wanted, records, total, state, data, rng)
    for draw in range(totals.size):
        for _ in range(thin):
            move_records(moves, records, total, state, data, rng)
            total = move_total(births, bounds, records, total, state, data, rng)
            if position.size:
                move_shapes(position, state, data, prior, rng)
                sum_rows(state, data)
        draw_rows(rows[draw], state, data, rng)
        put(counts[draw], state.counts)
        put(positions[draw], position)
        totals[draw] = total
    return total
