"""Private Frank-Wolfe on records: measure single variables, search all regressions, and refit the fields.

A release calls `run`. The regressions and their sums over rows are those of
`bayesprivmrf.learning.frank_wolfe.node_regressions`, which explains the search; a choice of atoms is that of
`frank_wolfe.choices`. A learning map (`bayesprivmrf.learning.frank_wolfe.by_regressions`) has the public settings,
and turns the coefficients into a model.
"""

from __future__ import annotations

import numpy as np

from bayesprivmrf.inference.optimize import one_blas_thread
from bayesprivmrf.interruption import remember
from bayesprivmrf.learning.frank_wolfe.by_regressions import (
    ByRegressions,
    FrankWolfeFit,
    singles_plan,
)
from bayesprivmrf.learning.frank_wolfe.monomials import MonomialsByRegressions
from bayesprivmrf.learning.frank_wolfe.node_regressions import NodeRegressions, step_weights
from bayesprivmrf.learning.frank_wolfe.pairwise import OneRegression
from bayesprivmrf.learning.select_measure.measurement import Measured
from bayesprivmrf.mechanisms.frank_wolfe.choices import choose_atoms
from bayesprivmrf.mechanisms.parities.sums import noisy_parity_sums
from bayesprivmrf.mechanisms.reading.coded import CodedRecords
from bayesprivmrf.mechanisms.select_measure.one_choice import select_and_measure
from bayesprivmrf.model.tables import FloatArray, IntArray
from bayesprivmrf.noise.source import NoiseSource

# Share of a scale by which it is rounded up, more than the rounding error of a product
_ROUNDED_UP = 2.0**-50


def run(
    fitting: ByRegressions, records: CodedRecords, total: float | None, source: NoiseSource
) -> FrankWolfeFit:
    """Return the parameters of a release, and the measured single variables.

    Parameters
    ----------
    fitting
        The learning map.
    records
        The records: sensitive.
    total
        Public or noisy number of records; unused if the number of steps is a setting and nothing is measured.
    source
        Source of the noise and of the random choices.
    """
    measured = measured_singles(fitting, records, total, source)
    coefficients = searched(fitting, records, total, source)
    if isinstance(fitting, MonomialsByRegressions) and fitting.parity_law is not None:
        parities = noisy_parities(fitting, records, total, source)
        regressed = fitting.model_with_parities(coefficients, parities)
    else:
        regressed = fitting.model_of(coefficients)
    # from here on, only released numbers are used
    return fitting.refitted(regressed, measured, total)


def measured_singles(
    fitting: ByRegressions, records: CodedRecords, total: float | None, source: NoiseSource
) -> Measured | None:
    """Measure every variable by itself, if the map has noise for it; the arguments are those of `run`."""
    if fitting.singles is None:
        return None
    assert total is not None
    plan = singles_plan(fitting.states, fitting.singles)
    return select_and_measure(records, total, plan, source)


def searched(
    fitting: ByRegressions, records: CodedRecords, total: float | None, source: NoiseSource
) -> FloatArray:
    """Return the coefficients of all regressions, (regressions, columns); the arguments are those of `run`."""
    steps = fitting.steps_for(total)
    regressions = fitting.regressions(records.sensitive_codes, records.sensitive_counts)
    return frank_wolfe(
        regressions,
        steps=steps,
        multiple=fitting.multiple(steps),
        source=source,
        eligible=fitting.eligible_groups(regressions),
    )


def noisy_parities(
    fitting: MonomialsByRegressions,
    records: CodedRecords,
    total: float | None,
    source: NoiseSource,
) -> FloatArray:
    """Return noisy means of the features' parities in [-1, 1]; the arguments are those of `run`."""
    known = None if total is None else np.array([round(total)])
    law = fitting.parity_law
    assert law is not None
    spins = records.sensitive_spins
    counts = records.sensitive_counts
    sums = noisy_parity_sums(spins, counts, fitting.features, law, source, known)
    # clipping to [-1, 1] brings a noisy mean of signs nearer to the true mean
    return np.clip(sums / max(float(sums[0]), 1.0), -1.0, 1.0)


def log_odds(
    fitting: OneRegression, records: CodedRecords, total: float | None, source: NoiseSource
) -> tuple[FloatArray, float]:
    """Return the effects of the states of all variables on the target's log odds, and the intercept; see `run`."""
    return fitting.log_odds_of(searched(fitting, records, total, source))


def run_on_rows(
    fitting: ByRegressions,
    codes: np.ndarray,
    counts: IntArray,
    total: float | None,
    source: NoiseSource,
) -> FrankWolfeFit:
    """Run the search on rows that were drawn from a model, for a replicate of a release.

    Parameters
    ----------
    codes, counts
        Rows as codes, shape (rows, p), and the number of records that each row represents.
    fitting, total, source
        See `run`.
    """
    return run(fitting, CodedRecords.of(codes, counts), total, source)


def frank_wolfe(
    regressions: NodeRegressions,
    *,
    steps: int,
    multiple: float,
    source: NoiseSource,
    eligible: np.ndarray,
) -> FloatArray:
    r"""Run all regressions in lockstep, and return their mean iterates.

    Parameters
    ----------
    regressions
        Regressions at their starting point. The search changes them, so they cannot be reused.
    steps
        Public number of steps T.
    multiple
        Noise multiple :math:`\kappa` from `bayesprivmrf.privacy.selection.step_scale`. Regression r chooses at
        scale :math:`\kappa B_r`, where :math:`B_r` is its public bound of residuals (`NodeRegressions.bounds`).
    source
        Source of the random choices.
    eligible
        Public mask of groups, shape (regressions, groups).

    Returns
    -------
    ndarray
        Coefficients, shape (regressions, columns).
    """
    mean = np.zeros(regressions.coefficients.shape)
    weights = step_weights(steps)
    taken = 0
    try:
        with one_blas_thread() as regressions.workers:
            for step in range(1, steps + 1):
                sums = regressions.sums()
                scales = regressions.bounds.astype(np.float64) * (multiple * (1 + _ROUNDED_UP))
                regressions.move(
                    choose_atoms(sums, regressions.design.starts, scales, source, eligible), 1
                )
                mean = mean + weights[step - 1] * regressions.iterates
                taken = step
    except BaseException as error:
        remember(error)  # the mean of the iterates so far is a valid result
        if taken:
            mean = mean / weights[:taken].sum()
    return mean
