r"""Plan of adaptive rounds, from public facts: eligible tables, shares of the budget, and noise of each step.

The plan is computed from the declaration, the settings, and earlier released numbers; no function here reads a
record. `select_measure.rounds` runs the steps and proves their sensitivities. With M steps of a
score for one record, and D = 1 where a neighbor has a record more or less, D = 2 where one record is another:

| step | released | sensitivity | share of rho |
|---|---|---|---|
| single variables | tables of p of them | :math:`\sqrt{p D}`, L2, records | `SINGLES_SHARE` |
| each round | | | `ROUND_SHARES` of the rest; the last all that is left |
| 1. how many tables | k order statistics of scores | :math:`\sqrt k D M`, L2, steps | `COUNTING_SHARE` of it |
| 2. which tables | m choices | scores by D M, range 2 D M | `CHOICE_SHARE` of it |
| 3. these tables, or again what was measured | their cells | :math:`\sqrt{m D}`, L2, records | what is left of it |

Numbers get discrete Gaussian noise of scale :math:`\Delta / \sqrt{2 \rho}` (`discrete_gaussian_laws`), each choice is
the exponential mechanism of scale :math:`R / \sqrt{8 \rho}` (`selection_scale`), both rounded up.

**Which tables.** Pairs and triples, inside declared cliques, or those of a `workload` (`RoundsPlan.candidates`), as
far as exact inference is feasible in the model with them (`select_measure.size`, which also forecasts time and
memory). For more than thirty variables `select_measure.wide_rounds` has the candidates; all else is the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from bayesprivmrf.errors import ArgumentError, ModelError, ModelTooLargeError
from bayesprivmrf.inference.effects_fit.moments import Scope
from bayesprivmrf.learning.rounds import MergeRule
from bayesprivmrf.mechanisms.calibration import discrete_gaussian_laws
from bayesprivmrf.mechanisms.learning import LearningPlan
from bayesprivmrf.mechanisms.select_measure.misfits import STEPS
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.tables import Clique, IntArray
from bayesprivmrf.privacy import Adjacency, DiscreteGaussian, selection_scale

# Share of the budget for single variables
SINGLES_SHARE = 0.08

# Share of each round in what the budget has after the single variables; the last spends what is left
ROUND_SHARES = (0.1, 0.2, 0.3, 1.0)

# Share that each round may fill of the cells and memory that the model has left: later choices are
# better. The first measures a forest, which is small.
#
# Rounds of many variables, whose models are nearly forests, may use all of it.
SIZE_SHARES = (1.0, 0.2, 0.4, 1.0)

# Shares of a round for how many tables stand out, and which; the rest is for measuring them
COUNTING_SHARE, CHOICE_SHARE = 0.03, 0.12

# Share of a table's noise that remains after the fit, which pools tables and shrinks; its weight in scores
NOISE_WEIGHT = 0.5

# Largest number of variables whose pairs are all candidates in every round; beyond, pairs near in the model are.
#
# If all pairs are candidates, planning exact inference for each takes most of the time. Errors of pairs and triples
# of 16 to 30 columns are the same either way (docs/benchmarks.md, "Many columns").
FEW_VARIABLES = 30

# Largest number of variables, inside declared cliques or with a `workload`, whose tables are all candidates
MOST_VARIABLES = 100

# Cells of all cliques of the model, for each hundred variables: some milliseconds for each evaluation
MAXIMUM_CELLS = 1 << 18

# Triples up to which all are candidates after the first round; else those of which two pairs are in the model
MOST_TRIPLES = 1_000

_MEMORY = 1 << 29  # bytes of exact inference in the model of declared states


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundsPlan:
    """Plan of the rounds before the first answer, from public facts alone.

    Parameters
    ----------
    declared
        Number of declared states of each variable.
    rho
        Budget of everything, nats.
    adjacency
        The neighboring relation.
    inside
        Declared cliques in which tables must lie; ``None`` for any.
    workload
        The tables that may be measured; ``None`` for pairs and triples.
    maximum_cells, memory
        Size that the model is kept in.
    rules
        Rule for merging the states of each variable; ``None`` allows all rare states to be merged.
    """

    declared: tuple[int, ...]
    rho: float
    adjacency: Adjacency
    inside: tuple[Scope, ...] | None
    workload: tuple[Scope, ...] | None
    maximum_cells: int
    memory: int
    rules: tuple[MergeRule, ...] | None = None

    @property
    def is_wide(self) -> bool:
        """True if the rounds are those of `select_measure.wide_rounds`."""
        is_free = self.inside is None and self.workload is None
        return len(self.declared) > (min(FEW_VARIABLES, MOST_VARIABLES) if is_free else MOST_VARIABLES)

    @property
    def most_tables(self) -> int:
        """The most tables of a round, as far as that is public; of many variables those of the first."""
        return len(self.free) - 1 if self.is_wide else len(self.candidates(self.declared, ()))

    @property
    def largest_change(self) -> float:
        """Range of the changes of scores, steps: they may rise and fall."""
        return 2.0 * self.moved * STEPS

    @property
    def free(self) -> list[int]:
        """Variables of several states, whose tables are informative; the first variable if there are none."""
        return [v for v, k in enumerate(self.declared) if k > 1] or [0]

    def candidates(self, cardinalities: Sequence[int], model: Sequence[Scope]) -> list[Scope]:
        """Return the tables that may be measured next to those in a model."""
        if self.workload is None:
            return _pairs_and_triples(cardinalities, self.maximum_cells, self.inside, model)
        found = [tuple(v for v in scope if cardinalities[v] > 1) for scope in self.workload]
        return [scope for scope in dict.fromkeys(found) if len(scope) > 1]

    @property
    def moved(self) -> int:
        """Number of cells of a table that a neighbor moves by one: D in records."""
        return 1 if self.adjacency is Adjacency.ADD_OR_REMOVE_ONE else 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """A round's budget, nats, in its three parts."""

    counting: float
    choosing: float
    measuring: float

    @classmethod
    def of(cls, rho: float) -> Spending:
        """Share a round's budget."""
        counting, choosing = COUNTING_SHARE * rho, CHOICE_SHARE * rho
        return cls(
            counting=counting, choosing=choosing, measuring=(rho - counting - choosing) * (1 - 2.0**-40)
        )


def rounds_plan(
    plan: LearningPlan, adjacency: Adjacency, workload: Iterable[Clique] | None, maximum_cells: int
) -> RoundsPlan:
    """Return the plan of rounds, after a check of what is public.

    Parameters
    ----------
    plan
        The declaration and the budget.
    adjacency, workload, maximum_cells
        Settings of `SelectMeasure`.
    """
    model = plan.specification
    variables = len(model.cardinalities)
    if variables > MOST_VARIABLES and (model.cliques_declared or workload is not None):
        raise ModelTooLargeError(
            f"rounds within declared cliques or a `workload` must have at most {MOST_VARIABLES} variables, got "
            f"{variables}; leave those out, so that any pair may be measured, or learn groups of variables apart."
        )
    singles, most = sum(model.cardinalities), max(maximum_cells, maximum_cells * variables // MOST_VARIABLES)
    if singles > most:
        raise ModelTooLargeError(
            f"the tables of single variables have {singles:,} cells, more than `maximum_cells` of "
            f"{maximum_cells:,}; allow more, or merge states."
        )
    rounds = RoundsPlan(
        declared=model.cardinalities,
        rho=plan.budget.learning,
        adjacency=adjacency,
        inside=model.scopes if model.cliques_declared else None,
        workload=_positions(model, workload),
        maximum_cells=most,
        memory=_MEMORY,
        rules=plan.merge_rules,
    )
    if not rounds.most_tables:
        raise no_pair()
    require_noise(rounds)
    return rounds


def no_pair() -> ModelError:
    """Return the error of a model in which nothing can be coupled."""
    return ModelError(
        "`network` must have a pair of variables to couple, each of two states or more, inside one clique where "
        "cliques are declared, got none; declare more."
    )


def _positions(
    model: ModelSpecification, workload: Iterable[Clique] | None
) -> tuple[tuple[int, ...], ...] | None:
    if workload is None:
        return None
    found = {tuple(sorted(model.domain.index(v) for v in table)) for table in workload}
    if model.cliques_declared:
        for scope in found:
            model.parent(scope)
    return tuple(sorted(found, key=lambda scope: (len(scope), scope)))


def require_noise(plan: RoundsPlan) -> None:
    """Refuse a budget that would leave some step with noise that cannot be drawn.

    Raises
    ------
    ArgumentError
        The budget is too small or too large. No later step fails for it, for no round has a smaller share, or more
        tables, than these.
    """
    least = Spending.of(min(ROUND_SHARES) * (1 - SINGLES_SHARE) * plan.rho / 2)
    free = len(plan.free)
    most = len(plan.workload or ()) or math.comb(free, 2) + math.comb(free, 3) or 1
    try:
        laws = [
            singles_law(plan),
            tables_law(plan, least.measuring, most + free),
            counting_law(plan, least.counting, len(numbers_of_tables(most))),
            tables_law(plan, plan.rho, 1),
        ]
        choice_scale(plan, least.choosing / most)
        choice_scale(plan, plan.rho)
    except ArgumentError:
        laws = []
    if not laws or not min(law.variance for law in laws) > 0:
        raise ArgumentError(
            f"`rho` must leave every step noise that can be drawn, got {plan.rho!r}; choose a budget nearer to one."
        )


def singles_law(plan: RoundsPlan) -> DiscreteGaussian:
    """Return the noise distribution of tables of single variables."""
    return tables_law(plan, SINGLES_SHARE * plan.rho, len(plan.free))


def counting_law(plan: RoundsPlan, rho: float, numbers: int) -> DiscreteGaussian:
    """Return the noise distribution of a number of order statistics of misfits, steps."""
    sensitivity = math.nextafter(math.sqrt(numbers) * plan.moved * STEPS, math.inf)
    (law,) = discrete_gaussian_laws([1.0], rho, sensitivity)
    return law


def choice_scale(plan: RoundsPlan, rho: float) -> float:
    """Return the scale of one choice among scores, steps."""
    return selection_scale(plan.largest_change, rho)


def tables_law(plan: RoundsPlan, rho: float, tables: int) -> DiscreteGaussian:
    r"""Return the noise distribution of the cells of m tables, records; all cells have the same.

    :math:`\sqrt{m D}` is the sensitivity of all of them stacked; OpenDP's map of the scale gives at most rho.
    """
    sensitivity = math.nextafter(math.sqrt(tables * plan.moved), math.inf)
    (law,) = discrete_gaussian_laws([1.0], rho, sensitivity)
    return law


def allowance(cells: IntArray, law: DiscreteGaussian, weight: float) -> IntArray:
    """Return the L1 error that noise leaves in tables of so many cells, steps of 1/M record.

    It is held to 2^50 steps, 10^12 records, so that it fits in 64 bits; no score is as large, so nothing stands out.
    """
    error = NOISE_WEIGHT * weight * math.sqrt(2 / math.pi) * law.standard_deviation
    return np.minimum(np.rint(STEPS * error * cells), 2.0**50).astype(np.int64)


def numbers_of_tables(most: int) -> list[int]:
    """Return the numbers of tables that a round may have: each by half more than the last, up to all."""
    found = [1]
    while found[-1] * 3 // 2 + 1 < most:
        found.append(found[-1] * 3 // 2 + 1)
    return sorted({*found, most})


def _pairs_and_triples(
    cardinalities: Sequence[int],
    largest: int,
    inside: Sequence[Scope] | None,
    model: Sequence[Scope],
) -> list[Scope]:
    """Return the pairs and triples that may be measured, ascending by size.

    Parameters
    ----------
    cardinalities
        Number of merged states of each variable; one of a single state is in none.
    largest
        The most cells of a table.
    inside
        Declared cliques, or a workload: tables must lie in one of them; ``None`` for any.
    model
        Scopes of the model so far.
    """
    free = [v for v, k in enumerate(cardinalities) if k > 1]
    allowed = [free] if inside is None else [sorted(set(scope) & set(free)) for scope in inside]
    pairs = {pair for scope in allowed for pair in combinations(scope, 2)}
    triples: set[Scope] = set()
    if sum(math.comb(len(scope), 3) for scope in allowed) <= MOST_TRIPLES:
        triples = {triple for scope in allowed for triple in combinations(scope, 3)}
    else:
        triples = _closing(model, pairs)
    found = sorted(pairs) + sorted(triples)
    return [scope for scope in found if math.prod(cardinalities[v] for v in scope) <= largest]


def _closing(model: Sequence[Scope], pairs: set[Scope]) -> set[Scope]:
    """Return triples of three allowed pairs, two of which are in the model."""
    neighbors: dict[int, set[int]] = {}
    for scope in model:
        for a, b in combinations(scope, 2):
            neighbors.setdefault(a, set()).add(b)
            neighbors.setdefault(b, set()).add(a)
    found = set()
    for v, around in neighbors.items():
        for a, b in combinations(sorted(around), 2):
            triple = tuple(sorted((a, b, v)))
            if set(combinations(triple, 2)) <= pairs:
                found.add(triple)
    return found
