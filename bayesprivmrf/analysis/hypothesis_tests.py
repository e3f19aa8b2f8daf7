"""Results of tests, and the parametric bootstrap that gives them a p-value.

The bootstrap repeats the sampling of N records at the estimate of the null hypothesis, and the perturbation, by the
rule of each measurement. The p-value is the share of replicates with a statistic at least as large as the
release's, the release included. Pearson's statistic of noisy counts, by contrast, rejects true hypotheses far too
often, because it takes the noise for dependence.

References
----------
Davison, Hinkley (1997). Bootstrap Methods and their Application, section 4.2. Cambridge University Press.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

import numpy as np

from bayesprivmrf.analysis._measured import TableNumbers, nothing_measured
from bayesprivmrf.cards import Card
from bayesprivmrf.checks import generator, require, truth, whole_number
from bayesprivmrf.errors import ModelError
from bayesprivmrf.inference import RowStatus
from bayesprivmrf.model.tables import FloatArray, IntArray
from bayesprivmrf.progress import moving_bar

if TYPE_CHECKING:
    import pandas as pd

type Seed = int | np.random.Generator | None
"""Seed or generator of a test; None draws a seed."""

# Fewest replicates, with which a p-value of 0.05 has a standard error of 0.02
FEWEST_DRAWS = 99
# Replicates that are in memory at once: counts of 4,096 cells then take 33 MB
_BATCH = 1000
# Text beside the progress bar
_SHOWN = "Replicates of the release"
# Expected number of records below which a state counts as empty
_EMPTY = 0.5


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class TestResult(Card):
    """Result of a test.

    Parameters
    ----------
    statistic
        The statistic Q.
    p_value
        Share of replicates under the null hypothesis whose statistic is at least as large, the release included.
    degrees_of_freedom
        Number of parameters by which the hypotheses differ, also called `df`.
    expected
        Counts that the null hypothesis expects, with the axes of the test.
    mc_error
        Standard error of the p-value by the number of replicates.
    status, note
        How far the result can be trusted, a `RowStatus`, and why.
    method
        Name of the test.
    pearson_p_value
        P-value of Pearson's chi-square test, which takes the noise for dependence. It is a warning and no result; NaN
        where no released table has all the variables.
    seed
        Seed of the replicates; None if a generator was given.
    """

    __test__ = False  # no test of pytest

    statistic: float
    p_value: float
    degrees_of_freedom: int
    expected: FloatArray
    mc_error: float
    status: str
    note: str
    method: str
    pearson_p_value: float
    seed: int | None

    @property
    def df(self) -> int:
        """Degrees of freedom."""
        return self.degrees_of_freedom

    @property
    def frame(self) -> pd.DataFrame:
        """The result as a frame of one row."""
        import pandas as pd

        names = ("statistic", "df", "p_value", "mc_error", "status", "note", "method")
        return pd.DataFrame([{name: getattr(self, name) for name in names}])

    def _facts(self) -> list[tuple[str, str]]:
        return [
            ("method", self.method),
            ("statistic", f"{self.statistic:.4g} on {self.df} degrees of freedom"),
            ("p-value", f"{self.p_value:.3g}, with a standard error of {self.mc_error:.2g}"),
            ("status", self.status),
            ("note", self.note),
            ("see also", "`frame`, `expected`, `seed`"),
        ]


class Null(Protocol):
    """A null hypothesis about the joint table behind some noisy numbers."""

    @property
    def measured(self) -> TableNumbers:
        """The numbers."""
        ...

    @property
    def degrees_of_freedom(self) -> int:
        """Number of directions that the hypothesis forbids and the measurements show."""
        ...

    @property
    def remark(self) -> tuple[RowStatus, str] | None:
        """Status and note where replicates rest on more than the hypothesis and the measurements; else None."""
        ...

    @property
    def expected(self) -> FloatArray:
        """Counts that it expects, shape (cells,)."""
        ...

    @property
    def statistic(self) -> float:
        """Statistic of the release."""
        ...

    def statistics(self, counts: FloatArray) -> FloatArray:
        """Return the statistics of replicates with some counts, shape (replicates, numbers)."""
        ...

    def drawn(self, draws: int, rng: np.random.Generator) -> IntArray:
        """Draw counts of the cells under the hypothesis, shape (draws, cells)."""
        ...


def bootstrapped(
    null: Null, title: str, draws: int, rng: Seed, progress_bar: bool | None = None
) -> TestResult:
    """Return the test of a null hypothesis.

    Parameters
    ----------
    null
        The null hypothesis.
    title
        Name of the test.
    draws
        Number of replicates, at least 99.
    rng
        Seed or generator; None draws a seed.
    progress_bar
        True to show a progress bar, False to hide it; None shows it at a terminal and in a notebook.

    Raises
    ------
    ArgumentError
        An argument is out of range.
    ModelError
        Nothing was measured that could tell the hypotheses apart, or all records are in one state of a variable.
    """
    draws = whole_number("draws", draws, FEWEST_DRAWS)
    with _bar(progress_bar) as move:
        return _tested(null, title, draws, rng, partial(_moved, move, 0, draws))


def _bar(progress_bar: bool | None) -> AbstractContextManager[Callable[[int, int], None]]:
    """Return the context of a progress bar."""
    if progress_bar is not None:
        truth("progress_bar", progress_bar)
    return moving_bar(_SHOWN, progress_bar)


def _moved(move: Callable[[int, int], None], before: int, wanted: int, done: int) -> None:
    """Move a progress bar to some replicates beyond those of earlier tests."""
    move(before + done, wanted)


def _tested(
    null: Null, title: str, draws: int, rng: Seed, report: Callable[[int], None]
) -> TestResult:
    """Return the test of a null hypothesis, and report the number of replicates as they are done."""
    seed, random = _seeded(rng)
    measured = null.measured
    if null.degrees_of_freedom < 1:
        raise nothing_measured(measured.variables)
    expected = null.expected
    _require_two_states(measured, expected)
    statistic = null.statistic
    exceeded = 0
    for done in range(0, draws, _BATCH):
        batch = min(_BATCH, draws - done)
        replicates = measured.perturbed(null.drawn(batch, random).astype(float), random)
        exceeded += int((null.statistics(replicates) >= statistic).sum())
        report(done + batch)
    p_value = (1 + exceeded) / (1 + draws)
    status, note = _judged(null, expected)
    return TestResult(
        statistic=statistic,
        p_value=p_value,
        degrees_of_freedom=null.degrees_of_freedom,
        expected=expected.reshape(measured.shape),
        mc_error=math.sqrt(p_value * (1 - p_value) / draws),
        status=status.value,
        note=note,
        method=f"{title}: C(alpha) test through the noise, parametric bootstrap",
        pearson_p_value=_pearson(null),
        seed=seed,
    )


def bootstrapped_apart(
    whole: Null,
    parts: Sequence[Null],
    title: str,
    draws: int,
    rng: Seed,
    progress_bar: bool | None = None,
) -> TestResult:
    """Return the test that several null hypotheses hold, whose statistics may depend on each other in any way.

    The p-value is the smallest of theirs times their number (Bonferroni). Each has as many times more replicates, so
    that the smallest possible p-value is about that of one test.

    Parameters
    ----------
    whole
        All hypotheses as one, which gives the expected counts.
    parts
        The hypotheses.
    title, draws, rng, progress_bar
        As for `bootstrapped`.
    """
    draws = whole_number("draws", draws, FEWEST_DRAWS)
    seed, random = _seeded(rng)
    if not parts:
        raise nothing_measured(whole.measured.variables)
    count = len(parts)
    more = count * draws
    each = []
    with _bar(progress_bar) as move:
        for place, part in enumerate(parts):
            report = partial(_moved, move, place * more, count * more)
            each.append(_tested(part, title, more, random, report))
    first = min(each, key=lambda one: one.p_value)
    order = list(RowStatus)
    status = max((one.status for one in each), key=lambda one: order.index(RowStatus(one)))
    note = next(one.note for one in each if one.status == status)
    if order.index(RowStatus(status)) <= order.index(RowStatus.MODEL):
        status = RowStatus.MODEL.value
        prefix = _simulated(whole.measured)
        note = f"{prefix}no released table has all the variables; smallest p-value of {count} tables times {count}"
    return replace(
        first,
        p_value=min(1.0, count * first.p_value),
        mc_error=count * first.mc_error,
        expected=whole.expected.reshape(whole.measured.shape),
        status=status,
        note=note,
        pearson_p_value=math.nan,
        seed=seed,
    )


def _simulated(measured: TableNumbers) -> str:
    """Return the beginning of each note about a release whose noise is no protection."""
    if measured.is_simulated:
        return "simulated; "
    return ""


def _seeded(rng: Seed) -> tuple[int | None, np.random.Generator]:
    """Return the seed, drawn if none is given, and a generator; the seed of a given generator is None."""
    if rng is None:
        rng = int(np.random.SeedSequence().generate_state(1)[0])
    random = generator(rng)
    if isinstance(rng, int | np.integer):
        return int(rng), random
    return None, random


def _margins(measured: TableNumbers, expected: FloatArray) -> list[FloatArray]:
    """Return the expected counts of the states of each variable."""
    table = expected.reshape(measured.shape)
    axes = range(table.ndim)
    return [table.sum(axis=tuple(other for other in axes if other != axis)) for axis in axes]


def _require_two_states(measured: TableNumbers, expected: FloatArray) -> None:
    """Raise a ModelError if a variable has records in one state alone."""
    for variable, margin in zip(measured.variables, _margins(measured, expected), strict=True):
        filled = int((margin >= _EMPTY).sum())
        must = f"have records in two states of {variable!r}"
        remedy = "leave the variable out"
        require(filled > 1 or len(margin) == 1, "release", must, "one", remedy, error=ModelError)


def _judged(null: Null, expected: FloatArray) -> tuple[RowStatus, str]:
    """Return the status and the note of a test."""
    measured = null.measured
    prefix = _simulated(measured)
    means = measured.matrix @ expected
    if (means < np.sqrt(measured.variances(means))).mean() > 1 / 2:
        note = "noise exceeds most expected counts, so departures are hard to detect"
        return RowStatus.DOUBTFUL, prefix + note
    if any((margin < _EMPTY).any() for margin in _margins(measured, expected)):
        return RowStatus.DOUBTFUL, prefix + "some states have no records; merge them"
    if null.remark is not None:
        status, note = null.remark
        return status, prefix + note
    if not measured.is_direct:
        note = "no released table has all the variables, so only a part of the hypothesis is tested"
        return RowStatus.MODEL, prefix + note
    return RowStatus.OK, f"{prefix}p-value by {len(means)} released numbers"


def _pearson(null: Null) -> float:
    """Return the p-value of Pearson's test of the noisy counts, as if they had no noise."""
    from scipy.stats import chi2

    measured = null.measured
    means = measured.matrix @ null.expected
    every = frozenset(range(len(measured.shape)))
    blocks = zip(measured.scopes, measured.blocks, strict=True)
    direct = [block for scope, block in blocks if scope == every]
    if not direct:
        return math.nan
    variances = measured.variances(means)
    counted = np.zeros(measured.matrix.shape[1], bool)
    value = 0.0
    # the most precise tables, of each group or step once
    for block in sorted(direct, key=lambda block: float(variances[block].mean())):
        cells = measured.matrix[block].any(axis=0)
        if (cells & counted).any():
            continue
        counted |= cells
        counts = np.maximum(measured.counts[block], 0.0)
        own = means[block] * (counts.sum() / max(means[block].sum(), 1.0))
        filled = own > 0
        value += (np.square(counts - own)[filled] / own[filled]).sum()
    return float(chi2.sf(value, null.degrees_of_freedom))
