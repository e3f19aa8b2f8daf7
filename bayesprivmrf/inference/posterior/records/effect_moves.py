r"""Moves of the potentials and their prior's scales given whole records, and sweeps of all moves, compiled.

Given the records' statistics :math:`s = D^T n` the potentials have the log-concave density
:math:`\exp(β·s - N A(β) - \tfrac12 β' T^{-1} β)`: they move by Metropolis-corrected Hamiltonian trajectories
(`superpopulation`). The scale of an effect moves twice: given the potentials, which is a density in one number, and
together with them, :math:`β_g \propto τ_g`, which the records judge. Where they say much of the effect the
first is fast, where they say little the second (interweaving, as in `followed_moves`).
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from bayesprivmrf.compiled import INNER, by_reference, kept, put
from bayesprivmrf.inference.posterior import effects_engine
from bayesprivmrf.inference.posterior.records.followed_moves import (
    condition,
    move_together,
    move_total_far,
    scale_density,
)
from bayesprivmrf.inference.posterior.records.moves import (
    count,
    draw_new,
    log_sum,
    move_records,
    move_total,
    weigh_all,
)
from bayesprivmrf.inference.posterior.superpopulation import target, trajectory

_log_partition = effects_engine._log_partition
_TRAJECTORIES = 2
_SCALE_MOVES = 4
"""Moves of each scale given the potentials, which read one number."""
_WITH_POTENTIALS = 6
"""Most scales that a sweep moves together with their potentials; each takes the marginals."""
_ACCEPTED = 0.8
"""Acceptance for which the step of the trajectories is tuned."""
_TRIES, _VISITS = 8, 20_000
"""Most moves in a sweep that all records follow, and the records that they visit together."""
_FIRST = 1000
"""Sums made for the first records, which are no draw yet."""


@njit(nogil=True, **INNER)
def _tables(counts, effects, plan):
    """Tables of the model's cliques, flat, and the statistics D'n."""
    rows, columns, entries = plan[8], plan[9], plan[10]
    tables, statistics = np.zeros(rows.size - 1), np.zeros(effects.levels.size)
    for cell in range(counts.size):
        for k in range(effects.part_starts[cell], effects.part_starts[cell + 1]):
            tables[effects.parts[k]] += counts[cell]
    for c in range(tables.size):
        if tables[c]:
            for k in range(rows[c], rows[c + 1]):
                statistics[columns[k]] += entries[k] * tables[c]
    return tables, statistics


@njit(nogil=True, **INNER)
def _move_effects(beta, log_scales, statistics, total, step, is_tuning, effects, plan, rng):
    """Trajectories of the potentials given the records; `step` is adapted in place while `is_tuning`."""
    precision, scale = np.empty(beta.size), np.empty(beta.size)
    for i in range(beta.size):
        precision[i] = math.exp(-2.0 * log_scales[effects.levels[i]])
        scale[i] = math.sqrt(effects.own[i] / (total * effects.information[i] + precision[i]))
    value, gradient, mu = target(beta, statistics, total, precision, plan)
    for _ in range(_TRAJECTORIES):
        leaps = min(math.ceil(0.5 * math.pi / step[0]), 64)
        beta, value, gradient, mu, chance, _ = trajectory(
            beta, value, gradient, mu, statistics, total, precision, effects.root, scale, step[0], leaps, rng, plan
        )  # fmt: skip
        if is_tuning:
            step[1] += 1.0
            step[0] = min(step[0] * math.exp((chance - _ACCEPTED) / math.sqrt(step[1])), 1.0)
    return beta


@njit(nogil=True, **INNER)
def _move_scales(beta, log_scales, statistics, total, effects, plan, rng):
    """Move each scale given the potentials, then scales with them; both are changed in place."""
    sizes, squares = np.zeros(log_scales.size), np.zeros(log_scales.size)
    for i in range(beta.size):
        sizes[effects.levels[i]] += 1.0
        squares[effects.levels[i]] += beta[i] * beta[i]
    pulled = effects.hyper @ (
        log_scales - effects.expected
    )  # kept up to date: a move takes no product of its own
    for g in range(log_scales.size):
        width = 2.4 / math.sqrt(2.0 * sizes[g] + effects.hyper[g, g])
        for _ in range(_SCALE_MOVES):
            old, by = log_scales[g], width * rng.standard_normal()
            gain = -by * (pulled[g] + 0.5 * by * effects.hyper[g, g] + sizes[g])
            gain -= 0.5 * squares[g] * (math.exp(-2.0 * (old + by)) - math.exp(-2.0 * old))
            if math.log(rng.random()) < gain:
                log_scales[g] = old + by
                pulled += by * effects.hyper[g]
    prior = scale_density(log_scales, effects)
    partition = _log_partition(beta, *plan)
    # all, then some, with the potentials: what is fixed is β/τ, whose prior does not change
    for turn in range(1 + min(log_scales.size, _WITH_POTENTIALS)):
        by, before, moved = (
            rng.standard_normal() * math.exp(-3.0 * rng.random()),
            log_scales.copy(),
            beta.copy(),
        )
        chosen = int(rng.random() * log_scales.size)
        for g in range(log_scales.size):
            if turn == 0 or g == chosen:
                log_scales[g] += by
        for i in range(beta.size):
            moved[i] *= math.exp(log_scales[effects.levels[i]] - before[effects.levels[i]])
        new, new_partition = scale_density(log_scales, effects), _log_partition(moved, *plan)
        gain = new - prior + np.sum((moved - beta) * statistics) - total * (new_partition - partition)
        if math.log(rng.random()) < gain:
            put(beta, moved)
            prior, partition = new, new_partition
        else:
            put(log_scales, before)


@njit(nogil=True, **INNER)
def _first_records(records, total, state, tape, rng):
    """Records to begin with, each given those before it, or most of them."""
    for k in range(total):
        if k % (1 + total // _FIRST) == 0:
            log_sum(state, tape)
        draw_new(records[k], state, tape, rng)
        count(records[k], 1, state, tape)


@kept()
def advance_effects(
    total, moves, births, reach, bounds, records, beta, log_scales, step, is_tuning, state, tape, effects, plan,
    rng, thin, out,
):  # fmt: skip
    """Sweep records, their number, the potentials and their scales in place, and keep every `thin`-th sweep.

    `out` holds arrays of tables, totals, potentials and log scales, one draw a row. See also `moves.advance`.
    """
    state, tape, effects = by_reference(state), by_reference(tape), by_reference(effects)
    counts, totals, betas, scales = out
    condition(beta, state.shapes, state.values, tape, effects, plan)
    weigh_all(state, tape)
    trial = np.empty_like(records) if effects.basis.size else records[:0]
    if not state.counts.any():
        _first_records(records, total, state, tape, rng)
    for draw in range(totals.size):
        for _ in range(thin):
            move_records(moves, records, total, state, tape, rng)
            total = move_total(births, bounds[0], bounds[1], records, total, state, tape, rng)
            if reach:
                total = move_total_far(reach, bounds, records, total, state, tape, rng)
            _, statistics = _tables(state.counts, effects, plan)
            put(
                beta,
                _move_effects(beta, log_scales, statistics, total, step, is_tuning, effects, plan, rng),
            )
            if effects.hyper.size:
                _move_scales(beta, log_scales, statistics, total, effects, plan, rng)
            condition(beta, state.shapes, state.values, tape, effects, plan)
            weigh_all(state, tape)
            if effects.basis.size:
                for _ in range(max(1, min(_TRIES, _VISITS // max(total, 1)))):
                    move_together(
                        beta,
                        log_scales,
                        records,
                        trial,
                        total,
                        step,
                        is_tuning,
                        state,
                        tape,
                        effects,
                        plan,
                        rng,
                    )
        put(counts[draw], _tables(state.counts, effects, plan)[0])
        put(betas[draw], beta)
        put(scales[draw], log_scales)
        totals[draw] = total
    return total
