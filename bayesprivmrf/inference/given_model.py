r"""Models that are given to `fit`, apart from the tables that a release measured.

The measurements and the model are two linear maps. A release has *measured scopes*; a model has *cliques*, on
which its potentials depend. Any model over the release's variables can be fitted to the release. The tables of the
evidence are the maximal scopes among both, so that each measured number and each potential lies in one of them. The
potentials have effects only for the sets of variables inside a clique of the model
(`bayesprivmrf.model.ties`), which `ModelSpecification.interactions` states.

**Variables that the model leaves out** are summed out of the measured tables. The noise of such a sum of k cells is
that of k independent draws (`NoiseDistribution.summed`); exact numbers stay exact, and bounds add up. Where no
distribution of the sum is known, or a query weighs the states of the variable, the fit is refused, because a model
without the variable has no mean for the answer.

If every measured scope lies inside a clique of the model, the tables are the model's own, and the effects that no
measurement informs are left to the prior. Otherwise the model is *smaller* than a measured
table. Its records still have such a table, in which the model omits interactions, so its effects are restricted ones,
as those of ties are. Two sums of one noisy table share its noise. That is why a smaller model is never fitted to sums
of the table in place of the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesprivmrf.checks import kind_of, require
from bayesprivmrf.errors import ArgumentError, ModelError, ModelTooLargeError
from bayesprivmrf.marginals import DEFAULT_MEMORY_LIMIT, forecast
from bayesprivmrf.model import Domain, ModelSpecification
from bayesprivmrf.model.cliques import checked_clique
from bayesprivmrf.model.domain import Variable, label_key, require_fit
from bayesprivmrf.model.pgmpy_networks import read_network
from bayesprivmrf.model.tables import Clique, FloatArray, cells_within, parent
from bayesprivmrf.noise.likelihood import Likelihood
from bayesprivmrf.queries import BoundQuery
from bayesprivmrf.queries import table as table_query
from bayesprivmrf.release import NoisyStatistics

if TYPE_CHECKING:
    from pgmpy.models import DiscreteMarkovNetwork

type GivenModel = Sequence[Sequence[Variable]] | DiscreteMarkovNetwork | ModelSpecification


def believed_model(
    domain: Domain, zeros: Iterable[tuple[tuple[Variable, object], ...]], given: GivenModel
) -> ModelSpecification:
    """Return the model that was given to `fit`, with the release's names and labels.

    Parameters
    ----------
    domain
        Variables and states of the releases.
    zeros
        Structural zeros of the releases. They are facts about the records and hold under any model; those of
        variables that the model leaves out are not carried over.
    given
        Cliques; or a pgmpy network or a declared specification, whose ties, ordinal scores, levels and zeros are
        those of the model.

    Raises
    ------
    ArgumentError
        Something else was given.
    ModelError
        The model has a variable that the releases have not, other states or another order of them, or no clique over
        the variables of a structural zero.
    """
    network: Any = given
    if isinstance(given, ModelSpecification) or hasattr(given, "get_factors"):
        model = _of_network(domain, network)
    else:
        model = _of_cliques(domain, given)
    scopes = [set(clique) for clique in model.cliques]
    kept = [zero for zero in zeros if all(variable in model.domain for variable, _ in zero)]
    for zero in kept:
        scope = tuple(variable for variable, _ in zero)
        is_inside = any(set(scope) <= own for own in scopes)
        must = f"have a clique over {scope!r}, states of which cannot occur together by the release"
        require_fit(is_inside, "`model`", must, "none", f"add {scope!r} to it")
    return replace(model, impossible=(*kept, *model.impossible))


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredNumbers:
    """Numbers of one measurement, with their query and the distribution of their noise.

    Parameters
    ----------
    query
        The query, on the model of its release.
    values
        The noisy numbers, shape (rows,), records.
    noise
        Distribution of the noise of each number.
    """

    query: BoundQuery
    values: FloatArray
    noise: Likelihood

    def on(self, model: ModelSpecification) -> BoundQuery:
        """Return the query on the tables of another model, which hold its scopes."""
        return replace(self.query, model=model, asked_of=self.query.asked_of or self.query.model)


def measurements_of(release: NoisyStatistics) -> list[MeasuredNumbers]:
    """Return the measurements of a release, each with its query on the release's own model."""
    ends = np.cumsum([len(bound) for bound in release.bound])[:-1]
    parts = np.split(release.flat.astype(float), ends)
    return [
        MeasuredNumbers(query=bound, values=values, noise=law)
        for bound, values, law in zip(release.bound, parts, release.noise, strict=True)
    ]


def split_by_steps(
    chain: ModelSpecification, measured: Sequence[MeasuredNumbers]
) -> tuple[list[MeasuredNumbers], list[MeasuredNumbers]]:
    """Split measurements of a chain with one transition matrix: those of its steps, and those of distant times.

    The chain is fitted to the former. Criticism compares it with the latter, which tell whether its order is right
    (`bayesprivmrf.inference.criticism.order`).

    Raises
    ------
    ModelError
        No measurement is of the steps, or a distant one has numbers within bounds.
    ModelTooLargeError
        The chain with the table of a distant measurement does not fit in memory.
    """
    steps = []
    distant = []
    for each in measured:
        own = each.on(chain)
        is_inside = all(parent(chain.scopes, scope) is not None for scope in own.positions)
        if is_inside:
            steps.append(each)
        else:
            distant.append(replace(each, query=own))
    what = "a chain with one transition matrix"
    remedy = (
        "measure tables of single steps or their sum (queries.pooled), or declare markov_chain(..., "
        "share='potentials')"
    )
    require_fit(
        steps or not measured, what, "have measurements of its steps", "larger tables alone", remedy
    )
    for each in distant:
        name = repr(each.query.query)
        must = f"have added noise, or none, in {name}, which is compared with the fit"
        remedy = "leave that measurement out, or declare markov_chain(..., share='potentials')"
        require_fit(not each.noise.is_bounded, what, must, "bounds", remedy)
        cost = forecast(chain.cardinalities, (*chain.scopes, *each.query.positions))
        require(
            cost.memory_bytes <= DEFAULT_MEMORY_LIMIT,
            name,
            f"fit with the chain into {DEFAULT_MEMORY_LIMIT / 2**30:,.3g} GiB",
            f"{cost.memory_bytes / 2**30:,.3g} GiB",
            "leave that measurement out",
            error=ModelTooLargeError,
        )
    return steps, distant


def numbers_about(domain: Domain, measured: MeasuredNumbers) -> MeasuredNumbers | None:
    """Return a measurement without the variables that a model leaves out; None if no variable is left.

    Parameters
    ----------
    domain
        Variables of the model.
    measured
        A measurement.

    Raises
    ------
    ModelError
        The measurement has a variable that the model leaves out, and is no whole table, has structural zeros of that
        variable, or has noise whose sums have no known distribution.
    """
    query = measured.query
    left = [v for scope in query.scopes for v in scope if v not in domain]
    if not left:
        return measured
    remedy = f"add {left[0]!r} to `model`"
    what = f"the model that leaves out {left[0]!r}"
    must = "be fitted to whole tables, which are summed over it"
    require_fit(query.is_table, what, must, f"the measurement {query.query!r}", remedy)
    scope = query.scopes[0]
    has_zeros = any(
        set(scope) >= {v for v, _ in zero} and not {v for v, _ in zero}.isdisjoint(left)
        for zero in query.model.impossible
    )
    must = "be fitted to tables without structural zeros of it"
    require_fit(not has_zeros, what, must, f"some in the table of {scope!r}", remedy)
    kept = tuple(v for v in scope if v in domain)
    if not kept:
        return None
    model = query.model
    positions = [model.domain.index(v) for v in scope]
    asked = [model.domain.index(v) for v in kept]
    cells = cells_within(model.cardinalities, asked, positions)
    count = len(query) // (int(cells.max()) + 1)
    try:
        law = measured.noise.summed(count)
    except ArgumentError:
        raise ModelError(
            f"the sum of {count} numbers with {measured.noise.name} noise has a distribution that the library does "
            f"not know, and `model` leaves out {left[0]!r}, over which the table of {scope!r} is summed; {remedy}."
        ) from None
    return MeasuredNumbers(
        query=table_query(*kept).bind(_over(model, kept)),
        values=np.bincount(cells, weights=measured.values),
        noise=law,
    )


def _over(model: ModelSpecification, scope: Clique) -> ModelSpecification:
    """Return the model of the table of some variables of another model."""
    states = tuple(model.domain.states_of(v) for v in scope)
    return ModelSpecification(domain=Domain(variables=scope, states=states), cliques=(scope,))


def refuse_loopy(model: ModelSpecification, inference: str) -> None:
    """Raise an error for loopy marginals of a model that omits interactions of measured tables.

    Loopy marginals of the measured tables and of the model's cliques would differ.
    """
    if model.interactions is not None and inference != "exact":
        raise ModelError(
            "a model that omits interactions of measured tables needs exact inference, got inference='loopy'; fit "
            "with inference='exact', or with a model whose cliques hold the measured tables."
        )


def _of_cliques(domain: Domain, given: Any) -> ModelSpecification:
    """Return the model with some cliques; a variable that is in none is left out."""
    remedy = "write a list of cliques such as [('a', 'b'), ('c',)], a network of `declare`, or a ModelSpecification"
    if not isinstance(given, list | tuple | set | frozenset):
        raise ArgumentError(
            f"`model` must be cliques, a network or a specification, got {kind_of(given)}; {remedy}."
        )
    require(bool(given), "model", "have at least one clique", "none", remedy)
    bare = next((own for own in given if isinstance(own, str | bytes)), None)
    if bare is not None:
        raise ArgumentError(
            f"each clique of `model` must be a list of variables, got the text {bare!r}; write ({bare!r},)."
        )
    cliques = [checked_clique(domain, clique, "a clique of `model`") for clique in given]
    members = {variable for clique in cliques for variable in clique}
    own = tuple(variable for variable in domain.variables if variable in members)
    states = tuple(domain.states_of(variable) for variable in own)
    return ModelSpecification(domain=Domain(variables=own, states=states), cliques=tuple(cliques))


def _of_network(
    domain: Domain, given: DiscreteMarkovNetwork | ModelSpecification
) -> ModelSpecification:
    """Return the model of a network or of a specification, its variables in the order of the releases."""
    if isinstance(given, ModelSpecification):
        model = given.believed
    else:
        for node in given.nodes:
            domain.index(node)
        # a network without factors has no states of its own
        states = None
        if not given.get_factors():
            states = {node: domain.states_of(node) for node in given.nodes}
        model = read_network(given, states, warns=False)
    require_fit(
        model.cliques_declared,
        "`model`",
        "have cliques",
        "variables alone",
        "declare its cliques, or pass a list of them",
    )
    for variable in model.domain.variables:
        wanted = domain.states_of(variable)
        seen = model.domain.states_of(variable)
        is_alike = [*map(label_key, wanted)] == [*map(label_key, seen)]
        must = f"have the states of {variable!r} that the release has, in their order, {list(wanted)!r}"
        remedy = "declare the same states"
        require_fit(is_alike, "`model`", must, f"{list(seen)!r}", remedy)
    own = tuple(variable for variable in domain.variables if variable in model.domain)
    states = tuple(domain.states_of(variable) for variable in own)
    return replace(model, domain=Domain(variables=own, states=states))
