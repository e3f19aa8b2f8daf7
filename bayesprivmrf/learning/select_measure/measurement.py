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

`select_and_measure` reads the records, and only its result is released. The mechanism measures a private number of
records itself (`bayesprivmrf.mechanisms.record_mechanisms`) and puts the noise scales into the plan.
`bayesprivmrf.learning.select_measure.couplings` fits the noisy numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from bayesprivmrf.learning.models.maps import require_states, written_pairs
from bayesprivmrf.learning.select_measure import MergeRule
from bayesprivmrf.model.tables import IntArray
from bayesprivmrf.noise.source import NoiseSource
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

    def as_dict(self) -> dict[str, Any]:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class PairSums:
    """Sensitive exact counts of single states, and of pairs of states without first states.

    Parameters
    ----------
    records
        Number of records.
    single
        Number of records in each state of all variables, shape (sum of K,).
    joint
        Number of records in each pair of states without first states, shape (sum of (K - 1), sum of (K - 1)).
    """

    records: int
    single: IntArray
    joint: IntArray

    def __repr__(self) -> str:
        return "PairSums(sensitive)"


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


def select_and_measure(
    codes: np.ndarray, counts: IntArray, total: float, plan: MeasurementPlan, source: NoiseSource
) -> Measured:
    """Run the three steps on records, and return the released numbers.

    Parameters
    ----------
    codes
        Rows of states' codes, shape (rows, p).
    counts
        Number of records that each row represents, shape (rows,).
    total
        Public or noisy number of records, positive.
    plan
        Public plan of selection and measurement.
    source
        Source of all noise.
    """
    sums = pair_sums(codes, counts, plan.cardinalities)
    first = np.cumsum([0, *plan.cardinalities])[:-1]
    is_sum = plan.form == "moments"
    if is_sum:
        exact = 2 * sums.single[first + 1] - sums.records
    else:
        exact = sums.single
    one_way = source.add(exact, plan.one_way)
    chosen = np.arange(len(plan.candidates))
    if plan.selection_scale is not None:
        shares = public_shares(one_way, total, plan)
        scores = dependence_scores(sums, plan.cardinalities, shares)[tuple(plan.candidates.T)]
        best = source.choose_several(scores[None, :], plan.selection_scale, plan.count)[0]
        chosen = np.sort(best)
    pairs = plan.candidates[chosen]
    if is_sum:
        exact = _products(sums, pairs)
    else:
        exact = _tables(sums, pairs, plan.cardinalities)
    return Measured(one_way=one_way, pairs=pairs, two_way=source.add(exact, plan.two_way))


def pair_sums(codes: np.ndarray, counts: IntArray, cardinalities: Sequence[int]) -> PairSums:
    """Count single states and pairs of states by products of indicator matrices, exactly.

    Float32 sums of zeros and ones are exact below 2^24 terms, float64 sums of counts below 2^53.
    """
    cards = np.asarray(cardinalities)
    width = int((cards - 1).sum())
    is_plain = bool((counts == 1).all())
    kind = np.float32 if is_plain else np.float64
    joint = np.zeros((width, width), dtype=np.int64)
    # at most 2^24 indicators at a time, so that float32 sums of ones are exact
    rows = max((1 << 24) // max(width, 1), 1)
    single = np.zeros(int(cards.sum()), dtype=np.int64)
    first = np.cumsum([0, *cards])[:-1]
    for start in range(0, len(codes), rows):
        part = codes[start : start + rows]
        weight = counts[start : start + rows]
        inside = _indicators(part, cards, kind)
        if is_plain:
            weighted = inside
        else:
            weighted = inside * weight[:, None]
        joint += (inside.T @ weighted).astype(np.int64)
    later = np.delete(np.arange(single.size), first)
    single[later] = joint.diagonal()
    records = int(counts.sum())
    single[first] = records - (np.add.reduceat(single, first) if first.size else 0)
    return PairSums(records=records, single=single, joint=joint)


def _indicators(codes: np.ndarray, cards: np.ndarray, kind: Any) -> np.ndarray:
    """Return the indicators of all states but the first, shape (rows, sum of (K - 1))."""
    if (cards == 2).all():
        return codes.astype(kind)
    columns = [codes[:, v, None] == np.arange(1, k) for v, k in enumerate(cards) if k > 1]
    if columns:
        return np.concatenate(columns, axis=1).astype(kind)
    return np.zeros((len(codes), 0), dtype=kind)


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


def dependence_scores(
    sums: PairSums, cardinalities: Sequence[int], shares: Sequence[IntArray]
) -> IntArray:
    """Return the dependence scores u, shape (p, p); 0 for variables with one state and on the diagonal."""
    cards = np.asarray(cardinalities)
    free = np.flatnonzero(cards > 1)
    u = np.zeros((cards.size, cards.size), dtype=np.int64)
    if free.size < 2:
        return u
    D = int(shares[0].sum())
    first = np.cumsum([0, *cards])[:-1]
    later = np.delete(np.arange(sums.single.size), first)
    n = sums.single[later]
    Q = np.concatenate(shares)[later]
    cross = np.multiply.outer(D * n, Q)
    T = D * D * sums.joint - cross - cross.T + sums.records * np.multiply.outer(Q, Q)
    starts = np.cumsum([0, *(cards[free] - 1)])[:-1]
    bound = np.array([2 * (D - int(shares[v].min())) for v in free.tolist()], dtype=np.int64)
    unit = -(-np.multiply.outer(bound, bound) // STEPS)
    u[np.ix_(free, free)] = absolute_sums(T, starts) // unit
    np.fill_diagonal(u, 0)
    return u


def absolute_sums(tables: IntArray, starts: IntArray) -> IntArray:
    """Return the sum of absolute values of each centered table, given without first rows and columns.

    Such tables sum to zero along both axes, so that what is left out is minus the sums of what is there.

    Parameters
    ----------
    tables
        The tables of all pairs of variables, side by side, symmetric.
    starts
        Where each variable's rows begin.
    """
    rows = np.add.reduceat(tables, starts, axis=0)
    border = np.add.reduceat(np.abs(rows), starts, axis=1)
    inner = np.add.reduceat(np.add.reduceat(np.abs(tables), starts, axis=0), starts, axis=1)
    return inner + np.abs(np.add.reduceat(rows, starts, axis=1)) + border + border.T


def _products(sums: PairSums, pairs: IntArray) -> IntArray:
    """Return sums of products of spins: n - 2 n_i - 2 n_j + 4 n_ij with counts of second states."""
    i, j = pairs.T
    n = sums.joint.diagonal()
    return sums.records - 2 * n[i] - 2 * n[j] + 4 * sums.joint[i, j]


def _tables(sums: PairSums, pairs: IntArray, cardinalities: Sequence[int]) -> IntArray:
    """Return the tables of pairs as one flat array, each in C order."""
    cards = np.asarray(cardinalities)
    first = np.cumsum([0, *cards])[:-1]
    reduced = np.cumsum([0, *(cards - 1)])[:-1]
    tables = [np.zeros(0, dtype=np.int64)]
    for i, j in pairs.tolist():
        table = np.empty((cards[i], cards[j]), dtype=np.int64)
        table[1:, 1:] = sums.joint[
            reduced[i] : reduced[i] + cards[i] - 1, reduced[j] : reduced[j] + cards[j] - 1
        ]
        table[1:, 0] = sums.single[first[i] + 1 : first[i] + cards[i]] - table[1:, 1:].sum(axis=1)
        table[0] = sums.single[first[j] : first[j] + cards[j]] - table[1:].sum(axis=0)
        tables.append(table.ravel())
    return np.concatenate(tables)
