r"""The E-step of the collective graphical model: the approximate mode of the true counts given the noisy ones.

Equation (6) of Bernstein et al. (2017), for noisy answers :math:`y = A n + η` to queries of the tables: over all
consistent real tables n with sum N,

.. math:: n^\ast = \arg\max_n \; θ'n + H(n) + \log p(y \mid A n).

As published, each table is measured and A is the identity.

**Fixed point.** Without the last term the maximiser is :math:`N μ(θ)`. Linearising it at the solution shows
:math:`n^\ast = N μ(θ + A'g)` with :math:`g = ∇_r \log p(y \mid r)` at :math:`r = A n^\ast`: the mode is a tilted
model.

**Dual.** For a concave log density ℓ of the noise put :math:`c(g) = \sup_r \{ℓ(r) + g r\}`, so that
:math:`ℓ(y - A n) = \min_g \{ g'(A n - y) + c(g) \}`. The maximum over n and the minimum over g may be exchanged,
since the tables are a compact convex set, the sum is concave in n and convex in g. With Z the partition function and
:math:`\max_n \{(θ + A'g)'n + H(n)\} = N \log Z(θ + A'g)`,

.. math:: g^\ast = \arg\min_g \; N \log Z(θ + A'g) - g'y + c(g).

There is one g for each measured number, however many cells it adds up. For (discrete) Laplace noise of scale b, c is
0 on the box :math:`|g_i| ≤ 1/b` and infinite outside; for (discrete) Gaussian noise, :math:`c(g) = σ^2 g^2 / 2`. An
answer without noise has :math:`ℓ(0) = 0` and minus infinity elsewhere: c is 0, g has no bounds, and the condition of
optimality, :math:`N (A μ)_i = y_i`, is the constraint itself. All of this is smooth and convex, and needs no damping.

**What EM does.** The M-step finds θ with :math:`N μ(θ) = n^\ast`, which is :math:`θ + A'g^\ast`: each clique has
potentials of its own, so that :math:`A'g` is a choice of them. Hence one EM step
is one *naive* maximum likelihood, on the raw noisy answers, confined to a box of half-width 1/b around the
current potentials (Laplace), or drawn to them by a ridge :math:`σ^2/2` (Gaussian): a proximal-point iteration
on :math:`-\log p(y \mid N A μ(θ))`. Its limit is the L1 (or L2) projection of y on the image of the marginal
polytope, which fits the noise; how many steps are taken is its only regulariser. What no answer tells keeps the
largest entropy.

References
----------
Bernstein et al. (2017), equation (6), Algorithms 1 and 2; Sun, Sheldon, Kumar (2015) for Algorithm 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.inference.interval_frame import Status
from bayesprivmrf.inference.optimize import minimize_in_box
from bayesprivmrf.marginals import MarginalEngine
from bayesprivmrf.model.tables import FloatArray
from bayesprivmrf.noise.kernels import by_kernel

# An E-step is solved to this share of the smallest noise standard deviation, in records a cell
_TOLERANCE = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class EStep:
    """Solution of an E-step.

    Parameters
    ----------
    tilt
        g, nats, one for each noisy number, shape (size,); 0 at impossible ones.
    potentials, marginals
        θ + A'g, nats, and the mode over N, one for each cell of the model's cliques, shape (model size,).
    converged
        Whether the optimality condition holds.
    evaluations
        Marginal inferences used.
    """

    tilt: FloatArray
    potentials: FloatArray
    marginals: FloatArray
    converged: bool
    evaluations: int


@dataclass(frozen=True, slots=True, eq=False)
class EStepProblem:
    """The E-step at one point.

    Parameters
    ----------
    evidence
        Noisy numbers.
    engine
        An engine of the model's cliques.
    potentials
        θ of their cells, minus infinity at impossible ones, shape (model size,).
    """

    evidence: Evidence
    engine: MarginalEngine
    potentials: FloatArray


def dual_e_step(
    problem: EStepProblem,
    *,
    steps: float = 1.0,
    start: FloatArray | None = None,
    slack: float = 0.0,
    share: float = _TOLERANCE,
    iterations: int = 500,
) -> EStep:
    """Solve the E-step exactly through its dual.

    Parameters
    ----------
    problem
        Noisy numbers, engine and θ.
    steps
        Take the log density of the noise this many times: about that many EM steps in one.
    start
        A guess of the tilt.
    slack
        Error of a count that may be left, records, where it is larger than `share` of the noise: far from
        the end of a path, more would be wasted.
    share
        Error of a count that may be left, as a share of the smallest standard deviation of the noise.
    iterations
        The most L-BFGS iterations.
    """
    evidence = problem.evidence
    engine = problem.engine
    potentials = problem.potentials
    free = evidence.possible
    total = evidence.total
    kernels = evidence.kernels[free]
    scale = evidence.noise_scale[free]
    reach = steps * by_kernel(kernels, lambda kernel, scale: kernel.reach(scale), scale)
    wanted = evidence.noisy_counts[free] / total
    full = np.zeros(len(free))

    def objective(tilt: FloatArray) -> tuple[float, FloatArray]:
        full[free] = tilt
        log_partition, marginals = engine.marginals(potentials + evidence.scattered(full))
        # the noise's log density, taken `steps` times, has the conjugate steps c(g / steps)
        pull, pulled = by_kernel(
            kernels, lambda kernel, *at: kernel.conjugate(*at), tilt / steps, scale
        )
        value = float(log_partition - wanted @ tilt + steps * pull.sum() / total)
        return value, evidence.gathered(marginals)[free] - wanted + pulled / total

    tolerance = max(max(share * evidence.least_deviation, slack) / total, 1e-9)
    # the projected gradient is never longer than the box is wide: a small box needs a smaller tolerance
    tolerance = min(tolerance, share * float(reach.min(initial=np.inf)))
    if start is None:
        begin = np.zeros(int(free.sum()))
    else:
        begin = np.clip(start[free], -reach, reach)
    evaluations = 1
    status = Status.ITERATION_LIMIT
    # numbers that say the same leave flat directions, in which the search may stall
    # each search continues from where the last one stopped; three are arbitrary
    for _ in range(3):
        optimum = minimize_in_box(
            objective,
            begin,
            (-reach, reach),
            gradient_tolerance=tolerance,
            iterations=iterations,
        )
        begin = optimum.point
        status = optimum.status
        evaluations = evaluations + optimum.evaluations
        if status is not Status.ITERATION_LIMIT or optimum.iterations >= iterations:
            break
    full[free] = begin
    tilted = potentials + evidence.scattered(full)
    return EStep(
        tilt=full,
        potentials=tilted,
        marginals=engine.marginals(tilted)[1],
        converged=status is Status.CONVERGED,
        evaluations=evaluations,
    )


def nonlinear_belief_propagation(
    problem: EStepProblem,
    *,
    damping: float | None,
    is_smoothed: bool,
    iterations: int,
    start: FloatArray,
) -> EStep:
    r"""Solve the E-step by Algorithm 1, as published: tilt, standard inference, damped update of the counts.

    .. math:: θ' = θ + ∇_n \log p(y \mid n), \quad n' = N μ(θ'), \quad n ← (1 - α) n + α n'.

    For one noisy table of each clique, A being the identity.

    Parameters
    ----------
    problem
        Noisy numbers, engine and θ.
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
    evidence = problem.evidence
    engine = problem.engine
    potentials = problem.potentials
    free = evidence.possible
    total = evidence.total
    counts = total * start
    tilt = np.zeros(len(free))
    for step in range(iterations):
        tilt = np.where(free, _score(evidence, counts, is_smoothed), 0.0)
        tilted = total * engine.marginals(potentials + tilt)[1]
        if damping is None:
            share = 2 / (step + 2)
        else:
            share = damping
        counts = (1 - share) * counts + share * tilted
    tilt = np.where(free, _score(evidence, counts, is_smoothed), 0.0)
    gap = np.abs(counts - total * engine.marginals(potentials + tilt)[1]).max(initial=0.0)
    smallest = evidence.noise_deviation.min(initial=np.inf) if evidence.noise else 0.0
    return EStep(
        tilt=tilt,
        potentials=potentials + tilt,
        marginals=counts / total,
        converged=bool(gap <= max(_TOLERANCE * smallest, 1e-6)),
        evaluations=iterations + 1,
    )


def _score(evidence: Evidence, counts: FloatArray, is_smoothed: bool) -> FloatArray:
    """Return the gradient of log p(y | n) in n, shape (size,)."""
    residual = evidence.noisy_counts - counts
    parts = [np.zeros(0)]
    for position, law in enumerate(evidence.noise):
        block = slice(evidence.offsets[position], evidence.offsets[position + 1])
        own = residual[block]
        form = law.smooth
        scale = evidence.noise_scale[block]
        if is_smoothed and form is not None and form.has_kink:
            parts.append(own / np.sqrt(own**2 + np.maximum(counts[block], 1e-12)) / scale)
        elif form is not None:
            parts.append(form.slope(own / scale) / scale)
    return np.concatenate(parts)
