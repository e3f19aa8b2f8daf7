r"""Tests on panels: variables that were asked of the same people at several times, through the noise.

The tests read one released table for each step, from a time to the next, or sums of a table of several times.
Replicates draw records from a Markov chain at the estimate of the null hypothesis, so that the tables of a replicate
are of the same people, and perturb them.

**Stationarity.** Let :math:`n_{tij}` be the transitions from i to j at step t. If all steps have one transition
matrix, t and j are independent given i, and given the counts of i the steps are independent (Anderson and Goodman
1957). The test is therefore that of conditional independence in the table of t, i and j.

**Homogeneity.** If all times have the same distribution, all margins of the tables have the same means. The statistic
is that of Stuart and Maxwell with the covariance of sampling and noise together, for two or more times: the squared
distance of the margins from common ones, less that from margins on which neighboring tables agree. The covariance of
the sampling is that of the Markov chain.

References
----------
Anderson, Goodman (1957). Statistical inference about Markov chains. Annals of Mathematical Statistics 28, 89-110.
Maxwell (1970). Comparing the classification of subjects by two independent judges. British Journal of Psychiatry 116.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bayesprivmrf.analysis._measured import (
    TableNumbers,
    domain_of,
    measured_about,
    releases_of,
    steps_measured,
)
from bayesprivmrf.analysis._score import LogLinearNull, hierarchical_design
from bayesprivmrf.analysis.hypothesis_tests import Seed, TestResult, bootstrapped
from bayesprivmrf.analysis.independence import Releases
from bayesprivmrf.checks import require
from bayesprivmrf.errors import ModelError
from bayesprivmrf.inference import RowStatus
from bayesprivmrf.model.domain import label_key
from bayesprivmrf.model.tables import FloatArray, IntArray

# Smallest mean count of a cell, records: noise may make counts negative
_LEAST = 1e-3
# Sweeps of iterative proportional fitting; margins then agree to a thousandth of a record
_SWEEPS = 100


def symmetry(
    release: Releases,
    a: Hashable,
    b: Hashable,
    *,
    draws: int = 999,
    rng: Seed = None,
    progress_bar: bool | None = None,
) -> TestResult:
    """Test whether the joint table of two variables with the same states is symmetric.

    In a symmetric table as many people move from one state to another as move back, which is the question of
    Bowker's test.

    Parameters
    ----------
    release
        Noisy tables; a list for several releases of the same people.
    a, b
        Two different variables with the same states.
    draws, rng, progress_bar
        As for `independence_test`.

    Returns
    -------
    TestResult
        `expected` has the axes of a and b.

    Raises
    ------
    ArgumentError
        An argument is out of range, or the release cannot be simulated.
    ModelError
        A variable is unknown, the states differ, or no released table bears on the question.

    Examples
    --------
    >>> analysis.symmetry(release, "job at 30", "job at 40", rng=1).p_value  # doctest: +SKIP
    """
    releases = releases_of(release)
    measured = measured_about(releases, [a, b])
    domain = domain_of(releases)
    is_same = [*map(label_key, domain.states_of(a))] == [*map(label_key, domain.states_of(b))]
    require(is_same, f"the variable {b!r}", f"have the states of {a!r}", "others", error=ModelError)
    states = measured.shape[0]
    one, other = np.triu_indices(states)
    cells = np.zeros((states, states, len(one)))
    pairs = np.arange(len(one))
    cells[one, other, pairs] = 1.0
    cells[other, one, pairs] = 1.0
    null = LogLinearNull(measured=measured, design=cells.reshape(states**2, -1))
    return bootstrapped(null, "symmetry", draws, rng, progress_bar)


def homogeneity(
    release: Releases,
    times: Sequence[Hashable] = (),
    *,
    draws: int = 999,
    rng: Seed = None,
    progress_bar: bool | None = None,
) -> TestResult:
    """Test whether a variable has the same distribution at all times.

    For two times this is the question of the test of Stuart and Maxwell. The times are those of the same people; to
    compare different people, use `compare_groups`.

    Parameters
    ----------
    release
        Noisy tables that hold each step from a time to the next; a list for several releases of the same people.
    times
        The variables of the times, in order; by default all variables of the release.
    draws, rng, progress_bar
        As for `independence_test`.

    Returns
    -------
    TestResult
        `expected` has the axes of step, state before and state after.

    Raises
    ------
    ArgumentError
        An argument is out of range, or the release cannot be simulated.
    ModelError
        A time is unknown, the times have different states, or a step has no table.
    ModelTooLargeError
        There are too many steps and states.

    Notes
    -----
    With three times or more, records are taken for a Markov chain.

    Examples
    --------
    >>> analysis.homogeneity(release, ["2019", "2020", "2021"], rng=1).p_value  # doctest: +SKIP
    """
    null = EqualMargins(measured=_steps(release, times))
    return bootstrapped(null, "homogeneity over time", draws, rng, progress_bar)


def stationarity_test(
    release: Releases,
    times: Sequence[Hashable] = (),
    *,
    draws: int = 999,
    rng: Seed = None,
    progress_bar: bool | None = None,
) -> TestResult:
    """Test whether one transition matrix is enough for all steps of a panel.

    Use it before a fit of a chain with ``share="transitions"``.

    Parameters
    ----------
    release
        Noisy tables that hold each step from a time to the next; a list for several releases of the same people.
    times
        The variables of the times, in order, at least three; by default all variables of the release.
    draws, rng, progress_bar
        As for `independence_test`.

    Returns
    -------
    TestResult
        `expected` has the axes of step, state before and state after.

    Raises
    ------
    ArgumentError
        An argument is out of range, or the release cannot be simulated.
    ModelError
        A time is unknown, the times have different states, or a step has no table.
    ModelTooLargeError
        There are too many steps and states.

    Notes
    -----
    Records are taken for a Markov chain of order 1.

    Examples
    --------
    >>> analysis.stationarity_test(release, ["2019", "2020", "2021"], rng=1).p_value  # doctest: +SKIP
    """
    measured = _steps(release, times)
    steps = measured.shape[0]
    require(steps > 1, "times", "be at least three", steps + 1, error=ModelError)
    design = hierarchical_design(measured.shape, [(0, 1), (1, 2)])
    null = ChainNull(measured=measured, design=design)
    return bootstrapped(null, "stationary transitions", draws, rng, progress_bar)


def _steps(release: Releases, times: Sequence[Hashable]) -> TableNumbers:
    """Return the released numbers about each step."""
    releases = releases_of(release)
    is_list = isinstance(times, list | tuple)
    remedy = "write times=['2019', '2020']"
    require(is_list, "times", "list variables", type(times).__name__, remedy)
    return steps_measured(releases, times or domain_of(releases).variables)


@dataclass(frozen=True, kw_only=True, eq=False)
class StepsChain:
    """A Markov chain of some records.

    Parameters
    ----------
    total
        Number of records.
    first
        Probabilities of the first state, shape (K,).
    moves
        Transition probabilities, shape (steps, K, K).
    """

    total: int
    first: FloatArray
    moves: FloatArray

    @classmethod
    def of(cls, tables: FloatArray, total: int) -> StepsChain:
        """Return the chain with the first state and the transitions of some tables, shape (steps, K, K)."""
        tables = tables + _LEAST * (tables.sum(axis=-1, keepdims=True) <= 0)
        first = tables[0].sum(axis=-1)
        moves = tables / tables.sum(axis=-1, keepdims=True)
        return cls(total=total, first=first / first.sum(), moves=moves)

    @property
    def shares(self) -> FloatArray:
        """Probabilities of the states before and after each step, shape (steps, K, K)."""
        now = self.first
        found = []
        for moves in self.moves:
            found.append(now[:, np.newaxis] * moves)
            now = found[-1].sum(axis=0)
        return np.array(found)

    def drawn(self, draws: int, rng: np.random.Generator) -> IntArray:
        """Draw the tables of the steps of some records, shape (draws, cells)."""
        now = rng.multinomial(self.total, self.first, size=draws)
        found = []
        for moves in self.moves:
            drawn = [rng.multinomial(now[:, state], row) for state, row in enumerate(moves)]
            table = np.stack(drawn, axis=1)
            found.append(table)
            now = table.sum(axis=1)
        return np.stack(found, axis=1).reshape(draws, -1)


def _of_chains(measured: TableNumbers) -> tuple[RowStatus, str]:
    """Return the remark on a test of several steps."""
    if measured.has_shared_noise:
        checked = "which goodness_of_fit can test where a table has three times"
    else:
        checked = "which no released number checks"
    return RowStatus.MODEL, f"records are taken for a Markov chain, {checked}"


class ChainNull(LogLinearNull):
    """A log-linear null hypothesis about the steps of a Markov chain."""

    @property
    def remark(self) -> tuple[RowStatus, str] | None:
        """Status and note: replicates are drawn from a Markov chain."""
        return _of_chains(self.measured)

    def drawn(self, draws: int, rng: np.random.Generator) -> IntArray:
        """Draw the tables of the steps of some records, shape (draws, cells)."""
        tables = self.expected.reshape(self.measured.shape)
        return StepsChain.of(tables, self.measured.total).drawn(draws, rng)


@dataclass(frozen=True, kw_only=True, eq=False)
class EqualMargins:
    """The null hypothesis that all margins of the tables of the steps are the same.

    Parameters
    ----------
    measured
        Numbers about the table of step, before and after.
    """

    measured: TableNumbers

    @cached_property
    def tables(self) -> FloatArray:
        """Estimated tables with equal margins, shape (steps, K, K), records."""
        measured = self.measured
        cells = np.linalg.lstsq(measured.matrix, measured.counts, rcond=None)[0]
        tables = (np.maximum(cells, _LEAST) * measured.possible).reshape(measured.shape)
        margins = tables.sum(axis=1).sum(axis=0) + tables.sum(axis=2).sum(axis=0)
        wanted = margins * (measured.total / margins.sum())
        for _ in range(_SWEEPS):
            rows = np.maximum(tables.sum(axis=2, keepdims=True), _LEAST)
            tables = tables * (wanted[:, np.newaxis] / rows)
            columns = np.maximum(tables.sum(axis=1, keepdims=True), _LEAST)
            tables = tables * (wanted / columns)
        return tables

    @property
    def remark(self) -> tuple[RowStatus, str] | None:
        """Status and note where replicates are drawn from a Markov chain of several steps; else None."""
        if len(self.tables) > 1:
            return _of_chains(self.measured)
        return None

    @property
    def expected(self) -> FloatArray:
        """Counts that the hypothesis expects, shape (cells,)."""
        return self.tables.ravel()

    @cached_property
    def chain(self) -> StepsChain:
        """The chain of the estimated tables."""
        return StepsChain.of(self.tables, self.measured.total)

    @cached_property
    def _sampling(self) -> FloatArray:
        """Covariance of the counts of all cells by sampling, shape (cells, cells)."""
        steps, states, _ = self.measured.shape
        shares = self.chain.shares
        joint = np.zeros((steps, states, states, steps, states, states))
        for early in range(steps):
            joint[early, :, :, early] = np.diag(shares[early].ravel()).reshape((states,) * 4)
            between = np.eye(states)
            for late in range(early + 1, steps):
                last = between[..., np.newaxis] * self.chain.moves[late]
                both = np.einsum("ij,jkl->ijkl", shares[early], last)
                joint[early, :, :, late] = both
                joint[late, :, :, early] = both.transpose(2, 3, 0, 1)
                between = between @ self.chain.moves[late]
        flat = shares.ravel()
        return self.measured.total * (joint.reshape(flat.size, -1) - np.outer(flat, flat))

    @cached_property
    def _spans(self) -> tuple[FloatArray, FloatArray]:
        """Orthonormal bases of the means that the hypothesis and its alternative allow, in whitened numbers."""
        from scipy.linalg import null_space, orth

        steps, states, _ = self.measured.shape
        cells = np.eye(steps * states**2).reshape(-1, steps, states, states)
        before = cells.sum(axis=3).T.transpose(1, 0, 2)
        after = cells.sum(axis=2).T.transpose(1, 0, 2)
        agree = after[:-1] - before[1:]
        equal = np.concatenate([after - before, agree])
        found = []
        for constraints in (equal, agree):
            rows = constraints.reshape(-1, steps * states**2)
            free = np.flatnonzero(self.measured.possible)
            allowed = np.eye(len(free))
            if len(rows):
                allowed = null_space(rows[:, free])
            found.append(orth(self._whitened(self.measured.matrix[:, free] @ allowed)))
        return found[0], found[1]

    @cached_property
    def _root(self) -> FloatArray:
        """Square root of the covariance of the numbers by sampling and noise."""
        matrix = self.measured.matrix
        noise = self.measured.covariance(matrix @ self.expected)
        return np.linalg.cholesky(matrix @ self._sampling @ matrix.T + noise)

    def _whitened(self, vectors: FloatArray) -> FloatArray:
        """Return vectors of shape (numbers, k) in units of sampling and noise."""
        return np.linalg.solve(self._root, vectors)

    @property
    def degrees_of_freedom(self) -> int:
        """Number of directions that the hypothesis forbids and the measurements show."""
        null, alternative = self._spans
        return alternative.shape[1] - null.shape[1]

    @property
    def statistic(self) -> float:
        """Statistic of the release."""
        return float(self.statistics(self.measured.counts[np.newaxis])[0])

    def statistics(self, counts: FloatArray) -> FloatArray:
        """Return the statistics of replicates with some counts, shape (replicates, numbers)."""
        null, alternative = self._spans
        vectors = self._whitened(counts.T)
        explained = np.square(alternative.T @ vectors).sum(axis=0)
        return explained - np.square(null.T @ vectors).sum(axis=0)

    def drawn(self, draws: int, rng: np.random.Generator) -> IntArray:
        """Draw the tables of the steps of some records, shape (draws, cells)."""
        return self.chain.drawn(draws, rng)
