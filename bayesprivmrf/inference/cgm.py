"""Collective graphical models: expectation-maximisation over the latent true counts.

The path that EM takes from the distribution of largest entropy, and the rule that stops it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bayesprivmrf.checks import (
    NamedSettings,
    at_least,
    on_objects,
    one_of,
    positive_finite,
    truth,
    whole_number,
)
from bayesprivmrf.errors import ArgumentError, ModelError
from bayesprivmrf.inference.criticism.verdict import verdict
from bayesprivmrf.inference.discrepancy import EXPONENT, Discrepancy, balance, slope
from bayesprivmrf.inference.e_step import (
    EStep,
    EStepProblem,
    dual_e_step,
    nonlinear_belief_propagation,
)
from bayesprivmrf.inference.evidence import Evidence, Inference, Population, require_inference
from bayesprivmrf.inference.exact_answers import honoured
from bayesprivmrf.inference.given_model import GivenModel, refuse_loopy
from bayesprivmrf.inference.given_releases import gather
from bayesprivmrf.inference.optimize import PotentialFamily, match_marginals, one_blas_thread
from bayesprivmrf.inference.solution import Solution, Status
from bayesprivmrf.model.cliques import minimum_norm_potentials
from bayesprivmrf.model.tables import FloatArray
from bayesprivmrf.release import NoisyStatistics


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A point of the path: θ, μ(θ), the discrepancy D, and the EM steps taken."""

    potentials: FloatArray
    marginals: FloatArray
    discrepancy: float
    taken: float


class EMPath:
    """The path of EM for some settings and evidence; `run` follows it and leaves `point` where it stopped.

    Attributes
    ----------
    point
        The present point of the path.
    blocks, evaluations, unconverged
        Blocks of EM steps taken, marginal inferences used, E-steps that hit their iteration limit.
    """

    def __init__(self, settings: CGM, evidence: Evidence) -> None:
        self.settings = settings
        self.evidence = evidence
        self.engine = evidence.engine(settings.inference)
        self.basis = evidence.family.basis
        self.left_inverse = self._left_inverse()
        # with ties, θ + A'g is no longer a model: a block of steps would then end elsewhere than the steps one by one
        if self.basis is None:
            self.acceleration = settings.acceleration
        else:
            self.acceleration = 1.0
        # an E-step in blocks may miss a count by a tenth of the noise or of the mean residual, whichever is
        # larger
        if self.acceleration > 1:
            self.slack = 0.1
        else:
            self.slack = 0.0
        self.measure = Discrepancy(evidence, self.engine)
        self.smallest = evidence.least_deviation
        potentials, self.is_feasible = honoured(evidence, self.engine, evidence.family.base)
        self.start = self.point = self.steepest = self._point(
            potentials, self.engine.marginals(potentials)[1], 0.0
        )
        self.steepest_slope = 0.0
        self.tilt: FloatArray | None = None
        self.blocks = 0
        self.evaluations = 1
        self.unconverged = 0

    def _left_inverse(self) -> Callable[[FloatArray], FloatArray] | None:
        """Return the map to β whose potentials are near given ones, and equal if all cells are possible."""
        family = self.evidence.family
        model = family.model
        if self.basis is None:
            return None
        if model.interactions is not None and not model.believed.is_restricted:

            def of_cells(potentials: FloatArray) -> FloatArray:
                # β are the cells of the interactions' tables; those that cannot occur have no effect
                found = family.of_interactions(potentials)
                return np.where(np.isfinite(found), found, 0.0)

            return of_cells
        inverse = np.linalg.pinv(self.basis.toarray())
        inside = np.isfinite(family.base)

        def near(potentials: FloatArray) -> FloatArray:
            return inverse @ np.where(inside, potentials - np.where(inside, family.base, 0.0), 0.0)

        return near

    def run(self) -> Status:
        """Take blocks of EM steps until the rule stops the path, nothing moves, or the steps run out."""
        settings = self.settings
        if not self.is_feasible:
            return Status.DIVERGED
        if self.evidence.is_exact.any() and not self.measure.noisy_counts.size:
            return Status.CONVERGED
        if settings.stopping != "none" and self.point.discrepancy <= 1:
            return Status.STOPPED_EARLY
        while self.point.taken < settings.steps:
            ahead = max(1.0, (self.acceleration - 1) * self.point.taken)
            ahead = min(ahead, settings.steps - self.point.taken)
            step = self._advance(ahead)
            following = self._follow(step, ahead)
            if not math.isfinite(following.discrepancy):
                return Status.DIVERGED
            if settings.stopping == "balance" and self._pays_no_more(following):
                return Status.STOPPED_EARLY
            self.blocks += 1
            before = self.point
            self.point = following
            # the path has ended when as many steps again would move no count by a thousandth of its way so far
            moved = np.abs(self.point.marginals - before.marginals).max(initial=0.0)
            way = np.abs(self.point.marginals - self.start.marginals).max(initial=0.0)
            if step.converged and moved * self.point.taken / ahead <= 1e-3 * way:
                if self.slack == 0:
                    return Status.CONVERGED
                # no count moved, but perhaps only within the slack: ask again without
                self.slack = 0.0
        return Status.ITERATION_LIMIT

    def _pays_no_more(self, following: Point) -> bool:
        """Return True if the path should end; with D above 1 it first goes back to where D fell fastest."""
        here = self.point
        if here.taken == 0:
            return False
        if here.discrepancy <= 1:
            return balance(following.discrepancy, following.taken) >= balance(
                here.discrepancy, here.taken
            )
        steepness = slope(here.discrepancy, here.taken, following.discrepancy, following.taken)
        if steepness >= self.steepest_slope:
            self.steepest = following
            self.steepest_slope = steepness
        elif steepness < min(0.5 * self.steepest_slope, EXPONENT) and following.discrepancy > 1:
            self.point = self.steepest
            return True
        return False

    def _advance(self, ahead: float) -> EStep:
        """Take one E-step that is worth `ahead` EM steps."""
        settings = self.settings
        evidence = self.evidence
        here = self.point
        problem = EStepProblem(evidence, self.engine, here.potentials)
        if settings.e_step == "dual":
            expected = evidence.total * evidence.gathered(here.marginals)
            residual = np.abs(evidence.noisy_counts - expected)[evidence.possible]
            if residual.size:
                size = max(float(residual.mean()), self.smallest)
            else:
                size = 0.0
            step = dual_e_step(
                problem,
                steps=ahead,
                start=None if self.tilt is None else self.tilt * ahead,
                slack=self.slack * size,
            )
            self.tilt = step.tilt / ahead
        else:
            step = nonlinear_belief_propagation(
                problem,
                damping=settings.damping,
                is_smoothed=settings.is_smoothed,
                iterations=settings.nlbp_iterations,
                start=here.marginals,
            )
        self.evaluations += step.evaluations
        self.unconverged += not step.converged
        return step

    def _follow(self, step: EStep, ahead: float) -> Point:
        """Take the M-step: θ + A'g in closed form, maximum likelihood as published, or B'n = N B'μ(Bβ) with ties."""
        if self.settings.e_step == "dual" and self.basis is None:
            potentials = step.potentials
            marginals = step.marginals
        else:
            family = self.evidence.family
            start = self.point.potentials
            if self.left_inverse is not None:
                start = self.left_inverse(start)
            own = PotentialFamily(self.engine, family.base, self.basis)
            potentials, _, stats = match_marginals(own, step.marginals, start=start)
            marginals = self.engine.marginals(potentials)[1]
            self.evaluations += int(stats["evaluations"]) + 1
        return self._point(potentials, marginals, self.point.taken + ahead)

    def _point(self, potentials: FloatArray, marginals: FloatArray, taken: float) -> Point:
        return Point(
            potentials=potentials,
            marginals=marginals,
            discrepancy=self.measure(marginals, potentials),
            taken=taken,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CGM(NamedSettings):
    r"""Expectation-maximization with latent true counts, Algorithm 2 of Bernstein et al. (2017).

    The E-step finds the approximate mode of the true counts n given the noisy counts y, equation (6). The M-step
    finds the θ whose marginals are :math:`n/N`; with tied potentials the sums over the tied cliques match. The path
    starts at the uniform distribution, or at the distribution of largest entropy that gives the answers released
    without noise. The number of steps regularizes the estimate: see `bayesprivmrf.inference.e_step` for the reason,
    and docs/explanation/estimators.md for the effect.

    Parameters
    ----------
    steps
        Largest number of EM steps, at least 1.
    stopping
        ``"balance"``: continue while the gain in fit exceeds its price
        (`bayesprivmrf.inference.discrepancy`). ``"none"``: run until `steps`, or until nothing moves. Both
        rules use the release alone.
    acceleration
        Largest factor by which one block of EM steps may multiply the number of steps so far, at least 1. A block is
        one E-step that counts the noise's log density as often as the block has steps. 1 takes each step by itself,
        as tied potentials always do.
    e_step
        ``"dual"``: exact, by L-BFGS on the dual, with the closed-form M-step :math:`θ ← θ + A'g`.
        ``"nlbp"``: Algorithm 1 and a numerical M-step, as published, for one noisy table of each clique.
    damping, nlbp_iterations, is_smoothed
        Settings of ``"nlbp"``: a constant α, or None for 2/(t+2); the number of iterations; and whether the sign in
        the Laplace score is smoothed.
    inference
        ``"exact"`` or ``"loopy"`` marginals (the paper's Figure 2 used loopy belief propagation).

    References
    ----------
    Bernstein, McKenna, Sun, Sheldon, Hay, Miklau (2017). Differentially private learning of undirected graphical
    models using collective graphical models. ICML.

    Examples
    --------
    >>> CGM(steps=50, stopping="none", acceleration=1.0)     # fifty EM steps, one by one
    CGM(steps=50, stopping='none', acceleration=1.0, e_step='dual', ...)
    """

    steps: float = 100_000
    stopping: str = "balance"
    acceleration: float = 1.5
    e_step: str = "dual"
    damping: float | None = None
    nlbp_iterations: int = 100
    is_smoothed: bool = True
    inference: Inference = "exact"

    method: ClassVar[str] = "CGM"
    offers_loopy: ClassVar[bool] = True

    def __post_init__(self) -> None:
        at_least("steps", self.steps, 1, finite=False)
        one_of("stopping", self.stopping, ("balance", "none"), remedy="use 'balance', the default")
        at_least("acceleration", self.acceleration, 1)
        one_of("e_step", self.e_step, ("dual", "nlbp"))
        if self.damping is not None and not positive_finite("damping", self.damping) <= 1:
            raise ArgumentError(
                f"`damping` must be above 0 and at most 1, or None, got {self.damping}."
            )
        whole_number("nlbp_iterations", self.nlbp_iterations, 1)
        truth("is_smoothed", self.is_smoothed)
        require_inference(self.inference)

    def _refuse_what_it_cannot(self, evidence: Evidence) -> None:
        model = evidence.specification
        if model.shares_transitions:
            raise ModelError(
                "CGM fits free potentials, and a chain with shared transitions has none",
                remedy="use NaiveMLE or NoiseAwareMAP, or declare markov_chain(..., share='potentials')",
                option="use `--method naive-mle` or `--method noise-aware`",
            )
        if model.interactions is not None and evidence.is_exact.any():
            raise ModelError(
                "CGM reproduces answers without noise exactly, which a model that omits interactions of their tables "
                "cannot do; use NaiveMLE, NoiseAwareMAP or LatentCounts."
            )
        if model.is_restricted and self.e_step != "dual":
            raise ModelError(
                "`e_step` must be 'dual' for tied or scored potentials, got 'nlbp'; leave it out, or use NaiveMLE, "
                "NoiseAwareMAP or LatentCounts."
            )
        if self.e_step != "nlbp":
            return
        if evidence.matrix is not None:
            raise ArgumentError(
                "`e_step='nlbp'` takes one noisy table of each clique, as published, and this evidence has others or "
                "answers to queries; use e_step='dual'."
            )
        if any(law.is_exact for law in evidence.noise):
            raise ArgumentError(
                "`e_step='nlbp'` needs tables with noise, got exact ones; use e_step='dual'."
            )

    def _marginals(self, evidence: Evidence) -> FloatArray:
        """Return the marginals at the end of the path."""
        path = EMPath(self, evidence)
        path.run()
        return path.point.marginals

    @on_objects
    @one_blas_thread()
    def fit(
        self,
        releases: NoisyStatistics | Sequence[NoisyStatistics],
        *,
        population: Population = "one",
        model: GivenModel | None = None,
    ) -> Solution:
        """Estimate the model of a release, or of several releases of one population or of several waves.

        Parameters
        ----------
        releases
            Noisy statistics.
        population
            ``"one"``: all releases are of the same people. ``"waves"``: each release is of people of its own, a wave,
            and all waves share the model; the result has the variable ``"wave"``, with the states 1, 2, ....
        model
            Model to fit: a list of cliques, a pgmpy network, or a `ModelSpecification`
            (`bayesprivmrf.inference.given_model`). None fits the model that the releases declare.

        Returns
        -------
        Solution
            `stats` holds the EM steps taken, blocks, evaluations, the discrepancy at the end, seconds and the
            total used; and ``margin_tail``, the p-value of the worst disagreement among numbers that were measured
            more than once. The status STOPPED_EARLY is the normal end of the stopping rule.

        Warns
        -----
        ConsistencyWarning
            Released tables disagree by more than their noise. The fit is ``not_trusted``.
        """
        begin = time.perf_counter()
        evidence = gather(releases, population=population, model=model)
        refuse_loopy(evidence.specification, self.inference)
        self._refuse_what_it_cannot(evidence)
        specification = evidence.specification
        evidence = evidence.at_fit(self._marginals)
        path = EMPath(self, evidence)
        status = path.run()
        potentials, _ = honoured(evidence, path.engine, path.point.potentials)
        # Bethe's marginals depend on the gauge where cliques share pairs
        if self.inference == "exact":
            potentials = minimum_norm_potentials(
                specification.cardinalities, specification.scopes, potentials
            )
        stats = {
            "em_steps": path.point.taken,
            "blocks": path.blocks,
            "evaluations": path.evaluations,
            "unconverged_e_steps": path.unconverged,
            "discrepancy": path.point.discrepancy,
            "seconds": time.perf_counter() - begin,
        }
        fields = verdict(status, evidence, potentials, self, stats)
        return Solution(method=self.method, **fields)
