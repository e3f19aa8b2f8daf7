"""Learned pairwise models: an Ising model for variables with two states, and tables for any number of states."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from bayesprivmrf.cards import marked
from bayesprivmrf.errors import ModelError
from bayesprivmrf.learning.models.base import LearnedNetwork
from bayesprivmrf.learning.models.pairs import LearnedPairs, pair_arrays
from bayesprivmrf.model import Domain
from bayesprivmrf.model.domain import Variable
from bayesprivmrf.model.effects import Effects
from bayesprivmrf.model.tables import FloatArray, labelled, plain_array

if TYPE_CHECKING:
    import xarray as xr


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class LearnedIsing(LearnedPairs):
    r"""A learned Ising model, :math:`P(x) \propto \exp(\tfrac12 x^\top A x + h^\top x)`.

    The first declared state of a variable is -1, the second +1. The parameters of `LearnedNetwork` come first.

    Parameters
    ----------
    coupling_matrix
        Couplings A, nats, shape (p, p), symmetric with zero diagonal.
    field_vector
        Fields h, nats, shape (p,).

    Raises
    ------
    ModelError
        A variable does not have two states, or the arrays have the wrong shape, are not finite, or A is not symmetric
        with zero diagonal.

    Examples
    --------
    A mechanism such as `SelectMeasure` makes these models. One made by hand has the same methods.

    >>> from bayesprivmrf.learning import LearnedIsing
    >>> from bayesprivmrf.model import Domain
    >>> from bayesprivmrf.privacy import PrivacyGuarantee
    >>> from bayesprivmrf.release import Provenance
    >>> learned = LearnedIsing(
    ...     domain=Domain.from_states({"a": ["no", "yes"], "b": ["no", "yes"]}),
    ...     guarantee=PrivacyGuarantee(rho=1.0, adjacency="replace-one"),
    ...     provenance=Provenance(mechanism="example"),
    ...     coupling_matrix=[[0.0, 0.5], [0.5, 0.0]],
    ...     field_vector=[0.0, -0.2],
    ... )
    >>> float(learned.couplings.sel(variable="a", other="b"))
    0.5
    >>> list(learned.graph(threshold=0.1).edges)
    [('a', 'b')]
    >>> round(float(learned.solution.marginal(["b"], given={"a": "yes"}).sel(b="yes")), 3)
    0.646
    """

    kind = "learned-ising"
    # spins of the first and the second state
    _profile: ClassVar[FloatArray] = np.array([-1.0, 1.0])
    graph_heading = "Largest couplings"
    has_signs = True

    def __post_init__(self) -> None:
        if any(states != 2 for states in self.domain.cardinalities):
            raise ModelError(
                "an Ising model must have two states a variable; use a pairwise model for more."
            )
        super().__post_init__()

    @cached_property
    def couplings(self) -> xr.DataArray:
        """Couplings A, nats, labeled by the dimensions ``variable`` and ``other``."""
        return self._labelled(self.coupling_matrix, ("variable", "other"), "couplings")

    @cached_property
    def fields(self) -> xr.DataArray:
        """Fields h, nats, labeled by the dimension ``variable``."""
        return self._labelled(self.field_vector, ("variable",), "fields")

    def _labelled(self, values: FloatArray, dims: tuple[str, ...], name: str) -> xr.DataArray:
        import xarray as xr

        coords = dict.fromkeys(dims, plain_array(self.domain.variables))
        return marked(
            xr.DataArray(values, dims=dims, coords=coords, name=name), self.provenance.simulated
        )


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class LearnedPairwise(LearnedPairs):
    r"""A learned pairwise model, :math:`P(x) \propto \exp(\sum_{i<j} W_{ij}(x_i, x_j) + \sum_i \theta_i(x_i))`.

    Tables are centered: each row and column of :math:`W_{ij}`, and each :math:`\theta_i`, sums to 0. The parameters
    of `LearnedNetwork` come first. K is the number of states of all variables, in declared order.

    Parameters
    ----------
    coupling_matrix
        All tables :math:`W_{ij}`, nats, shape (K, K), symmetric, with zero blocks on the diagonal.
    field_vector
        All fields :math:`\theta_i`, nats, shape (K,).

    Raises
    ------
    ModelError
        The arrays have the wrong shape, are not finite, or are not symmetric and centered.

    Examples
    --------
    >>> import numpy as np
    >>> from bayesprivmrf.learning import LearnedPairwise
    >>> from bayesprivmrf.model import Domain
    >>> from bayesprivmrf.privacy import PrivacyGuarantee
    >>> from bayesprivmrf.release import Provenance
    >>> matrix = np.zeros((5, 5))
    >>> matrix[:2, 2:] = [[-0.4, 0.0, 0.4], [0.4, 0.0, -0.4]]
    >>> learned = LearnedPairwise(
    ...     domain=Domain.from_states({"a": ["no", "yes"], "b": ["low", "mid", "high"]}),
    ...     guarantee=PrivacyGuarantee(rho=1.0, adjacency="replace-one"),
    ...     provenance=Provenance(mechanism="example"),
    ...     coupling_matrix=matrix + matrix.T,
    ...     field_vector=np.zeros(5),
    ... )
    >>> float(learned.couplings["a", "b"].sel(a="yes", b="low"))
    0.4
    """

    kind = "learned-pairwise"

    def __post_init__(self) -> None:
        super().__post_init__()
        W = self.coupling_matrix
        theta = self.field_vector
        sums = np.add.reduceat(np.column_stack([W, theta]), self.starts[:-1], axis=0)
        scale = max(np.abs(W).max(initial=0.0), np.abs(theta).max(initial=0.0))
        # rounding of row sums is below 1e-12 of the largest entry
        if np.abs(sums).max(initial=0.0) > 1e-9 * theta.size * scale:
            raise ModelError(
                "`coupling_matrix` and fields must be centred: each row of a table sums to 0."
            )

    @property
    def couplings(self) -> Mapping[tuple[Variable, Variable], xr.DataArray]:
        """Tables of the couplings, nats, by pair of variables in either order; iteration yields each pair once."""
        return _Couplings(self)

    @cached_property
    def fields(self) -> Mapping[Variable, xr.DataArray]:
        """Fields by variable, nats, each labeled by its states."""
        named = zip(self.domain.variables, self.field_tables(), strict=True)
        tables = {v: labelled(self.domain, (v,), part, "fields") for v, part in named}
        return {v: marked(table, self.provenance.simulated) for v, table in tables.items()}

    def standard_noise(self, generator: np.random.Generator) -> FloatArray:
        """Return standard normal numbers of the vector's shape, centered like the tables."""
        same = self._owner[:, None] == self._owner
        centring = np.eye(self._owner.size) - same / same.sum(axis=1)
        matrix = centring @ generator.standard_normal(same.shape) @ centring
        return self.flat(matrix, centring @ generator.standard_normal(self._owner.size))

    def _row_labels(self) -> dict[str, list[Any]]:
        named = zip(self.domain.variables, self.domain.states, strict=True)
        rows = [(variable, state) for variable, states in named for state in states]
        return {"variable": [v for v, _ in rows], "state": [state for _, state in rows]}


class _Couplings(Mapping[tuple[Any, Any], Any]):
    """Tables of a learned pairwise model by pair of variables."""

    def __init__(self, learned: LearnedPairwise) -> None:
        self._learned = learned

    def __getitem__(self, pair: tuple[Variable, Variable]) -> xr.DataArray:
        domain: Domain = self._learned.domain
        try:
            first, second = (domain.index(variable) for variable in pair)
        except (TypeError, ValueError):
            raise KeyError(pair) from None
        if first == second:
            raise KeyError(pair)
        names = domain.variables[first], domain.variables[second]
        table = labelled(domain, names, self._learned.block(first, second), "couplings")
        return marked(table, self._learned.provenance.simulated)

    def __iter__(self) -> Iterator[tuple[Variable, Variable]]:
        names = self._learned.domain.variables
        return ((names[i], names[j]) for i in range(len(names)) for j in range(i + 1, len(names)))

    def __len__(self) -> int:
        p = len(self._learned.domain.variables)
        return p * (p - 1) // 2


class AsPairs(LearnedNetwork):
    """Abstract model of cliques of any size, which has couplings and fields where no clique has three variables."""

    @property
    def couplings(self) -> xr.DataArray | Mapping[tuple[Variable, Variable], xr.DataArray]:
        """Couplings of a pairwise model, in the form of `LearnedIsing` if all variables have two states.

        Otherwise they have the form of `LearnedPairwise`.

        Raises
        ------
        ModelError
            A clique has more than two variables, or cells are impossible.
        """
        return self._as_pairs.couplings

    @property
    def fields(self) -> xr.DataArray | Mapping[Variable, xr.DataArray]:
        """Fields of a pairwise model, in the form of `couplings`.

        Raises
        ------
        ModelError
            A clique has more than two variables, or cells are impossible.
        """
        return self._as_pairs.fields

    @cached_property
    def _as_pairs(self) -> LearnedIsing | LearnedPairwise:
        model = self.specification
        largest = max(map(len, model.scopes))
        if largest > 2 or model.possible is not None:
            if largest > 2:
                seen = f"a clique of {largest} variables"
            else:
                seen = "impossible cells"
            raise ModelError(
                f"`couplings` and `fields` need a pairwise model without impossible cells, got {seen}; use "
                "`potentials`, which has one table for each clique, or `graph()`."
            )
        effects = Effects.of(model.cardinalities, model.scopes)
        A, h = pair_arrays(effects, effects.coordinates(self.potentials.flat))
        if all(states == 2 for states in model.cardinalities):
            form = LearnedIsing
        else:
            form = LearnedPairwise
        return form(
            domain=self.domain,
            guarantee=self.guarantee,
            provenance=self.provenance,
            coupling_matrix=A,
            field_vector=h,
        )
