r"""Private choice of the most dependent pairs of variables, and their noisy measurement, in whole numbers.

There are three steps. Each has fresh noise and uses, besides the records, only what the earlier steps released:

1. every variable by itself: its table of counts, or for two states the sum of spins :math:`S_i = \sum x_i`;
2. the pairs: the best of one noisy ranking of all candidates by a dependence score;
3. the chosen pairs: their tables of counts, or for two states the sums of products :math:`S_{ij} = \sum x_i x_j`.

**The score.** Step 1 gives every variable public shares :math:`q_i(a) = Q_i(a)/D`, whole numbers :math:`Q_i(a) \ge 1`
of sum :math:`D`. The score is the L1 norm of the centered table of the pair,

.. math:: T_{ij} = \sum_{a,b} \Bigl| \sum_{r} \bigl(D\,1[x_{ri}=a] - Q_i(a)\bigr)
    \bigl(D\,1[x_{rj}=b] - Q_j(b)\bigr) \Bigr|,
    \qquad u_{ij} = \Bigl\lfloor T_{ij} / d_{ij} \Bigr\rfloor .

One record's table is an outer product, whose L1 norm is the product of those of its factors:
:math:`\sum_a |D\,1[x=a] - Q(a)| = (D - Q(x)) + (D - Q(x)) = 2 (D - Q(x)) \le L_i = 2 (D - \min_a Q_i(a))`. By
the triangle inequality, adding or removing a record moves :math:`T_{ij}` by at most
:math:`L_i L_j`, up or down, and replacing one by at most twice that. With
:math:`d_{ij} = \lceil L_i L_j / M \rceil` it moves :math:`u_{ij}` by at most :math:`M` (:math:`2M`), because
:math:`T' \le T + d M` gives :math:`\lfloor T'/d \rfloor \le \lfloor T/d \rfloor + M`. Some pairs may rise while
others fall, so the range of the changes is :math:`2M` (:math:`4M`): `score_range`. For two states of equal shares
:math:`T_{ij} = D^2 |S_{ij}|`, and u is :math:`|S_{ij}|` in steps of 1/M. Nothing depends on the number of records.

**The choice.** The m best of all candidates in one ranking, not k for each variable: m choices instead of 2 m find
each edge of a graph with m edges (docs/explanation/select-measure.md has the measurements).

**The measurements.** Under add-or-remove-one a record has one cell of each table, or an entry of size one in each
sum: L2 sensitivity 1 each, :math:`\sqrt m` for m. Under replace-one a table moves by :math:`\sqrt 2`; of the sums of
products those pairs move, by 2, of which just one variable flips. Flips of a set F move at most
:math:`|F| (p - |F|) \le \lfloor p/2 \rfloor \lceil p/2 \rceil` pairs, and no more than m, so the joint L2 sensitivity
is :math:`2 \sqrt{\min(m, \lfloor p/2 \rfloor \lceil p/2 \rceil)}`, attained by bipartite graphs and by the complete
one.

`bayesprivmrf.mechanisms.select_measure.one_choice` runs the three steps on records, and puts the noise scales into
the plan. This module has the plan, the sensitivities, and the released numbers, which
`bayesprivmrf.learning.select_measure.couplings` fits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from bayesprivmrf.files import Json
from bayesprivmrf.learning.models.maps import require_states, written_pairs
from bayesprivmrf.learning.select_measure.measured_tables import MergeRule
from bayesprivmrf.model.tables import IntArray
from bayesprivmrf.privacy import Adjacency, DiscreteGaussian
from bayesprivmrf.release.codec import Fields

# Steps M of a score for one record
STEPS = 1024

type Form = Literal["moments", "tables"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurementPlan:
    """Public settings of selection and measurement.

    Parameters
    ----------
    cardinalities
        Number of states of each variable, shape (p,).
    form
        ``"moments"`` for sums of spins and of their products, if all variables have two states, or ``"tables"``.
    candidates
        Pairs of variables to choose from, shape (P, 2), each ascending, without variables that have one state.
    count
        Number of pairs to choose, at most P; a choice of all P costs no budget.
    one_way, two_way
        Distribution of the noise on each entry of steps 1 and 3.
    selection_scale
        Scale of the choice, in score steps; ``None`` if all candidates are measured.
    rules
        Rules for merging states, by variable, for a fit that falls back on merged states; empty if all may be merged.
    """

    cardinalities: tuple[int, ...]
    form: Form
    candidates: IntArray
    count: int
    one_way: DiscreteGaussian
    two_way: DiscreteGaussian
    selection_scale: float | None
    rules: tuple[MergeRule, ...] = ()

    def as_dict(self) -> dict[str, Json]:
        """Return plain values that JSON can hold; `from_dict` is the inverse."""
        complete = all_pairs(self.cardinalities)
        return {
            "cardinalities": list(self.cardinalities),
            "form": self.form,
            "candidates": None
            if np.array_equal(self.candidates, complete)
            else self.candidates.tolist(),
            "count": self.count,
            "one_way": self.one_way.as_dict(),
            "two_way": self.two_way.as_dict(),
            "selection_scale": self.selection_scale,
            **(
                {"rules": [each.as_list() for each in self.rules]}
                if set(self.rules) - {MergeRule()}
                else {}
            ),
        }

    @classmethod
    def from_dict(cls, content: Fields, basis: tuple[int, ...]) -> MeasurementPlan:
        """Return the plan that `as_dict` wrote, for variables with given numbers of states."""
        require_states(content, basis)
        is_complete = content["candidates"] is None
        if is_complete:
            candidates = all_pairs(basis)
        else:
            candidates = written_pairs(content, "candidates", len(basis))
        if set(basis) == {2}:
            forms = ("moments", "tables")
        else:
            forms = ("tables",)
        return cls(
            cardinalities=basis,
            form=content.text("form", *forms),
            candidates=candidates,
            count=content.whole("count", 0, len(candidates)),
            one_way=content.law("one_way"),
            two_way=content.law("two_way"),
            selection_scale=content.positive("selection_scale", optional=True),
            rules=MergeRule.restored(content.items("rules"), basis) if "rules" in content else (),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Released measurement: the chosen pairs and the noisy numbers.

    Parameters
    ----------
    one_way
        Noisy sums of spins, shape (p,), or the noisy tables of all variables as one array.
    pairs
        Chosen pairs, shape (m, 2), in the order of the candidates.
    two_way
        Noisy sums of products, shape (m,), or the noisy tables of the chosen pairs as one array, each in C order.
    """

    one_way: IntArray
    pairs: IntArray
    two_way: IntArray

    def tables(self, cardinalities: Sequence[int]) -> tuple[list[IntArray], list[IntArray]]:
        """Return the tables of all variables, and those of the chosen pairs, where tables were measured."""
        cards = np.array(cardinalities)
        shapes = cards[self.pairs]
        joint = np.split(self.two_way, np.cumsum(shapes.prod(axis=1))[:-1])
        return np.split(self.one_way, np.cumsum(cards)[:-1]), [
            part.reshape(shape) for part, shape in zip(joint, shapes, strict=False)
        ]


def all_pairs(cardinalities: Sequence[int]) -> IntArray:
    """Return the pairs of all variables with two or more states, ascending."""
    free = np.flatnonzero(np.asarray(cardinalities) > 1)
    i, j = np.triu_indices(free.size, 1)
    return np.column_stack([free[i], free[j]]).astype(np.int64)


def score_range(adjacency: Adjacency) -> float:
    """Return the range of changes of the scores between neighbors, steps: 2 M, or 4 M for replace-one."""
    if adjacency is Adjacency.ADD_OR_REMOVE_ONE:
        return 2.0 * STEPS
    return 4.0 * STEPS


def pairs_sensitivity(variables: int, pairs: int, form: Form, adjacency: Adjacency) -> float:
    """Return the joint L2 sensitivity of m pairs' sums of products or tables, records, rounded up; see the module."""
    if adjacency is Adjacency.ADD_OR_REMOVE_ONE:
        squared = pairs
    elif form == "tables":
        squared = 2 * pairs
    else:
        squared = 4 * min(pairs, (variables // 2) * (variables - variables // 2))
    return _root_up(squared)


def singles_sensitivity(cardinalities: Sequence[int], form: Form, adjacency: Adjacency) -> float:
    """Return the joint L2 sensitivity of the single-variable measurements, records, rounded up.

    For add-or-remove-one every sum of spins or table moves by 1. For replace-one a sum of spins moves by 2, and a
    table by the root of 2 unless its variable has one state. All move together if the records differ in every
    variable.
    """
    if adjacency is Adjacency.ADD_OR_REMOVE_ONE:
        return _root_up(len(cardinalities))
    return _root_up(
        4 * len(cardinalities) if form == "moments" else 2 * sum(k > 1 for k in cardinalities)
    )


def _root_up(squared: int) -> float:
    root = math.isqrt(squared)
    if root * root == squared:
        return float(root)
    return math.nextafter(math.sqrt(squared), math.inf)


def public_shares(one_way: IntArray, total: float, plan: MeasurementPlan) -> list[IntArray]:
    """Return whole shares of every variable's states from noisy numbers: at least 1 each, of sum D."""
    shares = []
    start = 0
    # D is 1024, or more for variables with very many states. A grid finer than 2^-14 changes no choice, and scores of
    # 2^32 records, at most 4 D^2 for each, stay within 64 bits
    most = max(plan.cardinalities, default=1)
    denominator = max(1024, min(1 << (4 * most - 1).bit_length(), 1 << 14))
    for variable, states in enumerate(plan.cardinalities):
        if plan.form == "moments":
            sum_of_spins = float(one_way[variable])
            noisy = np.array([total - sum_of_spins, total + sum_of_spins])
        else:
            noisy = one_way[start : start + states].astype(float)
            start += states
        shares.append(_whole_shares(noisy, denominator))
    return shares


def _whole_shares(noisy: np.ndarray, denominator: int) -> IntArray:
    """Return noisy counts as whole shares of sum D, all at least 1."""
    positive = np.maximum(noisy, 0.0)
    spare = denominator - noisy.size
    even = np.full(noisy.size, 1 / noisy.size)
    scaled = spare * (positive / positive.sum() if positive.sum() > 0 else even)
    shares = np.floor(scaled).astype(np.int64)
    rest = spare - int(shares.sum())
    shares[np.argsort(shares - scaled, kind="stable")[:rest]] += 1
    return shares + 1
