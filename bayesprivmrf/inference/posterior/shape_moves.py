"""Metropolis moves of the rows' learned shapes, given whole tables and with the rows integrated out, compiled."""

from __future__ import annotations

import math

from numba import njit

from bayesprivmrf.inference.posterior import shape_prior
from bayesprivmrf.inference.posterior.shape_prior import clique_shapes

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
def move_shapes(position, state, tape, prior, rng):
    """Metropolis moves of the shapes' positions given the tables, one at a time."""
    shapes, trial, evidence, cliques = state.shapes, state.trial, state.evidence, state.evidence.size
    for k in range(cliques):
        evidence[k] = _log_evidence(k, shapes, state.counts, tape)
        first, last = prior.clique_groups[k], prior.clique_groups[k + 1]
        start, stop = prior.clique_cells[k], prior.clique_cells[k + 1]
        margins = prior.group_starts[last] - prior.group_starts[first]
        for turn in range(2 * (1 + margins)):
            own = turn // 2 - 1
            place = 1 + k if own < 0 else prior.group_starts[first] + own
            old = position[place]
            position[place] += rng.standard_normal() * (1.0 if turn % 2 else 0.25)
            clique_shapes(k, position, prior, trial)
            new = _log_evidence(k, trial, state.counts, tape)
            if math.log(rng.random()) < new - evidence[k] - 0.5 * (position[place] ** 2 - old * old):
                evidence[k] = new
                shapes[start:stop] = trial[start:stop]
            else:
                position[place] = old
    # what all tables share moves against their own parts, which leaves the shapes as they are: a normal draw
    ratio = shape_prior.SPREAD_IN_COMMON / shape_prior.SPREAD_BETWEEN_TABLES
    precision, linear = 1.0, 0.0
    for k in range(cliques):
        precision += ratio * ratio
        linear += ratio * (position[1 + k] + ratio * position[0])
    common = linear / precision + rng.standard_normal() / math.sqrt(precision)
    for k in range(cliques):
        position[1 + k] += ratio * (position[0] - common)
    position[0] = common
