r"""A test of independence of two variables, given others, through the noise of one released table.

**Statistic.** Let y be the noisy counts of the joint table of a, b and the strata k, v the variance of their noise,
and m the mean counts under the null hypothesis, :math:`m_{kij} = m_{k++} \, p_{i|k} \, p_{j|k}`, at the released
margins. With :math:`V = \operatorname{diag}(m) + v`, :math:`r = y - m`, and J the derivative of the mean counts by
the parameters of the null hypothesis, the statistic is Neyman's :math:`C(α)` statistic

.. math:: Q = r' \bigl(V^{-1} - V^{-1} J (J' V^{-1} J)^{+} J' V^{-1}\bigr) r,

the squared distance of the table from the nearest independent one, in units of sampling and noise together. It is to
first order the likelihood ratio of the dependent and the independent model for normal y, and does not depend on how
well the margins are estimated.

**P-value.** A parametric bootstrap repeats the sampling of N records from m / N and the perturbation, and takes the
share of replicates with a statistic at least as large. Pearson's statistic of noisy counts, by contrast, rejects true
independence far too often, because it takes the noise for dependence.

References
----------
Neyman (1959). Optimal asymptotic tests of composite statistical hypotheses. Probability and Statistics, 213-234.
Kifer, Rogers (2017). A new class of private chi-square hypothesis tests. AISTATS, 991-1000.
Davison, Hinkley (1997). Bootstrap Methods and their Application, section 4.2. Cambridge University Press.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bayesprivmrf.checks import instance_of, require, whole_number
from bayesprivmrf.errors import ModelError
from bayesprivmrf.inference import RowStatus
from bayesprivmrf.model.tables import FloatArray
from bayesprivmrf.noise import Likelihood
from bayesprivmrf.queries.kinds import TableQuery
from bayesprivmrf.release import NoisyStatistics

if TYPE_CHECKING:
    import pandas as pd

# Share of a singular value below which a direction of the null hypothesis is not determined
_RANK = 1e-9
# Variance of a count's fraction, records squared, so that no number is certain
_FRACTION = 1 / 12
# Smallest mean count of a margin, records: one that noise has made negative is taken for nearly empty
_LEAST = 1e-3
# Mechanisms whose tables were chosen because they looked dependent
_CHOOSING = ("SelectMeasure",)


@dataclass(frozen=True, kw_only=True, eq=False)
class TestResult:
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
        Counts that the null hypothesis expects, with the axes of the test: given variables, a, b.
    mc_error
        Standard error of the p-value by the number of replicates.
    status, note
        How far the result can be trusted, a `RowStatus`, and why.
    method
        Name of the test.
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


@dataclass(frozen=True, kw_only=True, eq=False)
class _Table:
    """A noisy joint table of the strata and the two variables, summed over all others.

    Parameters
    ----------
    counts
        Noisy counts, shape (strata, K_a, K_b).
    noise
        Likelihood of one number of the released table.
    added
        Number of released numbers in each cell.
    variances
        Variances of the noise, shape (strata, K_a, K_b).
    """

    counts: FloatArray
    noise: Likelihood
    added: int
    variances: FloatArray

    def perturbed(self, counts: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Return noisy counts from exact ones, shape (replicates, strata, K_a, K_b)."""
        if self.added == 1:
            return np.asarray(self.noise.draw_given(counts, rng), dtype=float)
        total = np.zeros(counts.shape)
        for _ in range(self.added):
            total += self.noise.draw_given(np.zeros(counts.shape), rng)
        return counts + total


def independence_test(
    release: NoisyStatistics,
    a: Hashable,
    b: Hashable,
    *,
    given: Sequence[Hashable] = (),
    draws: int = 999,
    rng: int | np.random.Generator | None = None,
) -> TestResult:
    """Test whether two variables are independent within each joint state of others.

    The test reads the most accurate released table that contains all the variables, summed over its others. It costs
    no privacy budget.

    Parameters
    ----------
    release
        Noisy tables.
    a, b
        Two different variables with at least two states each.
    given
        Variables within whose joint states independence is tested.
    draws
        Number of replicates, at least 99.
    rng
        Seed or generator; without one a seed is drawn, and stored in the result.

    Returns
    -------
    TestResult
        Statistic, p-value, degrees of freedom, expected counts, status and note.

    Raises
    ------
    ArgumentError
        An argument is out of range, or the release cannot be simulated, such as one of people with several rows.
    ModelError
        A variable is unknown or repeated, or has one state; or no released table contains the variables.

    Examples
    --------
    >>> analysis.independence_test(release, "smokes", "ill", given=["age"], rng=1).p_value  # doctest: +SKIP
    """
    remedy = "give what a mechanism or a reader returned"
    instance_of("release", release, NoisyStatistics, "be a release of noisy tables", remedy)
    is_list = isinstance(given, list | tuple)
    require(is_list, "given", "list variables", type(given).__name__, "write given=['age']")
    draws = whole_number("draws", draws, 99)
    _, positions = release.specification.positions_of([*given, a, b])
    shape = tuple(release.specification.cardinalities[v] for v in positions)
    must = "have at least two states each"
    require(min(shape[-2:]) > 1, "a, b", must, f"{shape[-2]} and {shape[-1]}", error=ModelError)
    must = "hold tables that were not chosen for their dependence"
    remedy = "release the table afresh with a part of the budget, by LaplaceStatistics or GaussianStatistics"
    is_free = release.provenance.mechanism not in _CHOOSING
    require(is_free, "release", must, f"tables of {release.provenance.mechanism}", remedy)
    must = "be of one row a person"
    remedy = "rows of one person depend on each other, which the test would take for dependence of the variables"
    rows = release.person_rows
    is_single = rows is None or rows.at_most == 1
    require(is_single, "release", must, "several rows a person", remedy)
    table = _table_of(release, tuple(positions), shape)
    size = _records(release, table)
    seed = None
    if rng is None:
        rng = int(np.random.SeedSequence().generate_state(1)[0])
    if isinstance(rng, int | np.integer):
        seed = int(rng)
    random = np.random.default_rng(rng)
    expected = independent_means(table.counts, size)
    statistic = float(distances(table.counts[np.newaxis], table.variances, size)[0])
    drawn = random.multinomial(size, expected.ravel() / expected.sum(), size=draws)
    replicates = table.perturbed(drawn.reshape(draws, *table.counts.shape).astype(float), random)
    exceeded = int((distances(replicates, table.variances, size) >= statistic).sum())
    p_value = (1 + exceeded) / (1 + draws)
    strata = math.prod(shape[:-2])
    status, note = _judged(release, table, expected)
    return TestResult(
        statistic=statistic,
        p_value=p_value,
        degrees_of_freedom=strata * (shape[-2] - 1) * (shape[-1] - 1),
        expected=expected.reshape(shape),
        mc_error=math.sqrt(p_value * (1 - p_value) / draws),
        status=status.value,
        note=note,
        method="C(alpha) test through the noise, parametric bootstrap",
        seed=seed,
    )


def _table_of(
    release: NoisyStatistics, positions: tuple[int, ...], shape: tuple[int, ...]
) -> _Table:
    """Return the most accurate released table of some variables, by position; its last two are those tested."""
    found: list[_Table] = []
    is_skipped = False
    cards = release.specification.cardinalities
    for one, bound in zip(release.measurements, release.bound, strict=True):
        scopes = bound.positions
        is_table = isinstance(one.query, TableQuery) and not one.query.groups
        if not is_table or not set(positions) <= set(scopes[0]):
            continue
        scope = scopes[0]
        whole = np.asarray(one.values, dtype=float).reshape([cards[v] for v in scope])
        others = tuple(axis for axis, v in enumerate(scope) if v not in positions)
        kept = [v for v in scope if v in positions]
        summed = whole.sum(axis=others).transpose([kept.index(v) for v in positions])
        counts = summed.reshape(-1, *shape[-2:])
        added = whole.size // counts.size
        # rules that depend on the count are simulated for whole tables alone, and bounds estimate nothing
        is_summable = added == 1 or one.noise.is_additive
        if one.noise.is_bounded or not is_summable:
            is_skipped = True
            continue
        variances = added * np.asarray(one.noise.variance_given(np.maximum(counts / added, 0.0)))
        found.append(
            _Table(
                counts=counts,
                noise=one.noise,
                added=added,
                variances=np.broadcast_to(variances, counts.shape),
            )
        )
    names = ", ".join(str(release.specification.domain.variables[v]) for v in positions)
    must = f"hold a table of {names}"
    seen = "none that contains them"
    if is_skipped:
        must = f"hold a table of {names} and no other variable"
        seen = "only bounds, or larger ones whose sums the test cannot simulate under their rule"
    remedy = "release the joint table of these variables"
    require(found, "release", must, seen, remedy, error=ModelError)
    return min(found, key=lambda table: float(table.variances.mean()))


def _records(release: NoisyStatistics, table: _Table) -> int:
    """Return the number of records of the replicates: the public one, or the sum of the table."""
    if release.total is not None:
        return int(release.total)
    size = round(float(table.counts.sum()))
    must = "have a total that the noise does not hide"
    remedy = "the null hypothesis cannot be simulated; release with more budget"
    require(size > 0, "release", must, size, remedy)
    return size


def _judged(release: NoisyStatistics, table: _Table, expected: FloatArray) -> tuple[RowStatus, str]:
    """Return the status and the note of a test."""
    prefix = ""
    if release.provenance.simulated:
        prefix = "simulated; "
    deviation = np.sqrt(table.variances)
    if (expected < deviation).mean() > 1 / 2:
        return (
            RowStatus.DOUBTFUL,
            f"{prefix}noise exceeds most expected counts, so dependence is hard to detect",
        )
    return RowStatus.OK, f"{prefix}p-value by {table.counts.size} cells of one released table"


def independent_means(tables: FloatArray, size: int) -> FloatArray:
    """Return mean counts under independence within strata at the margins of tables.

    Parameters
    ----------
    tables
        Noisy counts, shape (..., strata, K_a, K_b).
    size
        Number of records.
    """
    rows = np.maximum(tables.sum(axis=-1, keepdims=True), _LEAST)
    columns = np.maximum(tables.sum(axis=-2, keepdims=True), _LEAST)
    strata = np.maximum(tables.sum(axis=(-2, -1), keepdims=True), _LEAST)
    means = (
        strata
        * (rows / rows.sum(axis=-2, keepdims=True))
        * (columns / columns.sum(axis=-1, keepdims=True))
    )
    return means * (size / means.sum(axis=(-3, -2, -1), keepdims=True))


def distances(tables: FloatArray, variances: FloatArray, size: int) -> FloatArray:
    """Return the statistic Q of each table.

    Parameters
    ----------
    tables
        Noisy counts, shape (tables, strata, K_a, K_b).
    variances
        Variances of the noise, shape (strata, K_a, K_b).
    size
        Number of records.
    """
    means = independent_means(tables, size)
    count, _, rows, columns = means.shape
    residual = (tables - means).reshape(count, -1, rows * columns)
    own = means.reshape(residual.shape)
    spread = own + variances.reshape(residual.shape[1:]) + _FRACTION
    # parameters of a stratum: its size, and the effects of rows and columns, one redundant each
    ones = np.ones((1, rows * columns))
    by_row = np.repeat(np.eye(rows), columns, axis=1)
    by_column = np.tile(np.eye(columns), rows)
    design = np.concatenate([ones, by_row[1:], by_column[1:]])
    whitened = residual / np.sqrt(spread)
    directions = design * (own / np.sqrt(spread))[..., np.newaxis, :]
    gram = directions @ np.swapaxes(directions, -1, -2)
    along = directions @ whitened[..., np.newaxis]
    explained = (
        np.swapaxes(along, -1, -2) @ np.linalg.pinv(gram, rcond=_RANK, hermitian=True)
    ) @ along
    squares = np.square(whitened).sum(axis=-1) - explained[..., 0, 0]
    return squares.sum(axis=-1)
