r"""The plan of adaptive rounds, from public facts: candidate tables, shares of the budget, and noise of each step.

The plan is computed from the declaration, the settings, and earlier released numbers; no function here reads a
record. `select_measure.rounds` runs the steps and proves their sensitivities. A score has M steps for one record. D
is 1 under add-or-remove-one neighbors, and 2 under replace-one neighbors:

| step | released | sensitivity | share of rho |
|---|---|---|---|
| single variables | tables of p variables | :math:`\sqrt{p D}`, L2, records | `SINGLES_SHARE` |
| each round | | | `ROUND_SHARES` of the rest; the last one the whole rest |
| 1. how many tables | k order statistics of scores | :math:`\sqrt k D M`, L2, steps | 3 % of it |
| 2. which tables | m choices | scores by D M, range 2 D M | 12 % of it |
| 3. these tables, or earlier ones again | their cells | :math:`\sqrt{m D}`, L2, records | the rest of it |

Numbers get discrete Gaussian noise of scale :math:`\Delta / \sqrt{2 \rho}` (`discrete_gaussian_laws`). Each choice is
the exponential mechanism of scale :math:`R / \sqrt{8 \rho}` (`selection_scale`). Both scales are rounded up.

**Candidates** are pairs and triples, inside declared cliques if there are some, or the tables of a `workload`
(`RoundsPlan.candidates`). Exact inference must be feasible in the model with them (`select_measure.size`, which also
forecasts time and memory). For more than thirty variables `select_measure.wide_rounds` has other candidates, and all
else is the same.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from bayesprivmrf.checks import require
from bayesprivmrf.errors import ArgumentError, ModelError, ModelTooLargeError
from bayesprivmrf.inference.loglinear_fit.moments import Scope
from bayesprivmrf.learning.select_measure import MergeRule
from bayesprivmrf.mechanisms.calibration import discrete_gaussian_laws
from bayesprivmrf.mechanisms.record_mechanisms import LearningPlan
from bayesprivmrf.mechanisms.select_measure.misfits import MISFIT_STEPS
from bayesprivmrf.model.domain import listed
from bayesprivmrf.model.tables import Clique, IntArray
from bayesprivmrf.privacy import Adjacency, DiscreteGaussian, selection_scale

# Share of the budget for single variables
SINGLES_SHARE = 0.08

# Share of each round in the budget that remains after the single variables; the last round spends the whole rest
ROUND_SHARES = (0.1, 0.2, 0.3, 1.0)

# Share of the remaining cells and memory that each round may fill, because later choices are better. The first round
# measures a forest, which is small. Rounds of many variables, whose models are nearly forests, may use all of it.
SIZE_SHARES = (1.0, 0.2, 0.4, 1.0)

# Largest number of variables, inside declared cliques or with a `workload`, whose tables are all candidates
MOST_VARIABLES = 100

# Number of cells of all cliques of the model, for each hundred variables: an evaluation takes some milliseconds
MAXIMUM_CELLS = 1 << 18


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundsPlan:
    """Plan of the rounds before the first answer, from public facts only.

    Parameters
    ----------
    declared
        Number of declared states of each variable.
    rho
        Budget of all steps together, nats.
    adjacency
        The neighboring relation.
    inside
        Declared cliques that must contain each table; ``None`` for no restriction.
    workload
        The tables that may be measured; ``None`` for pairs and triples.
    maximum_cells, memory
        Largest number of cells of the model, and of bytes of exact inference.
    rules
        Rule for merging the states of each variable; ``None`` allows merging all rare states.
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
        # with all pairs as candidates, planning exact inference for each takes most of the time; the errors with 16
        # to 30 columns are the same either way (benchmarks/results/rounds-near-pairs.csv)
        return len(self.declared) > (min(30, MOST_VARIABLES) if is_free else MOST_VARIABLES)

    @property
    def most_tables(self) -> int:
        """Largest number of tables of a round that is known in advance; for many variables, of the first round."""
        if self.is_wide:
            return len(self.free) - 1
        return len(self.candidates(self.declared, ()))

    @property
    def largest_change(self) -> float:
        """Range of the changes of scores, steps; scores may increase and decrease."""
        return 2.0 * self.moved * MISFIT_STEPS

    @property
    def free(self) -> list[int]:
        """Variables with several states, whose tables are informative; the first variable if there are none."""
        return [v for v, k in enumerate(self.declared) if k > 1] or [0]

    def candidates(self, cardinalities: Sequence[int], model: Sequence[Scope]) -> list[Scope]:
        """Return the tables that may be measured next to those in a model, pairs before triples.

        Variables with one merged state are in no table.
        """
        free = {v for v, k in enumerate(cardinalities) if k > 1}
        if self.workload is not None:
            found = [tuple(v for v in scope if v in free) for scope in self.workload]
            return [scope for scope in dict.fromkeys(found) if len(scope) > 1]
        allowed = [
            sorted(free & set(scope)) for scope in ([free] if self.inside is None else self.inside)
        ]
        pairs = {pair for scope in allowed for pair in combinations(scope, 2)}
        # up to a thousand triples, all are candidates; else those of allowed pairs, of which two are in the model
        if sum(math.comb(len(scope), 3) for scope in allowed) <= 1_000:
            triples = {triple for scope in allowed for triple in combinations(scope, 3)}
        else:
            linked: defaultdict[int, set[int]] = defaultdict(set)
            for scope in model:
                for v in scope:
                    linked[v] |= set(scope) - {v}
            closed = {tuple(sorted((a, b, v))) for a, b in pairs for v in linked[a] & linked[b]}
            triples = {triple for triple in closed if set(combinations(triple, 2)) <= pairs}
        found = sorted(pairs) + sorted(triples)
        return [
            scope
            for scope in found
            if math.prod(cardinalities[v] for v in scope) <= self.maximum_cells
        ]

    @property
    def moved(self) -> int:
        """D, the number of cells of a table that differ by one between neighbors."""
        if self.adjacency is Adjacency.ADD_OR_REMOVE_ONE:
            return 1
        return 2


def round_spending(rho: float) -> tuple[float, float, float]:
    """Return the parts of a round's budget: 3 % for how many tables, 12 % for which, the rest to measure them."""
    counting = 0.03 * rho
    choosing = 0.12 * rho
    return counting, choosing, (rho - counting - choosing) * (1 - 2.0**-40)


def rounds_plan(
    plan: LearningPlan[Any],
    adjacency: Adjacency,
    workload: Iterable[Clique] | None,
    maximum_cells: int,
) -> RoundsPlan:
    """Return the plan of rounds, after a check of the public inputs.

    Parameters
    ----------
    plan
        The declaration and the budget.
    adjacency, workload, maximum_cells
        Settings of `SelectMeasure`.
    """
    model = plan.specification
    variables = len(model.cardinalities)
    is_wide = variables > MOST_VARIABLES and (model.cliques_declared or workload is not None)
    must = f"have at most {MOST_VARIABLES} variables"
    remedy = "leave those out, so that any pair may be measured, or learn groups of variables apart"
    what = "rounds within declared cliques or a `workload`"
    require(not is_wide, what, must, variables, remedy, error=ModelTooLargeError)
    singles = sum(model.cardinalities)
    most = max(maximum_cells, maximum_cells * variables // MOST_VARIABLES)
    must = f"be at least the {singles:,} cells of the tables of single variables"
    remedy = "allow more, or merge states"
    require(
        singles <= most,
        "maximum_cells",
        must,
        f"{maximum_cells:,}",
        remedy,
        error=ModelTooLargeError,
    )
    scopes = None
    if workload is not None:
        found = {tuple(sorted(model.domain.index(v) for v in table)) for table in workload}
        for scope in found if model.cliques_declared else ():
            model.parent(scope)
        scopes = tuple(sorted(found, key=lambda scope: (len(scope), scope)))
    rounds = RoundsPlan(
        declared=model.cardinalities,
        rho=plan.learning,
        adjacency=adjacency,
        inside=model.scopes if model.cliques_declared else None,
        workload=scopes,
        maximum_cells=most,
        memory=1 << 29,  # bytes of exact inference in the model of declared states
        rules=plan.merge_rules,
    )
    if not rounds.most_tables:
        raise no_pair()
    require_noise(rounds)
    return rounds


def no_pair() -> ModelError:
    """Return the error for a model without a pair of variables to couple."""
    return ModelError(
        "`network` must have two variables with two or more states, inside one clique if cliques are declared, got "
        "no such pair; declare more."
    )


def require_noise(plan: RoundsPlan) -> None:
    """Refuse a budget that would give some step noise that cannot be drawn.

    Raises
    ------
    ArgumentError
        The budget is too small or too large. No later step can fail because of the budget, since no round has a
        smaller share or more tables than the ones checked here.
    """
    counting, choosing, measuring = round_spending(
        min(ROUND_SHARES) * (1 - SINGLES_SHARE) * plan.rho / 2
    )
    free = len(plan.free)
    most = len(plan.workload or ()) or math.comb(free, 2) + math.comb(free, 3) or 1
    try:
        laws = [
            singles_noise(plan),
            tables_noise(plan, measuring, most + free),
            counting_noise(plan, counting, len(numbers_of_tables(most))),
            tables_noise(plan, plan.rho, 1),
        ]
        choice_scale(plan, choosing / most)
        choice_scale(plan, plan.rho)
    except ArgumentError:
        laws = []
    is_drawn = laws and min(law.variance for law in laws) > 0
    remedy = "choose a budget nearer to one"
    require(is_drawn, "rho", "give every step noise that can be drawn", plan.rho, remedy)


def singles_noise(plan: RoundsPlan) -> DiscreteGaussian:
    """Return the noise distribution of the tables of single variables."""
    return tables_noise(plan, SINGLES_SHARE * plan.rho, len(plan.free))


def counting_noise(plan: RoundsPlan, rho: float, numbers: int) -> DiscreteGaussian:
    """Return the noise distribution of several order statistics of misfits, steps."""
    sensitivity = math.nextafter(math.sqrt(numbers) * plan.moved * MISFIT_STEPS, math.inf)
    (law,) = discrete_gaussian_laws([1.0], rho, sensitivity)
    return law


def choice_scale(plan: RoundsPlan, rho: float) -> float:
    """Return the scale of one choice among scores, steps."""
    return selection_scale(plan.largest_change, rho)


def tables_noise(plan: RoundsPlan, rho: float, tables: int) -> DiscreteGaussian:
    r"""Return the noise distribution of all cells of m tables, records.

    :math:`\sqrt{m D}` is the joint L2 sensitivity of the tables; OpenDP's map of the scale gives at most rho.
    """
    sensitivity = math.nextafter(math.sqrt(tables * plan.moved), math.inf)
    (law,) = discrete_gaussian_laws([1.0], rho, sensitivity)
    return law


def allowance(cells: IntArray, law: DiscreteGaussian, weight: float) -> IntArray:
    """Return the L1 error of noise that remains in tables with given numbers of cells, steps of 1/M record.

    The error is limited to 2^50 steps, or 10^12 records, so that it fits in 64 bits. No score is as large, so nothing
    stands out then.
    """
    # half of a table's noise remains after the fit, which pools tables and shrinks
    error = 0.5 * weight * math.sqrt(2 / math.pi) * law.standard_deviation
    return np.minimum(np.rint(MISFIT_STEPS * error * cells), 2.0**50).astype(np.int64)


def numbers_of_tables(most: int) -> list[int]:
    """Return the possible numbers of tables of a round: each about half larger than the last, up to all."""
    found = [1]
    while found[-1] * 3 // 2 + 1 < most:
        found.append(found[-1] * 3 // 2 + 1)
    return sorted({*found, most})


def checked_workload(workload: Iterable[Clique] | None) -> tuple[Clique, ...] | None:
    """Return a checked workload; each table is a tuple of two variables or more."""
    if workload is None:
        return None
    example = "write [('age', 'smokes'), ...], from a shell [[\"age\", \"smokes\"]]"
    is_list = isinstance(workload, Iterable) and not isinstance(workload, str | bytes)
    is_list = is_list and not hasattr(workload, "shape")
    require(is_list, "workload", "be a list of tables", f"a {type(workload).__name__}", example)
    found = []
    for scope in workload:
        is_table = isinstance(scope, Iterable) and not isinstance(scope, str | bytes)
        require(is_table, "workload", "hold tuples of variables", scope, example)
        table = tuple(listed("a table of `workload`", scope))
        is_joint = len(table) > 1 and all(table.count(v) == 1 for v in table)
        must = "hold tables of two or more different variables"
        remedy = "single variables are measured anyway"
        require(is_joint, "workload", must, table, remedy)
        found.append(table)
    require(found, "workload", "contain at least one table", "none", "leave it out for all")
    return tuple(found)
