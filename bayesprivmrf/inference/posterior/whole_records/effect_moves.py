r"""Compiled moves of the potentials, their prior scales and the number of records, and sweeps of all moves.

**Potentials and scales given the records.** Given the records' statistics :math:`s = D^T n`, the potentials have the
log-concave density :math:`\exp(β·s - N A(β) - \tfrac12 β' T^{-1} β)`. They move by Metropolis-corrected Hamiltonian
trajectories. The scale of an effect has two moves: one given the potentials, and one together with them,
:math:`β_g \propto τ_g`, whose acceptance depends on the records. The first mixes fast if the records say much about
the effect, the second if they say little (interweaving, Yu and Meng 2011).

**Moves that the records follow.** If the noise is large relative to sampling variation, then potentials hardly move
given the records, and records hardly move given the potentials. Therefore potentials and scales also move with the
*quantiles* of the records fixed. A record is drawn along the forest by one uniform number in each bag. Given the
record, this number is uniform between two cumulative sums of its row; under the rows of other potentials, the same
number gives another record. The acceptance depends on the noise density of the new tables and on the prior of the
potentials (Papaspiliopoulos, Roberts and Sköld 2007). Proposals are autoregressive in coordinates in which the
posterior is nearly standard normal (`Whitening`); their size is adapted during tuning.

**N** moves by many records at once: births are drawn from p_β, deaths take random records, and the acceptance depends
on the noise.

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

from bayesprivmrf.compiled import INNER, by_reference, kept, put
from bayesprivmrf.inference.posterior.effects_engine import (
    log_partition_at,
    potentials_at,
    statistics_of,
)
from bayesprivmrf.inference.posterior.superpopulation import acceptance, gathered, spread, target
from bayesprivmrf.inference.posterior.whole_records.births import FAR, first_records, move_total
from bayesprivmrf.inference.posterior.whole_records.bounds import log_density
from bayesprivmrf.inference.posterior.whole_records.moves import draw_record, move_records, sum_rows

# Most moves of potentials together with the records in a sweep, and records that all of them visit; arbitrary
_MOST_TOGETHER = 8
_VISITS_TOGETHER = 20_000


@njit(nogil=True, **INNER)
def _tables(counts, effects, plan):
    """Return the tables of the model's cliques, flat, and the statistics Dᵀ n."""
    tables = np.zeros(plan.base.size - 1)
    for cell in range(counts.size):
        for k in range(effects.part_starts[cell], effects.part_starts[cell + 1]):
            tables[effects.parts[k]] += counts[cell]
    return tables, statistics_of(tables, plan)


@njit(nogil=True, **INNER)
def _trajectory(
    beta, value, gradient, mu, statistics, total, precision, root, scale, step, leaps, rng, data
):  # fmt: skip
    """Make one Hamiltonian trajectory, and return the next point, the acceptance, and whether it was accepted."""
    # draw a momentum, and remember the energy
    momentum = rng.standard_normal(beta.size)
    before = value - 0.5 * np.sum(momentum * momentum)
    # the length is random: a trajectory of fixed length could return to its start in some direction
    size = step * (0.8 + 0.4 * rng.random())
    here = beta.copy()
    new_value = value
    new_gradient = gradient
    new_mu = mu
    # leapfrog steps: half a step of the momentum at both ends
    momentum += 0.5 * size * gathered(root, scale, new_gradient)
    for leap in range(leaps):
        here += size * spread(root, scale, momentum)
        new_value, new_gradient, new_mu = target(here, statistics, total, precision, data)
        share = size if leap + 1 < leaps else 0.5 * size
        momentum += share * gathered(root, scale, new_gradient)
    # the Metropolis correction makes the target exact
    gain = new_value - 0.5 * np.sum(momentum * momentum) - before
    chance = acceptance(gain)
    if rng.random() < chance:
        return here, new_value, new_gradient, new_mu, chance, True
    return beta, value, gradient, mu, chance, False


@njit(nogil=True, **INNER)
def _move_effects(beta, log_scales, statistics, total, step, is_tuning, effects, plan, rng):
    """Move the potentials given the records by Hamiltonian trajectories; adapt `step` in place while `is_tuning`."""
    # prior precision, and the scale of each coordinate by the information of the records
    precision = np.empty(beta.size)
    scale = np.empty(beta.size)
    for i in range(beta.size):
        precision[i] = math.exp(-2.0 * log_scales[effects.levels[i]])
        scale[i] = math.sqrt(effects.own[i] / (total * effects.information[i] + precision[i]))
    # trajectories of a quarter of a period of the standard normal, corrected by Metropolis
    value, gradient, mu = target(beta, statistics, total, precision, plan)
    for _ in range(2):  # the number per sweep is arbitrary
        leaps = min(math.ceil(0.5 * math.pi / step[0]), 64)
        beta, value, gradient, mu, chance, _ = _trajectory(
            beta, value, gradient, mu, statistics, total, precision, effects.root, scale, step[0], leaps, rng, plan
        )  # fmt: skip
        if is_tuning:  # towards an acceptance of 0.8
            step[1] += 1.0
            step[0] = min(step[0] * math.exp((chance - 0.8) / math.sqrt(step[1])), 1.0)
    return beta


@njit(nogil=True, **INNER)
def _move_scales(beta, log_scales, statistics, total, effects, plan, rng):
    """Move each scale given the potentials, then scales together with potentials, in place."""
    sizes = np.zeros(log_scales.size)
    squares = np.zeros(log_scales.size)
    for i in range(beta.size):
        sizes[effects.levels[i]] += 1.0
        squares[effects.levels[i]] += beta[i] * beta[i]
    # H (log τ - m) is updated after each move, so that no move needs a matrix product
    pulled = effects.hyper @ (log_scales - effects.expected)
    # each scale given the potentials: four random-walk steps of 2.4 approximate posterior standard deviations
    for g in range(log_scales.size):
        width = 2.4 / math.sqrt(2.0 * sizes[g] + effects.hyper[g, g])
        for _ in range(4):
            old = log_scales[g]
            by = width * rng.standard_normal()
            gain = -by * (pulled[g] + 0.5 * by * effects.hyper[g, g] + sizes[g])
            gain -= 0.5 * squares[g] * (math.exp(-2.0 * (old + by)) - math.exp(-2.0 * old))
            if math.log(rng.random()) < gain:
                log_scales[g] = old + by
                pulled += by * effects.hyper[g]
    prior = scale_density(log_scales, effects)
    partition = log_partition_at(beta, plan)
    # with the potentials: all scales, then up to six single ones, since each needs the log partition function; β/τ
    # is fixed, so its prior does not change
    for turn in range(1 + min(log_scales.size, 6)):
        by = rng.standard_normal() * math.exp(-3.0 * rng.random())
        before = log_scales.copy()
        moved = beta.copy()
        chosen = int(rng.random() * log_scales.size)
        for g in range(log_scales.size):
            if turn == 0 or g == chosen:
                log_scales[g] += by
        for i in range(beta.size):
            moved[i] *= math.exp(log_scales[effects.levels[i]] - before[effects.levels[i]])
        new = scale_density(log_scales, effects)
        new_partition = log_partition_at(moved, plan)
        gain = (
            new - prior + np.sum((moved - beta) * statistics) - total * (new_partition - partition)
        )
        if math.log(rng.random()) < gain:
            put(beta, moved)
            prior = new
            partition = new_partition
        else:
            put(log_scales, before)


@njit(nogil=True, **INNER)
def condition(beta, shapes, values, data, effects, plan):
    """Write the rows of p_β (conditional probabilities along the forest) to `shapes`; `values` is work space."""
    # potentials of the bags' cells
    flat = potentials_at(beta, plan)
    for cell in range(values.size):
        values[cell] = 0.0
        for k in range(effects.part_starts[cell], effects.part_starts[cell + 1]):
            values[cell] += flat[effects.parts[k]]
    # from the leaves: normalize each row, and add its log sum to the parent's cells
    for row in range(data.row_starts.size - 2, -1, -1):
        start = data.row_starts[row]
        stop = data.row_starts[row + 1]
        top = -np.inf
        total = 0.0
        for i in range(start, stop):
            top = max(top, values[i])
        for i in range(start, stop):
            shapes[i] = math.exp(values[i] - top)
            total += shapes[i]
        for i in range(start, stop):
            shapes[i] /= total
        for k in range(data.source_starts[row], data.source_starts[row + 1]):
            values[data.sources[k]] += top + math.log(total)


@njit(nogil=True, **INNER)
def scale_density(log_scales, effects):
    """Return the log prior density of log τ, except for its constant."""
    gap = log_scales - effects.expected
    return -0.5 * np.sum(gap * (effects.hyper @ gap))


@njit(nogil=True, **INNER)
def _couple(records, trial, total, old, new, current, counts, data, rng):
    """Write the records with the same quantiles under the new rows to `trial`, and their tables to `counts`."""
    row_starts = data.row_starts
    source_starts = data.source_starts
    cell_rows = data.cell_rows
    child_starts = data.child_starts
    child_rows = data.child_rows
    row_cliques = data.row_cliques
    counts[:] = 0
    for r in range(total):
        for k in range(records.shape[1]):
            cell = records[r, k]
            row = cell_rows[cell]
            # draw the quantile, uniformly within the record's cell of its old row
            quantile = rng.random() * old[cell]
            for i in range(row_starts[row], cell):
                quantile += old[i]
            # find the cell at this quantile in the new row of the trial record
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
def _log_prior(beta, log_scales, effects):
    """Return the log prior density of the potentials and, if they are learned, of the scales."""
    if effects.hyper.size:
        value = scale_density(log_scales, effects)
    else:
        value = 0.0
    for i in range(beta.size):
        own = log_scales[effects.levels[i]]
        value -= 0.5 * beta[i] * beta[i] * math.exp(-2.0 * own) + own
    return value


@njit(nogil=True, **INNER)
def move_together(
    beta, log_scales, records, trial, total, step, is_tuning, state, data, effects, plan, rng
):
    """Move potentials and scales together with the records, whose quantiles are fixed."""
    # steps of random size, because the tails are not normal
    size = step[2] * math.exp(-2.0 * rng.random())
    # current position in coordinates in which the posterior is nearly standard normal
    precision = effects.known + np.exp(2.0 * effects.shares @ (effects.scale - log_scales))
    middle = effects.center * (effects.known + 1.0)
    place = (effects.inverse @ beta - middle / precision) * np.sqrt(precision)
    # autoregressive proposal of the scales and of the position
    new_scales = log_scales.copy()
    new_place = np.empty(place.size)
    if effects.hyper.size:
        common = rng.standard_normal()
        for g in range(log_scales.size):
            new_scales[g] += size * (0.5 * common + 0.2 * rng.standard_normal())
    for i in range(place.size):
        new_place[i] = math.sqrt(1.0 - size * size) * place[i] + size * rng.standard_normal()
    new_precision = effects.known + np.exp(2.0 * effects.shares @ (effects.scale - new_scales))
    moved = effects.basis @ (middle / new_precision + new_place / np.sqrt(new_precision))
    # log acceptance ratio: prior and proposal, then the noise density of the new tables
    gain = _log_prior(moved, new_scales, effects) - _log_prior(beta, log_scales, effects)
    gain += 0.5 * np.sum(new_place * new_place - place * place + np.log(precision / new_precision))
    shapes = np.empty(state.shapes.size)
    counts = state.trial_counts
    sums = state.trial_sums
    condition(moved, shapes, state.values, data, effects, plan)
    gain -= log_density(state.counts, sums, data)
    _couple(records, trial, total, state.shapes, shapes, state.current, counts, data, rng)
    gain += log_density(counts, sums, data)
    if math.log(rng.random()) < gain:
        put(beta, moved)
        put(log_scales, new_scales)
        put(state.shapes, shapes)
        put(state.counts, counts)
        put(state.sums, sums)
        for k in range(total):
            put(records[k], trial[k])
    if is_tuning:  # towards an acceptance of 0.3
        step[3] += 1.0
        if gain == gain:
            chance = math.exp(min(gain, 0.0))
        else:
            chance = 0.0
        step[2] = min(step[2] * math.exp((chance - 0.3) / math.sqrt(step[3])), 1.0)


@njit(nogil=True, **INNER)
def move_total_far(reach, bounds, records, total, state, data, rng):
    """Try births from p_β, or deaths, of many records at once under p(N) ∝ 1/N; return the new number of records."""
    counts = state.trial_counts
    sums = state.trial_sums
    put(state.values, state.shapes)
    put(state.totals, state.wholes)
    for _ in range(FAR):
        by = 1 + int(reach * math.exp(-3.0 * rng.random()) * rng.random())
        if rng.random() < 0.5:
            by = -by
        if not bounds[0] <= total + by <= min(bounds[1], records.shape[0]):
            continue
        # births: draw records from p_β
        put(counts, state.counts)
        for k in range(total, total + by):
            draw_record(records[k], state, data, rng)
            for cell in records[k]:
                counts[cell] += 1
        # deaths: swap random records with the last ones, which are then dropped
        for k in range(total - 1, total + by - 1, -1):
            other = int(rng.random() * (k + 1))
            for place in range(records.shape[1]):
                cell = records[other, place]
                records[other, place] = records[k, place]
                records[k, place] = cell
                counts[cell] -= 1
        gain = math.log(total / (total + by)) - log_density(state.counts, sums, data)
        gain += log_density(counts, sums, data)
        if math.log(rng.random()) < gain:
            total += by
            put(state.counts, counts)
            put(state.sums, sums)
    return total


@njit(nogil=True, **INNER)
def moves_together(total):
    """Return the number of moves of the potentials together with so many records in a sweep."""
    return max(1, min(_MOST_TOGETHER, _VISITS_TOGETHER // max(total, 1)))


@kept()
def advance_effects(
    total, moves, births, reach, bounds, wanted, records, tables, beta, log_scales, step, is_tuning, state, data,
    effects, plan, rng, sweeps,
):  # fmt: skip
    """Sweep records, their number, the potentials and their scales in place, and return the number of records.

    The tables of the model's cliques are written to `tables`.
    """
    state = by_reference(state)
    data = by_reference(data)
    effects = by_reference(effects)
    condition(beta, state.shapes, state.values, data, effects, plan)
    sum_rows(state, data)
    if effects.basis.size:
        trial = np.empty_like(records)
    else:
        trial = records[:0]
    if not state.counts.any():
        first_records(wanted, records, total, state, data, rng)
    for _ in range(sweeps):
        # records given the potentials
        move_records(moves, records, total, state, data, rng)
        total = move_total(births, bounds, records, total, state, data, rng)
        if reach:
            total = move_total_far(reach, bounds, records, total, state, data, rng)
        # potentials and scales given the records
        _, statistics = _tables(state.counts, effects, plan)
        moved = _move_effects(
            beta, log_scales, statistics, total, step, is_tuning, effects, plan, rng
        )
        put(beta, moved)
        if effects.hyper.size:
            _move_scales(beta, log_scales, statistics, total, effects, plan, rng)
        condition(beta, state.shapes, state.values, data, effects, plan)
        # potentials, scales and records together
        if effects.basis.size:
            for _ in range(moves_together(total)):
                move_together(
                    beta, log_scales, records, trial, total, step, is_tuning, state, data, effects, plan, rng
                )  # fmt: skip
    put(tables, _tables(state.counts, effects, plan)[0])
    return total
