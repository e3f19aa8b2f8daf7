"""Collective graphical models: expectation-maximisation over the latent true counts."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.inference.discrepancy import Discrepancy, balance
from bayesprivmrf.inference.e_step import EStep, dual_e_step, nonlinear_belief_propagation
from bayesprivmrf.inference.evidence import Evidence, Inference, gather, require_inference
from bayesprivmrf.inference.naive_mle import match_marginals
from bayesprivmrf.inference.solution import Solution, Status
from bayesprivmrf.marginals import MarginalEngine
from bayesprivmrf.model.consistency import minimum_norm_potentials
from bayesprivmrf.model.tables import FloatArray
from bayesprivmrf.release import NoisyStatistics

__all__ = ["CGM"]

_SETTLED = 1e-3
"""The path has ended when a block of steps moves no count by more than this share of the noise."""

_SLACK = 0.1
"""Share of the noise or the mean residual, whichever is larger, that an E-step in blocks may miss a count by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CGM:
    r"""Algorithm 2 of Bernstein et al. (2017): EM for the model, the true counts n being latent.

    E-step: the approximate mode of n given the noisy counts y, equation (6). M-step: the θ whose marginals are
    :math:`n/N`. The path starts at the uniform distribution; how far it goes is the method's regulariser (see
    `bayesprivmrf.inference.e_step`, and docs/inference.md for the measured effect).

    Parameters
    ----------
    steps
        The most EM steps.
    stopping
        ``"balance"``: go on while further steps pay (`bayesprivmrf.inference.discrepancy`).
        ``"discrepancy"``: stop at the first model whose residuals are no larger than noise and sampling
        together make them; too early where there is much signal. ``"none"``: run until `steps`, or until
        nothing moves. All use the release alone.
    acceleration
        Consecutive EM steps are taken in blocks, each as one E-step with the noise's log density counted that
        often; a block may multiply the number of steps taken so far by at most this. 1 takes each step apart.
    e_step
        ``"dual"``: exact, by L-BFGS on the dual, with the closed-form M-step :math:`θ ← θ + g`.
        ``"nlbp"``: Algorithm 1 and a numerical M-step, as published.
    damping, nlbp_iterations, is_smoothed
        For ``"nlbp"``: constant α or None for 2/(t+2); iterations; whether the Laplace law's sign is smoothed.
    inference
        ``"exact"`` or ``"loopy"`` marginals (the paper's Figure 2 used loopy belief propagation).

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

    def __post_init__(self) -> None:
        if not self.steps >= 1:
            raise ArgumentError(f"`steps` must be at least 1, got {self.steps}.")
        if self.stopping not in ("balance", "discrepancy", "none"):
            raise ArgumentError(
                f"`stopping` must be 'balance', 'discrepancy' or 'none', got {self.stopping!r}."
            )
        if not (self.acceleration >= 1 and np.isfinite(self.acceleration)):
            raise ArgumentError(f"`acceleration` must be at least 1 and finite, got {self.acceleration}.")
        if self.e_step not in ("dual", "nlbp"):
            raise ArgumentError(f"`e_step` must be 'dual' or 'nlbp', got {self.e_step!r}.")
        if self.damping is not None and not 0 < self.damping <= 1:
            raise ArgumentError(f"`damping` must be above 0 and at most 1, or None, got {self.damping}.")
        if not self.nlbp_iterations >= 1:
            raise ArgumentError(f"`nlbp_iterations` must be at least 1, got {self.nlbp_iterations}.")
        require_inference(self.inference)

    def fit(self, releases: NoisyStatistics | Sequence[NoisyStatistics]) -> Solution:
        """Estimate the model of a release, or of several releases of one population.

        Returns
        -------
        Solution
            `stats` holds the EM steps taken, blocks, evaluations, the discrepancy at the end, seconds and the
            total used. Status STOPPED_EARLY is the rule's normal end.
        """
        begin = time.perf_counter()
        evidence = gather(releases)
        model = evidence.specification
        path = _Path(self, evidence)
        status = path.run()
        potentials = minimum_norm_potentials(
            model.cardinalities, model.scopes, evidence.fold(path.potentials)
        )
        if self.inference == "loopy" and status in (Status.CONVERGED, Status.STOPPED_EARLY):
            status = Status.APPROXIMATE
        return Solution(
            specification=model,
            potentials=model.tables(potentials),
            method="CGM",
            status=status,
            stats={
                "em_steps": path.taken,
                "blocks": path.blocks,
                "evaluations": path.evaluations,
                "unconverged_e_steps": path.unconverged,
                "discrepancy": path.discrepancy,
                "seconds": time.perf_counter() - begin,
                "total": evidence.total,
            },
            inference=self.inference,
        )


class _Path:
    """The path of EM from the uniform distribution: where it is, and what it took to get there."""

    def __init__(self, settings: CGM, evidence: Evidence) -> None:
        self.settings = settings
        self.evidence = evidence
        self.engine: MarginalEngine = evidence.engine(settings.inference)
        self.smallest = min((law.standard_deviation for law in evidence.noise), default=0.0)
        self.potentials: FloatArray = np.where(evidence.possible, 0.0, -np.inf)
        self.marginals = self.engine.marginals(self.potentials)[1]
        self.measure = Discrepancy.of(evidence)
        self.discrepancy = self.measure(self.marginals)
        self.tilt: FloatArray | None = None
        self.taken, self.blocks, self.evaluations, self.unconverged = 0.0, 0, 1, 0

    def run(self) -> Status:
        """Take blocks of EM steps until the rule stops the path, nothing moves, or the steps run out."""
        settings = self.settings
        if settings.stopping != "none" and self.discrepancy <= 1:
            return Status.STOPPED_EARLY
        while self.taken < settings.steps:
            ahead = max(1.0, (settings.acceleration - 1) * self.taken)
            ahead = min(ahead, settings.steps - self.taken)
            step = self._advance(ahead)
            if self._pays_no_more(step, ahead):
                return Status.STOPPED_EARLY
            before = self.marginals
            self._accept(step, ahead)
            if not np.isfinite(self.discrepancy):
                return Status.DIVERGED
            if settings.stopping == "discrepancy" and self.discrepancy <= 1:
                return Status.STOPPED_EARLY
            moved = self.evidence.total * np.abs(self.marginals - before).max(initial=0.0)
            if moved <= _SETTLED * self.smallest and step.converged:
                return Status.CONVERGED
        return Status.ITERATION_LIMIT

    def _pays_no_more(self, step: EStep, ahead: float) -> bool:
        """Whether the balance of residual and path length would grow with this block."""
        if self.settings.stopping != "balance" or self.discrepancy > 1 or self.taken == 0:
            return False
        after = self.measure(step.marginals)
        return balance(after, self.taken + ahead) >= balance(self.discrepancy, self.taken)

    def _advance(self, ahead: float) -> EStep:
        """One E-step worth `ahead` EM steps from the current potentials."""
        settings, evidence = self.settings, self.evidence
        if settings.e_step == "dual":
            residual = np.abs(evidence.noisy_counts - evidence.total * self.marginals)[evidence.possible]
            in_blocks = settings.acceleration > 1 and residual.size > 0
            size = max(float(residual.mean()), self.smallest) if in_blocks else 0.0
            step = dual_e_step(
                evidence,
                self.engine,
                self.potentials,
                steps=ahead,
                start=None if self.tilt is None else self.tilt * ahead,
                slack=_SLACK * size,
            )
        else:
            step = nonlinear_belief_propagation(
                evidence,
                self.engine,
                self.potentials,
                damping=settings.damping,
                is_smoothed=settings.is_smoothed,
                iterations=settings.nlbp_iterations,
                start=self.marginals,
            )
        self.evaluations += step.evaluations
        self.unconverged += not step.converged
        return step

    def _accept(self, step: EStep, ahead: float) -> None:
        """The M-step: θ + g in closed form, or by maximum likelihood as published."""
        if self.settings.e_step == "dual":
            self.potentials = self.potentials + step.tilt
            self.marginals = step.marginals
            self.tilt = step.tilt / ahead
        else:
            self.potentials, _, stats = match_marginals(
                self.engine.cardinalities,
                self.engine.scopes,
                step.marginals,
                possible=self.evidence.possible,
                inference=self.settings.inference,
                start=self.potentials,
            )
            self.marginals = self.engine.marginals(self.potentials)[1]
            self.evaluations += int(stats["evaluations"]) + 1
        self.discrepancy = self.measure(self.marginals)
        self.taken += ahead
        self.blocks += 1
