"""Between pgmpy's networks and this package's specifications: the only file that knows pgmpy's classes."""

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

# Prefix of what a declaration keeps in a network's `graph` attribute
_PREFIX = "bayesprivmrf_"
# Fields of a model that its network keeps in its `graph` attribute: always, and where they say something.
_WRITTEN, _WRITTEN_IF_ANY = (
    ("cliques_declared", "impossible"),
    ("ties", "shares_transitions", "ordinal", "levels"),
)
# Largest exponent of a factor's scale, nats; e^709 overflows
_LARGEST_EXPONENT = 600.0


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
        Each variable's states, in order. Any hashable labels; the order is kept everywhere.
    cliques
        The scopes whose tables are to be measured. ``None`` declares the variables alone, for mechanisms that
        learn the couplings.
    impossible
        Structural zeros: assignments such as ``{"sex": "male", "pregnant": "yes"}`` that cannot occur, each
        inside a clique.
    tied
        Groups of cliques that share one table of potentials, such as ``[[("m1", "m2"), ("m2", "m3")]]``: axis by
        axis as written, over the same states in the same order. A clique that lies inside a tied one keeps a
        potential of its own.
    ordinal
        Variables whose states are ordered: their interactions are linear in scores, 0, 1, 2, ... or the numbers
        given for a variable, such as ``{"age": [25, 45, 70]}``, so that two ordered variables have one parameter.
        The numbers stand in the order of the states, or in a mapping or Series by state.
        ``{"age": "smooth"}`` keeps the rest of the interaction, with a learned scale of its own.
    levels
        Larger areas that the states of a variable make up, from the coarsest level to the finest:
        ``{"block": {"tract": {"T1": ["B1", "B2"], "T2": ["B3"]}}}``. The effects of each level have a learned scale
        of their own.

    Warns
    -----
    DeclarationWarning
        A clique lies inside another, and so is not measured by itself.

    Returns
    -------
    pgmpy.models.DiscreteMarkovNetwork
        The network, with one unit factor a clique. A structural zero has value 0 there, and is remembered in the
        network's ``graph`` attribute: zeros that a fit has put into factors are never taken for declared ones.

    Raises
    ------
    ModelError
        The declaration is inconsistent; the message says where.

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
            "the network's factors hold zeros, which are not taken for structural zeros: pass them to "
            "declare(..., impossible=[...]) if they are public knowledge (pgmpy's copy() forgets them).",
            DeclarationWarning,
            stacklevel=3,
        )
    # zeros never from the factors' values: a network fitted to the data has one wherever the data has
    held = {name: network.graph.get(_PREFIX + name) for name in (*_WRITTEN, *_WRITTEN_IF_ANY)}
    known = {name: value for name, value in held.items() if value is not None}
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
    held = [*_WRITTEN, *(name for name in _WRITTEN_IF_ANY if getattr(model, name))]
    network.graph |= {_PREFIX + name: getattr(model, name) for name in held}
    return network


def _factor_values(
    model: ModelSpecification, potentials: CliqueTables | FloatArray | None, log_partition: float | None
) -> list[FloatArray]:
    """Return flat factors: 1 and 0 for a declaration, else of largest value 1, or multiplying to probabilities."""
    blocks = list(pairwise(model.offsets))
    if potentials is None:
        unit = np.ones(model.size) if model.possible is None else model.possible.astype(float)
        return [unit[start:stop] for start, stop in blocks]
    given = model.tables(potentials.flat if isinstance(potentials, CliqueTables) else potentials).flat
    # in this gauge large potentials that cancel do not underflow
    flat = minimum_norm_potentials(model.cardinalities, model.scopes, given.astype(float))
    tables = [flat[start:stop] for start, stop in blocks]
    tops = [float(table.max()) for table in tables]
    share = 0.0 if log_partition is None or not tops else (sum(tops) - log_partition) / len(tops)
    if abs(share) > _LARGEST_EXPONENT:  # the factors could not hold it; queries then need normalising
        share = 0.0
    return [np.exp(table - top + share) for table, top in zip(tables, tops, strict=True)]


def network_potentials(model: ModelSpecification, network: DiscreteMarkovNetwork) -> CliqueTables:
    """Return the log factors of a pgmpy network, each added to a clique of the model that holds its scope.

    Raises
    ------
    ModelError
        A factor's value is negative or not a number, or its scope is in no clique.
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
    """Import DiscreteFactor and DiscreteMarkovNetwork (seconds).

    ``from pgmpy.inference import VariableElimination``, the next line of many users, warns of a module of pgmpy that
    nobody asked for: that warning, and no other, is silenced for the process.
    """
    from pgmpy.factors.discrete import DiscreteFactor
    from pgmpy.models import DiscreteMarkovNetwork

    about = r"`pgmpy\.estimators\.StructureScore` is deprecated"
    warnings.filterwarnings("ignore", about, FutureWarning)
    return DiscreteFactor, DiscreteMarkovNetwork


def _refuse_what_pgmpy_merges(domain: Domain) -> None:
    """Raise where names or labels differ only as True from 1, which a pgmpy network cannot hold."""
    for labels in (domain.variables, *domain.states):
        if len(set(labels)) != len(labels):
            raise ModelError(
                f"pgmpy takes True and 1 (False and 0) for one label, got {list(labels)!r}; rename one of them."
            )


def _gathered_states(
    network: DiscreteMarkovNetwork, factors: Sequence[Any], states: Mapping[Variable, Any] | None
) -> dict[Variable, tuple[Label, ...]]:
    """Return the states of every node, from the factors and `states`, in node order; conflicts are errors."""
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
            f"the states of {unknown[0]!r} are declared nowhere; give them as "
            f"`states={{{unknown[0]!r}: [...]}}` or add a factor with state_names."
        )
    return {node: found[node] for node in network.nodes}


def _refuse_uncovered_edges(network: DiscreteMarkovNetwork, scopes: Sequence[Clique]) -> None:
    # a factor measures the pairs inside it
    covered = {frozenset(pair) for scope in scopes for pair in combinations(scope, 2)}
    for edge in network.edges:
        if frozenset(edge) not in covered:
            raise ModelError(
                f"the edge {tuple(edge)!r} is in no factor, so its table would not be measured; "
                "add a factor over it or remove the edge."
            )
