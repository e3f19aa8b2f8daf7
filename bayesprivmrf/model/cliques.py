r"""Checks of declared cliques and tied scopes, independences, consistent tables, and potentials of smallest norm.

The declaration of cliques implies that two variables without a common clique are independent, conditional on any set
of variables that separates them in the graph of the cliques. No table contains both variables, so that no measurement
can contradict this. The minimal separators of a pair are listed along the graph, from the first variable to the
second. For example, the joint distribution of the ends of a chain depends on every independence between them.

Tables that agree on their shared margins, and potentials of smallest norm, are found by the same orthogonal
projection. Write each table as a sum of its ANOVA effects,

.. math:: t_C = \sum_{S ⊆ C} e_C^S, \qquad
          e_C^S(x_S) = \sum_{T ⊆ S} (-1)^{|S| - |T|} \bar t_C(x_T),

with :math:`\bar t_C(x_T)` the mean of the table over the other axes. The effects of one table are orthogonal. Tables
agree on every shared margin exactly if :math:`K_{C∖S}\, e_C^S` is the same :math:`m_S` for every clique C that
contains S. This is the effect of the *sum* over ``C \ S``, which has :math:`K_{C∖S}` cells. The weighted
least-squares projection minimizes :math:`\sum_C w_C K_{C∖S} \lVert e_C^S - m_S / K_{C∖S} \rVert^2` separately for
each S. Hence

.. math:: m_S = \sum_C w_C e_C^S \Big/ \sum_C w_C / K_{C∖S}.

Adding potentials that cancel for every x changes no probability. These are exactly the vectors that are orthogonal to
all consistent tables. The projection with unit weights therefore returns the potentials of smallest norm with the
same distribution.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesprivmrf.escapes import printable
from bayesprivmrf.model.domain import Domain, Variable, label_key, listed, require_fit
from bayesprivmrf.model.effects import Effects
from bayesprivmrf.model.tables import Clique, FloatArray, parent

if TYPE_CHECKING:
    import networkx as nx

    from bayesprivmrf.model.specification import ModelSpecification


# denominator of a total where there are no tables
_TINY = float(np.finfo(float).tiny)


def checked_clique(domain: Domain, clique: Any, what: str = "a clique") -> Clique:
    """Return a clique with the declared names of its variables; `what` describes it in errors."""
    variables = tuple(listed(what, clique, f"write ({clique!r},)"))
    require_fit(variables, what, "name at least one variable", "an empty one")
    positions = [domain.index(v) for v in variables]
    require_fit(len({*positions}) == len(positions), what, "name each variable once", variables)
    return tuple(domain.variables[position] for position in positions)


def maximal(cliques: Sequence[Clique]) -> tuple[Clique, ...]:
    """Return the maximal cliques in the given order; the first of equal scopes is kept."""
    scopes = [frozenset(clique) for clique in cliques]
    holders: dict[Variable, list[int]] = {}
    for position, scope in enumerate(scopes):
        for variable in scope:
            holders.setdefault(variable, []).append(position)
    kept: list[Clique] = []
    for position, clique in enumerate(cliques):
        # every clique that contains this one contains its rarest variable
        rivals = min((holders[v] for v in clique), key=len)
        own = scopes[position]
        if not any(
            own < scopes[other] or (own == scopes[other] and other < position) for other in rivals
        ):
            kept.append(clique)
    return tuple(kept)


def checked_ties(
    domain: Domain, cliques: Sequence[Clique], given: Sequence[Any], ties: Any
) -> tuple[tuple[Clique, ...], ...]:
    """Return the groups of tied scopes, with a separate group for each declared scope inside a tied clique.

    Parameters
    ----------
    domain
        The variables.
    cliques
        The maximal cliques of the model.
    given
        All declared scopes.
    ties
        Groups of tied scopes.

    Raises
    ------
    ModelError
        A group is empty, repeats a scope or shares one with another group; its scopes are not declared or have
        different states; or a tied scope lies inside a clique that is not tied.
    """
    groups = [
        [
            checked_clique(domain, scope, "a tied scope")
            for scope in listed("a group of `tied`", group)
        ]
        for group in listed("`tied`", ties)
    ]
    if not groups:
        return ()
    known = {frozenset(scope) for scope in given}
    # a model that is made again from its own fields has these groups of one scope
    known |= {frozenset(group[0]) for group in groups if len(group) == 1}
    seen: set[frozenset[Variable]] = set()
    for group in groups:
        require_fit(group, "a group of `tied`", "hold at least one scope", "an empty one")
        for scope in group:
            is_known = frozenset(scope) in known
            must = "be a declared clique"
            require_fit(is_known, f"the tied scope {scope!r}", must, "none", "add it to `cliques`")
            refuse_other_states(domain, group[0], scope, "tied scopes")
        is_once = len(set(group)) == len(group)
        must = "hold each scope once, as it is written"
        require_fit(is_once, "a group of `tied`", must, group)
        twice = [scope for scope in group if frozenset(scope) in seen]
        must = "hold each scope in one group"
        seen_twice = f"{twice[:1]} in two groups"
        require_fit(not twice, "tied", must, seen_twice, "merge the groups or leave it out of one")
        seen |= set(map(frozenset, group))
    # scopes that share a table; a group of one is a potential inside a tied clique
    several = {frozenset(scope) for group in groups if len(group) > 1 for scope in group}
    kept = [tuple(group) for group in groups if len(group) > 1]
    inner = [scope for scope in given if frozenset(scope) not in several]
    inner += [group[0] for group in groups if len(group) == 1]
    # a scope that was declared and lies only inside tied cliques has a separate potential
    for scope in dict.fromkeys(map(frozenset, inner)):
        holders = [clique for clique in cliques if scope < frozenset(clique)]
        if holders and all(frozenset(clique) in several for clique in holders):
            kept.append((next(tuple(own) for own in inner if frozenset(own) == scope),))
    for group in kept:
        for scope in group:
            free = [c for c in cliques if set(scope) < set(c) and frozenset(c) not in several]
            what = f"the tied scope {scope!r}"
            must = "lie in tied cliques only, or the tie would have no effect"
            above = f"{free[:1]} above it"
            remedy = "tie that clique too, or leave the scope out"
            require_fit(not free, what, must, above, remedy)
    return tuple(kept)


def refuse_other_states(domain: Domain, first: Clique, other: Clique, what: str) -> None:
    """Raise a ModelError unless two scopes have the same states in the same order, axis by axis."""
    states = [[[*map(label_key, domain.states_of(v))] for v in scope] for scope in (first, other)]
    must = "have the same states in the same order, axis by axis as written"
    seen = f"others in {first!r} and {other!r}"
    require_fit(
        states[0] == states[1], what, must, seen, "declare the states alike, or leave one scope out"
    )


def consistent_projection(
    cardinalities: Sequence[int],
    scopes: Sequence[tuple[int, ...]],
    flat: FloatArray,
    *,
    weights: Sequence[float] | None = None,
    total: float | None = None,
) -> FloatArray:
    """Return the nearest tables, by weighted least squares, that agree on every shared margin.

    Parameters
    ----------
    cardinalities
        Number of states of each variable.
    scopes
        Variable positions of each table, in the order of its axes. Scopes may nest or repeat.
    flat
        All cells, table after table in C order, shape (size,).
    weights
        Precision of each table's cells, positive, shape (tables,); equal by default.
    total
        The sum of every table; by default the weighted least-squares estimate.

    Returns
    -------
    ndarray
        The tables in the same layout, shape (size,). Cells may be negative.
    """
    effects = Effects.of(cardinalities, scopes)
    sizes = [math.prod(cardinalities[v] for v in scope) for scope in scopes]
    precision = np.repeat(
        np.ones(len(sizes)) if weights is None else np.asarray(weights, float), sizes
    )
    # tables without effects, of sum one
    even = 1 / np.repeat(np.array(sizes, float), sizes)
    if total is None:
        total = float((precision * even) @ flat) / max(float((precision * even) @ even), _TINY)
    # the numerators and denominators of the coordinates of all m_S
    scale = effects.coordinates(precision * effects.margins(np.ones(effects.size)))
    sums = effects.coordinates(precision * np.asarray(flat, float))
    return total * even + effects.margins(sums / scale)


def minimum_norm_potentials(
    cardinalities: Sequence[int], scopes: Sequence[tuple[int, ...]], potentials: FloatArray
) -> FloatArray:
    """Return the potentials of smallest norm with the same distribution; minus infinity is kept.

    With structural zeros, any number may take the place of minus infinity. The projection then alternates with
    setting these entries to zero, which converges to the smallest norm of the finite potentials.
    """
    finite = np.isfinite(potentials)
    current = consistent_projection(cardinalities, scopes, np.where(finite, potentials, 0.0))
    if not finite.all():
        # every iterate has the same distribution, so that the limit on their number is arbitrary
        for _ in range(500):
            following = consistent_projection(cardinalities, scopes, np.where(finite, current, 0.0))
            settled = np.abs(following - current)[finite].max(initial=0.0) < 1e-10  # nats
            current = following
            if settled:
                break
    return np.where(finite, current, -np.inf)


def declared_independences(model: ModelSpecification, variables: Sequence[int]) -> tuple[str, ...]:
    """Return the independences on which the joint distribution of variables depends; none within one clique.

    Examples
    --------
    >>> from bayesprivmrf.model import Domain, ModelSpecification
    >>> states = {"age": [0, 1], "job": [0, 1], "income": [0, 1]}
    >>> cliques = (("age", "job"), ("job", "income"))
    >>> model = ModelSpecification(domain=Domain.from_states(states), cliques=cliques)
    >>> declared_independences(model, [0, 2])
    ('age ⟂ income | job',)
    """
    if parent(model.scopes, variables) is not None:
        return ()
    import networkx as nx

    graph = nx.Graph()
    graph.add_nodes_from(range(len(model.cardinalities)))
    for scope in model.scopes:
        graph.add_edges_from(combinations(scope, 2))
    names = [printable(str(variable)) for variable in model.domain.variables]

    def listed(positions: Sequence[int]) -> str:
        return ", ".join(names[v] for v in sorted(positions))

    apart = [pair for pair in combinations(variables, 2) if not graph.has_edge(*pair)]
    whole = nx.find_cliques(graph.subgraph(variables))
    return (
        *(
            f"{names[a]} ⟂ {names[b]}{(separator and f' | {listed(separator)}') or ''}"
            for a, b in apart
            for separator in _separators(graph, a, b)
        ),
        *(
            text
            for together in whole
            if parent(model.scopes, together) is None
            for text in _omitted(model, together, listed)
        ),
    )


# Interactions of one set of variables that are named one by one; a longer list says less than one sentence
_MOST_NAMED = 10


def _omitted(
    model: ModelSpecification, together: Sequence[int], listed: Callable[[Sequence[int]], str]
) -> list[str]:
    """Name the smallest interactions of variables, each pair of which shares a clique, that lie in no clique."""
    found: list[set[int]] = []
    for size in range(3, len(together) + 1):
        for subset in map(set, combinations(sorted(together), size)):
            is_named = any(other <= subset for other in found)
            if not is_named and parent(model.scopes, tuple(subset)) is None:
                found.append(subset)
            if len(found) > _MOST_NAMED:
                return [f"no interaction of {listed(together)} beyond the declared cliques"]
    return [f"no interaction of {listed(sorted(subset))} all together" for subset in found]


def _separators(graph: nx.Graph, a: Hashable, b: Hashable) -> Iterator[list[int]]:
    """Yield minimal separators of two nodes, beginning at the first node; an empty one if there is no path."""
    import networkx as nx

    near = {a}
    border = set(graph[a])
    while b not in border:
        behind = nx.node_connected_component(graph.subgraph(set(graph) - near - border), b)
        separator = [v for v in border if not behind.isdisjoint(graph[v])]
        yield separator
        if not separator:
            return
        near = set(graph) - behind
        border = {v for s in separator for v in graph[s]} & behind
