"""Choice of the posterior engine: the cheapest one, by forecast, that supports the release and the settings.

The model and the settings determine one prior: Dirichlet rows (decomposable models), normal effects, or rows that all
steps of a chain share. Each prior has one or two engines: whole records, relaxed counts, or both. Their work is
forecast and compared only under Dirichlet rows. Under normal effects there is no forecast: relaxed counts are used if
they support the release, and whole records otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from bayesprivmrf.checks import require_memory
from bayesprivmrf.errors import ArgumentError, BayesPrivMRFError, ModelError
from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.inference.posterior.effort import MEMORY, WORK, require_posterior_memory
from bayesprivmrf.inference.posterior.records.chains import MOVES
from bayesprivmrf.inference.posterior.records.engine import RecordEngine
from bayesprivmrf.inference.posterior.records.prior import Rows
from bayesprivmrf.inference.posterior.records.table import TableEngine
from bayesprivmrf.inference.posterior.relaxed.engine import RelaxedCounts
from bayesprivmrf.inference.posterior.relaxed.hyper_dirichlet import HyperDirichlet, is_decomposable
from bayesprivmrf.inference.posterior.results.diagnostics import SMALLEST_ESS

if TYPE_CHECKING:
    from bayesprivmrf.inference.posterior.latent_counts import LatentCounts

type Formulation = RecordEngine | RelaxedCounts
"""Posterior of one evidence: a prior, latent numbers that a sampler moves, and the marginals that follow."""

type _Engine = tuple[Callable[[Evidence, LatentCounts], BayesPrivMRFError | None], Callable[[], Formulation]]
"""Function that returns the reason to refuse a release or a setting, or None; and the constructor."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Facts that determine the engine.

    Parameters
    ----------
    asked
        Estimator with the settings.
    evidence
        Evidence of the releases.
    draws
        Number of draws of all chains together.
    chains
        Number of chains.
    is_plain
        Whether the caller gave no NUTS setting. The engine of whole records does not use NUTS and refuses its
        settings: a setting of the sampler never changes the model.
    """

    asked: LatentCounts
    evidence: Evidence
    draws: int
    chains: int = 4
    is_plain: bool = True

    def formulation(self) -> Formulation:
        """Return the requested formulation or, with ``"auto"``, the suitable one with the least forecast work.

        Raises
        ------
        ArgumentError, ModelError, ModelTooLargeError
            Every engine that was asked for refuses the model, the measurements or a setting, or the draws would not
            fit in memory.
        """
        evidence, asked = self.evidence, self.asked.formulation
        # only the engine of whole records supports exact counts and bounds
        if asked == "auto" and (evidence.has_bounds or evidence.is_exact.any()):
            asked = "exact"
        of_prior = self._engines()
        engines = {name: engine for name, engine in of_prior.items() if asked in ("auto", name)}
        reasons = {name: refuses(evidence, self.asked) for name, (refuses, _) in engines.items()}
        made = {name: engines[name][1] for name, reason in reasons.items() if reason is None}
        if not made:
            raise next(reason for reason in reasons.values() if reason)
        require_posterior_memory(evidence, self.draws, needs_marginals="log-linear" in of_prior)
        chosen = next(iter(made.values()))()
        if len(made) > 1 and isinstance(chosen, RecordEngine):
            # the forecast was never fitted to queries on several cliques
            is_forecast = len(evidence.specification.scopes) == 1 or evidence.queries is None
            relaxed: Any = made["hyper-dirichlet"]()
            chosen = chosen if is_forecast and chosen.work <= relaxed.work else relaxed
        if isinstance(chosen, RecordEngine):
            self._require_records(chosen)
        return chosen

    def other(self, chosen: Formulation) -> str | None:
        """Name a formulation to try if the chosen one does not mix; None if none would mix within `WORK`."""
        if isinstance(chosen, RecordEngine):
            return chosen.other
        try:
            exact = replace(self, asked=replace(self.asked, formulation="exact"), is_plain=True).formulation()
        except (ArgumentError, ModelError):
            return None
        assert isinstance(exact, RecordEngine)
        # where visiting each record once takes more than 100 sweeps, forecasts of whole records are far too low
        # (benchmark `engine_choice`)
        is_many = exact.bytes_a_record > 0 and exact.first_total > 100 * MOVES
        return None if is_many or SMALLEST_ESS * self.chains * exact.work > WORK else "exact"

    def _require_records(self, chosen: RecordEngine) -> None:
        """Raise an error for settings of NUTS, or if the records of all chains would not fit in memory."""
        other = chosen.other and f"formulation={chosen.other!r}"
        if not self.is_plain:
            raise ArgumentError(
                "`fit` draws whole records for this release (formulation='exact'), which does not use NUTS; leave "
                "out `sampler` and all settings except `cores` and `progress_bar`"
                f"{f', or ask for {other}' if other else ''}."
            )
        needed = self.chains * chosen.first_total * chosen.bytes_a_record
        remedy = f"use {other or 'NoiseAwareMAP'}, whose memory does not depend on the number of records"
        what = f"{self.chains} chains of {chosen.first_total:,} whole records"
        require_memory(what, needed, remedy, MEMORY)

    def _engines(self) -> dict[str, _Engine]:
        """Return the engines of the requested prior, or of the model's default prior, in order of preference."""
        asked, evidence, model = self.asked, self.evidence, self.evidence.specification
        given: dict[str, Any] = {
            "evidence": evidence,
            # a total that is public, or that exact answers determine, has no standard error
            "total": evidence.estimated_total if evidence.total_standard_error == 0 else None,
            "total_range": asked.total_range,
        }
        rows: dict[str, Any] = given | {"concentration": asked.concentration}
        if model.shares_transitions and asked.formulation in ("auto", "exact"):
            from bayesprivmrf.inference.posterior.records.transitions import SharedTransitions

            return {"exact": (_refuse_scale, lambda: RecordEngine(prior=SharedTransitions(**rows)))}
        is_free = not (model.is_restricted or model.levels or model.ordinal)
        if asked.formulation == "hyper-dirichlet" or (
            asked.formulation != "log-linear" and is_free and is_decomposable(evidence)
        ):
            return {
                "exact": (HyperDirichlet.refuses_prior, partial(_whole_rows, rows)),
                "hyper-dirichlet": (HyperDirichlet.refuses, partial(HyperDirichlet, **rows)),
            }
        # loading these compiles marginal inference, which Dirichlet rows do not need
        from bayesprivmrf.inference.posterior.records.effects import NormalEffects
        from bayesprivmrf.inference.posterior.relaxed.log_linear import LogLinear

        effects: dict[str, Any] = given | {"scale": asked.scale}
        return {
            "log-linear": (LogLinear.refuses, partial(LogLinear, **effects)),
            "exact": (LogLinear.refuses_prior, lambda: RecordEngine(prior=NormalEffects(**effects))),
        }


def _whole_rows(rows: dict[str, Any]) -> RecordEngine:
    """Return the engine of whole records under Dirichlet rows; that of one table if its moves reach every table."""
    prior = Rows(**rows)
    if len(prior.evidence.specification.scopes) == 1 and (table := TableEngine(prior=prior)).reaches_all:
        return table
    return RecordEngine(prior=prior)


def _refuse_scale(evidence: Evidence, asked: LatentCounts) -> ArgumentError | None:
    """Return the reason why shared Dirichlet rows do not support the settings, or None."""
    if asked.scale is None:
        return None
    return ArgumentError(
        "`scale` is a prior scale of log-linear effects, and a chain with shared transitions has Dirichlet rows; "
        "leave it out."
    )
