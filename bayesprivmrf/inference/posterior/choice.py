"""Choice of the posterior engine: the cheapest one, by forecast, that supports the release and the settings.

The model and the settings determine one prior: Dirichlet rows (decomposable models), normal effects, or rows that all
steps of a chain share. Each prior has one or two engines: whole records, relaxed counts, or both. Their work is
forecast and compared only under Dirichlet rows. Under normal effects there is no forecast: relaxed counts are used if
they support the release, and whole records otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Literal, NamedTuple

from bayesprivmrf.checks import require_memory
from bayesprivmrf.errors import ArgumentError, BayesPrivMRFError, ModelError
from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.inference.posterior.effort import MEMORY, WORK, require_posterior_memory
from bayesprivmrf.inference.posterior.formulation import Formulation, Settings
from bayesprivmrf.inference.posterior.records.chains import MOVES
from bayesprivmrf.inference.posterior.records.engine import RecordEngine
from bayesprivmrf.inference.posterior.records.prior import Rows
from bayesprivmrf.inference.posterior.records.table import TableEngine
from bayesprivmrf.inference.posterior.relaxed.hyper_dirichlet import HyperDirichlet, is_decomposable
from bayesprivmrf.inference.posterior.results.diagnostics import SMALLEST_ESS


class _Engine(NamedTuple):
    """Engine of one formulation: name, reason to refuse a release, constructor, and operations per effective draw."""

    name: Literal["exact", "hyper-dirichlet", "log-linear"]
    refuses: Callable[[Evidence, Settings], BayesPrivMRFError | None]
    make: Callable[[], Formulation]
    cost: Callable[[Any], float] = lambda made: 0.0  # no forecast


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Facts that determine the engine.

    Parameters
    ----------
    asked
        Settings of the estimator.
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

    asked: Settings
    evidence: Evidence
    draws: int
    is_plain: bool
    chains: int = 4

    @cached_property
    def has_exact_sums(self) -> bool:
        """True if some counts are known exactly or within bounds."""
        return self.evidence.has_bounds or bool(self.evidence.is_exact.any())

    def formulation(self) -> Formulation:
        """Return the requested formulation or, with ``"auto"``, the suitable one with the least forecast work.

        Raises
        ------
        ArgumentError, ModelError, ModelTooLargeError
            Every engine that was asked for refuses the model, the measurements or a setting, or the draws would not
            fit in memory.
        """
        accepted, reasons = [], []
        # only the engine of whole records supports exact counts and bounds
        asked = (
            "exact" if self.asked.formulation == "auto" and self.has_exact_sums else self.asked.formulation
        )
        priors = {"rows": self._of_rows, "effects": self._of_effects, "transitions": self._of_transitions}
        for engine in priors[self._prior]():  # in order of preference
            if asked not in ("auto", engine.name):
                continue
            reason = engine.refuses(self.evidence, self.asked)
            if reason is None and engine.name == "exact" and self.asked.smoothing > 0:
                reason = ArgumentError(
                    "`smoothing` applies to relaxed counts, and formulation='exact' has none; leave it out."
                )
            if reason is None:
                accepted.append(engine)
            else:
                reasons.append(reason)
        if not accepted:
            raise reasons[0]
        require_posterior_memory(self.evidence, self.draws, needs_marginals=self._prior == "effects")
        made: list[Formulation] = [engine.make() for engine in accepted]
        costs = [engine.cost(one) for engine, one in zip(accepted, made, strict=True)] if made[1:] else [0.0]
        chosen: Formulation = made[costs.index(min(costs))]
        if isinstance(chosen, RecordEngine):
            self._require_no_nuts(chosen)
            _require_records(chosen, self.chains)
        return chosen

    def other(self, chosen: Formulation) -> str | None:
        """Name a formulation to try if the chosen one does not mix; None if none would mix within `WORK`."""
        if isinstance(chosen, RecordEngine):
            return chosen.other
        try:
            asked = replace(self.asked, formulation="exact", smoothing=0.0)
            exact = replace(self, asked=asked, is_plain=True).formulation()
        except (ArgumentError, ModelError):
            return None
        assert isinstance(exact, RecordEngine)
        # where visiting each record once takes more than 100 sweeps, forecasts of whole records are far too low
        # (benchmark `engine_choice`)
        is_many = exact.bytes_a_record > 0 and exact.first_total > 100 * MOVES
        return None if is_many or SMALLEST_ESS * self.chains * exact.work > WORK else "exact"

    def _require_no_nuts(self, chosen: RecordEngine) -> None:
        if not self.is_plain:
            other = self.other(chosen)
            remedy = f", or ask for formulation={other!r}" if other else ""
            raise ArgumentError(
                "`fit` draws whole records for this release (formulation='exact'), which does not use NUTS; leave "
                f"out `sampler` and all settings except `cores` and `progress_bar`{remedy}."
            )

    @cached_property
    def _prior(self) -> Literal["rows", "effects", "transitions"]:
        """Requested prior, or the default prior of the model."""
        if self.asked.formulation == "hyper-dirichlet":
            return "rows"
        if self.asked.formulation == "log-linear":
            return "effects"
        model = self.evidence.specification
        if model.shares_transitions:
            return "transitions"
        has_rows = not (model.is_restricted or model.levels or model.ordinal) and is_decomposable(
            self.evidence
        )
        return "rows" if has_rows else "effects"

    @property
    def _given(self) -> dict[str, Any]:
        """Arguments that every engine receives."""
        evidence = self.evidence
        return {
            "evidence": evidence,
            # a total that is public, or that exact answers determine, has no standard error
            "total": evidence.estimated_total if evidence.total_standard_error == 0 else None,
            "total_range": self.asked.total_range,
        }

    def _of_rows(self) -> tuple[_Engine, ...]:
        given: dict[str, Any] = self._given | {"concentration": self.asked.concentration}
        is_table = len(self.evidence.specification.scopes) == 1
        # the forecast was never fitted to queries on several cliques
        is_forecast = is_table or self.evidence.queries is None

        def make_whole() -> Formulation:
            prior = Rows(**given)
            table = TableEngine(prior=prior) if is_table else None
            return table if table is not None and table.reaches_all else RecordEngine(prior=prior)

        return (
            _Engine(
                "exact",
                HyperDirichlet.refuses_prior,
                make_whole,
                lambda made: made.work if is_forecast else math.inf,
            ),
            _Engine(
                "hyper-dirichlet",
                HyperDirichlet.refuses,
                partial(HyperDirichlet, **given, smoothing=self.asked.smoothing),
                lambda made: made.work,
            ),
        )

    def _of_effects(self) -> tuple[_Engine, ...]:
        # loading these compiles marginal inference, which Dirichlet rows do not need
        from bayesprivmrf.inference.posterior.records.effects import NormalEffects
        from bayesprivmrf.inference.posterior.relaxed.log_linear import LogLinear

        given: dict[str, Any] = self._given | {"scale": self.asked.scale}
        return (
            _Engine(
                "log-linear", LogLinear.refuses, partial(LogLinear, **given, smoothing=self.asked.smoothing)
            ),
            _Engine("exact", LogLinear.refuses_prior, lambda: RecordEngine(prior=NormalEffects(**given))),
        )

    def _of_transitions(self) -> tuple[_Engine, ...]:
        from bayesprivmrf.inference.posterior.records.transitions import SharedTransitions

        given: dict[str, Any] = self._given | {"concentration": self.asked.concentration}
        return (_Engine("exact", _of_shared_rows, lambda: RecordEngine(prior=SharedTransitions(**given))),)


def _require_records(sampler: RecordEngine, chains: int) -> None:
    """Raise an error that names another formulation if the whole records of all chains would not fit in memory."""
    needed = chains * sampler.first_total * sampler.bytes_a_record
    other = f"formulation={sampler.other!r}" if sampler.other else "NoiseAwareMAP"
    remedy = f"use {other}, whose memory does not depend on the number of records"
    require_memory(f"{chains} chains of {sampler.first_total:,} whole records", needed, remedy, MEMORY)


def _of_shared_rows(evidence: Evidence, settings: Settings) -> ArgumentError | None:
    """Return the reason why shared Dirichlet rows do not support the settings, or None."""
    if settings.scale is None:
        return None
    return ArgumentError(
        "`scale` is a prior scale of log-linear effects, and a chain with shared transitions has Dirichlet rows; "
        "leave it out."
    )
