"""The worst case of tables with additive noise: the sharpest audit of a mechanism that measures them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bayesprivmrf.audit.curves import checked_shift, log_ratio, privacy_loss
from bayesprivmrf.audit.empirical import AuditResult, audit, checked_function
from bayesprivmrf.checks import require
from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.model.domain import listed
from bayesprivmrf.model.tables import FloatArray, IntArray
from bayesprivmrf.noise.base import checked_law
from bayesprivmrf.privacy import Adjacency, NoiseLaw


def audit_noise(
    add: Callable[[IntArray, int], IntArray],
    laws: Sequence[NoiseLaw],
    adjacency: Adjacency,
    moves: Sequence[Sequence[int]] | None = None,
    **settings: Any,
) -> AuditResult:
    """Audit noisy tables on neighbours that differ as much as they can, against their noise's exact curve.

    The neighbours differ in every table: by one record in one cell under add-or-remove-one, in two
    cells under replace-one. Answers to queries differ by the given moves. The attack statistic is the
    log-likelihood ratio, the most powerful there is (Neyman and Pearson), and cells that agree carry no information,
    so they are left out.

    Parameters
    ----------
    add
        The function that is audited: given true counts of shape (runs,) and the position of a table, returns them
        with that table's noise.
    laws
        The noise law that each table is said to have.
    adjacency
        The neighbouring relation.
    moves
        The move of each number of each table, or of each query, between the worst neighbours, as
        `bayesprivmrf.queries.sensitivity.moves` gives it; by default by one record in each table.
    settings
        ``runs``, ``confidence`` and ``deltas`` of `audit`.

    Returns
    -------
    AuditResult
        The audit against the exact curve of the stated laws.

    Raises
    ------
    ArgumentError
        An argument is of another type, or there are not as many moves as laws.
    """
    checked_function("add", add, "a function from counts and the position of a table to noisy counts")
    laws = [checked_law("laws", law) for law in listed("`laws`", laws, error=ArgumentError)]
    if moves is None:
        moves = [(1,) if Adjacency.checked(adjacency) is Adjacency.ADD_OR_REMOVE_ONE else (1, -1)] * len(laws)
    moves = [
        [
            checked_shift("moves", shift)
            for shift in listed("each item of `moves`", given, error=ArgumentError)
        ]
        for given in listed("`moves`", moves, error=ArgumentError)
    ]
    require(len(moves) == len(laws), "moves", f"hold the moves for each of {len(laws)} laws", len(moves))
    cells = [(position, shift) for position, given in enumerate(moves) for shift in given if shift]
    exact = privacy_loss([laws[position] for position, _ in cells], [shift for _, shift in cells])

    def randomizer(present: int) -> Callable[[int], FloatArray]:
        def statistics(runs: int) -> FloatArray:
            ratio = np.zeros(runs)
            for position, shift in cells:
                noisy = add(np.full(runs, present * shift, dtype=np.int64), position)
                ratio += log_ratio(laws[position], noisy - shift, noisy)
            return np.round(ratio, 9)  # equal ratios, summed in different orders, are one value

        return statistics

    return audit(randomizer(1), randomizer(0), exact.epsilon, **settings)
