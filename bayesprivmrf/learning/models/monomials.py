"""Learned t-wise models: coefficients of products of two-state variables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from bayesprivmrf.checks import require
from bayesprivmrf.errors import ModelError
from bayesprivmrf.files import Json
from bayesprivmrf.learning.models.maps import (
    common_content,
    map_content,
    restored_fields,
    statistics_size,
)
from bayesprivmrf.learning.models.pairwise import AsPairs
from bayesprivmrf.learning.models.parameters import Entry
from bayesprivmrf.model import CliqueTables, ModelSpecification
from bayesprivmrf.model.effects import Effects
from bayesprivmrf.model.monomials import Monomials
from bayesprivmrf.model.tables import FloatArray
from bayesprivmrf.release.codec import (
    Fields,
    details_content,
    domain_content,
    numbers,
    positions,
    restored_domain,
)

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class LearnedMonomials(AsPairs):
    r"""A learned binary t-wise model, :math:`P(x) \propto \exp \sum_I h_I \prod_{i \in I} x_i`.

    The first declared state of a variable is -1, the second +1. Coefficients of single variables are fields, those of
    pairs couplings. The parameters of `LearnedNetwork` come first.

    Parameters
    ----------
    sets
        The sets I, closed under subsets.
    coefficients
        Coefficients h, nats, shape (K,). The first belongs to the empty set; it has no effect and is set to 0.

    Raises
    ------
    ModelError
        A variable does not have two states, or the coefficients do not fit the sets or are not finite.

    Examples
    --------
    >>> from bayesprivmrf.learning import LearnedMonomials
    >>> from bayesprivmrf.model import Domain
    >>> from bayesprivmrf.model.monomials import Monomials
    >>> from bayesprivmrf.privacy import PrivacyGuarantee
    >>> from bayesprivmrf.release import Provenance
    >>> learned = LearnedMonomials(
    ...     domain=Domain.from_states({v: ["no", "yes"] for v in "abc"}),
    ...     guarantee=PrivacyGuarantee(rho=1.0, adjacency="replace-one"),
    ...     provenance=Provenance(mechanism="example"),
    ...     sets=Monomials.complete(3, 3),
    ...     coefficients=[0.0, 0.1, 0.2, -0.3, 0.5, 0.0, 0.0, -0.2],
    ... )
    >>> float(learned.monomials["a", "b", "c"])
    -0.2
    """

    sets: Monomials
    coefficients: FloatArray

    kind = "learned-monomials"
    has_signs = True
    parameters = ("coefficients",)

    def __post_init__(self) -> None:
        h = np.array(self.coefficients, dtype=float)
        if any(states != 2 for states in self.domain.cardinalities):
            raise ModelError(
                "monomials must have two states a variable; use a pairwise model for more."
            )
        fits = self.sets.variables == len(self.domain.variables) and h.shape == (len(self.sets),)
        must = f"hold one number for each of {len(self.sets)} sets"
        require(fits, "coefficients", must, h.shape, error=ModelError)
        require(
            np.isfinite(h).all(), "coefficients", "be finite", "NaN or infinity", error=ModelError
        )
        h[0] = 0.0
        h.flags.writeable = False
        object.__setattr__(self, "coefficients", h)

    @property
    def order(self) -> int:
        """Size t of the largest sets."""
        return self.sets.order

    @cached_property
    def monomials(self) -> pd.Series:
        """Coefficients h by tuples of variables, sorted by size, without the empty set."""
        return by_monomial(self.domain.variables, self.sets, self.coefficients, "coefficient").iloc[
            1:
        ]

    def vector(self) -> FloatArray:
        """Return the coefficients; the first one belongs to the empty set."""
        return np.array(self.coefficients)

    def with_vector(self, values: FloatArray) -> Self:
        """Return the same release with the coefficients that a vector holds."""
        return self.with_parameters((values,))

    def _vector_entries(self) -> list[Entry]:
        """Return the variables of each coefficient, and their second states."""
        return [(members, tuple(2 * v + 1 for v in members)) for members in self.sets]

    def labels(self, of: str) -> pd.Index:
        """Return the variables of each monomial."""
        return self.monomials.index[self.places(of) - 1]

    @property
    def width(self) -> float:
        r"""Width of the model, :math:`\max_i \sum_{I \ni i} |h_I|`, nats."""
        return float(self._widths().max())

    @property
    def specification(self) -> ModelSpecification:
        """The model, with a clique for each maximal set with a nonzero coefficient and each isolated variable."""
        names = self.domain.variables
        used = np.flatnonzero(self.coefficients)[::-1]  # larger sets first
        members = list(self.sets)
        cliques = [tuple(names[v] for v in members[place]) for place in used]
        return ModelSpecification(
            domain=self.domain, cliques=(*cliques, *((name,) for name in names))
        )

    @property
    def potentials(self) -> CliqueTables:
        """Log potentials, nats; each monomial is in the first table that holds its variables."""
        model = self.specification
        effects = Effects.of(model.cardinalities, model.scopes)
        places = [self.sets.positions[subset] for subset in effects.subsets]
        return model.tables(effects.potentials(self.coefficients[places] * effect_scales(effects)))

    def _facts(self) -> list[tuple[str, str]]:
        present = np.bincount(
            self.sets.orders[self.coefficients != 0], minlength=self.sets.order + 1
        )
        several = [f"{count:,} of {k}" for k, count in enumerate(present) if k >= 2]
        if several:
            shown = f"{', '.join(several)} variables"
        else:
            shown = "none"
        return [
            ("interactions", shown) if name == "couplings" else (name, text)
            for name, text in super()._facts()
        ]

    def _weighted_pairs(self) -> Iterator[tuple[int, int, float]]:
        """Yield positions of variables that share a monomial, and their coefficient of largest size."""
        size = np.where(self.sets.orders >= 2, np.abs(self.coefficients), 0.0)
        members = list(self.sets)
        found: dict[tuple[int, int], float] = {}
        for place in np.argsort(size, kind="stable")[np.count_nonzero(size == 0) :]:
            found |= dict.fromkeys(combinations(members[place], 2), float(self.coefficients[place]))
        return ((i, j, weight) for (i, j), weight in found.items())

    def _content(self) -> dict[str, Json]:
        return {
            **sets_content(self.sets, self.details),
            **common_content(self),
            **map_content(self),
            **domain_content(self.domain),
        }

    def _array(self) -> np.ndarray:
        return np.concatenate([self.coefficients, self._measured_numbers])

    @classmethod
    def _restored(cls, content: Fields, array: np.ndarray, **stamp: Any) -> Self:
        domain = restored_domain(content)
        sets = restored_sets(content, len(domain.variables))
        held = len(sets) + statistics_size(content, domain)
        coefficients, measured = np.split(numbers(array, (held,)), [len(sets)])
        known = restored_fields(content, domain, measured, cls.parameters, sets, stamp)
        return cls(sets=sets, coefficients=coefficients, **known)


def sets_content(sets: Monomials, details: Mapping[str, Any]) -> dict[str, Json]:
    """Return the file entries of a family of sets, with its maximal sets unless it is complete, and of details."""
    found: dict[str, Json] = {"order": sets.order, "details": details_content(details)}
    if not sets.is_complete:
        found["scopes"] = [list(members) for members in sets.largest()]
    return found


def restored_sets(content: Fields, variables: int) -> Monomials:
    """Return the sets that `sets_content` wrote."""
    order = content.whole("order", 0, variables)
    if "scopes" not in content:
        return Monomials.complete(variables, order)
    scopes = [positions(scope, variables) for scope in content.items("scopes")]
    return Monomials.inside(variables, scopes, order)


def by_monomial(variables: tuple, sets: Monomials, numbers: FloatArray, name: str) -> pd.Series:
    """Return numbers as a series indexed by tuples of variables."""
    import pandas as pd

    keys = np.empty(len(sets), dtype=object)
    keys[:] = [tuple(variables[v] for v in members) for members in sets]
    return pd.Series(
        np.array(numbers), index=pd.Index(keys, tupleize_cols=False, name="monomial"), name=name
    )


def effect_scales(effects: Effects) -> FloatArray:
    r"""Return the factors :math:`2^{|S|/2}` from :math:`h_S` to coordinates :math:`\beta_S`.

    The zero-sum basis of two states is :math:`(-1, 1)/\sqrt 2`.
    """
    return 2.0 ** (effects.orders / 2)
