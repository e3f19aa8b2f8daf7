"""Declared models: a domain, cliques, structural zeros and relations of potentials."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesprivmrf.checks import bare_array, finite, require, truth
from bayesprivmrf.errors import DeclarationWarning, ModelError, ModelTooLargeError, warn_caller
from bayesprivmrf.model.cliques import checked_clique, checked_ties, maximal
from bayesprivmrf.model.contrast_parts import Level, Scores, checked_levels, checked_scores
from bayesprivmrf.model.domain import (
    Domain,
    Label,
    Variable,
    asked_positions,
    checked_domain,
    listed,
    require_fit,
)
from bayesprivmrf.model.tables import Clique, CliqueTables, FloatArray, parent, project

if TYPE_CHECKING:
    from pgmpy.models import DiscreteMarkovNetwork

# Largest number of cells of one measured table: 800 MB of 64-bit counts
LARGEST_TABLE = 10**8


class NotTogetherError(ModelError):
    """Error for variables that no clique holds together."""


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ModelSpecification:
    r"""Structure of a Markov random field, without parameters.

    The distribution is

    .. math:: p(x; θ) = \exp\Bigl(\sum_{C} θ_C(x_C) - A(θ)\Bigr)

    with the cliques C of the model. Impossible cells have :math:`θ_C = -∞`.

    `cliques` are the tables, measured and modeled together: they hold all measured scopes and all cliques of the
    model. Where the model is smaller than these tables, `interactions` are its own cliques. `believed` is the model
    by itself, which a solution has.

    Parameters
    ----------
    domain
        Variables and states.
    cliques
        Scopes of the tables. A scope that repeats another or lies inside it is dropped.
    impossible
        Structural zeros: partial assignments ``{variable: state}`` that cannot occur. Each lies inside a clique.
    cliques_declared
        False if only variables were declared, so that a mechanism learns the couplings.
    ties
        Groups of scopes that share one table of potentials, axis by axis as written (`bayesprivmrf.model.ties`). A
        group of one scope is a separate potential inside a tied clique.
    shares_transitions
        True if the consecutive cliques of a chain share their transition probabilities instead of their potentials
        (`markov_chain`).
    ordinal
        Variables whose interactions depend on scores of their states (`bayesprivmrf.model.contrast_parts`).
    levels
        Partitions of a variable's states into nested areas. The effects of each level have their own prior scale.
    waves
        A variable that distinguishes the waves of a survey. Cliques include it, so that each wave has its own tables.
        It interacts with no other variable, so that all waves share one model.
    interactions
        Cliques of the distribution, where it is smaller than the tables. Each lies inside one of `cliques`, and
        potentials depend on no other set of variables. None where they are the cliques themselves.

    Raises
    ------
    ModelError
        A clique is empty, repeats a variable, or names an undeclared variable; a variable is in no clique; an
        impossible assignment lies in no clique, or every cell of a clique is impossible; or tied scopes have
        different states, or lie inside a clique that is not tied.
    ModelTooLargeError
        A clique's table has more than 10^8 cells.

    Examples
    --------
    >>> domain = Domain.from_states({"smokes": ["no", "yes"], "ill": ["no", "yes"]})
    >>> ModelSpecification(domain=domain, cliques=(("smokes", "ill"), ("ill",)))
    ModelSpecification(2 variables, 1 cliques, 4 cells)
    """

    domain: Domain
    cliques: tuple[Clique, ...]
    impossible: tuple[tuple[tuple[Variable, Label], ...], ...] = ()
    cliques_declared: bool = True
    ties: tuple[tuple[Clique, ...], ...] = ()
    shares_transitions: bool = False
    ordinal: tuple[Scores, ...] = ()
    levels: tuple[Level, ...] = ()
    waves: Variable | None = None
    interactions: tuple[Clique, ...] | None = None

    def __post_init__(self) -> None:
        domain = checked_domain(self.domain)
        truth("cliques_declared", self.cliques_declared)
        given = [checked_clique(domain, clique) for clique in listed("`cliques`", self.cliques)]
        object.__setattr__(self, "cliques", maximal(given))
        # every variable must be in a measured table
        covered = {variable for clique in self.cliques for variable in clique}
        for variable in self.domain.variables:
            what = f"the variable {variable!r}"
            remedy = f"add the clique ({variable!r},) to measure it by itself"
            require_fit(variable in covered, what, "be in a clique", "none", remedy)
        for clique, shape in zip(self.cliques, self.shapes, strict=True):
            seen = f"{math.prod(shape):,} cells"
            remedy = "declare smaller cliques or merge states"
            must = f"have at most {LARGEST_TABLE:,} cells"
            is_small = math.prod(shape) <= LARGEST_TABLE
            require(
                is_small, f"the table of {clique!r}", must, seen, remedy, error=ModelTooLargeError
            )
        zeros = listed("`impossible`", self.impossible)
        assignments = tuple(_checked_assignment(self, given) for given in zeros)
        object.__setattr__(self, "impossible", tuple(dict.fromkeys(assignments)))
        object.__setattr__(self, "interactions", self._checked_interactions())
        if self.interactions is None:
            believed = self.cliques
        else:
            believed = self.interactions
            given = [*self.interactions]
        object.__setattr__(self, "ties", checked_ties(domain, believed, given, self.ties))
        object.__setattr__(self, "ordinal", checked_scores(domain, self.ordinal))
        object.__setattr__(self, "levels", checked_levels(domain, self.levels))
        self._refuse_mixed_parts()
        possible = self.possible
        if possible is not None:
            for clique, (start, stop) in zip(self.cliques, pairwise(self.offsets), strict=True):
                if not possible[start:stop].any():
                    raise ModelError(
                        f"every cell of {clique!r} is declared impossible; leave at least one."
                    )

    def _checked_interactions(self) -> tuple[Clique, ...] | None:
        """Return the maximal interactions; None if they are the cliques."""
        if self.interactions is None:
            return None
        given = [checked_clique(self.domain, own) for own in self.interactions]
        kept = maximal(given)
        missing = set(self.domain.variables) - {v for own in kept for v in own}
        must = "have every variable in an interaction"
        remedy = "add the variable by itself"
        require_fit(not missing, "a model", must, f"{sorted(map(str, missing))} in none", remedy)
        for own in kept:
            is_inside = any(set(own) <= set(clique) for clique in self.cliques)
            require_fit(is_inside, f"the interaction {own!r}", "lie inside a clique", "none")
        if set(map(frozenset, kept)) == set(map(frozenset, self.cliques)):
            return None
        return kept

    @cached_property
    def believed(self) -> ModelSpecification:
        """The model of the interactions, whose cliques they are; itself if all cliques are modeled."""
        if self.interactions is None:
            return self
        return replace(self, cliques=self.interactions, interactions=None)

    @cached_property
    def cardinalities(self) -> tuple[int, ...]:
        """Number of states of each variable, in domain order."""
        return self.domain.cardinalities

    @cached_property
    def scopes(self) -> tuple[tuple[int, ...], ...]:
        """Variable positions of each clique, in the clique's order."""
        return tuple(tuple(self.domain.index(v) for v in clique) for clique in self.cliques)

    @cached_property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shape of each clique's table."""
        return CliqueTables.shapes_of(self.domain, self.cliques)

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        """Position of each table's first cell in the flat view, and the total size last."""
        return CliqueTables.offsets_of(self.domain, self.cliques)

    @property
    def size(self) -> int:
        """Number of cells of all tables together."""
        return self.offsets[-1]

    @cached_property
    def possible(self) -> np.ndarray | None:
        """Boolean mask of the cells that can occur, shape (size,); None if all can."""
        if not self.impossible:
            return None
        mask = np.ones(self.size, dtype=bool)
        for assignment in self.impossible:
            fixed = dict(assignment)
            for position, clique in enumerate(self.cliques):
                if fixed.keys() <= set(clique):
                    start, stop = self.offsets[position : position + 2]
                    # a view of the flat mask, which is set through it
                    cells = mask[start:stop].reshape(self.shapes[position])
                    codes = {v: self.domain.code(v, fixed[v]) for v in fixed}
                    cells[tuple(codes.get(v, slice(None)) for v in clique)] = False
        mask.flags.writeable = False
        return mask

    def tables(self, flat: Any) -> CliqueTables:
        """Return tables of this model from their flat view, shape (size,)."""
        return CliqueTables(domain=self.domain, cliques=self.cliques, flat=bare_array("flat", flat))

    def positions_of(self, variables: Any) -> tuple[list[Variable], list[int]]:
        """Return the declared names and the positions of one variable or of several.

        Raises
        ------
        ModelError
            No variable is named, or a variable is unknown or repeated.
        """
        if hasattr(variables, "bind"):  # a query
            must = f"be names of variables here, got the query {variables!r}"
            remedy = "`interval` of a posterior (`LatentCounts`) takes queries"
            raise ModelError(f"`variables` must {must}; {remedy}.")
        query = asked_positions(self.domain, variables)
        return [self.domain.variables[v] for v in query], query

    @cached_property
    def _holders(self) -> list[list[int]]:
        """Positions of the cliques that contain each variable, ascending."""
        holders: list[list[int]] = [[] for _ in self.domain.variables]
        for position, members in enumerate(self.scopes):
            for v in members:
                holders[v].append(position)
        return holders

    def parent(self, scope: Sequence[int]) -> int:
        """Return the position of the first clique that contains all variables of a scope.

        Raises
        ------
        ModelError
            No clique contains all of them.
        """
        near = min((self._holders[v] for v in scope), key=len, default=range(len(self.scopes)))
        home = next(
            (position for position in near if set(scope).issubset(self.scopes[position])), None
        )
        if home is None:
            names = tuple(self.domain.variables[v] for v in scope)
            raise NotTogetherError(
                f"the variables {names!r} are together in no clique; add one over them."
            )
        return home

    def project(self, flat: np.ndarray, scope: Sequence[int]) -> np.ndarray:
        """Return the table of a scope, summed from the first clique that contains it.

        Parameters
        ----------
        flat
            Flat view of all tables, shape (..., size).
        scope
            Variable positions, in the order of the result's axes.

        Returns
        -------
        ndarray
            The table, shape (..., K_v for v in scope).
        """
        home = self.parent(scope)
        start, stop = self.offsets[home : home + 2]
        table = flat[..., start:stop].reshape(*flat.shape[:-1], *self.shapes[home])
        return project(table, self.scopes[home], scope)

    def on_interactions(self, flat: np.ndarray) -> np.ndarray:
        """Return the tables of the interactions, summed from those of the cliques that hold them.

        Shapes are (..., size) and (..., size of `believed`).
        """
        own = self.believed
        if own is self:
            return flat
        lead = flat.shape[:-1]
        parts = [np.zeros((*lead, 0))]
        for scope, shape in zip(own.scopes, own.shapes, strict=True):
            parts.append(self.project(flat, scope).reshape(*lead, math.prod(shape)))
        return np.concatenate(parts, axis=-1)

    @classmethod
    def from_pgmpy(
        cls,
        network: DiscreteMarkovNetwork | ModelSpecification,
        states: Mapping[Variable, Any] | None = None,
    ) -> ModelSpecification:
        """Return the specification of a pgmpy network.

        Parameters
        ----------
        network
            The network. The scopes of its factors are the measured tables; a scope inside another is dropped. The
            values of the factors are ignored, including zeros. In a network without factors, each edge has a table,
            and so has each isolated node. Structural zeros are those that were given to `declare`.
        states
            States of each variable, in order. They are required for a network without factors, and must otherwise
            agree with the states of the factors.

        Raises
        ------
        ModelError
            States conflict or are missing, or an edge is in no factor.
        """
        from bayesprivmrf.model.pgmpy_networks import read_network

        return read_network(network, states)

    def to_pgmpy(
        self,
        potentials: CliqueTables | FloatArray | None = None,
        *,
        log_partition: float | None = None,
    ) -> DiscreteMarkovNetwork:
        r"""Return the pgmpy network with one factor for each clique, proportional to :math:`\exp θ_C`.

        The potentials are first replaced by the equivalent potentials of smallest norm, so that large potentials that
        cancel do not make the factors underflow.

        Parameters
        ----------
        potentials
            θ, nats; zero by default, so that the factors are 1.
        log_partition
            A(θ), if it is known. The product of the factors is then the probability, so that queries of pgmpy need no
            normalization. Otherwise the largest value of each factor is 1.
        """
        from bayesprivmrf.model.pgmpy_networks import write_network

        if log_partition is None:
            known = None
        else:
            known = finite("log_partition", log_partition)
        return write_network(self, potentials, known)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ModelSpecification):
            return NotImplemented
        return self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    @property
    def _identity(self) -> tuple[Any, ...]:
        possible = self.possible
        if possible is None:
            zeros = None
        else:
            zeros = possible.tobytes()
        return (
            self.domain,
            self.cliques,
            zeros,
            self.cliques_declared,
            self.sharing,
            self.interactions,
        )

    @property
    def sharing(self) -> tuple[Any, ...]:
        """The relations between potentials: ties, scores and levels."""
        return self.ties, self.shares_transitions, self.ordinal, self.levels, self.waves

    @property
    def is_restricted(self) -> bool:
        """True if the potentials are tied, restricted by scores or to interactions, or the same in all waves."""
        return (
            bool(self.ties)
            or self.interactions is not None
            or self.waves is not None
            or any(not one.is_smooth for one in self.ordinal)
        )

    def _refuse_mixed_parts(self) -> None:
        """Raise an error if scores or levels are combined with other relations that exclude them."""
        scores = {one.variable: (one.values, one.is_smooth) for one in self.ordinal}
        for level in self.levels:
            must = "have either scores or levels"
            seen = "it in `ordinal` and in `levels`"
            require_fit(level.variable not in scores, f"{level.variable!r}", must, seen)
        both = bool(self.ties and self.levels)
        require_fit(not both, "a model", "have either ties or levels", "both `tied` and `levels`")
        must = "be declared with share='potentials', or without `ordinal`"
        seen = "shared transitions"
        is_free = not (self.shares_transitions and self.ordinal)
        require_fit(is_free, "a chain with ordinal scores", must, seen)
        for group in self.ties:
            is_once = not scores or len(set(map(frozenset, group))) == len(group)
            must = "use one table with its axes in one order beside `ordinal`"
            remedy = "leave one of the scopes out"
            require_fit(is_once, "tied scopes", must, f"both orders in {group!r}", remedy)
            for axis in zip(*group, strict=True):
                must = "be all or none in `ordinal`, with the same scores, because they share an axis of a tied table"
                is_alike = len({scores.get(variable) for variable in axis}) <= 1
                require_fit(is_alike, f"the variables {axis!r}", must, "others")

    def __repr__(self) -> str:
        if self.impossible:
            zeros = f", {len(self.impossible)} structural zeros"
        else:
            zeros = ""
        if self.ties:
            zeros += ", shared transitions" if self.shares_transitions else ", tied potentials"
        zeros += ", ordinal scores" if self.ordinal else ""
        zeros += ", levels of areas" if self.levels else ""
        if self.interactions is not None:
            zeros += f", {len(self.interactions)} interactions"
        counts = f"{len(self.domain.variables)} variables, {len(self.cliques)} cliques, {self.size} cells"
        return f"ModelSpecification({counts}{zeros})"


def over_scopes(model: ModelSpecification, scopes: Iterable[Clique]) -> ModelSpecification:
    """Return a model over the tables that hold its cliques and other measured scopes too.

    The model that is believed stays the same. If every scope lies in a clique, the given model is the result.

    Raises
    ------
    ModelTooLargeError
        The table of a scope has more than 10^8 cells.

    Examples
    --------
    >>> domain = Domain.from_states({"a": [0, 1], "b": [0, 1], "c": [0, 1]})
    >>> model = ModelSpecification(domain=domain, cliques=(("a", "b"), ("b", "c")))
    >>> measured = over_scopes(model, [("b",), ("a", "c")])
    >>> measured.cliques, measured.interactions
    ((('a', 'b'), ('b', 'c'), ('a', 'c')), (('a', 'b'), ('b', 'c')))
    """
    together = maximal((*model.cliques, *scopes))
    if set(map(frozenset, together)) == set(map(frozenset, model.cliques)):
        return model
    return replace(model, cliques=together, interactions=model.interactions or model.cliques)


def warn_of_dropped(model: ModelSpecification, given: Iterable[Iterable[Variable]]) -> None:
    """Warn about declared cliques that lie inside others, and are therefore not measured separately."""
    own = {
        frozenset(group[0]) for group in model.ties if len(group) == 1
    }  # potentials inside tied cliques
    wanted = [tuple(clique) for clique in given if frozenset(clique) not in own]
    kept = {frozenset(clique) for clique in model.cliques}
    once = {
        frozenset(clique): clique for clique in reversed(wanted) if frozenset(clique) not in kept
    }
    nested = [
        f"{clique!r} lies inside {model.cliques[home]!r}"
        for clique in once.values()
        if (home := parent(model.cliques, clique)) is not None
    ]
    if nested:
        warn_caller(
            f"{len(model.cliques)} tables are measured of {len(wanted)} cliques: {'; '.join(nested)}. A clique "
            "inside another adds nothing to the model and is not measured separately; leave it out.",
            DeclarationWarning,
        )


def _checked_assignment(
    model: ModelSpecification, assignment: Iterable[tuple[Variable, Label]]
) -> tuple[tuple[Variable, Label], ...]:
    """Return an assignment with declared names and labels in domain order, after a check that a clique covers it."""
    try:
        named_pairs = [(variable, label) for variable, label in assignment]
    except (TypeError, ValueError):
        seen = f"a {type(assignment).__name__}"
        raise ModelError(
            f"an impossible assignment must be pairs (variable, state), got {seen}."
        ) from None
    pairs = sorted((model.domain.index(v), model.domain.code(v, label)) for v, label in named_pairs)
    named = tuple((model.domain.variables[p], model.domain.states[p][code]) for p, code in pairs)
    scope = {variable for variable, _ in named}
    must = "name at least one variable, and lie in a clique"
    seen = dict(named)
    is_inside = scope and any(scope <= set(clique) for clique in model.cliques)
    require_fit(
        is_inside, "an impossible assignment", must, seen, "add a clique over its variables"
    )
    return named
