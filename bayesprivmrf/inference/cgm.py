"""Collective graphical models: expectation-maximisation over the latent true counts."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from bayesprivmrf.errors import ArgumentError, ModelError
from bayesprivmrf.inference.criticism.verdict import verdict
from bayesprivmrf.inference.em_path import EMPath, EMSettings
from bayesprivmrf.inference.evidence import Evidence, Population, gather
from bayesprivmrf.inference.exact_answers import honoured
from bayesprivmrf.inference.solution import Solution
from bayesprivmrf.model.consistency import minimum_norm_potentials
from bayesprivmrf.release import NoisyStatistics
from bayesprivmrf.threads import one_blas_thread


@dataclass(frozen=True, slots=True, kw_only=True)
class CGM(EMSettings):
    r"""Algorithm 2 of Bernstein et al. (2017): EM for the model, the true counts n being latent.

    E-step: the approximate mode of n given the noisy counts y, equation (6). M-step: the θ whose marginals are
    :math:`n/N`, or with tied potentials those whose sums over the tied cliques are. The path starts at the uniform
    distribution, or at that of largest entropy which gives the answers released without noise; how far it goes is
    the method's regulariser (see `bayesprivmrf.inference.e_step`, and
    docs/inference.md for the measured effect).

    Parameters
    ----------
    steps
        The most EM steps.
    stopping
        ``"balance"``: go on while further steps pay (`bayesprivmrf.inference.criticism.discrepancy`).
        ``"none"``: run until `steps`, or until nothing moves. Both use the release alone.
    acceleration
        Consecutive EM steps are taken in blocks, each as one E-step with the noise's log density counted that
        often; a block may multiply the number of steps taken so far by at most this. 1 takes each step apart, as
        tied potentials always do.
    e_step
        ``"dual"``: exact, by L-BFGS on the dual, with the closed-form M-step :math:`θ ← θ + A'g`.
        ``"nlbp"``: Algorithm 1 and a numerical M-step, as published, for one noisy table of each clique.
    damping, nlbp_iterations, is_smoothed
        Settings of ``"nlbp"``: constant α or None for 2/(t+2); iterations; whether the Laplace law's sign is
        smoothed.
    inference
        ``"exact"`` or ``"loopy"`` marginals (the paper's Figure 2 used loopy belief propagation).

    Examples
    --------
    >>> CGM(steps=50, stopping="none", acceleration=1.0)     # fifty EM steps, one by one
    CGM(steps=50, stopping='none', acceleration=1.0, e_step='dual', ...)
    """

    method: ClassVar[str] = "CGM"
    offers_loopy: ClassVar[bool] = True

    def _refuse_what_it_cannot(self, evidence: Evidence) -> None:
        model = evidence.specification
        if model.shares_transitions:
            raise ModelError(
                "CGM fits free potentials, and a chain with shared transitions has none",
                remedy="use NaiveMLE or NoiseAwareMAP, or declare markov_chain(..., share='potentials')",
                option="use `--method naive-mle` or `--method noise-aware`",
            )
        if model.is_restricted and self.e_step != "dual":
            raise ModelError(
                "CGM fits tied or scored potentials by e_step='dual' alone; leave `e_step` out, or use NaiveMLE, "
                "NoiseAwareMAP or LatentCounts."
            )
        if self.e_step != "nlbp":
            return
        if evidence.matrix is not None:
            raise ArgumentError(
                "`e_step='nlbp'` takes one noisy table of each clique, as published, and this evidence has others or "
                "answers to queries; use e_step='dual'."
            )
        if any(law.variance == 0 for law in evidence.noise):
            raise ArgumentError("`e_step='nlbp'` needs tables with noise, got exact ones; use e_step='dual'.")

    @one_blas_thread()
    def fit(
        self,
        releases: NoisyStatistics | Sequence[NoisyStatistics],
        *,
        population: Population = "one",
    ) -> Solution:
        """Estimate the model of a release, or of several releases of one population or of several waves.

        Parameters
        ----------
        releases
            Noisy statistics.
        population
            ``"one"``: all releases are of the same people. ``"waves"``: each release is of people of its own, a wave,
            and all waves share the model; the result has the variable ``"wave"``, with the states 1, 2, ....

        Returns
        -------
        Solution
            `stats` holds the EM steps taken, blocks, evaluations, the discrepancy at the end, seconds and the
            total used. Status STOPPED_EARLY is the rule's normal end. ``margin_tail`` is the p-value of what was told
            more than once and agrees least.

        Warns
        -----
        ConsistencyWarning
            Released tables disagree by more than their noise. The fit is ``not_trusted``.
        """
        begin = time.perf_counter()
        evidence = gather(releases, population=population)
        self._refuse_what_it_cannot(evidence)
        model = evidence.specification
        path = EMPath(self, evidence)
        status = path.run()
        potentials, _ = honoured(evidence, path.engine, path.point.potentials)
        if self.inference == "exact":  # Bethe's marginals depend on the gauge where cliques share pairs
            potentials = minimum_norm_potentials(model.cardinalities, model.scopes, potentials)
        found = verdict(status, evidence, potentials, self.inference, stacklevel=3)
        return Solution(
            specification=model,
            potentials=model.tables(potentials),
            method=self.method,
            references=("cgm",),
            status=found.status,
            problems=found.problems,
            stats={
                "em_steps": path.point.taken,
                "blocks": path.blocks,
                "evaluations": path.evaluations,
                "unconverged_e_steps": path.unconverged,
                "discrepancy": path.point.discrepancy,
                "seconds": time.perf_counter() - begin,
                **found.stats,
            },
            inference=self.inference,
            is_simulated=evidence.is_simulated,
            of_records=evidence.of_records,
        )
