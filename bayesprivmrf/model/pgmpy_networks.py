"""Conversion between pgmpy's networks and this package's specifications.

No other module of the package depends on pgmpy's classes.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesprivmrf.checks import object_with
from bayesprivmrf.errors import DeclarationWarning, ModelError, warn_caller
from bayesprivmrf.model.cliques import minimum_norm_potentials
from bayesprivmrf.model.contrast_parts import checked_levels, checked_scores
from bayesprivmrf.model.domain import Domain, Label, Variable, listed, require_fit
from bayesprivmrf.model.specification import ModelSpecification, warn_of_dropped
from bayesprivmrf.model.tables import CliqueTables, FloatArray, expand, parent

if TYPE_CHECKING:
    from pgmpy.models import DiscreteMarkovNetwork

# Prefix of a declaration's keys in a network's `graph` attribute
_PREFIX = "bayesprivmrf_"
# Fields of a model in its network's `graph` attribute: those that are always there, and those that may be empty
_WRITTEN = ("cliques_declared", "impossible")
_WRITTEN_IF_ANY = ("ties", "shares_transitions", "ordinal", "levels")  # fields


def declare(
    states: Mapping[Variable, Iterable[Label]],
    cliques: Iterable[Sequence[Variable]] | None = None,
    *,
    impossible: Iterable[Mapping[Variable, Label]] = (),
    tied: Iterable[Iterable[Sequence[Variable]]] = (),
    ordinal: Iterable[Variable] | Mapping[Variable, str | Sequence[float]] = (),
    levels: Mapping[Variable, Mapping[str, Mapping[Label, Iterable[Label]]]] | None = None,
) -> DiscreteMarkovNetwork:
    """Declare a Markov random field, before any data is read.

    Parameters
    ----------
    states
        States of each variable, in order. The labels are any hashable values. The order is kept everywhere.
    cliques
        The scopes whose tables are measured. ``None`` declares only the variables, for mechanisms that learn the
        couplings.
    impossible
        Structural zeros: assignments such as ``{"sex": "male", "pregnant": "yes"}`` that cannot occur. Each lies
        inside a clique.
    tied
        Groups of cliques that share one table of potentials, such as ``[[("m1", "m2"), ("m2", "m3")]]``. Their
        variables have the same states in the same order, axis by axis as written. A clique inside a tied clique has
        a separate potential.
    ordinal
        Variables with ordered states. Their interactions are linear in scores, so that two ordered variables have one
        parameter. The scores are 0, 1, 2, ... or given numbers, such as ``{"age": [25, 45, 70]}``, in the order of
        the states or in a mapping or Series by state. ``{"age": "smooth"}`` keeps the rest of the interaction, with
        its own learned scale.
    levels
        Nested areas into which the states of a variable are grouped, from the coarsest level to the finest:
        ``{"block": {"tract": {"T1": ["B1", "B2"], "T2": ["B3"]}}}``. The effects of each level have their own learned
        scale.

    Returns
    -------
    pgmpy.models.DiscreteMarkovNetwork
        The network, with one unit factor for each clique. A structural zero has the value 0 in its factor, and is
        kept in the network's ``graph`` attribute. Zeros that a fit puts into factors are no structural zeros.

    Raises
    ------
    ModelError
        The declaration is inconsistent.

    Warns
    -----
    DeclarationWarning
        A clique lies inside another, so that it is not measured separately.

    Examples
    --------
    >>> network = declare({"smokes": ["no", "yes"], "ill": ["no", "yes"]}, [("smokes", "ill")])
    >>> network.check_model()
    True
    """
    domain = Domain.from_states(states)
    if cliques is None:
        given = [(v,) for v in domain.variables]
    else:
        given = listed("`cliques`", cliques)
    zeros = listed("`impossible`", impossible)
    for zero in zeros:
        require_fit(
            isinstance(zero, Mapping), "impossible", "hold mappings from variable to state", zero
        )
    model = ModelSpecification(
        domain=domain,
        cliques=tuple(given),
        impossible=tuple(tuple(zero.items()) for zero in zeros),
        cliques_declared=cliques is not None,
        ties=tuple(listed("`tied`", tied)),
        ordinal=checked_scores(domain, ordinal),
        levels=checked_levels(domain, {} if levels is None else levels),
    )
    warn_of_dropped(model, given)
    return model.to_pgmpy()


def read_network(
    network: DiscreteMarkovNetwork | ModelSpecification,
    states: Mapping[Variable, Any] | None = None,
    *,
    warns: bool = True,
) -> ModelSpecification:
    """Return the specification of a pgmpy network; see `ModelSpecification.from_pgmpy`."""
    if isinstance(network, ModelSpecification):
        return network
    must = "be a pgmpy DiscreteMarkovNetwork or a ModelSpecification"
    remedy = "bayesprivmrf.declare(states, cliques) makes one"
    object_with("get_factors", "network", network, must, remedy, error=ModelError)
    factors = list(network.get_factors())
    # The states of every node in node order, from the factors and `states`; an error if they conflict
    found: dict[Variable, tuple[Label, ...]] = {}
    for factor in factors:
        for variable in factor.variables:
            labels = tuple(factor.state_names[variable])
            own = list(found.setdefault(variable, labels))
            must = f"agree on the states of {variable!r} and their order"
            require_fit(own == list(labels), "the factors", must, f"{own!r} and {list(labels)!r}")
    if states is None:
        given = None
    else:
        given = Domain.from_states(states)
    for variable in () if given is None else given.variables:
        require_fit(
            variable in network.nodes, "states", "name nodes of the network", repr(variable)
        )
        stated = given.states_of(variable)  # type: ignore[union-attr]
        own = found.setdefault(variable, stated)
        seen = f"{list(stated)!r} and {list(own)!r}"
        require_fit(own == stated, "`states` and the factors", f"agree on {variable!r}", seen)
    for node in network.nodes:
        remedy = f"give them as `states={{{node!r}: [...]}}` or add a factor with state_names"
        require_fit(node in found, f"the states of {node!r}", "be declared", "none", remedy)
    domain = Domain.from_states({node: found[node] for node in network.nodes})
    if not factors:
        isolated = [node for node in network.nodes if network.degree[node] == 0]
        cliques = [tuple(edge) for edge in network.edges] + [(node,) for node in isolated]
        return ModelSpecification(domain=domain, cliques=tuple(cliques))
    scopes = [tuple(factor.variables) for factor in factors]
    # a factor measures all pairs inside it
    covered = {frozenset(pair) for scope in scopes for pair in combinations(scope, 2)}
    for edge in network.edges:
        must = "be in a factor, so that its table is measured"
        remedy = "add a factor over it or remove the edge"
        require_fit(frozenset(edge) in covered, f"the edge {tuple(edge)!r}", must, "none", remedy)
    has_zeros = any((np.asarray(factor.values) == 0).any() for factor in factors)
    if warns and has_zeros and f"{_PREFIX}impossible" not in network.graph:
        warn_caller(
            "the network's factors contain zeros, which are not read as structural zeros; pass them to "
            "declare(..., impossible=[...]) if they are public knowledge (pgmpy's copy() loses them).",
            DeclarationWarning,
        )
    # the factors' values give no structural zeros, because a network fitted to data has zeros wherever the data do
    written = {name: network.graph.get(_PREFIX + name) for name in (*_WRITTEN, *_WRITTEN_IF_ANY)}
    known = {name: value for name, value in written.items() if value is not None}
    model = ModelSpecification(domain=domain, cliques=tuple(scopes), **known)
    if warns:
        warn_of_dropped(model, scopes)
    return model


def write_network(
    model: ModelSpecification,
    potentials: CliqueTables | FloatArray | None = None,
    log_partition: float | None = None,
) -> DiscreteMarkovNetwork:
    """Return the pgmpy network of a model and its potentials; see `ModelSpecification.to_pgmpy`."""
    DiscreteFactor, DiscreteMarkovNetwork = _pgmpy_classes()
    for labels in (model.domain.variables, *model.domain.states):
        must = "differ for pgmpy, which takes True and 1, or False and 0, for the same"
        require_fit(
            len(set(labels)) == len(labels), "labels", must, list(labels), "rename one of them"
        )
    network = DiscreteMarkovNetwork()
    network.add_nodes_from(model.domain.variables)
    for clique, values in zip(
        model.cliques, _factor_values(model, potentials, log_partition), strict=True
    ):
        network.add_edges_from(combinations(clique, 2))
        network.add_factors(
            DiscreteFactor(
                variables=list(clique),
                cardinality=[len(model.domain.states_of(v)) for v in clique],
                values=values,
                state_names={v: list(model.domain.states_of(v)) for v in clique},
            )
        )
    fields = [*_WRITTEN, *(name for name in _WRITTEN_IF_ANY if getattr(model, name))]
    network.graph |= {_PREFIX + name: getattr(model, name) for name in fields}
    return network


def _factor_values(
    model: ModelSpecification,
    potentials: CliqueTables | FloatArray | None,
    log_partition: float | None,
) -> list[FloatArray]:
    """Return the flat values of the factors.

    Without potentials they are 1, and 0 for structural zeros. With a known log-partition function they multiply to
    probabilities; otherwise the largest value of each factor is 1.
    """
    blocks = list(pairwise(model.offsets))
    if potentials is None:
        if model.possible is None:
            unit = np.ones(model.size)
        else:
            unit = model.possible.astype(float)
        return [unit[start:stop] for start, stop in blocks]
    given = model.tables(
        potentials.flat if isinstance(potentials, CliqueTables) else potentials
    ).flat
    # potentials of smallest norm, so that large potentials that cancel do not underflow
    flat = minimum_norm_potentials(model.cardinalities, model.scopes, given.astype(float))
    tables = [flat[start:stop] for start, stop in blocks]
    tops = [float(table.max()) for table in tables]
    if log_partition is None or not tops:
        share = 0.0
    else:
        share = (sum(tops) - log_partition) / len(tops)
    if abs(share) > 600.0:  # e^709 would overflow; queries of pgmpy then need normalization
        share = 0.0
    return [np.exp(table - top + share) for table, top in zip(tables, tops, strict=True)]


def network_potentials(model: ModelSpecification, network: DiscreteMarkovNetwork) -> CliqueTables:
    """Return the log factors of a pgmpy network, each added to a clique of the model that contains its scope.

    Raises
    ------
    ModelError
        A factor has a negative value or NaN, or its scope is in no clique.
    """
    flat = np.zeros(model.size)
    for factor in network.get_factors():
        scope = tuple(factor.variables)
        values = np.asarray(factor.values, dtype=float)
        what = f"the factor over {scope!r}"
        home = parent(model.cliques, scope)
        require_fit((values >= 0).all(), what, "have values of at least 0", "others")
        if home is None:
            raise ModelError(f"{what} is in no clique of the model.")
        target = flat[model.offsets[home] : model.offsets[home + 1]].reshape(model.shapes[home])
        with np.errstate(divide="ignore"):
            target += expand(np.log(values), scope, model.cliques[home])
    return model.tables(flat)


@functools.cache
def _pgmpy_classes() -> tuple[Any, Any]:
    """Return the classes DiscreteFactor and DiscreteMarkovNetwork; importing them takes seconds.

    The line ``from pgmpy.inference import VariableElimination``, which many users write next, warns about an
    unrelated module of pgmpy. Only that warning is silenced for the process.
    """
    from pgmpy.factors.discrete import DiscreteFactor
    from pgmpy.models import DiscreteMarkovNetwork

    about = r"`pgmpy\.estimators\.StructureScore` is deprecated"
    warnings.filterwarnings("ignore", about, FutureWarning)
    return DiscreteFactor, DiscreteMarkovNetwork
