r"""Query of parities: sums of signed products over small sets of variables.

A variable of K states has the contrasts :math:`c_s(x) = 1[x = s] - 1[x = \text{first}]`, one for each state s except
the first. Together with the constant, they are a basis of the functions of the variable, with determinant K. The
products of contrasts over the subsets of a set of variables are therefore a basis of the functions of that set. For
K = 2 the contrast is -1 or +1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache, reduce
from itertools import accumulate, chain, product
from typing import Any, final

import numpy as np

from bayesprivmrf.checks import require, truth, whole_number
from bayesprivmrf.errors import ModelTooLargeError
from bayesprivmrf.files import Json
from bayesprivmrf.model import CliqueTables, Domain, ModelSpecification, Monomials
from bayesprivmrf.model.domain import require_fit
from bayesprivmrf.model.specification import LARGEST_TABLE
from bayesprivmrf.model.tables import FloatArray, subsets
from bayesprivmrf.queries.query import BoundQuery, Query, Subset


def parities(order: int, *, with_empty: bool = True, least: int = 1) -> Query:
    r"""Sum signed products over the records, for each set of at most `order` variables inside a declared clique.

    A variable with two states has the value -1 in the first state and +1 in the second. The sums are then those of
    the parities :math:`\chi_I(x) = \prod_{i \in I} x_i`. A variable with K states has K - 1 contrasts instead, one
    for each state except the first: -1 in the first state, +1 in its own state and 0 elsewhere. The sums of all
    products, including the empty product, determine the margins of the sets. In a model without declared cliques, all
    sets of variables are used.

    Parameters
    ----------
    order
        Largest number of variables in a product.
    with_empty
        Whether the empty product, which counts the records, is included.
    least
        Smallest number of variables in the other products, from 1 to `order`. For example, ``order=2, least=2``
        selects the products of pairs.

    Returns
    -------
    Query
        The query, with a row for each product of contrasts.

    Raises
    ------
    ArgumentError
        `order` or `least` is not a whole number in its range, or `with_empty` is not a boolean.

    Examples
    --------
    >>> import bayesprivmrf as bpm
    >>> network = bpm.declare({"a": [0, 1], "b": ["x", "y", "z"]}, [("a", "b")])
    >>> parities(2).bind(network).labels
    ('records', 'a', 'b=y', 'b=z', 'a * b=y', 'a * b=z')
    """
    order = whole_number("order", order, 1)
    least = whole_number("least", least, 1, order)
    return ParityQuery(order=order, with_empty=truth("with_empty", with_empty), least=least)


@final
@dataclass(frozen=True, kw_only=True)
class ParityQuery(Query):
    """Query of parities of sets of variables up to an order; `queries.parities` makes it."""

    order: int
    with_empty: bool = True
    least: int = 1

    kind = "parities"

    def _content(self, domain: Domain) -> dict[str, Json]:
        if self.least > 1:
            least = {"least": self.least}
        else:
            least = {}
        return {"order": self.order, "with_empty": self.with_empty, **least}

    @classmethod
    def _restored(cls, content: Any, domain: Domain) -> Query:
        order = content.whole("order", 1)
        if "least" in content:
            least = content.whole("least", 1, order)
        else:
            least = 1
        return parities(order, with_empty=content.truth("with_empty"), least=least)

    def _members(self, sets: Monomials) -> list[tuple[int, ...]]:
        """Return the sets of variables in the query, in order."""
        return [one for one in sets if (len(one) >= self.least if one else self.with_empty)]

    def _sets(self, model: ModelSpecification) -> Monomials:
        p = len(model.domain.variables)
        require_fit(p, "the model", "have a variable that `parities` can sum over", "none")
        order = min(self.order, p)
        if model.cliques_declared:
            return Monomials.inside(p, model.scopes, order)
        return Monomials.complete(p, order)

    def _bind(self, model: ModelSpecification) -> BoundQuery:
        from scipy.sparse import csr_array

        sets = self._sets(model)
        cards = model.cardinalities
        members = self._members(sets)
        widths = (math.prod(cards[v] - 1 for v in one) for one in members)
        *firsts, count = accumulate(widths, initial=0)
        what = f"the products of up to {self.order} variables"
        must = f"be at most {LARGEST_TABLE:,} numbers"
        is_small = count <= LARGEST_TABLE
        remedy = "take a smaller order"
        require(is_small, what, must, f"{count:,}", remedy, error=ModelTooLargeError)
        # each product is read from the first of the largest sets that contains its variables
        homes = sets.largest()
        waiting = dict(zip(members, firsts, strict=True))
        scopes = tuple(tuple(model.domain.variables[v] for v in home) for home in homes)
        offsets = CliqueTables.offsets_of(model.domain, scopes)
        parts = [np.zeros((3, 0), dtype=np.int64)]
        for home, offset in zip(homes, offsets[:-1], strict=True):
            for inside in subsets(home):
                if (first := waiting.pop(inside, None)) is not None:
                    pattern = _products(tuple((cards[v], v in inside) for v in home))
                    parts.append(pattern + np.array([[first], [offset], [0]]))
        rows, columns, weights = np.concatenate(parts, axis=1)
        matrix = csr_array((weights, (rows, columns)), (count, offsets[-1]))
        return BoundQuery(query=self, model=model, scopes=scopes, matrix=matrix)

    def _labels(self, model: ModelSpecification) -> tuple[str, ...]:
        domain = model.domain
        names = [
            [f"{v}"] if len(states) == 2 else [f"{v}={state}" for state in states[1:]]
            for v, states in zip(domain.variables, domain.states, strict=True)
        ]
        members = self._members(self._sets(model))
        rows = chain.from_iterable(product(*(names[v] for v in one)) for one in members)
        return tuple(" * ".join(row) or "records" for row in rows)

    def _total_weights(self, bound: BoundQuery) -> FloatArray | None:
        if self.with_empty:
            return np.eye(1, len(bound))[0]
        return None

    def _effect_information(self, model: ModelSpecification) -> dict[Subset, float] | None:
        cards = model.cardinalities
        if max(cards) > 2:
            return None
        members = self._members(self._sets(model))
        return {tuple(one): 2.0 ** len(one) for one in members if all(cards[v] == 2 for v in one)}

    def __repr__(self) -> str:
        if self.with_empty:
            empty = ""
        else:
            empty = ", with_empty=False"
        return f"parities({self.order}{empty}{'' if self.least == 1 else f', least={self.least}'})"


@lru_cache(maxsize=256)
def _products(axes: tuple[tuple[int, bool], ...]) -> np.ndarray:
    """Return the rows, columns and values of the matrix of products of contrasts over a table.

    Each axis is given by its number of states and whether the product includes its variable.
    """
    from scipy.sparse import coo_array, eye_array, hstack, kron

    factors: list[Any] = []
    for states, is_inside in axes:
        ones = np.ones((states - 1 if is_inside else 1, 1), dtype=np.int64)
        if is_inside:
            rest = eye_array(states - 1)
        else:
            rest = np.ones((1, states - 1), dtype=np.int64)
        factors.append(
            hstack([coo_array(-ones if is_inside else ones), coo_array(rest)], format="coo")
        )
    whole: Any = reduce(lambda left, right: kron(left, right, format="coo"), factors)
    pattern = np.stack([*whole.coords, whole.data]).astype(np.int64)
    pattern.flags.writeable = False
    return pattern
