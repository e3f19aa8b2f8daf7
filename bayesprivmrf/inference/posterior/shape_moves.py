"""Metropolis moves of the rows' learned shapes, given whole tables and with the rows integrated out, compiled."""

from __future__ import annotations

import math

from numba import njit

from bayesprivmrf.inference.posterior.shape_prior import (
    LARGEST,
    SPREAD_BETWEEN_TABLES,
    SPREAD_IN_COMMON,
    clique_shapes,
    log_whole,
)

__all__ = ["move_shapes"]


@njit(nogil=True)
def _log_evidence(clique, shapes, counts, tape):
    """Log of the Dirichlet-multinomial law of one clique's tables, but for what the shapes do not enter."""
    value = 0.0
    for row in range(tape.clique_rows[clique], tape.clique_rows[clique + 1]):
        start, stop = tape.row_starts[row], tape.row_starts[row + 1]
        whole, total = 0.0, 0
        for i in range(start, stop):
            whole += shapes[i]
            total += counts[i]
        if total:
            value += math.lgamma(whole) - math.lgamma(whole + total)
            for i in range(start, stop):
                if counts[i]:
                    value += math.lgamma(shapes[i] + counts[i]) - math.lgamma(shapes[i])
    return value


@njit(nogil=True)
def _factors(clique, group, place, change, position, tape):
    """By how much A m grows as one position does: in cells of its own state, and in all others of the clique."""
    if group < 0:
        level = SPREAD_IN_COMMON * position[0] + SPREAD_BETWEEN_TABLES * position[1 + clique]
        grown = level + SPREAD_BETWEEN_TABLES * change
        bounds = math.log1p(math.exp(level) / LARGEST) - math.log1p(math.exp(grown) / LARGEST)
        ratio = math.exp(grown - level + bounds)
        return ratio, ratio
    share = math.exp(position[place] - log_whole(group, position, tape))
    others = 1.0 / (1.0 + share * math.expm1(change))
    return math.exp(change) * others, others


@njit(nogil=True)
def _rescale(clique, group, place, own, others, shapes, tape, result):
    """Write α of one clique's cells with A m multiplied by those factors."""
    margin = group - tape.clique_groups[clique]
    for cell in range(tape.clique_cells[clique], tape.clique_cells[clique + 1]):
        is_own = group >= 0 and tape.factors[tape.factor_starts[cell] + margin] == place
        result[cell] = tape.fixed[cell] + (own if is_own else others) * (shapes[cell] - tape.fixed[cell])


@njit(nogil=True)
def _move_place(clique, group, place, step, position, state, tape, prior, rng):
    """One Metropolis move of one position."""
    change = step * rng.standard_normal()
    own, others = _factors(clique, group, place, change, position, prior)
    _rescale(clique, group, place, own, others, state.shapes, prior, state.trial)
    new = _log_evidence(clique, state.trial, state.counts, tape)
    by_prior = 0.5 * change * (2.0 * position[place] + change)
    if math.log(rng.random()) < new - state.evidence[clique] - by_prior:
        start, stop = prior.clique_cells[clique], prior.clique_cells[clique + 1]
        state.evidence[clique], position[place] = new, position[place] + change
        state.shapes[start:stop] = state.trial[start:stop]


@njit(nogil=True)
def move_shapes(position, state, tape, prior, rng):
    """Metropolis moves of the shapes' positions given the tables, one at a time, by small steps and by large ones."""
    cliques = state.evidence.size
    for k in range(cliques):
        clique_shapes(k, position, prior, state.shapes)
        state.evidence[k] = _log_evidence(k, state.shapes, state.counts, tape)
        for step in (0.25, 1.0):
            _move_place(k, -1, 1 + k, step, position, state, tape, prior, rng)
        for group in range(prior.clique_groups[k], prior.clique_groups[k + 1]):
            for place in range(prior.group_starts[group], prior.group_starts[group + 1]):
                for step in (0.25, 1.0):
                    _move_place(k, group, place, step, position, state, tape, prior, rng)
    # what all tables share moves against their own parts, which leaves the shapes as they are: a normal draw
    ratio = SPREAD_IN_COMMON / SPREAD_BETWEEN_TABLES
    precision, linear = 1.0, 0.0
    for k in range(cliques):
        precision += ratio * ratio
        linear += ratio * (position[1 + k] + ratio * position[0])
    common = linear / precision + rng.standard_normal() / math.sqrt(precision)
    for k in range(cliques):
        position[1 + k] += ratio * (position[0] - common)
    position[0] = common
