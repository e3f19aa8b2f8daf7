"""Choice of the posterior engine, the first one in order of preference that supports the release and the settings.

Each fit has one of three priors: normal effects, Dirichlet rows (decomposable models), or rows that all steps of a
chain share. Normal effects are the default. Dirichlet rows are the default of a decomposable model for panels whose
people rarely change their state, for counts that are exact or known within bounds, and for many parameters; a setting
of either prior asks for it. Each prior has one or two engines: whole records, relaxed counts, or both. Under
Dirichlet rows whole records are preferred where they mix about as fast. Under normal effects they are preferred where
relaxed counts would be approximate, and they serve what relaxed counts do not support.

References
----------
Cohen (1960). A coefficient of agreement for nominal scales. Educational and Psychological Measurement 20, 37-46.
Landis and Koch (1977). The measurement of observer agreement for categorical data. Biometrics 33, 159-174.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np

from bayesprivmrf.checks import require_memory
from bayesprivmrf.errors import ArgumentError, ModelError
from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.inference.least_squares import least_squares
from bayesprivmrf.inference.posterior.forest import junction_forest
from bayesprivmrf.inference.posterior.formulation import MEMORY, require_posterior_memory
from bayesprivmrf.inference.posterior.measured import MeasuredCells
from bayesprivmrf.inference.posterior.relaxed_counts.engine import RelaxedCounts
from bayesprivmrf.inference.posterior.relaxed_counts.hyper_dirichlet import HyperDirichlet
from bayesprivmrf.inference.posterior.rows_prior import is_decomposable
from bayesprivmrf.inference.posterior.settings import FormulationName, PriorSettings
from bayesprivmrf.inference.posterior.whole_records.chains import MOVES
from bayesprivmrf.inference.posterior.whole_records.engine import RecordEngine, Rows
from bayesprivmrf.inference.posterior.whole_records.table import engine_of_rows
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.effects import subsets_inside

type Engine = RecordEngine | RelaxedCounts
"""Posterior of one evidence: a prior, latent numbers that a sampler moves, and the marginals that follow."""

# Largest N b² (C/2)³ with which whole records are preferred, for N records, C cliques, and noise of scale b >= 1. A
# visit of a record changes a count by one, and the noise of each clique may reject it. In the benchmark
# `engine_choice` the preferred engine takes at most 1.5 seconds more for 400 effective draws
_FEW = 500
# Noise scale, records, up to which counts are nearly certain, so that few records move
_HARDLY_ANY_NOISE = 0.1
# Largest number of records that are preferred whole under hardly any noise; arbitrary
_MANY = 1e6
# Largest number of normal effects of a decomposable model by default: a step of NUTS costs their square. Dirichlet
# rows cost their number. Arbitrary between 200 and 1,000
_MOST_EFFECTS = 400
# Largest number of whole records that are preferred under normal effects: a sweep visits each of them
_MOST_WHOLE = 5000
# Half-counts per record above which the log-linear relaxation is called approximate (`LogLinear.sparsity`). Up to
# about this value the population's probabilities keep their prior distribution within a few percent (`latent_prior`)
FEW_RECORDS = 0.04
# Cohen's kappa of two waves from which they are a panel: "substantial agreement" of Landis and Koch
_STICKY = 0.6


type _Prior = Literal["effects", "rows", "shared rows"]
"""Name of a prior."""


@dataclass(frozen=True, slots=True)
class _Candidate:
    """Engine that may be chosen: its class, which says what it refuses, and a function that makes it."""

    kind: type[Engine]
    make: Callable[[], Engine]


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Facts that determine the engine.

    Parameters
    ----------
    asked
        Settings of the prior and its formulation.
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

    asked: PriorSettings
    evidence: Evidence
    draws: int
    chains: int = 4
    is_plain: bool = True

    def formulation(self) -> Engine:
        """Return the requested formulation or, with ``"auto"``, the first suitable one.

        Raises
        ------
        ArgumentError, ModelError, ModelTooLargeError
            Every engine that was asked for refuses the model, the measurements or a setting, or the draws would not
            fit in memory.
        """
        evidence = self.evidence
        asked = self.asked.formulation
        # only the engine of whole records supports exact counts, bounds and tables
        if asked == "auto" and evidence.needs_whole_records:
            asked = "exact"
        prior = self._prior
        if prior == "shared rows":
            candidates = self._shared_rows()
        elif prior == "rows":
            candidates = self._dirichlet_rows()
        else:
            candidates = self._normal_effects()
        named = [each for each in candidates if asked in ("auto", each.kind.name.lower())]
        suitable = self._first_suitable(named)
        require_posterior_memory(evidence, self.draws, needs_marginals=prior == "effects")
        chosen = suitable.make()
        if isinstance(chosen, RecordEngine):
            self._require_records(chosen)
        return chosen

    def _first_suitable(self, candidates: Iterable[_Candidate]) -> _Candidate:
        """Return the first candidate that supports the release and the settings, or raise the last one's reason."""
        reason = None
        for candidate in candidates:
            reason = candidate.kind.refuses(self.evidence, self.asked)
            if reason is None:
                return candidate
        assert reason is not None  # there is a candidate for every name of a formulation
        raise reason

    def other(self, chosen: Engine) -> str | None:
        """Name a formulation with the same prior to try if the chosen one does not mix; None if none would."""
        if isinstance(chosen, RecordEngine):
            return chosen.other
        asked = replace(self.asked, formulation="exact")
        try:
            exact = replace(self, asked=asked, is_plain=True).formulation()
        except (ArgumentError, ModelError):
            return None
        assert isinstance(exact, RecordEngine)
        if type(exact.relaxed) is not type(chosen):
            return None
        if exact.bytes_a_record == 0 or exact.first_total <= MOVES:
            return "exact"
        return None

    def instead(self) -> Engine | None:
        """Return an engine with the other prior, for a posterior that contradicts the default one.

        None if a setting asks for a prior, or if the model has no other one.
        """
        asked = self.asked
        is_free = asked.concentration is None and asked.scale is None
        if asked.formulation != "auto" or not is_free:
            return None
        other: FormulationName | None = None
        if self._prior == "effects" and self._may_have_rows:
            other = "hyper-dirichlet"
        if self._prior == "rows" and _are_few(self.evidence.specification):
            other = "log-linear"
        if other is None:
            return None
        # both posteriors are in memory until they have been compared
        draws = 2 * self.draws
        try:
            return replace(self, asked=replace(asked, formulation=other), draws=draws).formulation()
        except (ArgumentError, ModelError):
            return None

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
        remedy = (
            f"use {other or 'NoiseAwareMAP'}, whose memory does not depend on the number of records"
        )
        what = f"{self.chains} chains of {chosen.first_total:,} whole records"
        require_memory(what, needed, remedy, MEMORY)

    # the prior

    @property
    def _prior(self) -> _Prior:
        """Prior of the model, the settings and the release."""
        asked = self.asked
        model = self.evidence.specification
        if model.shares_transitions and asked.formulation in ("auto", "exact"):
            return "shared rows"
        if asked.formulation == "hyper-dirichlet":
            return "rows"
        if asked.formulation == "log-linear" or not self._may_have_rows:
            return "effects"
        # a setting asks for its prior; rows refuse `scale` beside `concentration`
        if asked.concentration is not None:
            return "rows"
        if asked.scale is not None:
            return "effects"
        if self.evidence.needs_whole_records or not _are_few(model) or _is_panel(self.evidence):
            return "rows"
        return "effects"

    @property
    def _may_have_rows(self) -> bool:
        """True if Dirichlet rows support the model."""
        model = self.evidence.specification
        is_free = not (model.is_restricted or model.levels or model.ordinal)
        return is_free and is_decomposable(self.evidence)

    # engines of each prior, in order of preference

    def _shared_rows(self) -> list[_Candidate]:
        from bayesprivmrf.inference.posterior.whole_records.transitions import SharedTransitions

        return [self._candidate(SharedTransitions, concentration=self.asked.concentration)]

    def _dirichlet_rows(self) -> list[_Candidate]:
        concentration = self.asked.concentration
        whole = self._candidate(Rows, make=engine_of_rows, concentration=concentration)
        relaxed = self._candidate(HyperDirichlet, concentration=concentration)
        if _mixes(self.evidence):
            return [whole, relaxed]
        return [relaxed, whole]

    def _normal_effects(self) -> list[_Candidate]:
        # loading these compiles marginal inference, which Dirichlet rows do not need
        from bayesprivmrf.inference.posterior.relaxed_counts.log_linear import LogLinear
        from bayesprivmrf.inference.posterior.whole_records.effects import NormalEffects

        scale = self.asked.scale
        relaxed = self._candidate(LogLinear, scale=scale)
        whole = self._candidate(NormalEffects, scale=scale)
        if self._may_have_rows and self.evidence.total <= _MOST_WHOLE:
            made = relaxed.make()
            assert isinstance(made, LogLinear)
            if made.sparsity > FEW_RECORDS:
                return [whole, relaxed]
        return [relaxed, whole]

    def _candidate(
        self,
        kind: type[Engine],
        make: Callable[..., Engine] | None = None,
        **parameter: float | None,
    ) -> _Candidate:
        """Return an engine that may be chosen, with the parameter of its prior; its class makes it by default."""
        evidence = self.evidence
        # a total that is public, or that exact answers determine, has no standard error
        is_public = evidence.total_standard_error == 0
        made = partial(
            make or kind,
            evidence=evidence,
            total=evidence.estimated_total if is_public else None,
            total_range=self.asked.total_range,
            **parameter,
        )
        return _Candidate(kind, made)


def _mixes(evidence: Evidence) -> bool:
    """Return True if whole records with Dirichlet rows mix about as fast as relaxed counts."""
    cliques = len(evidence.specification.scopes)
    if cliques > 1:
        noise = float(evidence.noise_scale.max(initial=0.0))
        is_few = evidence.total * max(noise, 1.0) ** 2 * (cliques / 2) ** 3 <= _FEW
        is_few |= noise <= _HARDLY_ANY_NOISE and evidence.total <= _MANY
        # queries were not compared
        return is_few and evidence.queries is None
    # one table moves by steps of the size of the noise; parts of a sum whose cells were not measured need many
    measured = MeasuredCells.of(evidence)
    is_alone = np.bincount(measured.sums, minlength=1)[measured.sums] == 1
    is_known = np.isin(np.arange(measured.cells.size), measured.sources[is_alone])
    return evidence.total <= _FEW or bool(is_known.all())


def _are_few(model: ModelSpecification) -> bool:
    """Return True if a model with free potentials has at least one zero-sum effect, and not too many."""
    cards = model.cardinalities
    # one table has as many effects as cells, less one
    if max(map(math.prod, model.shapes), default=1) > _MOST_EFFECTS + 1:
        return False
    found = subsets_inside(cards, model.scopes)
    effects = sum(math.prod(cards[v] - 1 for v in subset) for subset in found if subset)
    return 0 < effects <= _MOST_EFFECTS


def _is_panel(evidence: Evidence) -> bool:
    r"""Return True if tables of two waves say that most people stay in their state.

    These are the tables that Dirichlet rows divide into staying and moving (`forest`). Of the least-squares counts of
    all of them together,

    .. math:: κ = \frac{\sum_u n_{uu} - \sum_u n_{u+} n_{+u} / N}{N - \sum_u n_{u+} n_{+u} / N}

    is compared with 0.6. Answers to two questions with the same states hardly ever agree as much.
    """
    model = evidence.specification
    divided = junction_forest(
        model.cardinalities, model.scopes, evidence.supported, model.domain.states
    )
    assert divided is not None  # the model is decomposable
    waves = [table for table in divided.tables if table.step == "stay"]
    if not waves:
        return False
    counts = np.maximum(least_squares(evidence).counts, 0.0)
    same = 0.0
    expected = 0.0
    total = 0.0
    for table in waves:
        start, stop = model.offsets[table.clique : table.clique + 2]
        scope = model.scopes[table.clique]
        others = tuple(axis for axis, v in enumerate(scope) if v not in table.scope)
        pair = counts[start:stop].reshape(model.shapes[table.clique]).sum(axis=others)
        people = pair.sum()
        same += float(np.trace(pair))
        expected += float(pair.sum(axis=0) @ pair.sum(axis=1)) / max(people, 1.0)
        total += float(people)
    return same - expected > _STICKY * (total - expected)
