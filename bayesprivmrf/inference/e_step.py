r"""The E-step of the collective graphical model: the approximate mode of the true counts given the noisy ones.

Equation (6) of Bernstein et al. (2017): over all consistent real tables n with sum N,

.. math:: n^\ast = \arg\max_n \; θ'n + H(n) + \log p(y \mid n).

**Fixed point.** Without the last term the maximiser is :math:`N μ(θ)`. Linearising it at the solution shows
:math:`n^\ast = N μ(θ + g)` with :math:`g = ∇_n \log p(y \mid n^\ast)`: the mode is a tilted model.

**Dual.** For a concave log density ℓ of the noise put :math:`c(g) = \sup_r \{ℓ(r) + g r\}`, so that
:math:`ℓ(y - n) = \min_g \{ g(n - y) + c(g) \}`. Exchanging minimum and maximum, and
:math:`\max_n \{(θ+g)'n + H(n)\} = N A(θ + g)`,

.. math:: g^\ast = \arg\min_g \; N A(θ + g) - g'y + c(g).

For (discrete) Laplace noise of scale b, c is 0 on the box :math:`|g_i| ≤ 1/b` and infinite outside; for
(discrete) Gaussian noise, :math:`c(g) = σ^2 g^2 / 2`. This is smooth and convex, and needs no damping.

**What EM does.** The M-step finds θ with :math:`N μ(θ) = n^\ast`, which is :math:`θ + g^\ast`. Hence one EM step
is one *naive* maximum likelihood, on the raw noisy tables, confined to a box of half-width 1/b around the
current potentials (Laplace), or drawn to them by a ridge :math:`σ^2/2` (Gaussian): a proximal-point iteration
on :math:`-\log p(y \mid N μ(θ))`. Its limit is the L1 (or L2) projection of y on the marginal polytope, which
fits the noise; how many steps are taken is its only regulariser.

References
----------
Bernstein et al. (2017), equation (6), Algorithms 1 and 2; Sun, Sheldon, Kumar (2015) for Algorithm 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bayesprivmrf.inference.evidence import Evidence, Marginals
from bayesprivmrf.inference.optimize import minimize
from bayesprivmrf.inference.solution import Status
from bayesprivmrf.model.tables import FloatArray

__all__ = ["EStep", "dual_e_step", "nonlinear_belief_propagation"]

_TOLERANCE = 0.01
"""An E-step is solved to this share of the smallest noise standard deviation, in records a cell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EStep:
    """Solution of an E-step.

    Parameters
    ----------
    tilt
        g, nats, shape (size,); 0 at impossible cells.
    marginals
        The mode over N, shape (size,).
    converged
        Whether the optimality condition holds.
    evaluations
        Marginal inferences used.
    """

    tilt: FloatArray
    marginals: FloatArray
    converged: bool
    evaluations: int


def dual_e_step(
    evidence: Evidence,
    engine: Marginals,
    potentials: FloatArray,
    *,
    steps: float = 1.0,
    start: FloatArray | None = None,
    slack: float = 0.0,
    iterations: int = 500,
) -> EStep:
    """The E-step, solved exactly through its dual.

    Parameters
    ----------
    evidence, engine, potentials
        Noisy tables; an engine with one factor for each; θ, minus infinity at impossible cells.
    steps
        Take the log density of the noise this many times: about that many EM steps in one.
    start
        A guess of the tilt.
    slack
        Error of a count that may be left, records, where it is larger than a hundredth of the noise: far from
        the end of a path, more would be wasted.
    iterations
        The most L-BFGS iterations.
    """
    free = evidence.possible
    total = evidence.total
    is_box = evidence.is_absolute[free]
    scale = evidence.spread([law.scale for law in evidence.noise])[free]
    with np.errstate(divide="ignore"):
        reach = np.where(is_box, steps / scale, np.inf)
    pull = np.where(is_box, 0.0, scale**2) / (steps * total)
    wanted = evidence.noisy_counts[free] / total
    shifted = np.array(potentials)

    def objective(tilt: FloatArray) -> tuple[float, FloatArray]:
        shifted[free] = potentials[free] + tilt
        log_partition, marginals = engine.marginals(shifted)
        value = float(log_partition - wanted @ tilt + 0.5 * (tilt @ (pull * tilt)))
        return value, marginals[free] - wanted + pull * tilt

    deviations = [law.standard_deviation for law in evidence.noise if law.variance > 0]
    tolerance = max(max(_TOLERANCE * min(deviations, default=0.0), slack) / total, 1e-9)
    # the projected gradient is never longer than the box is wide: a small box needs a smaller tolerance
    tolerance = min(tolerance, _TOLERANCE * float(reach.min(initial=np.inf)))
    begin = np.zeros(int(free.sum())) if start is None else np.clip(start[free], -reach, reach)
    optimum = minimize(
        objective,
        begin,
        bounds=(-reach, reach),
        gradient_tolerance=tolerance,
        iterations=iterations,
    )
    tilt = np.zeros(len(free))
    tilt[free] = optimum.point
    return EStep(
        tilt=tilt,
        marginals=engine.marginals(potentials + tilt)[1],
        converged=optimum.status is Status.CONVERGED,
        evaluations=optimum.evaluations + 1,
    )


def nonlinear_belief_propagation(
    evidence: Evidence,
    engine: Marginals,
    potentials: FloatArray,
    *,
    damping: float | None,
    is_smoothed: bool,
    iterations: int,
    start: FloatArray,
) -> EStep:
    r"""Algorithm 1, as published: tilt, standard inference, damped update of the counts.

    .. math:: θ' = θ + ∇_n \log p(y \mid n), \quad n' = N μ(θ'), \quad n ← (1 - α) n + α n'.

    Parameters
    ----------
    damping
        α in (0, 1], or None for :math:`α_t = 2 / (t + 2)`.
    is_smoothed
        Replace the Laplace law's sign(r) by :math:`r / \sqrt{r^2 + N μ}`. With a constant α and the sign, the
        iteration cycles and does not converge; smoothed, with the falling α, it does.
    iterations
        Number of iterations.
    start
        The first n over N, shape (size,).
    """
    free, total = evidence.possible, evidence.total
    counts = total * start
    tilt = np.zeros(len(free))
    for step in range(iterations):
        tilt = np.where(free, _score(evidence, counts, is_smoothed), 0.0)
        tilted = total * engine.marginals(potentials + tilt)[1]
        share = 2 / (step + 2) if damping is None else damping
        counts = (1 - share) * counts + share * tilted
    tilt = np.where(free, _score(evidence, counts, is_smoothed), 0.0)
    gap = np.abs(counts - total * engine.marginals(potentials + tilt)[1]).max(initial=0.0)
    smallest = min((law.standard_deviation for law in evidence.noise), default=0.0)
    return EStep(
        tilt=tilt,
        marginals=counts / total,
        converged=bool(gap <= max(_TOLERANCE * smallest, 1e-6)),
        evaluations=iterations + 1,
    )


def _score(evidence: Evidence, counts: FloatArray, is_smoothed: bool) -> FloatArray:
    """Gradient of log p(y | n) in n, shape (size,)."""
    residual = evidence.noisy_counts - counts
    parts = [np.zeros(0)]
    for position, law in enumerate(evidence.noise):
        block = slice(evidence.offsets[position], evidence.offsets[position + 1])
        own = residual[block]
        if is_smoothed and law.kernel == "absolute":
            parts.append(own / np.sqrt(own**2 + np.maximum(counts[block], 1e-12)) / law.scale)
        else:
            parts.append(law.score(own))
    return np.concatenate(parts)
