r"""A learned model as a `Solution`, what its status means for the user, and whether a release is pure noise.

A model too wide for exact draws draws records by Gibbs sampling.

**Pure noise.** A fit to pure noise converges as well as a fit to records, so convergence cannot detect it. A learned
model counts as pure noise, and gets the status `not trusted`, unless the released numbers determine both

- **the number of records**: the estimate :math:`\hat N` is at least two, and at least ten standard errors. Every
  probability is a count divided by :math:`\hat N`, which is then known to a tenth. The standard error is the larger
  of two: that of the estimate, and :math:`s = (\sum_v 1 / (K_v \sigma_v^2))^{-1/2}`, the error of an estimate from
  the tables of single variables, where :math:`\sigma_v` is the standard deviation of the noise on a count. A public
  number of records therefore does not pass the test by itself.
- **most variables**: call a variable *hidden* if its states with a noisy count of at least three standard deviations
  hold less than half of :math:`\hat N`. For equally frequent states this happens up to about
  :math:`N / K = 3 \sigma_v`. Fewer than half of the variables with several states may be hidden.

**Error rates.** Let s be the standard deviation of the noise on :math:`\hat N`. The first rule takes noise for
records with probability :math:`\Phi(-10 + N / s)`, which is :math:`10^{-23}` for N = 0 and
:math:`3 \cdot 10^{-7}` at N = 5 s. It takes records for noise with probability :math:`\Phi(10 - N / s)`, which is
:math:`3 \cdot 10^{-7}` at N = 15 s. The second rule misses a state of n records with probability
:math:`\Phi(3 - n / \sigma)`, which is :math:`10^{-4}` from 6.7 standard deviations on, and takes an empty state for
a frequent one with probability 0.0013. Variables have independent noise, so the probability that m of p variables err
together is at most :math:`\binom{p}{m} q^m`, where q is the probability for one variable.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from bayesprivmrf.chains.gibbs import gibbs_draws
from bayesprivmrf.errors import ModelError, ModelTooLargeError, SamplingWarning, warn_caller
from bayesprivmrf.files import Json
from bayesprivmrf.inference.criticism import contradictions, learned_contradictions
from bayesprivmrf.inference.given_releases import gather
from bayesprivmrf.inference.solution import Solution, Status
from bayesprivmrf.interruption import INTERRUPTED_BY
from bayesprivmrf.marginals import marginal_engine, sample
from bayesprivmrf.model.domain import Label, Variable
from bayesprivmrf.model.tables import FloatArray, parent
from bayesprivmrf.release import NoisyStatistics


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class LearnedSolution(Solution):
    """Distribution of a learned model.

    Marginals are exact; a model too wide for exact inference raises a `ModelTooLargeError`. Every model can draw
    records; a `SamplingWarning` says if the chains did not mix.

    Parameters
    ----------
    contradictions
        Problems of the fit that its own measurements reveal; `problems` contains them too.
    """

    contradictions: tuple[str, ...] = ()

    _origin: ClassVar[str] = "Learned"
    _remedy_without_interval: ClassVar[str] = (
        "ask the release: `learned.interval(['a', 'b'])` has intervals of tables if every clique was measured, and "
        "`learned.couplings_interval()` has intervals of couplings"
    )

    @property
    def merged_states(self) -> Mapping[Variable, tuple[tuple[Label, ...], ...]]:
        """Declared states that the fit merges, by variable; empty unless the model was learned in rounds."""
        return {}

    def stands_out(self, first: int, second: int) -> bool:
        """Return False if noise and sampling are known to explain the dependence of two variables."""
        return True

    def effect_error(self, scope: tuple[int, ...], states: Sequence[int]) -> float | None:
        """Return the standard error of an entry of an effect's table, or None if it is unknown."""
        return None

    def judged(self, statistics: NoisyStatistics | None, *, is_shrunk: bool = False) -> Self:
        """Return the solution, with the status ``not trusted`` if its measurements contradict it.

        Parameters
        ----------
        statistics
            Measurements that the model was fitted to.
        is_shrunk
            Whether the estimate treats sampling as noise, so that it may differ from the records by more than the
            noise. The check then asks whether any distribution of the model is near the measurements.

        Notes
        -----
        Models that take more than 16 MiB are not checked.
        """
        if statistics is None:
            return self
        try:
            evidence = gather(statistics, needs_kernel=False)
            model = self.specification
            # compare a model with its measurements only if it takes at most 16 MiB: a second of work
            marginal_engine(model.cardinalities, model.scopes, memory_limit=1 << 24)
            tables = [
                self._marginal_table(scope, {}).ravel()
                if parent(model.scopes, scope) is None
                else model.project(self.marginals.flat, scope).ravel()
                for scope in evidence.specification.scopes
            ]
        except (ModelError, ModelTooLargeError):  # no estimator can read these measurements
            return self
        marginals = np.concatenate([np.zeros(0), *tables])
        if is_shrunk:
            problems, numbers = contradictions(
                evidence, np.zeros(marginals.size), marginals=marginals
            )
        else:
            problems, numbers = learned_contradictions(evidence, marginals)
        # a diverged fit keeps its status, which explains the contradiction
        is_judged = problems and self.status is not Status.DIVERGED
        if is_judged:
            status = Status.NOT_TRUSTED
        else:
            status = self.status
        stats = {**self.stats, **numbers}
        return replace(
            self,
            status=status,
            stats=stats,
            problems=(*self.problems, *problems),
            contradictions=problems,
        )

    def codes(self, size: int, generator: np.random.Generator) -> tuple[np.ndarray, bool]:
        """Draw records, and return their codes, shape (size, p), and whether they can be trusted.

        Draws are independent and exact if the tables of exact sampling take at most 64 MiB, else from Gibbs chains.
        """
        model = self.specification
        cards = model.cardinalities
        scopes = model.scopes
        flat = self.potentials.flat
        try:
            # exact draws if the conditional tables take at most 64 MiB
            return sample(cards, scopes, flat, size, generator, memory_limit=1 << 26), True
        except ModelTooLargeError:
            draws = gibbs_draws(cards, scopes, flat, size, generator)
            return draws.codes, draws.mixing.trusted

    def _codes(self, size: int, generator: np.random.Generator, is_balanced: bool) -> np.ndarray:
        if is_balanced:  # Gibbs chains draw no balanced records, so a wide model raises an error
            return super()._codes(size, generator, is_balanced)
        codes, is_trusted = self.codes(size, generator)
        if not is_trusted:
            warn_of_chains()
        return codes


def warn_of_chains() -> None:
    """Warn that Gibbs chains did not mix, at the caller's line outside the library."""
    warn_caller(
        "the chains of the Gibbs sampler have not mixed: chains from random and from extreme starting points still "
        "differ. Do not use these records; the learned couplings are too strong for this sampler.",
        SamplingWarning,
    )


# Key in the details of a release whose fit failed: the smaller model that replaces it
FALLBACK = "fallen_back"

# Line of a printed model about states without records, where no released number counts states
NO_COUNTS = "not known: no released number counts states, and effects of a state without records are arbitrary"

# Remedy for each status other than success
_ADVICE = {
    Status.NOT_TRUSTED: "do not use its numbers; spend more, or take more records or fewer variables",
    Status.DIVERGED: "do not use its numbers; spend more, or take a smaller model",
    Status.ITERATION_LIMIT: "the fit had not settled; take a smaller model, or more time",
}


def status_with_advice(status: Status, details: Mapping[str, Any]) -> str:
    """Return a status in words, followed by a remedy unless the fit succeeded.

    Parameters
    ----------
    status
        Status of the fit.
    details
        Details of the release. They distinguish a fit that failed (refits are counted, or a smaller model replaces
        it) from a path that stopped early on purpose.
    """
    if (name := details.get(INTERRUPTED_BY)) is not None and status is Status.STOPPED_EARLY:
        return f"{status.value}: a {name} interrupted it, and it holds what was computed until then"
    if (stands_in := details.get(FALLBACK)) is not None:
        return f"{status.value}: the fit of all pairs failed, and the model is a smaller one ({stands_in})"
    has_failed = status is Status.STOPPED_EARLY and "refits_that_failed" in details
    advice = _ADVICE.get(status)
    if has_failed:
        advice = "the last fit failed, and what was measured last is not in it; spend more, or take a smaller model"
    if advice is None:
        return status.value
    return f"{status.value}: {advice}"


def merging_text(merged: Mapping[Any, Sequence[Sequence[Any]]]) -> str:
    """Return a line about the states that a fit merges, with the groups of the first few variables.

    Parameters
    ----------
    merged
        Groups of several states, by variable.
    """
    shown = 5  # more variables would make the line too long
    named = [
        f"{variable}: {'; '.join(' = '.join(map(str, part)) for part in parts)}"
        for variable, parts in list(merged.items())[:shown]
    ]
    if len(merged) > shown:
        more = f", and states of {len(merged) - shown} more variables"
    else:
        more = ""
    return f"{', '.join(named)}{more} (rare states, merged in the fit)"


# Key in the details of a release that is pure noise: the quantity that the noise hides
HIDDEN_BY_NOISE = "noise_hides"

# Smallest estimated number of records of a model that is not pure noise, and its smallest ratio to the standard error
LEAST_RECORDS, LEAST_RATIO = 2.0, 10.0

# Standard deviations of noise from which a count shows that a state has records
CLEAR = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """Facts about the records that the released numbers determine in spite of the noise.

    Parameters
    ----------
    knows_total
        Whether the numbers determine the number of records.
    free
        Positions of the variables with several states.
    hidden
        Positions of the variables among `free` whose distribution the noise hides.
    unsupported
        For each variable, the positions of states whose noisy count is below three standard deviations, so that they
        may have no record. ``None`` if no released number counts states.
    """

    knows_total: bool
    free: tuple[int, ...]
    hidden: tuple[int, ...]
    unsupported: tuple[tuple[int, ...], ...] | None

    @classmethod
    def of(
        cls, total: float, error: float, counts: Sequence[FloatArray], deviations: Sequence[float]
    ) -> Signal:
        """Return the signal in noisy counts of single variables.

        Parameters
        ----------
        total, error
            Estimated number of records and its standard error; an error of 0 for a public number.
        counts
            Noisy counts of each variable's states, records.
        deviations
            Standard deviation of the noise on a count, one for each variable.
        """
        free = tuple(v for v, y in enumerate(counts) if len(y) > 1)
        hidden = tuple(
            v for v in free if counts[v][counts[v] >= CLEAR * deviations[v]].sum() < total / 2
        )
        variances = np.array([len(counts[v]) * deviations[v] ** 2 for v in free])
        if free and (variances > 0).all():
            alone = 1 / math.sqrt((1 / variances).sum())
        else:
            alone = 0.0
        knows_total = total >= max(LEAST_RECORDS, LEAST_RATIO * error, LEAST_RATIO * alone)
        absent = tuple(
            tuple(np.flatnonzero(y < CLEAR * sd).tolist() if len(y) > 1 else ())
            for y, sd in zip(counts, deviations, strict=True)
        )
        return cls(knows_total=knows_total, free=free, hidden=hidden, unsupported=absent or None)

    @property
    def is_noise_alone(self) -> bool:
        """Return True if the numbers count as pure noise; the module states the rule."""
        return not self.knows_total or 2 * len(self.hidden) >= max(len(self.free), 1)

    @property
    def details(self) -> dict[str, Json]:
        """Entries of a release's details: the status and the quantity that the noise hides; empty otherwise."""
        if not self.is_noise_alone:
            return {}
        several = f"which states {len(self.hidden)} of {len(self.free)} variables have"
        if self.knows_total:
            hides = several
        else:
            hides = "how many records there are"
        return {"status": str(Status.NOT_TRUSTED), HIDDEN_BY_NOISE: hides}
