r"""Release of adaptive rounds: the fitted model on the declared states, all measured tables, and warnings.

No function here uses a record: only the released numbers of a finished run are read. The release contains the last
model, and every noisy table as an answer to a query: single variables first, then the tables of the rounds in their
order, then repeated measurements. Intervals rely on this order. A `LearnedPotentials`
(`bayesprivmrf.learning.models.potentials`) stores both and writes them to files. Its `solution`, with intervals, is
that of `bayesprivmrf.learning.rounds.solution`. The solution is not trusted if the noisy numbers do not differ from
noise alone (`bayesprivmrf.learning.models.solution`).

**Candidate tables that were not measured** have a bound on the total variation between the shares of a pair in the
records and in the model. It is computed from noisy answers, choices and noisy tables, which the release has paid for,
and from public settings. It is therefore post-processing. Let :math:`u_c` be the misfit of a candidate c: its L1
distance to the model of that round, in records. A round bounds it in one of two cases.

1. **Nothing was chosen.** The largest of :math:`u_c - a_c` over all candidates, :math:`a_c` being the public
   allowance, was released as y with Gaussian noise of standard deviation s. So :math:`u_c \le a_c + y + 1.28 s` for
   all candidates, with a probability of 90 %.
2. **Tables were chosen.** The exponential mechanism of scale b picks j among the candidates E that are left, with a
   probability proportional to :math:`\exp((u_j - a_j) / b)`. So with a probability of at least :math:`1 - δ`, for all
   c in E, :math:`u_c - a_c \le u_j - a_j + b \log (|E| / δ)`. Table j was measured as y, with noise of scale σ. With
   the signs ς of its distance to the model, :math:`u_j = ς^\top (n_j - e_j) \le \lVert y - e_j \rVert_1 - ς^\top (y -
   n_j)`. Of k cells the last sum is sub-Gaussian with variance :math:`k σ^2`: below :math:`-σ \sqrt{2 k \log (1 /
   δ)}` with a probability of δ at most. Both δ are 5 %. The last choice of a round
   gives the smallest bound, and is used.

Later fits move the model by a known total variation, and the number of records N is known to a standard error e:

.. math:: \mathrm{TV}_c \le \frac{u_c + 1.645 e}{2 N} + \mathrm{TV}(\text{model then, model now}).

The bound of a pair is that of the last round in which it was a candidate. A pair that was too large for the model, or
that would have closed a cycle across parts of the model when the last table was chosen, has no bound from that round;
nor have pairs in models of many columns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesprivmrf.inference.effects_fit.moments import Scope
from bayesprivmrf.inference.solution import Status
from bayesprivmrf.interruption import interrupted_by, stopped_details
from bayesprivmrf.learning import LearnedPotentials
from bayesprivmrf.learning.models.solution import HIDDEN_BY_NOISE, Signal
from bayesprivmrf.learning.rounds.cell_errors import NOT_MEASURED
from bayesprivmrf.learning.rounds.fit import RoundFit, number_of_records
from bayesprivmrf.learning.rounds.solution import TABLES_BY_ROUND
from bayesprivmrf.learning.rounds.tables import MeasuredTable, single_counts
from bayesprivmrf.mechanisms.base import Stamp
from bayesprivmrf.model import CliqueTables, Domain, ModelSpecification
from bayesprivmrf.model.tables import FloatArray, IntArray
from bayesprivmrf.release import NoisyStatistics

if TYPE_CHECKING:
    from bayesprivmrf.mechanisms.select_measure.rounds import Rounds


def release_of(run: Rounds, domain: Domain, stamp: Stamp) -> LearnedPotentials:
    """Return the release: the fitted model on the declared states, and all measured tables."""
    scopes, merging, signal = run.fit.effects.scopes, run.merging, _signal(run)
    model = ModelSpecification(
        domain=domain, cliques=tuple(tuple(domain.variables[v] for v in scope) for scope in scopes)
    )
    measured = [each.measurement(domain, merging) for each in run.tables]
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


def warning_of(run: Rounds, domain: Domain) -> str | None:
    """Return the text of a warning about the rounds, from public numbers; None if they were interrupted."""
    if interrupted_by() is not None:
        return None
    said, left_out = [], _left_out(run)
    if left_out:
        names = ["(" + ", ".join(str(domain.variables[v]) for v in scope) + ")" for scope in left_out]
        said.append(f"requested tables did not fit into `maximum_cells` with the others: {', '.join(names)}")
    if not run.measured and not left_out:
        said.append("the noise hides all dependence: no table of two variables was measured")
    if hides := _signal(run).details.get(HIDDEN_BY_NOISE):
        said.append(f"the noise hides {hides}, so that no number of the model can be trusted")
    return f"{'; '.join(said)}; spend more, or declare fewer variables or states." if said else None


def _signal(run: Rounds) -> Signal:
    """Return evidence of which states have records, from the tables of single variables."""
    return Signal.of(*_number_of_records(run), *single_counts(run.plan.declared, run.tables))


def _number_of_records(run: Rounds) -> tuple[float, float]:
    """Return the number of records and its standard error, 0 where the number is public."""
    if run.total is not None:
        return float(run.total), 0.0
    return number_of_records([each.merged(run.merging) for each in run.tables])


def _left_out(run: Rounds) -> list[Scope]:
    """Return the tables of the workload that do not fit together with the measured ones."""
    inside = [set(scope) for scope in run.fit.effects.scopes]
    asked, cards = run.plan.workload or (), run.merging.cardinalities
    found = {c: tuple(v for v in c if cards[v] > 1) for c in asked}
    missing = {c: kept for c, kept in found.items() if not any(set(kept) <= scope for scope in inside)}
    model = [each.scope for each in (*run.measured, *run.singles)]
    return [c for c, kept in missing.items() if not run.size.bears([*model, kept])]


def _details(run: Rounds, domain: Domain, signal: Signal) -> dict[str, Any]:
    """Return public numbers about a release, and the names of the states that are merged in the fit."""
    status, merging = run.fit.status, run.merging
    if run.has_fallen_back and status is not Status.DIVERGED:
        status = Status.STOPPED_EARLY
    left_out = [[str(domain.variables[v]) for v in scope] for scope in _left_out(run)]
    merged = {
        str(variable): [[str(states[s]) for s in part] for part in merging.parts(v)]
        for v, (variable, states) in enumerate(zip(domain.variables, domain.states, strict=True))
        if merging.is_merged(v)
    }
    return {
        "status": str(status.value),
        "rounds": len(run.tables_by_round),
        "tables_measured": len(run.measured),
        TABLES_BY_ROUND: list(run.tables_by_round),
        "measured_again": len(run.again),
        "refits_that_failed": run.failures,
        "distance_from_optimum": run.fit.off if math.isfinite(run.fit.off) else None,
        "merged_states": sum(run.plan.declared) - sum(merging.cardinalities),
        **({"merged": merged} if merged else {}),
        "one_way_noise": run.singles[0].law.scale,
        "rho_spent": float(run.filter.spent),
        NOT_MEASURED: run.unmeasured.at_most(run.fit, merging.groups, _number_of_records(run)[1]),
        **stopped_details(),
        **(signal.details if status is not Status.DIVERGED else {}),
        **({"left_out": left_out} if left_out else {}),
    }


# Standard normal quantiles at 90 % and 95 %
ONE_SIDED, _ERROR = 1.2816, 1.6449

# δ of each of the two inequalities of a choice
_TAIL = 0.05


@dataclass(slots=True)
class Unmeasured:
    """Bounds on the misfits of unmeasured pairs, records, with the model's table in the round of each bound.

    Parameters
    ----------
    groups
        For each variable the group of each declared state in these rounds.
    """

    groups: Sequence[IntArray] = ()
    found: dict[Scope, tuple[float, FloatArray]] = field(default_factory=dict)

    def by_choice(
        self,
        fit: RoundFit,
        scopes: Sequence[Scope],
        allowances: FloatArray,
        chosen: int,
        measured: MeasuredTable,
        scale: float,
    ) -> None:
        """Store the bounds that a choice implies for the remaining candidates.

        Parameters
        ----------
        fit
            The model of that round.
        scopes, allowances
            Candidates when the last table was chosen, and the allowance of each, in records.
        chosen
            Position of that table among the candidates.
        measured
            The noisy table.
        scale
            Scale of the choice, records.
        """
        (table,) = fit.probabilities([scopes[chosen]])
        noisy = float(np.abs(measured.values - fit.total * table.ravel()).sum())
        own = noisy + measured.law.scale * math.sqrt(2 * table.size * math.log(1 / _TAIL))
        beyond = own - allowances[chosen] + scale * math.log(len(scopes) / _TAIL)
        self.keep(fit, scopes, allowances + beyond)

    def keep(self, fit: RoundFit, scopes: Sequence[Scope], misfits: FloatArray) -> None:
        """Store the bounds on the misfits of some candidates to the model of a round, records."""
        places = [place for place, scope in enumerate(scopes) if len(scope) == 2]
        tables = fit.probabilities([scopes[place] for place in places])
        for place, table in zip(places, tables, strict=True):
            self.found[scopes[place]] = max(float(misfits[place]), 0.0), table

    def at_most(self, fit: RoundFit, groups: Sequence[IntArray], error: float) -> list[list[float]]:
        """Return the pairs outside all tables of the last model: two positions and the bound, rounded up.

        Parameters
        ----------
        fit, groups
            The last model, and the groups of its states.
        error
            Standard error of the number of records; 0 where it is public.
        """
        held = set(fit.effects.subsets)
        pairs = [
            pair
            for pair in self.found
            if pair not in held and all(np.array_equal(self.groups[v], groups[v]) for v in pair)
        ]
        found: list[list[float]] = []
        for pair, now in zip(pairs, fit.probabilities(pairs), strict=True):
            misfit, then = self.found[pair]
            bound = (misfit + _ERROR * error) / (2 * fit.total) + 0.5 * float(np.abs(now - then).sum())
            if bound < 1:  # 1 bounds the total variation of any table
                found.append([*pair, math.ceil(1e4 * bound) / 1e4])
        return found
