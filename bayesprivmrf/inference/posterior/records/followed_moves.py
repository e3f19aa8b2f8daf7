r"""Moves of potentials, scales and the number of records that the records follow, compiled.

Noise that is strong beside the sampling of the records leaves much open that the records, once drawn, would settle:
given them potentials hardly move, and given the potentials neither do they. So potentials and scales are moved with
the records' *quantiles* held fixed. A record is drawn along the forest by one uniform number in each bag; given the
record each is uniform between two sums of its row, and under the rows of other potentials the same numbers give
another record. The tables that follow are judged by the noise, and the potentials by their prior (Yu and Meng 2011;
Papaspiliopoulos, Roberts and Sköld 2007). Proposals are autoregressive in coordinates in which the posterior is about
standard normal (`whitening`), of a size that is adapted while the chain is tuned.

N moves by many records at once: births are drawn from p_β, deaths are any records alike, and the noise judges.

References
----------
Papaspiliopoulos, Roberts and Sköld (2007). A general framework for the parametrization of hierarchical models.
Statistical Science 22, 59-73.
Yu and Meng (2011). To center or not to center: that is not the question. An ancillarity-sufficiency interweaving
strategy (ASIS) for boosting MCMC efficiency. Journal of Computational and Graphical Statistics 20, 531-570.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from bayesprivmrf.compiled import INNER, put
from bayesprivmrf.inference.posterior import effects_engine
from bayesprivmrf.inference.posterior.records.moves import draw_record, weigh_all

_forward = effects_engine._forward
_FOLLOWED = 0.3
"""Acceptance for which the size of moves that all records follow is tuned."""
FAR = 4
"""Moves of the number of records by many at once in a sweep."""


@njit(nogil=True, **INNER)
def condition(beta, shapes, values, tape, effects, plan):
    """Write the rows of p_β, conditional probabilities along the forest; `values` is room."""
    blocked, rows, columns, entries = plan[7], plan[8], plan[9], plan[10]
    flat = _forward(beta, blocked, rows, columns, entries, plan[4][1])
    for cell in range(values.size):
        values[cell] = 0.0
        for k in range(effects.part_starts[cell], effects.part_starts[cell + 1]):
            values[cell] += flat[effects.parts[k]]
    for row in range(tape.row_starts.size - 2, -1, -1):
        start, stop = tape.row_starts[row], tape.row_starts[row + 1]
        top, total = -np.inf, 0.0
        for i in range(start, stop):
            top = max(top, values[i])
        for i in range(start, stop):
            shapes[i] = math.exp(values[i] - top)
            total += shapes[i]
        for i in range(start, stop):
            shapes[i] /= total
        for k in range(tape.source_starts[row], tape.source_starts[row + 1]):
            values[tape.sources[k]] += top + math.log(total)


@njit(nogil=True, **INNER)
def scale_density(log_scales, effects):
    """Log prior density of log τ."""
    gap = log_scales - effects.expected
    return -0.5 * np.sum(gap * (effects.hyper @ gap))


@njit(nogil=True, **INNER)
def _couple(records, trial, total, old, new, current, counts, tape, rng):
    """Write to `trial` what the quantiles of the records under the old rows are under the new, and its tables."""
    row_starts, source_starts, cell_rows = tape.row_starts, tape.source_starts, tape.cell_rows
    child_starts, child_rows, row_cliques = tape.child_starts, tape.child_rows, tape.row_cliques
    counts[:] = 0
    for r in range(total):
        for k in range(records.shape[1]):
            cell = records[r, k]
            row = cell_rows[cell]
            quantile = rng.random() * old[cell]
            for i in range(row_starts[row], cell):
                quantile += old[i]
            if source_starts[row] < source_starts[row + 1]:
                row = current[k]
            place = row_starts[row]
            for i in range(row_starts[row], row_starts[row + 1]):
                if new[i] > 0.0:
                    place = i
                    quantile -= new[i]
                    if quantile < 0.0:
                        break
            trial[r, k] = place
            counts[place] += 1
            for c in range(child_starts[place], child_starts[place + 1]):
                current[row_cliques[child_rows[c]]] = child_rows[c]


@njit(nogil=True, **INNER)
def _log_kernel(counts, sums, tape):
    """Log density of the noisy tables but for its constant; fills the measured cells' sums."""
    value = 0.0
    for m in range(sums.size):
        sums[m] = 0
        for k in range(tape.member_starts[m], tape.member_starts[m + 1]):
            sums[m] += tape.member_weights[k] * counts[tape.members[k]]
        ratio = abs(tape.noisy[m] - sums[m]) / tape.widths[m]
        value -= ratio if tape.absolute[m] else 0.5 * ratio * ratio
    return value


@njit(nogil=True, **INNER)
def _log_prior(beta, log_scales, effects):
    """Log density of the potentials and, where they are learned, of the scales."""
    value = scale_density(log_scales, effects) if effects.hyper.size else 0.0
    for i in range(beta.size):
        own = log_scales[effects.levels[i]]
        value -= 0.5 * beta[i] * beta[i] * math.exp(-2.0 * own) + own
    return value


@njit(nogil=True, **INNER)
def move_together(beta, log_scales, records, trial, total, step, is_tuning, state, tape, effects, plan, rng):
    """Move potentials and scales with the records following them, each at its quantiles."""
    # of many sizes, for the tails are not those of a normal law
    size = step[2] * math.exp(-2.0 * rng.random())
    precision = effects.known + np.exp(2.0 * effects.shares @ (effects.scale - log_scales))
    middle = effects.centre * (effects.known + 1.0)
    place = (effects.inverse @ beta - middle / precision) * np.sqrt(precision)
    new_scales, new_place = log_scales.copy(), np.empty(place.size)
    if effects.hyper.size:
        common = rng.standard_normal()
        for g in range(log_scales.size):
            new_scales[g] += size * (0.5 * common + 0.2 * rng.standard_normal())
    for i in range(place.size):
        new_place[i] = math.sqrt(1.0 - size * size) * place[i] + size * rng.standard_normal()
    new_precision = effects.known + np.exp(2.0 * effects.shares @ (effects.scale - new_scales))
    moved = effects.basis @ (middle / new_precision + new_place / np.sqrt(new_precision))
    gain = _log_prior(moved, new_scales, effects) - _log_prior(beta, log_scales, effects)
    gain += 0.5 * np.sum(new_place * new_place - place * place + np.log(precision / new_precision))
    shapes, counts, sums = np.empty(state.shapes.size), state.block, state.block_sums
    condition(moved, shapes, state.values, tape, effects, plan)
    gain -= _log_kernel(state.counts, sums, tape)
    _couple(records, trial, total, state.shapes, shapes, state.current, counts, tape, rng)
    gain += _log_kernel(counts, sums, tape)
    if math.log(rng.random()) < gain:
        put(beta, moved)
        put(log_scales, new_scales)
        put(state.shapes, shapes)
        put(state.counts, counts)
        put(state.sums, sums)
        for k in range(total):
            put(records[k], trial[k])
        weigh_all(state, tape)
    if is_tuning:
        step[3] += 1.0
        chance = math.exp(min(gain, 0.0)) if gain == gain else 0.0
        step[2] = min(step[2] * math.exp((chance - _FOLLOWED) / math.sqrt(step[3])), 1.0)


@njit(nogil=True, **INNER)
def move_total_far(reach, bounds, records, total, state, tape, rng):
    """Births from p_β, or deaths, of many records at once under p(N) ∝ 1/N; the new number."""
    counts, sums = state.block, state.block_sums
    for _ in range(FAR):
        by = 1 + int(reach * math.exp(-3.0 * rng.random()) * rng.random())
        if rng.random() < 0.5:
            by = -by
        if not bounds[0] <= total + by <= min(bounds[1], records.shape[0]):
            continue
        put(counts, state.counts)
        for k in range(total, total + by):
            draw_record(
                records[k], state.shapes, state.wholes, state.current, tape.clique_rows, tape.row_starts,
                tape.source_starts, tape.child_starts, tape.child_rows, tape.row_cliques, rng,
            )  # fmt: skip
            for cell in records[k]:
                counts[cell] += 1
        for k in range(total - 1, total + by - 1, -1):
            other = int(rng.random() * (k + 1))
            for place in range(records.shape[1]):
                cell = records[other, place]
                records[other, place] = records[k, place]
                records[k, place] = cell
                counts[cell] -= 1
        gain = math.log(total / (total + by)) - _log_kernel(state.counts, sums, tape)
        gain += _log_kernel(counts, sums, tape)
        if math.log(rng.random()) < gain:
            total += by
            put(state.counts, counts)
            put(state.sums, sums)
            weigh_all(state, tape)
    return total
