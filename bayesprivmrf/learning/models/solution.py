r"""A learned model as a `Solution`, whose records are drawn by Gibbs sampling where exact draws do not fit.

How two variables of a model depend on each other given all the others.

The conditional mutual information of two variables given all others,

.. math:: I_{ij} = E_{x} \sum_{a, b} p(a, b \mid x_{-ij}) \log \frac{p(a, b \mid x_{-ij})}
    {p(a \mid x_{-ij})\, p(b \mid x_{-ij})},

is 0 where the model lets the two be independent given the others, and there alone. As a number from 0 to 1 it is
:math:`\sqrt{1 - e^{-2 I}}`, the size of the partial correlation where variables are normal. The entries of a
coupling's table weigh all states alike; that of a state, or of two states together, which hardly anybody has is
decided by noise and may be any number of nats. Here such states weigh as often as they occur. State by state,

.. math:: \log \frac{E_x\, p(a, b \mid x_{-ij})}{E_x\, p(a \mid x_{-ij})\, p(b \mid x_{-ij})}

says how often two states come together, beside how often they would if the two variables were independent given the
others.

Means over x are exact where there are at most 4,096 different records, else over 1,000 records that the model draws,
with a seed of their own, so that equal models have equal numbers; the tables of two variables given the rest of a
record are always exact. All is post-processing.

References
----------
E. H. Linfoot, "An informational measure of correlation", Information and Control 1, 1957, 85-89.
H. Joe, "Relative entropy measures of multivariate dependence", Journal of the American Statistical Association 84,
1989, 157-164 (given other variables).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
from scipy.special import xlogy

from bayesprivmrf.chains.gibbs import gibbs_draws
from bayesprivmrf.errors import ModelError, ModelTooLargeError, SamplingWarning
from bayesprivmrf.inference.criticism import contradictions, learned_contradictions, model_assumptions
from bayesprivmrf.inference.evidence import gather
from bayesprivmrf.inference.solution import Solution, Status
from bayesprivmrf.marginals import marginal_engine, sample
from bayesprivmrf.model import CliqueTables
from bayesprivmrf.model.domain import Label, Variable
from bayesprivmrf.model.tables import FloatArray, IntArray, parent
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
        "ask the learned model itself: its `interval([...])` has those of tables where its cliques were measured, "
        "as after SelectMeasure, and `couplings_interval()` those of couplings"
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


# joint states up to which means are exact, and records where there are more; arbitrary, a second of work
_MOST_CONFIGURATIONS, _DRAWS = 1 << 12, 1_000
_SEED = 19570901  # arbitrary, and fixed: equal models have equal records and numbers
_BLOCK = 1 << 21  # numbers held at once, 16 MiB


@dataclass(frozen=True, kw_only=True, eq=False)
class Dependence:
    """Records of a model with their weights, and its tables of two variables given the rest of each record.

    Parameters
    ----------
    scopes
        Variable positions of each clique, in its axis order.
    potentials
        Log potentials, nats.
    codes
        States of the records, shape (r, p).
    weights
        Their probabilities, shape (r,), of sum 1.
    """

    scopes: tuple[tuple[int, ...], ...]
    potentials: CliqueTables
    codes: IntArray
    weights: FloatArray

    @classmethod
    def of(
        cls,
        cardinalities: tuple[int, ...],
        scopes: tuple[tuple[int, ...], ...],
        potentials: CliqueTables,
        draw: Callable[[int, np.random.Generator], IntArray],
    ) -> Dependence:
        """Return all records with their probabilities, or equally many of each that `draw` gives."""
        if math.prod(cardinalities) > _MOST_CONFIGURATIONS:
            codes = np.asarray(draw(_DRAWS, np.random.default_rng(_SEED)), dtype=np.int64)
            weights = np.full(len(codes), 1 / len(codes))
        else:
            codes = np.indices(cardinalities).reshape(len(cardinalities), -1).T
            logs = sum(potentials.table(c)[tuple(codes[:, scope].T)] for c, scope in enumerate(scopes))
            weights = np.exp(logs - np.max(logs))
            codes, weights = codes[weights > 0], weights[weights > 0] / weights.sum()
        return cls(scopes=scopes, potentials=potentials, codes=codes, weights=weights)

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
        """Return the log ratio to independence given the others, state by state, nats; 0 where neither can occur."""
        together, apart = 0.0, 0.0
        for weights, joint in self._joints(first, second):
            together = together + np.einsum("r,rab->ab", weights, joint)
            apart = apart + np.einsum("r,ra,rb->ab", weights, joint.sum(axis=2), joint.sum(axis=1))
        tiny = np.finfo(float).tiny
        return np.log(np.maximum(together, tiny)) - np.log(np.maximum(apart, tiny))

    def _joints(self, first: int, second: int) -> Iterator[tuple[FloatArray, FloatArray]]:
        """Yield weights of records, and the tables of two variables given the rest of each, shape (r, K, K)."""
        homes = [c for c, scope in enumerate(self.scopes) if first in scope or second in scope]
        shape = [self._states(v) for v in (first, second)]
        step = max(_BLOCK // math.prod(shape), 1)
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

    def _states(self, variable: int) -> int:
        home = parent(self.scopes, (variable,))
        assert home is not None  # each variable is in a clique
        return self.potentials.table(home).shape[self.scopes[home].index(variable)]
