"""A learned model as a `Solution`, whose records are drawn by Gibbs sampling where exact draws do not fit."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Self

import numpy as np

from bayesprivmrf.chains.gibbs import gibbs_draws
from bayesprivmrf.errors import ModelError, ModelTooLargeError, SamplingWarning
from bayesprivmrf.inference.criticism import contradictions, learned_contradictions, model_assumptions
from bayesprivmrf.inference.evidence import gather
from bayesprivmrf.inference.solution import Solution, Status
from bayesprivmrf.marginals import marginal_engine, sample
from bayesprivmrf.model.domain import Label, Variable
from bayesprivmrf.model.tables import FloatArray, parent
from bayesprivmrf.release import NoisyStatistics

_MEMORY = 1 << 26  # bytes of conditional tables up to which draws are exact
_JUDGED = 1 << 24  # bytes of a model up to which it is compared with its measurements, within a second
_LIBRARY = str(Path(__file__).parents[2])  # the folder of the package, whose lines a warning skips


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class LearnedSolution(Solution):
    """The distribution of a learned model.

    Marginals are exact, and refused with a `ModelTooLargeError` where the model is too wide. Records are drawn of any
    model; a `SamplingWarning` says if the chains did not mix.

    Parameters
    ----------
    contradictions
        Problems of the fit that its own measurements show; they are among `problems` as well.
    """

    contradictions: tuple[str, ...] = ()

    _remedy_without_interval: ClassVar[str] = (
        "a learned model's `interval([...])` has those of tables where its cliques were measured, as after "
        "SelectMeasure(rho), and `couplings_interval()` those of couplings"
    )

    @property
    def merged_states(self) -> Mapping[Variable, tuple[tuple[Label, ...], ...]]:
        """Declared states that are merged in the fit, by variable; none unless the model was learned in rounds."""
        return {}

    def stands_out(self, first: int, second: int) -> bool:
        """Return False if noise and sampling could explain the dependence of two variables, where that is known."""
        return True

    def effect_error(self, scope: tuple[int, ...], states: Sequence[int]) -> float | None:
        """Return the standard deviation of an entry of an effect's table, None where it is not known."""
        return None

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Assumptions that answers rest on, one sentence each: the graph was learned, not declared."""
        return model_assumptions(self.specification, self.of_records, "Learned")

    def judged(self, statistics: NoisyStatistics | None, *, is_shrunk: bool = False) -> Self:
        """Return the same distribution, not trusted where the measurements that it was fitted to contradict it.

        Parameters
        ----------
        statistics
            The measurements.
        is_shrunk
            Whether the estimate counts sampling as noise, so that it may differ from the records by more than noise.
            Its model is then judged: whether any of its distributions is near the measurements.

        Notes
        -----
        Models that take more than 16 MiB are not judged.
        """
        if statistics is None:
            return self
        try:
            evidence = gather(statistics, needs_kernel=False)
            model = self.specification
            marginal_engine(model.cardinalities, model.scopes, memory_limit=_JUDGED)
            tables = [np.ravel(self._table_of(scope)) for scope in evidence.specification.scopes]
        except (ModelError, ModelTooLargeError):  # measurements that no estimator reads
            return self
        marginals = np.concatenate([np.zeros(0), *tables])
        if is_shrunk:
            problems, numbers = contradictions(evidence, np.zeros(marginals.size), marginals=marginals)
        else:
            problems, numbers = learned_contradictions(evidence, marginals)
        # a fit that diverged says so: its measurements contradict it as a consequence
        is_judged = problems and self.status is not Status.DIVERGED
        status = Status.NOT_TRUSTED if is_judged else self.status
        stats = {**self.stats, **numbers}
        return replace(
            self, status=status, stats=stats, problems=(*self.problems, *problems), contradictions=problems
        )

    def _table_of(self, scope: Sequence[int]) -> FloatArray:
        model = self.specification
        if parent(model.scopes, scope) is None:
            return self._marginal_table(scope, {})
        return model.project(self.marginals.flat, scope)

    def codes(self, size: int, generator: np.random.Generator) -> tuple[np.ndarray, bool]:
        """Return records as states' codes, shape (size, p), and whether they can be trusted.

        Draws are independent and exact where the tables of exact sampling take at most 64 MiB, else those of chains.
        """
        model = self.specification
        cards, scopes, flat = model.cardinalities, model.scopes, self.potentials.flat
        try:
            return sample(cards, scopes, flat, size, generator, memory_limit=_MEMORY), True
        except ModelTooLargeError:
            draws = gibbs_draws(cards, scopes, flat, size, generator)
            return draws.codes, draws.mixing.trusted

    def _codes(self, size: int, generator: np.random.Generator, is_balanced: bool) -> np.ndarray:
        if is_balanced:  # refused where the model is too wide: chains draw no such records
            return super()._codes(size, generator, is_balanced)
        codes, is_trusted = self.codes(size, generator)
        if not is_trusted:
            warn_of_chains()
        return codes


def warn_of_chains() -> None:
    """Warn, at the line outside the library that asked for them, that records are not to be trusted."""
    warnings.warn(
        "the chains of the Gibbs sampler have not mixed: those that started at random and at one end still "
        "differ; distrust these records, as the learned couplings are too strong for this sampler.",
        SamplingWarning,
        skip_file_prefixes=(_LIBRARY,),
    )
