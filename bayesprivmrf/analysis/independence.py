"""Tests of log-linear hypotheses about one population: independence, goodness of fit, equal odds ratios, groups."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import combinations, pairwise

import numpy as np

from bayesprivmrf.analysis._measured import (
    TableNumbers,
    domain_of,
    measured_about,
    releases_of,
    side_by_side,
)
from bayesprivmrf.analysis._score import LogLinearNull, hierarchical_design
from bayesprivmrf.analysis.hypothesis_tests import (
    Seed,
    TestResult,
    bootstrapped,
    bootstrapped_apart,
)
from bayesprivmrf.checks import require
from bayesprivmrf.errors import ModelError
from bayesprivmrf.inference.evidence import family_of
from bayesprivmrf.inference.given_model import GivenModel, believed_model
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.tables import FloatArray, cells_within
from bayesprivmrf.release import NoisyStatistics

type Releases = NoisyStatistics | Sequence[NoisyStatistics]
"""One release, or several of the same people."""


def independence_test(
    release: Releases,
    a: Hashable,
    b: Hashable,
    *,
    given: Sequence[Hashable] = (),
    draws: int = 999,
    rng: Seed = None,
    progress_bar: bool | None = None,
) -> TestResult:
    """Test whether two variables are independent within each joint state of others.

    The test reads all released numbers about two or more of the variables. A table with further variables is summed
    over them. It costs no privacy budget.

    Parameters
    ----------
    release
        Noisy tables; a list for several releases of the same people.
    a, b
        Two different variables with at least two states each.
    given
        Variables within whose joint states independence is tested.
    draws
        Number of replicates, at least 99.
    rng
        Seed or generator; without one a seed is drawn, and stored in the result.
    progress_bar
        True to show a progress bar, False to hide it. With None a terminal and a notebook show it.

    Returns
    -------
    TestResult
        Statistic, p-value, degrees of freedom, status and note. `expected` has the axes of `given`, a and b.

    Raises
    ------
    ArgumentError
        An argument is out of range, or the release cannot be simulated, such as one of people with several rows.
    ModelError
        A variable is unknown or repeated, or has one state; or no released table bears on the question.
    ModelTooLargeError
        The joint table of the variables has too many cells.

    Notes
    -----
    The statistic and why it stands for the likelihood ratio: `bayesprivmrf.analysis._score`.

    Examples
    --------
    >>> analysis.independence_test(release, "smokes", "ill", given=["age"], rng=1).p_value  # doctest: +SKIP
    """
    strata = _listed("given", given)
    measured = measured_about(releases_of(release), [*strata, a, b])
    _require_states(measured, [len(strata), len(strata) + 1])
    within = range(len(strata))
    null = _hierarchical(measured, [(*within, len(strata)), (*within, len(strata) + 1)])
    return bootstrapped(null, "independence", draws, rng, progress_bar)


def equal_odds_test(
    release: Releases,
    a: Hashable,
    b: Hashable,
    *,
    over: Sequence[Hashable],
    draws: int = 999,
    rng: Seed = None,
    progress_bar: bool | None = None,
) -> TestResult:
    """Test whether the odds ratios of two variables are the same in all joint states of others.

    Without noise this is the question of the test of Breslow and Day. If it is not rejected, `pooled_odds_ratio` has
    one odds ratio for all strata.

    Parameters
    ----------
    release
        Noisy tables; a list for several releases of the same people.
    a, b
        Two different variables with at least two states each.
    over
        Variables whose joint states are the strata, at least one.
    draws, rng, progress_bar
        As for `independence_test`.

    Returns
    -------
    TestResult
        `expected` has the axes of `over`, a and b.

    Raises
    ------
    ArgumentError, ModelError, ModelTooLargeError
        As for `independence_test`.

    Examples
    --------
    >>> analysis.equal_odds_test(release, "smokes", "ill", over=["age"], rng=1).p_value  # doctest: +SKIP
    """
    strata = _listed("over", over)
    require(strata, "over", "name at least one variable", "none")
    measured = measured_about(releases_of(release), [*strata, a, b])
    _require_states(measured, range(len(measured.shape)))
    one = len(strata)
    other = one + 1
    within = range(one)
    null = _hierarchical(measured, [(*within, one), (*within, other), (one, other)])
    return bootstrapped(null, "equal odds ratios", draws, rng, progress_bar)


def goodness_of_fit(
    release: Releases,
    model: GivenModel,
    *,
    draws: int = 999,
    rng: Seed = None,
    progress_bar: bool | None = None,
) -> TestResult:
    """Test a log-linear model against everything that was measured about its variables.

    Leave an interaction out of `model` to test whether it is needed. A model that is not rejected may still be wrong:
    the noise may hide what it leaves out.

    Parameters
    ----------
    release
        Noisy tables; a list for several releases of the same people.
    model
        The null hypothesis: cliques, a pgmpy network or a `ModelSpecification`, as for ``fit(release, model=)``. Its
        ties and scores are a part of it. Tables are summed over variables that it leaves out.
    draws, rng, progress_bar
        As for `independence_test`.

    Returns
    -------
    TestResult
        `expected` has the axes of the model's variables, in declared order.

    Raises
    ------
    ArgumentError
        An argument is out of range, or the release cannot be simulated.
    ModelError
        A variable is unknown, or the model leaves out nothing that was measured.
    ModelTooLargeError
        The joint table of the model's variables has too many cells.

    Examples
    --------
    >>> analysis.goodness_of_fit(release, [("smokes", "age"), ("ill", "age")], rng=1).p_value  # doctest: +SKIP
    """
    releases = releases_of(release)
    zeros = [zero for one in releases for zero in one.specification.impossible]
    believed = believed_model(domain_of(releases), zeros, model)
    must = "be a log-linear model"
    remedy = "use stationarity_test for a chain with one transition matrix"
    is_log_linear = not believed.shares_transitions
    require(is_log_linear, "model", must, "shared transitions", remedy, error=ModelError)
    measured = measured_about(releases, believed.domain.variables)
    null = LogLinearNull(measured=measured, design=_design_of(believed))
    must = "leave out an interaction that a released table shows"
    remedy = "leave out a clique, or release a table of more variables together"
    has_less = null.degrees_of_freedom > 0
    require(has_less, "model", must, "one that fits every released table", remedy, error=ModelError)
    return bootstrapped(null, "goodness of fit", draws, rng, progress_bar)


def compare_groups(
    release: Releases | Mapping[Hashable, Releases],
    by: Hashable = None,
    *,
    over: Sequence[Hashable] = (),
    draws: int = 999,
    rng: Seed = None,
    progress_bar: bool | None = None,
) -> TestResult:
    """Test whether groups have the same distribution of other variables.

    Parameters
    ----------
    release
        Noisy tables, one of whose variables tells the groups; a list for several releases of the same people. Or a
        release, or a list of them, for each group: ``{"north": release, "south": release}``.
    by
        The variable that tells the groups; None if each has a release of its own.
    over
        Variables that are compared, jointly; by default all others. The test is about the tables of them that were
        released together with `by`.
    draws, rng, progress_bar
        As for `independence_test`.

    Returns
    -------
    TestResult
        `expected` has the axes of the groups and of the variables that are compared. Where no released table shows
        how the variables depend on each other, each table of groups has a test of its own. The p-value is then the
        smallest of theirs times their number (Bonferroni), and `statistic` and `df` are those of that table.

    Raises
    ------
    ArgumentError
        An argument is out of range, or the release cannot be simulated.
    ModelError
        There is one group, a variable is unknown, or no released table bears on the question.
    ModelTooLargeError
        The joint table has too many cells; compare fewer variables.

    Examples
    --------
    >>> analysis.compare_groups(release, by="region", rng=1).p_value  # doctest: +SKIP
    """
    compared = _listed("over", over)
    if isinstance(release, Mapping):
        must = "be left out where each group has a release"
        require(by is None, "by", must, by)
        read = _of_groups(release)
    else:
        must = "name the variable that tells the groups"
        require(by is not None, "by", must, "none", "write by='region'")
        releases = releases_of(release)
        compared = compared or [each for each in domain_of(releases).variables if each != by]
        read = _of_one(releases, by)
    measured = read(compared)
    _require_states(measured, [0])
    null = _equal_groups(measured)
    apart = _tables_apart(measured)
    if not apart:
        return bootstrapped(null, "equal groups", draws, rng, progress_bar)
    names = [[measured.variables[axis] for axis in sorted(axes)] for axes in apart]
    parts = [_equal_groups(own) for own in _readable(read, names)]
    told = [part for part in parts if part.degrees_of_freedom > 0]
    return bootstrapped_apart(null, told, "equal groups", draws, rng, progress_bar)


def _equal_groups(measured: TableNumbers) -> LogLinearNull:
    """Return the null hypothesis that the first axis, of groups, is independent of all others."""
    # interactions among the compared variables are those that some measurement shows
    shown = {scope - {0} for scope in measured.scopes}
    return _hierarchical(measured, [(0,), *map(sorted, shown)])


def _tables_apart(measured: TableNumbers) -> list[frozenset[int]]:
    """Return the sets of compared variables that were released by group, if no table shows two of them together.

    The sampling errors of the tables of two sets depend on the joint table of both. The list is empty if a
    measurement has the variables of any two sets, with or without the groups.
    """
    every = {scope - {0} for scope in measured.scopes}
    shown = {scope - {0} for scope in measured.scopes if 0 in scope} - {frozenset()}
    pairs = combinations(shown, 2)
    if all(any(one | other <= scope for scope in every) for one, other in pairs):
        return []
    largest = [one for one in shown if not any(one < other for other in shown)]
    return sorted(largest, key=sorted)


def _readable(
    read: Callable[[Sequence[Hashable]], TableNumbers], each: Sequence[Sequence[Hashable]]
) -> list[TableNumbers]:
    """Return the numbers about each table that all groups have."""
    found = []
    for names in each:
        try:
            found.append(read(names))
        except ModelError:  # a group without any number about it
            continue
    return found


def _of_one(
    releases: Sequence[NoisyStatistics], by: Hashable
) -> Callable[[Sequence[Hashable]], TableNumbers]:
    """Return what reads the numbers about the table of group and variables, of releases of all groups."""

    def read(names: Sequence[Hashable]) -> TableNumbers:
        return measured_about(releases, [by, *names])

    return read


def _of_groups(
    groups: Mapping[Hashable, Releases],
) -> Callable[[Sequence[Hashable]], TableNumbers]:
    """Return what reads the numbers about the table of group and variables, of a release for each group."""
    must = "have a release of each of two groups at least"
    require(len(groups) > 1, "release", must, len(groups), error=ModelError)
    each = [releases_of(own) for own in groups.values()]
    domain = domain_of([release for own in each for release in own])

    def read(compared: Sequence[Hashable]) -> TableNumbers:
        names = compared or domain.variables
        found = [measured_about(own, names, least=1) for own in each]
        return side_by_side(found, "group", sum(one.total for one in found))

    return read


def _listed(name: str, variables: Sequence[Hashable]) -> list[Hashable]:
    """Return variables as a list; anything but a list or a tuple is refused."""
    is_list = isinstance(variables, list | tuple)
    require(is_list, name, "list variables", type(variables).__name__, f"write {name}=['age']")
    return list(variables)


def _require_states(measured: TableNumbers, axes: Sequence[int]) -> None:
    """Raise a ModelError unless the variables of some axes have at least two states."""
    for axis in axes:
        states = measured.shape[axis]
        name = repr(measured.variables[axis])
        must = "have at least two states"
        require(states > 1, f"the variable {name}", must, states, error=ModelError)


def _hierarchical(measured: TableNumbers, cliques: Sequence[Sequence[int]]) -> LogLinearNull:
    """Return the null hypothesis of a hierarchical log-linear model, whose cliques are axes of the joint table."""
    return LogLinearNull(measured=measured, design=hierarchical_design(measured.shape, cliques))


def _design_of(model: ModelSpecification) -> FloatArray:
    """Return the design matrix of a model on the joint table of all its variables, shape (cells, parameters)."""
    effects = family_of(model).effects
    potentials = effects.potentials(np.eye(effects.size))
    every = range(len(model.domain.variables))
    columns = np.zeros((effects.size, math.prod(model.cardinalities)))
    for scope, (start, stop) in zip(model.scopes, pairwise(model.offsets), strict=True):
        cells = cells_within(model.cardinalities, scope, every)
        columns += potentials[:, start:stop][:, np.ravel(cells)]
    return np.concatenate([np.ones((1, columns.shape[1])), columns]).T
