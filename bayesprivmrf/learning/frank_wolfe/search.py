r"""Private Frank-Wolfe: minimize a convex loss over the convex hull of atoms, with one noisy choice a step.

Step t picks the atom that best follows the negative gradient at the last iterate, by the exponential mechanism. All
atoms so far, and the starting point 0, have equal weights in the iterate. The result is a mean of iterates:

.. math:: w_t = \frac{1}{t + 1} \sum_{k \le t} s_k = (1 - \mu_t)\, w_{t-1} + \mu_t s_t, \quad \mu_t = \frac{1}{t + 1},
    \qquad \bar w = \frac{\sum_t t^2 w_t}{\sum_t t^2} .

An iterate is therefore a mean of atoms with whole weights, and margins are whole numbers over a public divisor. With
noise this estimate needs half the steps of :math:`\mu_t = 2/(t + 2)` with the last iterate, and is more accurate
(docs/explanation/frank-wolfe.md). The choice of weights is post-processing and costs no budget.

The module also has the default number of steps, the settings that all maps by regressions write to files, and the map
of one sparse logistic regression.

References
----------
Talwar, Thakurta, Zhang 2015. Zhang, Kamath, Kulkarni, Wu 2020, Algorithm 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from bayesprivmrf.interruption import remember
from bayesprivmrf.learning.frank_wolfe.atoms import choose_atoms
from bayesprivmrf.learning.frank_wolfe.node_regressions import Design, LogisticRegressions, NodeRegressions
from bayesprivmrf.model.tables import FloatArray, IntArray
from bayesprivmrf.noise.source import NoiseSource
from bayesprivmrf.privacy import Adjacency, DiscreteGaussian
from bayesprivmrf.privacy.selection import Exposure, step_scale
from bayesprivmrf.release.codec import Fields
from bayesprivmrf.threads import one_blas_thread

# Most steps: their margins fit 16 bits
LARGEST_STEPS = 30_000


def frank_wolfe(
    regressions: NodeRegressions, *, steps: int, multiple: float, source: NoiseSource, eligible: np.ndarray
) -> FloatArray:
    r"""Run all regressions in lockstep, and return their mean iterates.

    Parameters
    ----------
    regressions
        Regressions at their starting point. The search changes them, so they cannot be reused.
    steps
        Public number of steps T.
    multiple
        Noise multiple :math:`\kappa` from `bayesprivmrf.privacy.selection.step_scale`. Regression r chooses at
        scale :math:`\kappa B_r`, where :math:`B_r` is its public bound of residuals (`NodeRegressions.bounds`).
    source
        Source of the random choices.
    eligible
        Public mask of groups, shape (regressions, groups).

    Returns
    -------
    ndarray
        Coefficients, shape (regressions, columns).
    """
    mean, weights, taken = np.zeros(regressions.coefficients.shape), step_weights(steps), 0
    try:
        with one_blas_thread() as regressions.workers:
            for step in range(1, steps + 1):
                sums = regressions.sums()
                # round the scale up by more than the rounding error of the product
                scales = regressions.bounds.astype(np.float64) * (multiple * (1 + 2.0**-50))
                regressions.move(choose_atoms(sums, regressions.design.starts, scales, source, eligible), 1)
                mean, taken = mean + weights[step - 1] * regressions.iterates, step
    except BaseException as error:
        remember(error)  # the mean of the iterates so far is a valid result
        mean = mean / weights[:taken].sum() if taken else mean
    return mean


def step_weights(steps: int) -> FloatArray:
    r"""Return the weights of the iterates in their mean, :math:`t^2 / \sum_t t^2`."""
    t = np.arange(1, steps + 1)
    return 6 * t**2 / (steps * (steps + 1) * (2 * steps + 1))


# Factor of `default_steps` for logistic regressions; measured, see docs/explanation/frank-wolfe.md
STEPS_OF_LOGISTIC = 0.11


def default_steps(
    total: float,
    radius: float,
    exposure: Exposure,
    rho: float,
    adjacency: Adjacency,
    factor: float = STEPS_OF_LOGISTIC,
) -> int:
    r"""Return the number of steps T from public numbers: a factor times :math:`(R n / \kappa_1)^{2/3}`, at least 10.

    The excess loss per record after T steps is of the order :math:`R^2/T + R \kappa_1 \sqrt{T} / n`, where
    :math:`\kappa_1` is the noise multiple of a single step. This form minimizes it. The factor was measured
    (docs/explanation/frank-wolfe.md).
    """
    signal = radius * total / step_scale(exposure, rho, 1, adjacency)
    steps = math.ceil(factor * signal ** (2 / 3))
    # a mean of fewer than ten atoms is too coarse even where noise is large; arbitrary
    return min(max(steps, 10), LARGEST_STEPS)


def common_settings(content: Fields) -> dict[str, Any]:
    """Return the common settings of all maps by regressions from a release's file."""
    # files of releases without measured single variables lack this entry
    scale = content.positive("singles") if "singles" in content else None
    return {
        "width": content.positive("width"),
        "rho": content.positive("rho"),
        "adjacency": Adjacency.checked(content.text("adjacency")),
        "steps": content.whole("steps", 1, LARGEST_STEPS, optional=True),
        "singles": None if scale is None else DiscreteGaussian(scale),
    }


def written_singles(law: DiscreteGaussian | None) -> dict[str, Any]:
    """Return the scale of the noise on single variables for a release's file; nothing where they are not measured."""
    return {} if law is None else {"singles": law.scale}


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class SparseLogistic:
    r"""Log-odds of one two-state variable given the others, :math:`c + \sum_j w_j(x_j)`, each w adding to 0.

    Parameters
    ----------
    cardinalities
        States of each variable, the target's among them.
    target
        Position of the variable to explain, of two states.
    radius
        R, of the ball :math:`|c| + \sum_j \max_b |w_j(b)| \le R` that is searched.
    rho
        Budget, nats.
    adjacency
        Neighboring relation.
    steps
        T, or ``None`` for `default_steps` of the number of records.
    """

    cardinalities: tuple[int, ...]
    target: int
    radius: float
    rho: float
    adjacency: Adjacency
    steps: int | None = None

    @property
    def exposure(self) -> Exposure:
        """One regression."""
        return Exposure.of_logistic(1)

    @property
    def atoms(self) -> int:
        """Number of atoms of a choice: the signs of each group of features, the constant's among them."""
        others = (k for place, k in enumerate(self.cardinalities) if place != self.target)
        return 2 + sum(2 if k == 2 else 2**k for k in others if k > 1)

    @property
    def reference(self) -> float:
        """2: the first score of an effect w on the log-odds is n w / 2 times the largest residual."""
        return 2.0

    def steps_for(self, total: float | None) -> int:
        """Return T for a public or noisy number of records, which is unused where T is a setting."""
        if self.steps is not None:
            return self.steps
        assert total is not None
        return default_steps(total, self.radius, self.exposure, self.rho, self.adjacency)

    def multiple(self, steps: int) -> float:
        """Return the noise multiple of T steps."""
        return step_scale(self.exposure, self.rho, steps, self.adjacency)

    def learn(
        self, codes: np.ndarray, counts: IntArray, total: float | None, source: NoiseSource
    ) -> tuple[FloatArray, float]:
        """Return w, states of all variables after another (0 for the target's), and c.

        Parameters
        ----------
        codes, counts
            Records as codes, shape (rows, p), and how many each row stands for.
        total
            Their number as far as it may be used: public or noisy; unused where T is a setting.
        source
            Source of the random choices.
        """
        steps = self.steps_for(total)
        design = Design.with_constant(codes, self.cardinalities)
        eligible = np.array([k > 1 for k in design.cardinalities])
        eligible[self.target] = False
        coefficients = frank_wolfe(
            LogisticRegressions(design, codes, counts, self.radius, np.array([self.target])),
            steps=steps,
            multiple=self.multiple(steps),
            source=source,
            eligible=eligible[None],
        )[0]
        return self._centred(design, coefficients)

    def _centred(self, design: Design, coefficients: FloatArray) -> tuple[FloatArray, float]:
        effects, constant = [], float(coefficients[-1])
        for k, start in zip(self.cardinalities, design.starts, strict=False):
            values = (
                coefficients[start] * np.array([-1.0, 1.0]) if k == 2 else coefficients[start : start + k]
            )
            effects.append(values - values.mean())
            constant += float(values.mean())
        return np.concatenate(effects), constant
