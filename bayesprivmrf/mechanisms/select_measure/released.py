"""Release of adaptive rounds: the fitted model on the declared states, all measured tables, and warnings.

No function here uses a record: only the released numbers of a finished run are read. The release contains the last
model, and every noisy table as an answer to a query: single variables first, then the tables of the rounds in their
order, then repeated measurements. Intervals rely on this order. A `LearnedPotentials`
(`bayesprivmrf.learning.models.potentials`) stores both and writes them to files. Its `solution`, with intervals, is
that of `bayesprivmrf.learning.select_measure.rounds_solution`. The solution is not trusted if the noisy numbers do
not differ from noise alone (`bayesprivmrf.learning.models.solution`).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from bayesprivmrf.files import Json
from bayesprivmrf.inference.loglinear_fit.moments import Scope
from bayesprivmrf.inference.solution import Status
from bayesprivmrf.interruption import interrupted_by, stopped_details
from bayesprivmrf.learning import LearnedPotentials
from bayesprivmrf.learning.models.solution import HIDDEN_BY_NOISE, Signal
from bayesprivmrf.learning.select_measure.cell_errors import NOT_MEASURED
from bayesprivmrf.learning.select_measure.measured_tables import single_counts
from bayesprivmrf.learning.select_measure.round_fit import number_of_records
from bayesprivmrf.learning.select_measure.rounds_solution import TABLES_BY_ROUND
from bayesprivmrf.mechanisms.base import Stamp
from bayesprivmrf.model import CliqueTables, Domain, ModelSpecification
from bayesprivmrf.release import NoisyStatistics

if TYPE_CHECKING:
    from bayesprivmrf.mechanisms.select_measure.run import FinishedRounds


def release_of(run: FinishedRounds, domain: Domain, stamp: Stamp) -> LearnedPotentials:
    """Return the release: the fitted model on the declared states, and all measured tables."""
    scopes = run.fit.effects.scopes
    merging = run.merging
    signal = _signal(run)
    model = ModelSpecification(
        domain=domain, cliques=tuple(tuple(domain.variables[v] for v in scope) for scope in scopes)
    )
    measured = [each.measurement(domain, merging) for each in run.drawn.tables]
    return LearnedPotentials(
        domain=domain,
        total=run.fit.total,
        unsupported=signal.unsupported,
        details=_details(run, domain, signal),
        model=model,
        tables=CliqueTables.from_arrays(
            domain, model.cliques, merging.expanded(scopes, run.fit.potentials())
        ),
        groups=tuple(tuple(group.tolist()) for group in merging.groups),
        statistics=NoisyStatistics(
            specification=model, measurements=measured, total=run.total, **stamp.fields
        ),
        **stamp.fields,
    )


def warning_of(run: FinishedRounds, domain: Domain) -> str | None:
    """Return the text of a warning about the rounds, from public numbers; None if they were interrupted."""
    if interrupted_by() is not None:
        return None
    said = []
    left_out = _left_out(run)
    if left_out:
        names = [
            "(" + ", ".join(str(domain.variables[v]) for v in scope) + ")" for scope in left_out
        ]
        said.append(
            f"requested tables did not fit into `maximum_cells` with the others: {', '.join(names)}"
        )
    if not run.drawn.measured and not left_out:
        said.append("the noise hides all dependence: no table of two variables was measured")
    if hides := _signal(run).details.get(HIDDEN_BY_NOISE):
        said.append(f"the noise hides {hides}, so that no number of the model can be trusted")
    if said:
        return f"{'; '.join(said)}; spend more, or declare fewer variables or states."
    return None


def _signal(run: FinishedRounds) -> Signal:
    """Return evidence of which states have records, from the tables of single variables."""
    return Signal.of(*_number_of_records(run), *single_counts(run.plan.declared, run.drawn.tables))


def _number_of_records(run: FinishedRounds) -> tuple[float, float]:
    """Return the number of records and its standard error, 0 where the number is public."""
    if run.total is not None:
        return float(run.total), 0.0
    return number_of_records([each.merged(run.merging) for each in run.drawn.tables])


def _left_out(run: FinishedRounds) -> list[Scope]:
    """Return the tables of the workload that do not fit together with the measured ones."""
    inside = [set(scope) for scope in run.fit.effects.scopes]
    asked = run.plan.workload or ()
    cards = run.merging.cardinalities
    found = {c: tuple(v for v in c if cards[v] > 1) for c in asked}
    missing = {
        c: kept for c, kept in found.items() if not any(set(kept) <= scope for scope in inside)
    }
    model = run.drawn.scopes
    return [c for c, kept in missing.items() if not run.known.size.bears([*model, kept])]


def _details(run: FinishedRounds, domain: Domain, signal: Signal) -> dict[str, Json]:
    """Return public numbers about a release, and the names of the states that are merged in the fit."""
    status = run.fit.status
    merging = run.merging
    if run.known.has_fallen_back and status is not Status.DIVERGED:
        status = Status.STOPPED_EARLY
    left_out = [[str(domain.variables[v]) for v in scope] for scope in _left_out(run)]
    merged = {
        str(variable): [[str(states[s]) for s in part] for part in merging.parts(v)]
        for v, (variable, states) in enumerate(zip(domain.variables, domain.states, strict=True))
        if merging.is_merged(v)
    }
    return {
        "status": str(status.value),
        "rounds": len(run.drawn.by_round),
        "tables_measured": len(run.drawn.measured),
        TABLES_BY_ROUND: list(run.drawn.by_round),
        "measured_again": len(run.drawn.again),
        "refits_that_failed": run.known.failures,
        "distance_from_optimum": run.fit.off if math.isfinite(run.fit.off) else None,
        "merged_states": sum(run.plan.declared) - sum(merging.cardinalities),
        **({"merged": merged} if merged else {}),
        "one_way_noise": run.drawn.singles[0].law.scale,
        "rho_spent": float(run.spent),
        NOT_MEASURED: run.known.unmeasured.at_most(
            run.fit, merging.groups, _number_of_records(run)[1]
        ),
        **stopped_details(),
        **(signal.details if status is not Status.DIVERGED else {}),
        **({"left_out": left_out} if left_out else {}),
    }
