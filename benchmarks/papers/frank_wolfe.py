r"""Algorithms 2 and 3 with the paper's constants, Laplace noise on every atom's score, steps, and last iterate.

Its scale, on sums, is :math:`L_1 R \sqrt{T/\rho'}` with :math:`L_1 = 2`, radius R, and :math:`\rho'` the budget of
one regression. The paper says that a step is then :math:`\sqrt{\rho'/T}`-private. It is
:math:`2 L \sqrt{\rho'/T}`-private, :math:`L = \sigma(R) < 1` being the true bound of the gradient: replacing a record
moves a score by up to :math:`2 L R`, and the largest noisy score of several that move both ways costs two such
bounds. So a regression costs :math:`2 L^2 \rho'`, and that is what the guarantee says.

In whole numbers, for discrete Laplace noise of scale b on scores that a residual of at most B moves: fix the noise of
all other atoms. One atom is chosen where its own noise is at least a whole number that depends on the others (ties go
to the first in a public order). A neighbour moves its score by at most 2 B one way and the others by at most 2 B the
other way, hence that number by at most 4 B, and the probability by a factor of at most :math:`e^{\epsilon}`,
:math:`\epsilon = 4 B / b`. A pure guarantee costs :math:`\epsilon^2 / 2`, at each step of each regression.

The rest follows the paper exactly: :math:`\mu_t = 2/(t + 2)` from :math:`w_1 = 0`, T - 1 steps,
:math:`T = (R n \sqrt{\rho'})^{2/3}`. In Algorithm 3 losses are sums over the records in either of two states;
dividing by their number |S| would change no choice as long as the noise is divided as well, but a T
that depends on |S| would reveal |S|, so T is computed from all n records.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import permutations
from typing import Literal, Self, final

import numpy as np

from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.inference.optimize import one_blas_thread
from bayesprivmrf.learning.frank_wolfe import (
    LARGEST_STEPS,
    RESIDUAL_UNIT,
    Atoms,
    Design,
    FrankWolfeFit,
    LogisticRegressions,
    MonomialsByRegressions,
    NodeRegressions,
    PairwiseByRegressions,
)
from bayesprivmrf.mechanisms.frank_wolfe.mechanism import (
    FrankWolfePlan,
    PrivateFrankWolfe,
    choices_outlay,
)
from bayesprivmrf.mechanisms.reading import CodedRecords
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.tables import FloatArray, IntArray
from bayesprivmrf.noise.source import NoiseSource
from bayesprivmrf.planning import Outlay
from bayesprivmrf.privacy import Adjacency, DiscreteLaplace, PrivacyGuarantee
from bayesprivmrf.privacy.guarantee import round_up
from bayesprivmrf.privacy.selection import Exposure

_LIPSCHITZ = 2.0
"""The paper's :math:`L_1`, the Lipschitz constant of the logistic loss."""


@dataclass(frozen=True, eq=False, kw_only=True)
class PaperRegressions(PairwiseByRegressions):
    """Abstract map with the paper's constants; for replace-one neighbours."""

    @property
    @abstractmethod
    def share(self) -> float:
        """The paper's budget of one regression, nats."""

    @property
    @abstractmethod
    def replaced(self) -> int:
        """How many regressions a record replaces, at most; those of half the move count as fourths."""

    @property
    def cost(self) -> float:
        r"""What a release really costs, nats: :math:`2 (B/4096)^2 \rho'` a regression, rounded up.

        T - 1 steps are run with the noise for T: they cost less by a factor of 1 - 1/T, more than what rounding adds.
        """
        largest = RESIDUAL_UNIT / (1 + math.exp(-self.radius))
        bound = min(RESIDUAL_UNIT, math.floor(largest + 0.5 + 2.0**-20))
        return round_up(
            2 * self.replaced * Fraction(bound, RESIDUAL_UNIT) ** 2 * Fraction(self.share)
        )

    def noise(self, steps: int) -> DiscreteLaplace:
        """Distribution of the noise on an atom's score, in units of a residual."""
        return DiscreteLaplace(_LIPSCHITZ * RESIDUAL_UNIT * math.sqrt(steps / self.share))

    @property
    def reference(self) -> float:
        """Twice that of the tight noise: `multiple` is relative to a residual of 1, and the first ones are 1/2."""
        return 2 * super().reference

    def multiple(self, steps: int) -> float:
        """Return the scale of the noise over the largest residual there could be, 1."""
        return self.noise(steps).scale / RESIDUAL_UNIT

    def steps_for(self, total: float | None) -> int:
        """Return T; the algorithm runs T - 1 steps."""
        if self.steps is not None:
            return max(self.steps, 2)
        assert total is not None
        steps = math.ceil((self.radius * total * math.sqrt(self.share)) ** (2 / 3))
        return min(max(steps, 2), LARGEST_STEPS)

    def learn(
        self, codes: np.ndarray, counts: IntArray, total: float | None, source: NoiseSource
    ) -> tuple[FloatArray, ...]:
        """Return the parameters of the release by the paper's algorithm."""
        return paper_run(self, CodedRecords.of(codes, counts), total, source).parts


def paper_run(
    fitting: PaperRegressions, records: CodedRecords, total: float | None, source: NoiseSource
) -> FrankWolfeFit:
    """Run the paper's algorithm on records: Laplace noise on all scores, and the last iterate."""
    steps = fitting.steps_for(total)
    regressions = fitting.regressions(records.sensitive_codes, records.sensitive_counts)
    eligible = fitting.eligible_groups(regressions)
    law = fitting.noise(steps)
    with one_blas_thread() as regressions.workers:
        for step in range(2, steps + 1):  # the weight of an atom beside that of 0, which is 1
            sums = regressions.sums()
            scores = np.concatenate([sums, -sums], axis=1)
            noisy = source.add(scores.ravel(), law).reshape(scores.shape)
            noisy[~np.tile(eligible, 2)] = np.iinfo(np.int64).min
            column = noisy.argmax(axis=1) % sums.shape[1]
            sign = noisy.argmax(axis=1) < sums.shape[1]
            signs = (2 * sign[:, None] - 1).astype(np.int8)
            regressions.move(Atoms(groups=column, signs=signs), step)
    return fitting.refitted(fitting.model_of(regressions.iterates), None, total)


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class PaperIsing(PaperRegressions):
    """Algorithm 2, for two states a variable: radius 2 lambda, a budget of rho/p a node."""

    kind = "paper-regressions"

    @property
    def exposure(self) -> Exposure:
        """How far one record reaches."""
        return Exposure.of_logistic(len(self.cardinalities))

    @property
    def share(self) -> float:
        """The paper's budget of one regression, nats."""
        return self.rho / len(self.cardinalities)

    @property
    def replaced(self) -> int:
        """One regression a node."""
        return len(self.cardinalities)

    def regressions(self, codes: np.ndarray, counts: IntArray) -> NodeRegressions:
        """Return the regressions at their start."""
        design = Design.with_constant(codes, self.cardinalities)
        return LogisticRegressions(
            design, codes, counts, self.radius, np.arange(len(self.cardinalities))
        )

    def _by_state(self, coefficients: FloatArray) -> FloatArray:
        rows = np.empty((2 * len(coefficients), coefficients.shape[1]))
        rows[1::2] = coefficients / 2
        rows[::2] = -coefficients / 2
        return rows


@dataclass(frozen=True, eq=False, kw_only=True)
class IndicatorDesign(Design):
    """Design whose columns are indicators 0 and 1 instead of signs."""

    @classmethod
    def of(cls, codes: np.ndarray, cardinalities: tuple[int, ...]) -> Self:
        """Return the design with one indicator for each state of each variable, and a constant."""
        states = [codes[:, j, None] == np.arange(k) for j, k in enumerate(cardinalities)]
        ones = np.ones((len(codes), 1), dtype=bool)
        columns = np.hstack([*states, ones]).astype(np.uint8)
        return cls(codes=columns, cardinalities=(2,) * columns.shape[1])

    def featured(self, by_code: FloatArray, totals: FloatArray) -> FloatArray:
        """Return sums of products with features, which are the codes themselves."""
        return by_code

    def steps(self, atoms: Atoms, weight: int) -> np.ndarray:
        """Return the change of the margin for each code; code 0 has none."""
        steps = super().steps(atoms, weight)
        steps[:, 0] = 0
        return steps


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class PaperPairs(PaperRegressions):
    r"""Algorithm 3: each ordered pair of states of each node, radius 2 lambda k in the l1 ball, rho/(k^2 p) each.

    k is the largest number of states. Features are 0 or 1, so where the label stays, and residuals keep their sign,
    :math:`|q f_j - q' f'_j| \le B`: replacing a record of a node of k states by one of the same state moves scores of
    2 (k - 1) regressions by half of 2B, a fourth of the cost. Where the state changes, 2 regressions see the label
    change and move by 2B, while 2 (k - 2) lose the record and as many gain it, by B: :math:`2 + 4 (k - 2)/4 = k`
    in all, which is more. So the whole costs at most :math:`2 L^2 \rho / k \le L^2 \rho`.
    """

    kind = "paper-pair-regressions"

    @property
    def exposure(self) -> Exposure:
        """How far one record reaches."""
        return Exposure(squares=self.replaced, choices=len(self._pairs))

    @property
    def radius(self) -> float:
        """Twice the width, times the largest number of states."""
        return 2 * self.width * max(self.cardinalities)

    @property
    def share(self) -> float:
        """The paper's budget of one regression, nats."""
        return self.rho / (max(self.cardinalities) ** 2 * len(self.cardinalities))

    @property
    def replaced(self) -> int:
        """Largest number of regressions moved by 2B, those moved by B counted as fourths, over all nodes."""
        return sum(k for k in self.cardinalities if k > 1)

    @cached_property
    def _pairs(self) -> np.ndarray:
        """Node, the state that is +1 and the one that is -1, one row a regression."""
        return np.array(
            [(i, *ab) for i, k in enumerate(self.cardinalities) for ab in permutations(range(k), 2)]
        )

    def regressions(self, codes: np.ndarray, counts: IntArray) -> NodeRegressions:
        """Return the regressions at their start."""
        design = IndicatorDesign.of(codes, self.cardinalities)
        nodes, *outcomes = self._pairs.T
        return LogisticRegressions(design, codes, counts, self.radius, nodes, tuple(outcomes))

    def _by_state(self, coefficients: FloatArray) -> FloatArray:
        rows = np.zeros((self.starts[-1], coefficients.shape[1]))
        node, positive, _ = self._pairs.T
        np.add.at(
            rows,
            self.starts[node] + positive,
            coefficients / np.array(self.cardinalities)[node, None],
        )
        return rows

    @cached_property
    def _columns(self) -> tuple[np.ndarray, np.ndarray]:
        return np.arange(self.starts[-1]), np.ones(self.starts[-1])

    def eligible_groups(self, regressions: NodeRegressions) -> np.ndarray:
        """Return the mask of the states of the variables that may be coupled, and of the constant."""
        by_variable = super().eligible_groups(regressions)[:, :-1]
        by_state = by_variable.repeat(self.cardinalities, axis=1)
        return np.pad(by_state, ((0, 0), (0, 1)), constant_values=True)


@final
@dataclass(frozen=True, kw_only=True)
class PaperFrankWolfe(PrivateFrankWolfe):
    r"""Algorithms 2 and 3 as a mechanism: the paper's noise, steps and last iterate, for replace-one neighbors.

    The guarantee of a release states what the noise costs, which is not `rho`. The parameters are those of
    `PrivateFrankWolfe` without `order`, `target` and `single_share`, which the paper does not have.

    Raises
    ------
    ArgumentError
        A setting is out of range, or one that the paper does not have.

    Examples
    --------
    >>> PaperFrankWolfe(rho=1.0, width=1.0).adjacency.value
    'replace-one'
    """

    adjacency: Adjacency = Adjacency.REPLACE_ONE
    single_share: float = 0.0
    method: Literal["pairs"] = "pairs"  # type: ignore[assignment]

    def __post_init__(self) -> None:
        super().__post_init__()
        paper = {
            "adjacency": Adjacency.REPLACE_ONE,
            "single_share": 0.0,
            "method": "pairs",
            "order": 2,
        }
        for name, value in paper.items():
            if (given := getattr(self, name)) != value:
                raise ArgumentError(
                    f"`{name}` must be {value!r} for the paper's algorithms, got {given!r}; leave it out, or use "
                    "PrivateFrankWolfe."
                )

    def _map_of(self, specification: ModelSpecification) -> type[PairwiseByRegressions]:
        super()._map_of(specification)  # checks the variables and the memory
        if set(specification.cardinalities) == {2}:
            return PaperIsing
        return PaperPairs

    def _run(
        self,
        fitting: PairwiseByRegressions | MonomialsByRegressions,
        records: CodedRecords,
        total: float | None,
        source: NoiseSource,
    ) -> FrankWolfeFit:
        assert isinstance(fitting, PaperRegressions)
        return paper_run(fitting, records, total, source)

    def _outlays(self, plan: FrankWolfePlan, total: float | None) -> list[Outlay]:
        # an audit knows choices by the exponential mechanism, and not the largest of noisy scores
        assert isinstance(plan.map, PaperRegressions)
        return [
            *self._total_outlay(plan),
            replace(choices_outlay(plan.map, plan.map.cost, total), draws=()),
        ]

    def _guarantee(self, plan: FrankWolfePlan) -> PrivacyGuarantee:
        assert isinstance(plan.map, PaperRegressions)
        return PrivacyGuarantee(rho=plan.map.cost, adjacency=self.adjacency)
