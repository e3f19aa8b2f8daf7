"""`SelectMeasure` without a degree: its public plan of adaptive rounds, and the release that they make."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bayesprivmrf.audit import Sums
from bayesprivmrf.errors import ArgumentError, ModelError, ModelTooLargeError
from bayesprivmrf.inference.solution import Status
from bayesprivmrf.learning import LearnedPotentials
from bayesprivmrf.learning.rounds.released import learned_potentials
from bayesprivmrf.mechanisms.base import Stamp
from bayesprivmrf.mechanisms.learning import LearningPlan
from bayesprivmrf.mechanisms.noise_warning import warn_without_raising
from bayesprivmrf.mechanisms.reading.coded_records import CodedRecords
from bayesprivmrf.mechanisms.rounds import Rounds
from bayesprivmrf.mechanisms.rounds_forecast import forecast_rounds, require_room
from bayesprivmrf.mechanisms.rounds_plan import (
    MOST_VARIABLES,
    ROUND_SHARES,
    SINGLES_SHARE,
    RoundsPlan,
    Spending,
    require_noise,
    round_draws,
    singles_law,
    tables_law,
)
from bayesprivmrf.mechanisms.wide_rounds import WideRounds
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.domain import listed
from bayesprivmrf.model.tables import Clique
from bayesprivmrf.noise import NoiseSource
from bayesprivmrf.planning import Outlay

if TYPE_CHECKING:
    from bayesprivmrf.mechanisms.select_measure import SelectMeasure

__all__ = ["MAXIMUM_CELLS", "SelectRoundsPlan", "checked_workload", "no_pair", "rounds_plan"]

MAXIMUM_CELLS = 1 << 17
"""Cells of all cliques of the model, for each hundred variables: some milliseconds for each evaluation."""

_MEMORY = 1 << 29  # bytes of exact inference in the model of declared states


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectRoundsPlan(LearningPlan):
    """What is public about a release, with the plan of its rounds."""

    rounds: RoundsPlan

    def outlays(self, total: float | None) -> list[Outlay]:
        """Return the steps; what a round measures waits for the answers before it.

        Its noise is that of as many tables as would join all variables. With a number of records there is a forecast
        of time and memory as well, and what is too large is refused.
        """
        plan, law = self.rounds, singles_law(self.rounds)
        forecasts: list[dict[str, Any]] = [{} for _ in range(len(ROUND_SHARES) + 1)]
        if total is not None:
            require_room(plan, total)
            forecasts = [
                {"seconds": step.seconds, "memory_bytes": step.memory}
                for step in forecast_rounds(plan, total)
            ]
        alone = SINGLES_SHARE * plan.rho
        found = [
            Outlay(
                step="each variable by itself",
                rho=alone,
                count=len(plan.declared),
                noise_sd=law.standard_deviation,
                draws=(Sums(law=law, copies=len(plan.free) * plan.moved),),
                **forecasts[0],
            )
        ]
        tables = min(max(len(plan.free) - 1, 1), plan.most_tables)
        left = plan.rho - alone
        for number, share in enumerate(ROUND_SHARES, start=1):
            rho = min(share * (plan.rho - alone), left)
            rho, left = (left, 0.0) if number == len(ROUND_SHARES) else (rho, left - rho)
            noise = tables_law(plan, Spending.of(rho).measuring, tables).standard_deviation
            step = f"round {number}: how many tables, which, and these (noise of {tables})"
            draws = round_draws(plan, rho)
            found.append(Outlay(step=step, rho=rho, noise_sd=noise, draws=draws, **forecasts[number]))
        return found

    def release(self, exact: CodedRecords, source: NoiseSource, stamp: Stamp) -> LearnedPotentials:
        """Run the rounds, and return the model and what was measured."""
        assert stamp.guarantee is not None
        known = exact.records if self.is_total_public else None
        kind = WideRounds if self.rounds.is_wide else Rounds
        run = kind(plan=self.rounds, source=source, codes=exact.codes, counts=exact.counts, total=known)
        run.run()
        if not run.measured:
            message = (
                "the noise hides all dependence: no table of two variables was measured; spend more, or declare "
                "fewer variables or states."
            )
            warn_without_raising(message)
        return learned_potentials(
            self.specification.domain,
            run.merging,
            run.fit,
            [*run.singles, *run.measured],
            total=known,
            guarantee=stamp.guarantee,
            provenance=stamp.provenance,
            details=_details(run),
        )


def _details(run: Rounds) -> dict[str, Any]:
    """Return public numbers about a release."""
    status = Status.STOPPED_EARLY if run.has_fallen_back else run.fit.status
    return {
        "status": str(status.value),
        "rounds": len(run.tables_by_round),
        "tables_measured": len(run.measured),
        "tables_by_round": list(run.tables_by_round),
        "refits_that_failed": run.failures,
        "distance_from_optimum": run.fit.off,
        "merged_states": sum(run.plan.declared) - sum(run.merging.cardinalities),
        "one_way_noise": run.singles[0].law.scale if run.singles else 0.0,
        "rho_spent": float(run.filter.spent),
    }


def rounds_plan(mechanism: SelectMeasure, plan: LearningPlan) -> SelectRoundsPlan:
    """Check what is public, and return the plan."""
    model = plan.specification
    variables = len(model.cardinalities)
    if variables > MOST_VARIABLES and (model.cliques_declared or mechanism.workload is not None):
        raise ModelTooLargeError(
            f"rounds within declared cliques or a `workload` must have at most {MOST_VARIABLES} variables, got "
            f"{variables}; leave those out, so that any pair may be measured, or learn groups of variables apart."
        )
    singles = sum(model.cardinalities)
    if singles > _cells(mechanism.maximum_cells, variables):
        raise ModelTooLargeError(
            f"the tables of single variables have {singles:,} cells, more than `maximum_cells` of "
            f"{mechanism.maximum_cells:,}; allow more, or merge states."
        )
    rounds = RoundsPlan(
        declared=model.cardinalities,
        rho=plan.budget.learning,
        adjacency=mechanism.adjacency,
        inside=model.scopes if model.cliques_declared else None,
        workload=_positions(model, mechanism.workload),
        maximum_cells=_cells(mechanism.maximum_cells, variables),
        memory=_MEMORY,
        seconds=mechanism.seconds,
    )
    if not rounds.could_couple:
        raise no_pair()
    require_noise(rounds)
    require_room(rounds)
    return SelectRoundsPlan(
        specification=model,
        budget=plan.budget,
        is_total_public=plan.is_total_public,
        missing=plan.missing,
        other=plan.other,
        rounds=rounds,
    )


def _cells(maximum: int, variables: int) -> int:
    """Return the most cells of a model, as many for each hundred variables."""
    return max(maximum, maximum * variables // MOST_VARIABLES)


def no_pair() -> ModelError:
    """Return the error of a model in which nothing can be coupled."""
    return ModelError(
        "`network` must have a pair of variables to couple, each of two states or more, inside one clique where "
        "cliques are declared, got none; declare more."
    )


def checked_workload(workload: Iterable[Clique] | None) -> tuple[Clique, ...] | None:
    """Return a workload as given, each table a tuple of two variables or more."""
    if workload is None:
        return None
    example = "write [('age', 'smokes'), ...]"
    if isinstance(workload, str | bytes) or hasattr(workload, "shape") or not isinstance(workload, Iterable):
        raise ArgumentError(
            f"`workload` must be a list of tables, got a {type(workload).__name__}; {example}."
        )
    found = []
    for scope in workload:
        if isinstance(scope, str | bytes) or not isinstance(scope, Iterable):
            raise ArgumentError(f"`workload` must hold tuples of variables, got {scope!r}; {example}.")
        table = tuple(listed("a table of `workload`", scope))
        if len(table) < 2 or any(table.count(v) > 1 for v in table):
            raise ArgumentError(
                f"`workload` must hold tables of two variables or more, each once, got {table!r}; single variables "
                "are measured anyway."
            )
        found.append(table)
    if not found:
        raise ArgumentError("`workload` must hold a table at least, got none; leave it out for all.")
    return tuple(found)


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
