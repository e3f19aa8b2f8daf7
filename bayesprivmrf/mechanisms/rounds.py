r"""Adaptive rounds: which tables the model misses most is asked, they are measured, the model is fitted, and again.

Every step looks at the records and at what was released before. A `PrivacyFilter` is charged before each, so that
neither the choices nor the number of rounds, which depend on the answers, can spend more than the total
(`bayesprivmrf.privacy.filter` has the proof).

1. **Single variables**: the table of counts of each, with discrete Gaussian noise. Rare states are merged for the
   fit.
2. **How many tables stand out.** For each candidate c the *misfit* is

   .. math:: u_c = \sum_x \bigl| M n_c(x) - e_c(x) \bigr|, \qquad
       e_c(x) = \lfloor M \hat N \mu_c(x) \rceil ,

   whole numbers in steps of 1/M record: the L1 distance between the data and the fitted model, whose mean counts
   :math:`e_c` are public. A record that is added or removed changes one cell of :math:`n_c` by one, so that
   :math:`u_c` moves by at most M; one that is replaced changes two, and :math:`u_c` moves by at most 2M. The k-th
   largest of numbers each of which moves by at most D moves by at most D itself. So the order statistics
   of :math:`u_c` less a public allowance, at several k, are released with discrete Gaussian noise of that
   sensitivity. The largest k at which more than noise is to be found is the number of tables of the round.
3. **Choices**: that many, in turn, by the exponential mechanism on :math:`u_c` less the L1 error that noise would
   leave, a share of :math:`\sigma \sqrt{2/\pi}` a cell. All changes of scores lie in [-D, D]: range 2D.
4. **Measurements**: the chosen tables, of L2 sensitivity 1 each (root 2 under replace-one), with discrete
   Gaussian noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.inference.solution import Status
from bayesprivmrf.learning.rounds.candidates import Size, candidates
from bayesprivmrf.learning.rounds.engine import Scope
from bayesprivmrf.learning.rounds.fit import RoundFit, fit_tables
from bayesprivmrf.learning.rounds.merging import Merging
from bayesprivmrf.learning.rounds.released import MeasuredTable
from bayesprivmrf.mechanisms.calibration import discrete_gaussian_laws
from bayesprivmrf.model.tables import FloatArray, IntArray
from bayesprivmrf.noise import NoiseSource
from bayesprivmrf.privacy import Adjacency, DiscreteGaussian, selection_scale
from bayesprivmrf.privacy.filter import PrivacyFilter

__all__ = ["Rounds", "RoundsPlan", "expected_counts", "misfit", "require_noise", "singles_law"]

SINGLES_SHARE = 0.08
"""Share of the budget for single variables."""

ROUND_SHARES = (0.1, 0.2, 0.3, 1.0)
"""Share of each round in what the budget has after the single variables; the last spends what is left."""

COUNTING_SHARE, CHOICE_SHARE = 0.03, 0.12
"""Shares of a round for how many tables stand out, and which; the rest is for measuring them."""

NOISE_WEIGHT = 0.5
"""How much of the noise of a table remains after the fit, which pools tables and shrinks: weighs it in scores."""

_ITERATIONS, _LAST_ITERATIONS = 150, 1000  # of the fit after a round, and of the last one

STEPS = 64
"""M: a misfit's steps for one record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundsPlan:
    """What is public before the first answer.

    Parameters
    ----------
    declared
        Number of declared states of each variable.
    rho
        Budget of everything, nats.
    adjacency
        The neighbouring relation.
    inside
        Declared cliques in which tables must lie; ``None`` for any.
    workload
        The tables that may be measured; ``None`` for pairs and triples.
    maximum_cells, memory
        Size that the model is kept in.
    """

    declared: tuple[int, ...]
    rho: float
    adjacency: Adjacency
    inside: tuple[Scope, ...] | None
    workload: tuple[Scope, ...] | None
    maximum_cells: int
    memory: int

    @property
    def largest_change(self) -> float:
        """Range of the changes of scores, steps: they may rise and fall."""
        return 2.0 * self.moved * STEPS

    @property
    def free(self) -> list[int]:
        """Variables of several states, whose tables tell anything; the first, where there is none."""
        return [v for v, k in enumerate(self.declared) if k > 1] or [0]

    @property
    def could_couple(self) -> bool:
        """Whether any table of two variables may be measured."""
        return bool(self.candidates(self.declared, ()))

    def candidates(self, cardinalities: Sequence[int], model: Sequence[Scope]) -> list[Scope]:
        """Return the tables that may be measured next to those in a model."""
        if self.workload is None:
            return candidates(cardinalities, self.maximum_cells, self.inside, model)
        found = [tuple(v for v in scope if cardinalities[v] > 1) for scope in self.workload]
        return [scope for scope in dict.fromkeys(found) if len(scope) > 1]

    @property
    def moved(self) -> int:
        """How many cells of a table a neighbour moves by one: D in records."""
        return 1 if self.adjacency is Adjacency.ADD_OR_REMOVE_ONE else 2


@dataclass(slots=True)
class Rounds:
    """One run: the records behind it are looked at by `_counts` alone, and let out by the source of noise alone."""

    plan: RoundsPlan
    source: NoiseSource
    codes: np.ndarray
    counts: IntArray
    total: int | None = None
    filter: PrivacyFilter = field(init=False)
    merging: Merging = field(init=False)
    size: Size = field(init=False)
    measured: list[MeasuredTable] = field(init=False, default_factory=list)
    singles: list[MeasuredTable] = field(init=False, default_factory=list)
    fit: RoundFit = field(init=False)
    tables_by_round: list[int] = field(init=False, default_factory=list)
    failures: int = field(init=False, default=0)
    has_fallen_back: bool = field(init=False, default=False)
    _kept: dict[Scope, IntArray] = field(init=False, default_factory=dict)

    def __repr__(self) -> str:
        return "Rounds(sensitive)"

    def run(self) -> None:
        """Spend the budget."""
        plan = self.plan
        self.filter = PrivacyFilter(plan.rho)
        self._measure_singles(SINGLES_SHARE * plan.rho)
        whole = self.filter.left
        for number, share in enumerate(ROUND_SHARES, start=1):
            self._round(min(share * whole, self.filter.left), is_last=number == len(ROUND_SHARES))
        self._refit(_LAST_ITERATIONS)

    # single variables

    def _measure_singles(self, rho: float) -> None:
        plan, law = self.plan, singles_law(self.plan)
        self.filter.charge(rho)
        for v in plan.free:
            exact = np.bincount(self.codes[:, v], weights=self.counts, minlength=plan.declared[v])
            noisy = self.source.add(exact.astype(np.int64), law)
            self.singles.append(MeasuredTable(scope=(v,), values=noisy, law=law))
        told = {table.scope[0]: table.values.astype(float) for table in self.singles}
        noisy_counts = [told.get(v, np.ones(k)) for v, k in enumerate(plan.declared)]
        self.merging = Merging.of(noisy_counts, [law.standard_deviation] * len(noisy_counts))
        self.size = Size(self.merging.cardinalities, plan.declared, plan.maximum_cells, plan.memory)
        self.codes = self.merging.codes(self.codes)
        self.fit = self._fitted()

    def _fitted(self, last: RoundFit | None = None, iterations: int = _ITERATIONS) -> RoundFit:
        tables = [each.merged(self.merging) for each in (*self.singles, *self.measured)]
        return fit_tables(self.merging.cardinalities, tables, last, total=self.total, iterations=iterations)

    # one round

    def _round(self, rho: float, *, is_last: bool) -> None:
        if not rho > 0:
            return
        scopes = self._eligible()
        if not scopes:
            return
        expected = [expected_counts(table, self.fit.total) for table in self.fit.probabilities(scopes)]
        misfits = np.array(
            [misfit(self._counts(c), e) for c, e in zip(scopes, expected, strict=True)], dtype=np.int64
        )
        cells = np.array([math.prod(self.merging.cardinalities[v] for v in c) for c in scopes])
        spent = _Spending.of(rho)
        number = self._how_many(misfits, cells, spent)
        if number == 0 and not is_last:
            return
        number = max(number, 1)
        chosen = self._choose(scopes, misfits, cells, number, spent)
        self._measure(chosen, spent.measuring)
        self._refit(_ITERATIONS)
        self.tables_by_round.append(len(chosen))

    def _misfits(self, scopes: list[Scope]) -> IntArray:
        """Return how far the model is from each table: sensitive."""
        expected = [expected_counts(table, self.fit.total) for table in self.fit.probabilities(scopes)]
        found = [misfit(self._counts(c), e) for c, e in zip(scopes, expected, strict=True)]
        return np.array(found, dtype=np.int64)

    def _eligible(self) -> list[Scope]:
        model = [each.scope for each in self.measured] + [each.scope for each in self.singles]
        cards = self.merging.cardinalities
        found = self.plan.candidates(cards, model)
        inside = [set(scope) for scope in self.fit.effects.scopes]
        return [c for c in found if any(set(c) <= scope for scope in inside) or self.size.bears([*model, c])]

    def _counts(self, scope: Scope) -> IntArray:
        """Return the exact table of a scope: sensitive."""
        if scope not in self._kept:
            shape = [self.merging.cardinalities[v] for v in scope]
            flat = np.ravel_multi_index(tuple(self.codes[:, v] for v in scope), shape)
            table = np.bincount(flat, weights=self.counts, minlength=math.prod(shape))
            self._kept[scope] = table.astype(np.int64)
        return self._kept[scope]

    def _how_many(self, misfits: IntArray, cells: IntArray, spent: _Spending) -> int:
        """Return how many tables stand out, by noisy order statistics."""
        numbers = _numbers(len(misfits))
        allowance = [_allowance(cells, self._law(spent.measuring, k), 1.5) for k in numbers]
        exact = [np.sort(misfits - a)[-k] for k, a in zip(numbers, allowance, strict=True)]
        law = _counting_law(self.plan, spent.counting, len(numbers))
        self.filter.charge(spent.counting)
        noisy = self.source.add(np.array(exact, dtype=np.int64), law)
        standing = [k for k, value in zip(numbers, noisy.tolist(), strict=True) if value > 0]
        return max(standing, default=0)

    def _choose(
        self, scopes: list[Scope], misfits: IntArray, cells: IntArray, number: int, spent: _Spending
    ) -> list[Scope]:
        """Return tables, chosen in turn; one that does not fit with those before it is dropped."""
        chosen: list[Scope] = []
        model = [each.scope for each in self.measured] + [each.scope for each in self.singles]
        everything = _without_subsets(scopes)
        if number >= len(everything) and self.size.bears([*model, *everything]):
            return everything
        scores = misfits - _allowance(cells, self._law(spent.measuring, number), 1.0)
        scale = selection_scale(self.plan.largest_change, spent.choosing / number)
        eligible = np.ones(len(scopes), dtype=bool)
        for _ in range(number):
            if not eligible.any():
                break
            self.filter.charge(spent.choosing / number)
            place = int(self.source.choose(scores[None, :], scale, eligible[None, :])[0])
            if self.size.bears([*model, *chosen, scopes[place]]):
                chosen.append(scopes[place])
                inside = set(scopes[place])
                eligible &= np.array([not set(c) <= inside for c in scopes])
            eligible[place] = False
        return chosen

    def _measure(self, chosen: Sequence[Scope], rho: float) -> None:
        law = self._law(rho, len(chosen))
        self.filter.charge(rho)
        for scope in chosen:
            noisy = self.source.add(self._counts(scope), law)
            self.measured.append(MeasuredTable(scope=scope, values=noisy, law=law))

    def _refit(self, iterations: int) -> None:
        """Fit to all that was measured; a fit that diverges is dropped for the one before it."""
        found = self._fitted(self.fit, iterations)
        self.has_fallen_back = found.status is Status.DIVERGED
        self.failures += self.has_fallen_back
        if not self.has_fallen_back:
            self.fit = found

    def _law(self, rho: float, tables: int) -> DiscreteGaussian:
        return _tables_law(self.plan, rho, tables)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Spending:
    """A round's budget, nats, in its three parts."""

    counting: float
    choosing: float
    measuring: float

    @classmethod
    def of(cls, rho: float) -> _Spending:
        """Share a round's budget."""
        counting, choosing = COUNTING_SHARE * rho, CHOICE_SHARE * rho
        return cls(
            counting=counting, choosing=choosing, measuring=(rho - counting - choosing) * (1 - 2.0**-40)
        )


def require_noise(plan: RoundsPlan) -> None:
    """Refuse a budget of which some step, however small its share, would have no noise that can be drawn.

    Raises
    ------
    ArgumentError
        The budget is too small or too large. No later step fails for it, for no round has a smaller share, or more
        tables, than these.
    """
    least = _Spending.of(min(ROUND_SHARES) * (1 - SINGLES_SHARE) * plan.rho / 2)
    free = len(plan.free)
    most = len(plan.workload or ()) or math.comb(free, 2) + math.comb(free, 3) or 1
    try:
        laws = [
            singles_law(plan),
            _tables_law(plan, least.measuring, most),
            _counting_law(plan, least.counting, len(_numbers(most))),
            _tables_law(plan, plan.rho, 1),
        ]
        selection_scale(plan.largest_change, least.choosing / most)
        selection_scale(plan.largest_change, plan.rho)
    except ArgumentError:
        laws = []
    if not laws or not min(law.variance for law in laws) > 0:
        raise ArgumentError(
            f"`rho` must leave every step noise that can be drawn, got {plan.rho!r}; choose a budget nearer to one."
        )


def singles_law(plan: RoundsPlan) -> DiscreteGaussian:
    """Return the law of the noise on tables of single variables."""
    return _tables_law(plan, SINGLES_SHARE * plan.rho, len(plan.free))


def _counting_law(plan: RoundsPlan, rho: float, numbers: int) -> DiscreteGaussian:
    sensitivity = math.nextafter(math.sqrt(numbers) * plan.moved * STEPS, math.inf)
    (law,) = discrete_gaussian_laws([1.0], rho, sensitivity)
    return law


def _tables_law(plan: RoundsPlan, rho: float, tables: int) -> DiscreteGaussian:
    sensitivity = math.nextafter(math.sqrt(tables * plan.moved), math.inf)
    (law,) = discrete_gaussian_laws([1.0], rho, sensitivity)
    return law


def expected_counts(table: FloatArray, total: float) -> IntArray:
    """Return a model's mean counts in whole steps of 1/M record, flat."""
    return np.rint(STEPS * total * table.ravel()).astype(np.int64)


def misfit(counts: IntArray, expected: IntArray) -> int:
    """Return the L1 distance between counts and a model's mean counts, steps of 1/M record; see the module."""
    return int(np.abs(STEPS * counts - expected).sum())


def _allowance(cells: IntArray, law: DiscreteGaussian, weight: float) -> IntArray:
    """Return the L1 error that noise leaves in tables of so many cells, steps of 1/M record."""
    error = NOISE_WEIGHT * weight * math.sqrt(2 / math.pi) * law.standard_deviation
    return np.minimum(np.rint(STEPS * error * cells), 2.0**50).astype(np.int64)


def _numbers(most: int) -> list[int]:
    """Return the numbers of tables that a round may have: about doubling, up to all."""
    found = [1]
    while found[-1] * 3 // 2 + 1 < most:
        found.append(found[-1] * 3 // 2 + 1)
    return sorted({*found, most})


def _without_subsets(scopes: Sequence[Scope]) -> list[Scope]:
    larger = [set(c) for c in scopes if len(c) > 2]
    return [c for c in scopes if not any(set(c) < other for other in larger)]
