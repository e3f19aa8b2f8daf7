"""The released numbers that bear on the joint table of some variables.

A table with further variables is summed over them, with the noise of the sum. Numbers about one variable, or about a
few, bear on the margins of the joint table. Bounds estimate nothing, and are left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise
from typing import Any

import numpy as np

from bayesprivmrf.checks import instance_of, require
from bayesprivmrf.errors import ModelError, ModelTooLargeError
from bayesprivmrf.inference.given_model import MeasuredNumbers, measurements_of, numbers_about
from bayesprivmrf.inference.given_releases import joint_domain, joint_total
from bayesprivmrf.model import Domain, ModelSpecification
from bayesprivmrf.model.cliques import checked_clique
from bayesprivmrf.model.domain import label_key
from bayesprivmrf.model.tables import FloatArray, cells_within
from bayesprivmrf.noise import Likelihood
from bayesprivmrf.noise.likelihood import LEAST_VARIANCE
from bayesprivmrf.release import NoisyStatistics
from bayesprivmrf.release.copies import refuse_copies, told_by

# Mechanisms whose tables were chosen because they looked dependent
_CHOOSING = ("SelectMeasure", "StableStructure")
# Largest number of cells of a joint table: its matrices of double precision stay below about 100 MB
_MOST_CELLS = 4096


@dataclass(frozen=True, kw_only=True, eq=False)
class SharedNoise:
    """Noise of several sums of one table, each of whose numbers may be in more than one of them.

    Parameters
    ----------
    noise
        Distribution of the additive noise of each number of the table.
    sums
        Indicators of the numbers in each sum, shape (sums, numbers of the table).
    """

    noise: Likelihood
    sums: FloatArray

    @property
    def covariance(self) -> FloatArray:
        """Covariance of the noise of the sums, shape (sums, sums), records squared."""
        variances = self.noise.variance_given(np.zeros(self.sums.shape[1]))
        return (self.sums * variances) @ self.sums.T

    def estimate(self, published: FloatArray) -> FloatArray:
        """Return the sums themselves."""
        return published

    def error_variance(self, counts: FloatArray) -> FloatArray:
        """Return the variance of the noise of each sum."""
        return np.broadcast_to(np.diag(self.covariance), np.shape(counts))

    def draw_given(self, counts: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Draw the noise of the table for each replicate, and add its sums to counts of shape (replicates, sums)."""
        drawn = self.noise.draw_given(np.zeros((len(counts), self.sums.shape[1]), int), rng)
        return counts + drawn @ self.sums.T


@dataclass(frozen=True, kw_only=True, eq=False)
class TableNumbers:
    """Noisy numbers about one joint table.

    Parameters
    ----------
    variables
        The variables of the joint table.
    shape
        Their numbers of states.
    matrix
        A, shape (numbers, cells): the exact number is A n for counts n of the cells in C order.
    counts
        Counts that the published numbers estimate, shape (numbers,), records.
    noise
        Distribution of each measurement's noise.
    sizes
        Number of numbers of each measurement.
    scopes
        Variables of each measurement, as positions among `variables`.
    possible
        Mask of the cells that may occur, shape (cells,).
    total
        Number of records, public or estimated.
    is_simulated
        True if a release has seeded noise.
    """

    variables: tuple[Hashable, ...]
    shape: tuple[int, ...]
    matrix: FloatArray
    counts: FloatArray
    noise: tuple[Likelihood | SharedNoise, ...]
    sizes: tuple[int, ...]
    scopes: tuple[frozenset[int], ...]
    possible: np.ndarray
    total: int
    is_simulated: bool

    @cached_property
    def blocks(self) -> list[slice]:
        """Position of each measurement's numbers."""
        ends = np.cumsum([0, *self.sizes]).tolist()
        return [slice(start, stop) for start, stop in pairwise(ends)]

    @property
    def is_direct(self) -> bool:
        """True if one measurement is about all the variables."""
        return frozenset(range(len(self.shape))) in self.scopes

    @property
    def has_shared_noise(self) -> bool:
        """True if some numbers are sums of one table with numbers in common."""
        return any(isinstance(law, SharedNoise) for law in self.noise)

    @cached_property
    def has_own_cells(self) -> bool:
        """True if no cell is counted by two numbers and no noise is in two, so that their errors are independent."""
        is_counted_once = bool((np.count_nonzero(self.matrix, axis=0) <= 1).all())
        return is_counted_once and not self.has_shared_noise

    def covariance(self, means: FloatArray) -> FloatArray:
        """Return the covariance of the noise at mean counts of shape (numbers,), records squared."""
        found = np.diag(self.variances(means))
        for law, block in zip(self.noise, self.blocks, strict=True):
            if isinstance(law, SharedNoise):
                # sums with the same numbers have the same noise: the least variance keeps their difference uncertain
                found[block, block] = law.covariance + LEAST_VARIANCE * np.eye(len(law.sums))
        return found

    def variances(self, means: FloatArray) -> FloatArray:
        """Return the variance of each number's noise at mean counts of shape (numbers,), records squared.

        It is at least that of a rounding error, so that an empty cell without noise is not certain.
        """
        means = np.maximum(means, 0.0)
        blocks = zip(self.noise, self.blocks, strict=True)
        found = [law.error_variance(means[block]) for law, block in blocks]
        return np.maximum(np.concatenate(found), LEAST_VARIANCE)

    def perturbed(self, counts: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Return noisy numbers from exact counts of the cells, shape (replicates, cells) to (replicates, numbers)."""
        exact = np.rint(counts @ self.matrix.T)
        blocks = zip(self.noise, self.blocks, strict=True)
        drawn = [law.estimate(law.draw_given(exact[:, block], rng)) for law, block in blocks]
        return np.concatenate(drawn, axis=1)


def releases_of(given: Any) -> list[NoisyStatistics]:
    """Return one release or several of the same people as a list, after checks that they can be tested.

    Raises
    ------
    ArgumentError
        Something else was given, or tables that were chosen for their dependence, or several rows a person.
    ModelError
        Noisy numbers are given twice.
    """
    releases = list(given) if isinstance(given, list | tuple) else [given]
    remedy = "give noisy tables, as LaplaceStatistics or a reader returns them"
    require(releases, "release", "be at least one release", "none", remedy)
    for position, release in enumerate(releases):
        instance_of("release", release, NoisyStatistics, "be a release of noisy tables", remedy)
        is_new = all(release is not other for other in releases[:position])
        require(is_new, "release", "hold each release once", "one of them twice")
        mechanism = release.provenance.mechanism
        must = "hold tables that were not chosen for their dependence"
        again = "release the table afresh with a part of the budget, by LaplaceStatistics or GaussianStatistics"
        is_free = not any(name in mechanism for name in _CHOOSING)
        require(is_free, "release", must, f"tables of {mechanism}", again)
        dependent = "rows of one person depend on each other, which the test would take for dependence of variables"
        rows = release.person_rows
        is_single = rows is None or rows.at_most == 1
        require(is_single, "release", "be of one row a person", "several rows a person", dependent)
    refuse_copies([one for each in releases for one in told_by(each.bound, each.measurements)])
    return releases


def domain_of(releases: Sequence[NoisyStatistics]) -> Domain:
    """Return the variables of all releases."""
    return joint_domain([release.specification for release in releases])


def measured_about(
    releases: Sequence[NoisyStatistics], variables: Sequence[Hashable], least: int = 2
) -> TableNumbers:
    """Return the released numbers that bear on the joint table of some variables.

    Parameters
    ----------
    releases
        Releases of the same people, as `releases_of` returns them.
    variables
        Declared variables, each once; the axes of the joint table.
    least
        Fewest of the variables that some measurement must be about.

    Raises
    ------
    ArgumentError
        The noise hides the number of records.
    ModelError
        A variable is unknown or repeated, or nothing was measured about enough of the variables together.
    ModelTooLargeError
        The joint table has too many cells.
    """
    domain = domain_of(releases)
    names = checked_clique(domain, tuple(variables), "the variables of a test")
    states = tuple(domain.states_of(variable) for variable in names)
    shape = tuple(map(len, states))
    cells = math.prod(shape)
    must = f"be about at most {_MOST_CELLS:,} cells"
    remedy = "ask about fewer variables"
    require(cells <= _MOST_CELLS, "a test", must, f"{cells:,}", remedy, error=ModelTooLargeError)
    zeros = [zero for release in releases for zero in release.specification.impossible]
    kept = [zero for zero in zeros if {variable for variable, _ in zero} <= set(names)]
    own = Domain(variables=names, states=states)
    model = ModelSpecification(domain=own, cliques=(names,), impossible=tuple(kept))
    each = [_told(own, release) for release in releases]
    told = [one for found, _ in each for one in found]
    if not any(len(scope) >= least for one in told for scope in one.query.scopes):
        raise nothing_measured(names, is_skipped=any(is_skipped for _, is_skipped in each))
    return _assembled(model, told, releases)


def side_by_side(groups: Sequence[TableNumbers], title: Hashable, total: int) -> TableNumbers:
    """Return the numbers about several tables of the same shape as those about one table, its first axis the tables.

    Parameters
    ----------
    groups
        The numbers about each table; no noise is in two of them.
    title
        Name of the first axis.
    total
        Number of records of the whole.
    """
    from scipy.linalg import block_diag

    first = groups[0]
    return TableNumbers(
        variables=(title, *first.variables),
        shape=(len(groups), *first.shape),
        matrix=np.asarray(block_diag(*(group.matrix for group in groups))),
        counts=np.concatenate([group.counts for group in groups]),
        noise=tuple(law for group in groups for law in group.noise),
        sizes=tuple(size for group in groups for size in group.sizes),
        scopes=tuple(
            frozenset({0, *(axis + 1 for axis in scope)})
            for group in groups
            for scope in group.scopes
        ),
        possible=np.concatenate([group.possible for group in groups]),
        total=total,
        is_simulated=any(group.is_simulated for group in groups),
    )


def steps_measured(releases: Sequence[NoisyStatistics], times: Sequence[Hashable]) -> TableNumbers:
    """Return the released numbers about each step of a sequence of times, as one table of step, before and after.

    A table of several steps is summed for each of them; the sums share its noise.

    Raises
    ------
    ArgumentError
        The noise hides the number of records.
    ModelError
        A time is unknown or repeated, the times have different states, or a step was not measured.
    ModelTooLargeError
        There are too many steps and states.
    """
    domain = domain_of(releases)
    names = checked_clique(domain, tuple(times), "the times of a test")
    require(len(names) > 1, "times", "be at least two", len(names), error=ModelError)
    states = domain.states_of(names[0])
    for name in names:
        is_same = [*map(label_key, domain.states_of(name))] == [*map(label_key, states)]
        must = f"have the states of {names[0]!r}"
        require(is_same, f"the variable {name!r}", must, "others", error=ModelError)
    cells = (len(names) - 1) * len(states) ** 2
    must = f"be about at most {_MOST_CELLS:,} cells"
    remedy = "ask about fewer times"
    require(cells <= _MOST_CELLS, "a test", must, f"{cells:,}", remedy, error=ModelTooLargeError)
    steps = list(pairwise(names))
    every = [one for release in releases for one in measurements_of(release)]
    scopes = [scope for one in every for scope in one.query.scopes]
    wide = [one for one in every if _has_sums_of_steps(one, steps)]
    in_wide = {step for step in steps for one in wide if set(step) <= set(one.query.scopes[0])}
    zeros = [zero for release in releases for zero in release.specification.impossible]
    found = []
    for step in steps:
        own = Domain(variables=step, states=(states, states))
        kept = [zero for zero in zeros if {variable for variable, _ in zero} <= set(step)]
        is_own = partial(_is_of_step, step, steps)
        told = [one for release in releases for one in _told(own, release, is_own)[0]]
        if not told and step not in in_wide:
            is_skipped = any(set(step) <= set(scope) for scope in scopes)
            raise nothing_measured(step, is_skipped=is_skipped)
        model = ModelSpecification(domain=own, cliques=(step,), impossible=tuple(kept))
        found.append(_assembled(model, told, releases))
    apart = replace(
        side_by_side(found, "step", len(steps) * found[0].total),
        variables=("step", "before", "after"),
        total=found[0].total,
    )
    return _with_sums(apart, wide, steps)


def _steps_within(
    steps: Sequence[tuple[Hashable, ...]], scope: Sequence[Hashable]
) -> list[tuple[Hashable, ...]]:
    """Return the steps both of whose times are in a scope."""
    return [step for step in steps if set(step) <= set(scope)]


def _has_sums_of_steps(measured: MeasuredNumbers, steps: Sequence[tuple[Hashable, ...]]) -> bool:
    """Return True if a measurement is a whole table of several steps with added noise."""
    query = measured.query
    is_noise = measured.noise.is_additive and not measured.noise.is_bounded
    if not (query.is_table and is_noise):
        return False
    scope = set(query.scopes[0])
    has_zeros = any({variable for variable, _ in zero} <= scope for zero in query.model.impossible)
    return len(_steps_within(steps, query.scopes[0])) > 1 and not has_zeros


def _with_sums(
    apart: TableNumbers,
    wide: Sequence[MeasuredNumbers],
    steps: Sequence[tuple[Hashable, ...]],
) -> TableNumbers:
    """Return the numbers about steps together with the sums of tables of several steps."""
    found = apart
    size = math.prod(apart.shape[1:])
    for one in wide:
        scope = one.query.scopes[0]
        domain = one.query.model.domain
        shape = one.query.model.cardinalities
        axes = [domain.index(variable) for variable in scope]
        sums = []
        rows = []
        for step in _steps_within(steps, scope):
            cells = cells_within(shape, [domain.index(time) for time in step], axes)
            sums.append(np.eye(size)[:, np.ravel(cells)])
            start = steps.index(step) * size
            rows.append(np.eye(len(steps) * size)[start : start + size])
        law = SharedNoise(noise=one.noise, sums=np.concatenate(sums))
        found = replace(
            found,
            matrix=np.concatenate([found.matrix, np.concatenate(rows) * found.possible]),
            counts=np.concatenate([found.counts, law.sums @ one.noise.estimate(one.values)]),
            noise=(*found.noise, law),
            sizes=(*found.sizes, len(law.sums)),
            scopes=(*found.scopes, frozenset(range(len(found.shape)))),
        )
    return found


def _is_of_step(
    own: tuple[Hashable, ...], steps: Sequence[tuple[Hashable, ...]], scope: Sequence[Hashable]
) -> bool:
    """Return True if a scope has both times of a step, and those of no other step."""
    return _steps_within(steps, scope) == [own]


def _assembled(
    model: ModelSpecification, told: Sequence[MeasuredNumbers], releases: Sequence[NoisyStatistics]
) -> TableNumbers:
    """Return measurements about the one clique of a model; there may be none."""
    (names,) = model.cliques
    rows = [one.on(model).in_cliques.toarray().astype(float) for one in told]
    scopes = [{names.index(v) for scope in one.query.scopes for v in scope} for one in told]
    possible = model.possible
    if possible is None:
        possible = np.ones(model.size, bool)
    return TableNumbers(
        variables=names,
        shape=tuple(map(len, model.domain.states)),
        matrix=np.concatenate([np.zeros((0, model.size)), *rows]) * possible,
        counts=np.concatenate([np.zeros(0), *(one.noise.estimate(one.values) for one in told)]),
        noise=tuple(one.noise for one in told),
        sizes=tuple(map(len, rows)),
        scopes=tuple(map(frozenset, scopes)),
        possible=possible,
        total=_records(releases),
        is_simulated=any(release.provenance.simulated for release in releases),
    )


def nothing_measured(names: Sequence[Hashable], *, is_skipped: bool = False) -> ModelError:
    """Return the error of a test about which no number was released.

    Parameters
    ----------
    names
        Variables of the test.
    is_skipped
        True if a table was left out because it cannot be simulated.
    """
    listed = ", ".join(map(str, names))
    must = f"hold a table of {listed}"
    seen = "none that bears on the question"
    if is_skipped:
        must = f"hold a table of {listed} and no other variable"
        seen = "only bounds, or larger ones whose sums the test cannot simulate under their rule"
    remedy = "release the joint table of these variables"
    return ModelError(f"`release` must {must}, got {seen}; {remedy}.")


def _told(
    domain: Domain,
    release: NoisyStatistics,
    is_asked: Callable[[Sequence[Hashable]], bool] = lambda scope: True,
) -> tuple[list[MeasuredNumbers], bool]:
    """Return the measurements of a release about the variables of a domain, and whether some cannot be simulated.

    Parameters
    ----------
    domain
        The variables; measurements are summed over all others.
    release
        The release.
    is_asked
        Whether a measurement of some scope is read.
    """
    found = []
    is_skipped = False
    for measured in measurements_of(release):
        if not all(map(is_asked, measured.query.scopes)):
            continue
        if measured.noise.is_bounded:
            is_skipped = True
            continue
        try:
            own = numbers_about(domain, measured)
        except ModelError:  # a sum whose distribution is not known
            is_skipped = True
            continue
        if own is not None:
            found.append(own)
    return found, is_skipped


def _records(releases: Sequence[NoisyStatistics]) -> int:
    """Return the number of records, whole."""
    total, error = joint_total(releases)
    must = "have a total that the noise does not hide"
    remedy = "the null hypothesis cannot be simulated; release with more budget"
    is_known = math.isfinite(total) and total >= max(1.0, error)
    require(is_known, "release", must, f"{total:.0f} ± {error:.0f}", remedy)
    return round(total)
