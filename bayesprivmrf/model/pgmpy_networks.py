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

from bayesprivmrf.errors import DeclarationWarning, ModelError
from bayesprivmrf.model.cliques import minimum_norm_potentials
from bayesprivmrf.model.contrast_parts import checked_levels, checked_scores
from bayesprivmrf.model.domain import Domain, Label, Variable, listed
from bayesprivmrf.model.specification import ModelSpecification, warn_of_dropped
from bayesprivmrf.model.tables import Clique, CliqueTables, FloatArray, expand, parent

if TYPE_CHECKING:
    from pgmpy.models import DiscreteMarkovNetwork

# Prefix of a declaration's keys in a network's `graph` attribute
_PREFIX = "bayesprivmrf_"
# Fields of a model in its network's `graph` attribute: those that are always there, and those that may be empty
_WRITTEN, _WRITTEN_IF_ANY = (
    ("cliques_declared", "impossible"),
    ("ties", "shares_transitions", "ordinal", "levels"),
)


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
    given = [(v,) for v in domain.variables] if cliques is None else listed("`cliques`", cliques)
    assignments: list[tuple[tuple[Variable, Label], ...]] = []
    for assignment in listed("`impossible`", impossible):
        if not isinstance(assignment, Mapping):
            raise ModelError(f"`impossible` must hold mappings from variable to state, got {assignment!r}.")
        assignments.append(tuple(assignment.items()))
    model = ModelSpecification(
        domain=domain,
        cliques=tuple(given),
        impossible=tuple(assignments),
        cliques_declared=cliques is not None,
        ties=tuple(listed("`tied`", tied)),
        ordinal=checked_scores(domain, ordinal),
        levels=checked_levels(domain, {} if levels is None else levels),
    )
    warn_of_dropped(model, given, stacklevel=2)
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
    if not (hasattr(network, "get_factors") and hasattr(network, "nodes")):
        raise ModelError(
            "`network` must be a pgmpy DiscreteMarkovNetwork or a ModelSpecification, "
            f"got {type(network).__name__}; bayesprivmrf.declare(states, cliques) makes one."
        )
    factors = list(network.get_factors())
    domain = Domain.from_states(_gathered_states(network, factors, states))
    if not factors:
        isolated = [node for node in network.nodes if network.degree[node] == 0]
        cliques = [tuple(edge) for edge in network.edges] + [(node,) for node in isolated]
        return ModelSpecification(domain=domain, cliques=tuple(cliques))
    scopes = [tuple(factor.variables) for factor in factors]
    _refuse_uncovered_edges(network, scopes)
    has_zeros = any((np.asarray(factor.values) == 0).any() for factor in factors)
    if warns and has_zeros and f"{_PREFIX}impossible" not in network.graph:
        warnings.warn(
            "the network's factors contain zeros, which are not read as structural zeros; pass them to "
            "declare(..., impossible=[...]) if they are public knowledge (pgmpy's copy() loses them).",
            DeclarationWarning,
            stacklevel=3,
        )
    # the factors' values give no structural zeros, because a network fitted to data has zeros wherever the data do
    written = {name: network.graph.get(_PREFIX + name) for name in (*_WRITTEN, *_WRITTEN_IF_ANY)}
    known = {name: value for name, value in written.items() if value is not None}
    model = ModelSpecification(domain=domain, cliques=tuple(scopes), **known)
    if warns:
        warn_of_dropped(model, scopes, stacklevel=3)
    return model


def write_network(
    model: ModelSpecification,
    potentials: CliqueTables | FloatArray | None = None,
    log_partition: float | None = None,
) -> DiscreteMarkovNetwork:
    """Return the pgmpy network of a model and its potentials; see `ModelSpecification.to_pgmpy`."""
    DiscreteFactor, DiscreteMarkovNetwork = _pgmpy_classes()
    _refuse_what_pgmpy_merges(model.domain)
    network = DiscreteMarkovNetwork()
    network.add_nodes_from(model.domain.variables)
    for clique, values in zip(model.cliques, _factor_values(model, potentials, log_partition), strict=True):
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
    model: ModelSpecification, potentials: CliqueTables | FloatArray | None, log_partition: float | None
) -> list[FloatArray]:
    """Return the flat values of the factors.

    Without potentials they are 1, and 0 for structural zeros. With a known log-partition function they multiply to
    probabilities; otherwise the largest value of each factor is 1.
    """
    blocks = list(pairwise(model.offsets))
    if potentials is None:
        unit = np.ones(model.size) if model.possible is None else model.possible.astype(float)
        return [unit[start:stop] for start, stop in blocks]
    given = model.tables(potentials.flat if isinstance(potentials, CliqueTables) else potentials).flat
    # potentials of smallest norm, so that large potentials that cancel do not underflow
    flat = minimum_norm_potentials(model.cardinalities, model.scopes, given.astype(float))
    tables = [flat[start:stop] for start, stop in blocks]
    tops = [float(table.max()) for table in tables]
    share = 0.0 if log_partition is None or not tops else (sum(tops) - log_partition) / len(tops)
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
        if not (values >= 0).all():
            raise ModelError(f"the factor over {scope!r} must have values of at least 0.")
        home = parent(model.cliques, scope)
        if home is None:
            raise ModelError(f"the factor over {scope!r} is in no clique of the model.")
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


def _refuse_what_pgmpy_merges(domain: Domain) -> None:
    """Raise an error if names or labels differ only as True from 1, which pgmpy treats as equal."""
    for labels in (domain.variables, *domain.states):
        if len(set(labels)) != len(labels):
            raise ModelError(
                f"pgmpy treats True and 1 (False and 0) as the same label, got {list(labels)!r}; rename one of them."
            )


def _gathered_states(
    network: DiscreteMarkovNetwork, factors: Sequence[Any], states: Mapping[Variable, Any] | None
) -> dict[Variable, tuple[Label, ...]]:
    """Return the states of every node in node order, from the factors and `states`; an error if they conflict."""
    found: dict[Variable, tuple[Label, ...]] = {}
    for factor in factors:
        for variable in factor.variables:
            labels = tuple(factor.state_names[variable])
            if found.setdefault(variable, labels) != labels:
                raise ModelError(
                    f"the factors must agree on the states of {variable!r} and their order, "
                    f"got {list(found[variable])!r} and {list(labels)!r}."
                )
    given = Domain.from_states(states) if states is not None else None
    if given is not None:
        for variable in given.variables:
            if variable not in network.nodes:
                raise ModelError(f"`states` names {variable!r}, which is not a node of the network.")
            if variable in found and found[variable] != given.states_of(variable):
                raise ModelError(
                    f"`states` and the factors must agree on {variable!r}, "
                    f"got {list(given.states_of(variable))!r} and {list(found[variable])!r}."
                )
            found[variable] = given.states_of(variable)
    unknown = [node for node in network.nodes if node not in found]
    if unknown:
        raise ModelError(
            f"the states of {unknown[0]!r} are not declared; give them as `states={{{unknown[0]!r}: [...]}}` or add "
            "a factor with state_names."
        )
    return {node: found[node] for node in network.nodes}


def _refuse_uncovered_edges(network: DiscreteMarkovNetwork, scopes: Sequence[Clique]) -> None:
    """Raise an error if an edge is in no factor."""
    # a factor measures all pairs inside it
    covered = {frozenset(pair) for scope in scopes for pair in combinations(scope, 2)}
    for edge in network.edges:
        if frozenset(edge) not in covered:
            raise ModelError(
                f"the edge {tuple(edge)!r} is in no factor, so its table would not be measured; "
                "add a factor over it or remove the edge."
            )
