"""Which formulation of the posterior a model, its measurements and the settings of `LatentCounts` come to."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from bayesprivmrf.errors import ArgumentError, ModelError, ModelTooLargeError
from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.inference.mean_counts import MeanCounts
from bayesprivmrf.inference.noise_aware.effects_prior import DENSE_LIMIT
from bayesprivmrf.inference.posterior.effort import WORK
from bayesprivmrf.inference.posterior.forest import junction_forest
from bayesprivmrf.inference.posterior.formulation import Formulation
from bayesprivmrf.inference.posterior.records.chains import MOVES
from bayesprivmrf.inference.posterior.records.engine import RecordEngine
from bayesprivmrf.inference.posterior.results.diagnostics import SMALLEST_ESS
from bayesprivmrf.inference.posterior.room import require_records, require_room

if TYPE_CHECKING:
    from bayesprivmrf.inference.posterior.latent_counts import LatentCounts


_MOST_SWEEPS = 100
"""Sweeps that visit all records once, beyond which forecasts of whole records are far too low (docs/benchmarks.md,
*Choice of the engine*)."""
_NO_NUTS = (
    "`fit` draws whole records for this release (formulation='exact'), which does not use NUTS; leave out "
    "`sampler` and all settings except `cores` and `progress_bar`, or ask for formulation='{other}'."
)


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The facts that decide the formulation.

    Parameters
    ----------
    asked
        The estimator, whose settings are asked for.
    evidence
        The evidence: what was measured.
    draws
        Draws of all chains.
    chains
        Number of chains.
    is_plain
        Whether no setting of NUTS is given. Whole records do not use NUTS, so that its settings are refused there: a
        setting of a sampler never changes the model.
    """

    asked: LatentCounts
    evidence: Evidence
    draws: int
    is_plain: bool
    chains: int = 4

    @cached_property
    def is_held(self) -> bool:
        """Whether counts are known without noise, or within bounds."""
        return self.evidence.has_bounds or bool(self.evidence.is_exact.any())

    @property
    def _common(self) -> dict[str, Any]:
        """The settings that every formulation is given."""
        evidence = self.evidence
        return {
            "evidence": evidence,
            # a public total has no error, nor has one that answers without noise tell
            "total": evidence.estimated_total if evidence.total_standard_error == 0 else None,
            "total_range": self.asked.total_range,
        }

    def formulation(self) -> Formulation:
        """Return the requested formulation, or the one with the least work, after a forecast of its memory."""
        chosen = self._fitting()
        if isinstance(chosen, RecordEngine):
            require_records(chosen, self.chains)
        return chosen

    def other(self, chosen: Formulation) -> str | None:
        """Name a formulation to take where the chosen one does not mix; None if none would do within `WORK`."""
        if isinstance(chosen, RecordEngine):
            return chosen.other
        try:
            exact = replace(
                self, asked=replace(self.asked, formulation="exact", smoothing=0.0), is_plain=True
            ).formulation()
        except (ArgumentError, ModelError):
            return None
        assert isinstance(exact, RecordEngine)
        is_many = exact.bytes_a_record > 0 and exact.first_total > _MOST_SWEEPS * MOVES
        return None if is_many or SMALLEST_ESS * self.chains * exact.work > WORK else "exact"

    def _fitting(self) -> Formulation:
        """Return the requested formulation, or the one with the least work."""
        model = self.evidence.specification
        if self.is_held:
            self._refuse_relaxed()
        if model.shares_transitions:
            return self._transitions()
        if model.is_restricted:
            return self._tied()
        is_decomposable = (
            junction_forest(model.cardinalities, model.scopes, self.evidence.supported) is not None
        )
        name, has_parts = self.asked.formulation, bool(model.levels or model.ordinal)
        if name == "auto":
            name = "hyper-dirichlet" if is_decomposable and not has_parts else "log-linear"
            name = "exact" if self.is_held else name
        if has_parts and name == "hyper-dirichlet":
            own = "levels" if model.levels else "ordinal"
            raise ModelError(
                "the hyper-dirichlet formulation has no effects that levels of areas or scores of states could "
                f"scale; use formulation='log-linear', 'exact' or 'auto', or declare the network without `{own}`."
            )
        if name == "hyper-dirichlet" and not is_decomposable:
            raise ModelError(
                f"the {name} formulation needs a decomposable model, whose cliques are the bags of a "
                "junction forest; use formulation='log-linear', which takes any cliques, or 'auto'."
            )
        # normal effects, or Dirichlet rows, which have no parts that levels or scores could scale
        is_effects = name == "log-linear" or not is_decomposable or has_parts
        if not is_effects and self.asked.scale is not None:
            raise ArgumentError(
                "`scale` is of the log-linear formulation, and this model would take the hyper-Dirichlet prior; set "
                "formulation='log-linear', or leave `scale` out."
            )
        if is_effects and self.asked.concentration is not None:
            raise ArgumentError(
                "`concentration` is of the hyper-Dirichlet prior, and this model takes the log-linear one; "
                "leave it out."
            )
        if name == "exact" and self.asked.smoothing > 0:
            raise ArgumentError(
                "`smoothing` is for relaxed counts, and the exact formulation has none; leave it out."
            )
        if name == "exact" and not self.is_plain:
            raise ArgumentError(_NO_NUTS.format(other="hyper-dirichlet' or 'log-linear"))
        require_room(self.evidence, self.draws, needs_marginals=is_effects)
        if not is_effects:
            from bayesprivmrf.inference.posterior.records.rows import Rows
            from bayesprivmrf.inference.posterior.records.table import TableEngine
            from bayesprivmrf.inference.posterior.relaxed.hyper_dirichlet import HyperDirichlet

            given: dict[str, Any] = self._common | {"concentration": self.asked.concentration}
            has_one_clique = len(model.scopes) == 1
            prior = Rows(**given)
            exact: RecordEngine = RecordEngine(prior=prior)
            if has_one_clique and (table := TableEngine(prior=prior)).reaches_all:
                exact = table
            relaxed = HyperDirichlet(**given, smoothing=float(self.asked.smoothing))
            may_be = self.asked.formulation == "auto" and self.asked.smoothing == 0
            may_be = may_be and (has_one_clique or self.evidence.queries is None)
            if name == "exact" or self.is_held:
                return exact
            if not (may_be and exact.work <= relaxed.work):
                return relaxed
            if not self.is_plain:
                raise ArgumentError(_NO_NUTS.format(other="hyper-dirichlet"))
            return exact
        return self._effects(is_exact=name == "exact")

    def _refuse_relaxed(self) -> None:
        """Raise where counts within bounds, or exact ones, would meet relaxed counts or moves that ignore them."""
        if self.asked.formulation not in ("auto", "exact") or self.asked.smoothing > 0 or not self.is_plain:
            raise ArgumentError(
                "counts within bounds, or without noise, are kept by whole records alone; leave out `formulation`, "
                "`smoothing` and the sampler's settings; answers without noise are read by NaiveMLE, CGM and "
                "NoiseAwareMAP too."
            )

    def _transitions(self) -> Formulation:
        """The exact formulation of a chain of one matrix of transitions."""
        from bayesprivmrf.inference.posterior.records.transitions import SharedTransitions

        if self.asked.formulation not in ("auto", "exact"):
            raise ModelError(
                f"the {self.asked.formulation} formulation has no rows that all steps share; use "
                "formulation='exact' or 'auto'."
            )
        if self.asked.scale is not None or self.asked.smoothing > 0:
            name = "scale" if self.asked.scale is not None else "smoothing"
            raise ArgumentError(
                f"`{name}` is of potentials and of relaxed counts, and a chain with shared transitions has "
                "Dirichlet rows and whole records; leave it out."
            )
        if not self.is_plain:
            raise ArgumentError(
                "a chain with shared transitions has a sampler of its own: leave out `sampler` and all settings but "
                "`cores`."
            )
        require_room(self.evidence, self.draws, needs_marginals=False)
        prior = SharedTransitions(**self._common, concentration=self.asked.concentration)
        return RecordEngine(prior=prior)

    def _tied(self) -> Formulation:
        """The formulation of a model with ties: log-linear where its statistics are measured, else exact."""
        tells_all = _tells_statistics(self.evidence, self.asked.formulation, self.asked.concentration)
        is_exact = self.asked.formulation == "exact" or not tells_all or self.is_held
        if is_exact and (
            self.asked.formulation == "log-linear" or self.asked.smoothing > 0 or not self.is_plain
        ):
            raise ModelError(
                "the relaxed counts of a model that shares parameters stand for the sums that they rest on, and "
                "these measurements tell more, such as the table of each scope by itself; use the exact "
                "formulation, with `formulation`, `smoothing` and the sampler's settings left out, or measure the "
                "sums (queries.pooled, or queries.weighted by the products of scores)."
                if not tells_all
                else "the exact formulation has a sampler of its own: leave out `smoothing`, `sampler` and all "
                "settings but `cores`, or take formulation='log-linear'."
            )
        require_room(self.evidence, self.draws, needs_marginals=True)
        return self._effects(is_exact=is_exact)

    def _effects(self, *, is_exact: bool) -> Formulation:
        """Return the formulation with normal effects, of whole records or of relaxed counts."""
        from bayesprivmrf.inference.posterior.records.effects import NormalEffects
        from bayesprivmrf.inference.posterior.relaxed.log_linear import LogLinear

        given: dict[str, Any] = self._common | {"scale": self.asked.scale}
        if is_exact:
            return RecordEngine(prior=NormalEffects(**given))
        return LogLinear(**given, smoothing=float(self.asked.smoothing))


def _tells_statistics(evidence: Evidence, formulation: str, concentration: float | None) -> bool:
    """Whether what is measured of a model that shares parameters are its statistics; refuse what does not fit."""
    if formulation == "hyper-dirichlet":
        raise ModelError(
            "the hyper-dirichlet formulation has a prior for each table by itself, and this model ties potentials; "
            "use formulation='log-linear', 'exact' or 'auto'."
        )
    if concentration is not None:
        raise ArgumentError(
            "`concentration` is of the hyper-Dirichlet prior, and a model with ties takes the log-linear one; "
            "leave it out."
        )
    means = MeanCounts(evidence=evidence)
    if means.size - 1 > DENSE_LIMIT:
        raise ModelTooLargeError(
            f"the posterior of a model with ties takes up to {DENSE_LIMIT:,} parameters, got {means.size - 1:,}; use "
            "NoiseAwareMAP."
        )
    return means.tells_all
