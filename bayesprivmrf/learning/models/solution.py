r"""A learned model as a `Solution`, and the conditional dependence of its variables.

**Records.** A model too wide for exact draws draws records by Gibbs sampling.

**Dependence.** The conditional mutual information of two variables given all others,

.. math:: I_{ij} = E_{x} \sum_{a, b} p(a, b \mid x_{-ij}) \log \frac{p(a, b \mid x_{-ij})}
    {p(a \mid x_{-ij})\, p(b \mid x_{-ij})},

is 0 if and only if the two are independent given the others. On the scale from 0 to 1 it is
:math:`\sqrt{1 - e^{-2 I}}`, the absolute partial correlation if variables are normal. The entries of a coupling's
table treat all states alike, so noise decides the entry of a rare state or a rare pair of states, which may be any
number of nats. Mutual information weights states by their frequency. For each pair of states,

.. math:: \log \frac{E_x\, p(a, b \mid x_{-ij})}{E_x\, p(a \mid x_{-ij})\, p(b \mid x_{-ij})}

compares the frequency of the two states together with their frequency under conditional independence.

Means over x are exact if the model has at most 4,096 joint states. Otherwise they are over 1,000 records drawn from
the model with a fixed seed, so equal models give equal numbers. The tables of two variables given the rest of a
record are always exact. All of this is post-processing.

References
----------
E. H. Linfoot, "An informational measure of correlation", Information and Control 1, 1957, 85-89.
H. Joe, "Relative entropy measures of multivariate dependence", Journal of the American Statistical Association 84,
1989, 157-164 (given other variables).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
from scipy.special import xlogy

from bayesprivmrf.chains.gibbs import gibbs_draws
from bayesprivmrf.errors import ModelError, ModelTooLargeError, SamplingWarning
from bayesprivmrf.inference.criticism import contradictions, learned_contradictions, model_assumptions
from bayesprivmrf.inference.given_releases import gather
from bayesprivmrf.inference.solution import Solution, Status
from bayesprivmrf.marginals import marginal_engine, sample
from bayesprivmrf.model import CliqueTables
from bayesprivmrf.model.domain import Label, Variable
from bayesprivmrf.model.tables import FloatArray, IntArray, parent
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

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Assumptions behind all answers, one sentence each; the graph counts as learned, not declared."""
        return model_assumptions(self.specification, self.of_records, "Learned")

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
            problems, numbers = contradictions(evidence, np.zeros(marginals.size), marginals=marginals)
        else:
            problems, numbers = learned_contradictions(evidence, marginals)
        # a diverged fit keeps its status, which explains the contradiction
        is_judged = problems and self.status is not Status.DIVERGED
        status = Status.NOT_TRUSTED if is_judged else self.status
        stats = {**self.stats, **numbers}
        return replace(
            self, status=status, stats=stats, problems=(*self.problems, *problems), contradictions=problems
        )

    def codes(self, size: int, generator: np.random.Generator) -> tuple[np.ndarray, bool]:
        """Draw records, and return their codes, shape (size, p), and whether they can be trusted.

        Draws are independent and exact if the tables of exact sampling take at most 64 MiB, else from Gibbs chains.
        """
        model = self.specification
        cards, scopes, flat = model.cardinalities, model.scopes, self.potentials.flat
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
    warnings.warn(
        "the chains of the Gibbs sampler have not mixed: chains from random and from extreme starting points still "
        "differ. Do not use these records; the learned couplings are too strong for this sampler.",
        SamplingWarning,
        skip_file_prefixes=(str(Path(__file__).parents[2]),),
    )


# most joint states for exact means, and the number of drawn records otherwise; arbitrary, a second of work
_MOST_CONFIGURATIONS, _DRAWS = 1 << 12, 1_000


@dataclass(frozen=True, kw_only=True, eq=False)
class Dependence:
    """Weighted records of a model, and its tables of two variables given the rest of each record.

    Parameters
    ----------
    cardinalities
        Number of states of each variable.
    scopes
        Variable positions of each clique, in its axis order.
    potentials
        Log potentials, nats.
    codes
        States of the records, shape (r, p).
    weights
        Weights of the records, shape (r,), of sum 1.
    """

    cardinalities: tuple[int, ...]
    scopes: tuple[tuple[int, ...], ...]
    potentials: CliqueTables
    codes: IntArray
    weights: FloatArray

    @classmethod
    def of(cls, solution: LearnedSolution) -> Dependence:
        """Return all joint states weighted by their probabilities, or equally weighted draws of a larger model."""
        model, potentials = solution.specification, solution.potentials
        cardinalities, scopes = model.cardinalities, model.scopes
        if math.prod(cardinalities) > _MOST_CONFIGURATIONS:
            # an arbitrary, fixed seed: equal models have equal records
            codes = solution._codes(_DRAWS, np.random.default_rng(19570901), is_balanced=False).astype(
                np.int64
            )
            weights = np.full(len(codes), 1 / len(codes))
        else:
            codes = np.indices(cardinalities).reshape(len(cardinalities), -1).T
            logs = sum(potentials.table(c)[tuple(codes[:, scope].T)] for c, scope in enumerate(scopes))
            weights = np.exp(logs - np.max(logs))
            codes, weights = codes[weights > 0], weights[weights > 0] / weights.sum()
        return cls(
            cardinalities=cardinalities, scopes=scopes, potentials=potentials, codes=codes, weights=weights
        )

    def information(self, first: int, second: int) -> float:
        """Return the conditional mutual information of two variables given all others, nats."""
        found = 0.0
        for weights, joint in self._joints(first, second):
            sums = [
                xlogy(p, p).reshape(len(p), -1).sum(axis=1)
                for p in (joint, joint.sum(axis=2), joint.sum(axis=1))
            ]
            found += float(weights @ (sums[0] - sums[1] - sums[2]))
        return max(found, 0.0)

    def association(self, first: int, second: int) -> FloatArray:
        """Return the log ratio to conditional independence for each pair of states, nats; 0 for impossible states."""
        together, apart = 0.0, 0.0
        for weights, joint in self._joints(first, second):
            together = together + np.einsum("r,rab->ab", weights, joint)
            apart = apart + np.einsum("r,ra,rb->ab", weights, joint.sum(axis=2), joint.sum(axis=1))
        tiny = np.finfo(float).tiny
        return np.log(np.maximum(together, tiny)) - np.log(np.maximum(apart, tiny))

    def _joints(self, first: int, second: int) -> Iterator[tuple[FloatArray, FloatArray]]:
        """Yield weights of records, and the tables of two variables given the rest of each, shape (r, K, K)."""
        homes = [c for c, scope in enumerate(self.scopes) if first in scope or second in scope]
        shape = [self.cardinalities[v] for v in (first, second)]
        # 16 MiB of doubles at a time
        step = max((1 << 21) // math.prod(shape), 1)
        for start in range(0, len(self.codes), step):
            codes, weights = self.codes[start : start + step], self.weights[start : start + step]
            logs = np.zeros((len(codes), *shape))
            for home in homes:
                logs += self._given(home, codes, (first, second))
            joint = np.exp(logs - logs.max(axis=(1, 2), keepdims=True))
            yield weights, joint / joint.sum(axis=(1, 2), keepdims=True)

    def _given(self, home: int, codes: IntArray, pair: tuple[int, int]) -> FloatArray:
        """Return a clique's log potentials at the rest of each record, with an axis for each of the pair."""
        scope = self.scopes[home]
        rest, own = [v for v in scope if v not in pair], [v for v in pair if v in scope]
        table = self.potentials.table(home).transpose([scope.index(v) for v in (*rest, *own)])
        found = table[tuple(codes[:, v] for v in rest)] if rest else table[None]
        return found if len(own) == 2 else np.expand_dims(found, 2 if own[0] == pair[0] else 1)
