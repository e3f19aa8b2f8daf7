r"""Posterior of any log-linear model: normal effects, latent tables, and the population that they are drawn from.

.. math:: β \sim N(0, T(τ)), \qquad x_1, \dots, x_N \sim p_β, \qquad n = \text{tables of the records}, \qquad
          y_i \sim \text{noise around } n_i,

with a learned scale τ for each effect or one fixed scale for all. A private N is log-uniform on a range that does not
depend on the tables. NUTS moves τ, N and the latent tables n, in coordinates θ' (`latent_prior`) that are whitened by
a preliminary estimate. For each draw of the tables the population is then drawn from p(β | n), which does not depend
on the noisy tables (`superpopulation`). Without this last step, intervals would be those of n / N and not of μ. If
the noise is small relative to sampling variation, their coverage would be far too low.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from bayesprivmrf.errors import ArgumentError, BayesPrivMRFError, ModelError, ModelTooLargeError
from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.inference.loglinear_fit.scale_prior import DENSE_LIMIT
from bayesprivmrf.inference.mean_counts import MeanCounts
from bayesprivmrf.inference.posterior.formulation import WORK_A_STEP, Finished
from bayesprivmrf.inference.posterior.latent_prior import LatentPrior, draw_totals
from bayesprivmrf.inference.posterior.noisy_tables import (
    dimension_names,
    scaled_effects,
    table_name,
)
from bayesprivmrf.inference.posterior.relaxed_counts.density import Density
from bayesprivmrf.inference.posterior.relaxed_counts.effects_density import KINDS, visit_effects
from bayesprivmrf.inference.posterior.relaxed_counts.engine import RelaxedCounts
from bayesprivmrf.inference.posterior.settings import PriorSettings
from bayesprivmrf.inference.posterior.superpopulation import LatentTables, draw_potentials
from bayesprivmrf.marginals import forecast
from bayesprivmrf.marginals.arrays import draw_tables
from bayesprivmrf.model.tables import FloatArray

# Operations of a gradient for each effect and cell, and for each entry of the dense matrix of the whitening
# (0.9 to 1.2 times the measured nanoseconds are forecast for tables and chains of 200 to 1,024 cells)
_WORK_A_NUMBER = 50.0
_WORK_A_PRODUCT = 0.4


@dataclass(frozen=True, kw_only=True, eq=False)
class LogLinear(RelaxedCounts):
    """Posterior of a log-linear model over its latent tables.

    Its PyMC model has ``coordinates`` (θ'), ``log_scale`` (log τ of each effect) if it is learned, and ``total`` if N
    is private.

    Parameters
    ----------
    scale
        Prior standard deviation τ of all effects, nats; None learns one for each effect.
    evidence, total, total_range
        Parameters of `RelaxedCounts`.
    """

    scale: float | None = None

    name: ClassVar[str] = "log-linear"
    _of_whole_numbers: ClassVar[bool] = False

    @staticmethod
    def refuses_prior(evidence: Evidence, settings: PriorSettings) -> BayesPrivMRFError | None:
        """Return the reason why normal effects do not support the model or the settings, or None."""
        if evidence.specification.shares_transitions:
            return ModelError(
                "the log-linear formulation does not support shared transitions; use formulation='exact' or 'auto'."
            )
        if settings.concentration is not None:
            return ArgumentError(
                "`concentration` belongs to the hyper-Dirichlet prior, and this model has the log-linear prior; "
                "leave it out."
            )
        if not evidence.specification.is_restricted:
            return None
        parameters = evidence.family.effects.size
        if parameters <= DENSE_LIMIT:
            return None
        return ModelTooLargeError(
            f"the posterior of a model with ties can have at most {DENSE_LIMIT:,} parameters, got {parameters:,}; "
            "use NoiseAwareMAP."
        )

    @classmethod
    def refuses(cls, evidence: Evidence, settings: PriorSettings) -> BayesPrivMRFError | None:
        """Return the reason why this engine does not support a release or the settings, or None."""
        reason = super().refuses(evidence, settings)
        if (
            reason
            or not evidence.specification.is_restricted
            or MeanCounts(evidence=evidence).tells_all
        ):
            return reason
        return ModelError(
            "with shared parameters, relaxed counts represent only the sums that these depend on, and the "
            "measurements contain more, such as a table for each scope. Leave out `formulation` and the "
            "sampler's settings, or measure the sums (`queries.pooled`, or `queries.weighted` by products of scores)."
        )

    @property
    def judged(self) -> tuple[str, ...]:
        """``counts`` of the possible cells, ``log_scale`` if it is learned, and ``total`` if it is private."""
        return ("counts", *(("log_scale",) if self._learns_scale else ()), *self._private)

    @property
    def hidden(self) -> tuple[str, ...]:
        """``coordinates`` θ' of the latent tables."""
        return ("coordinates",)

    @property
    def _prior_settings(self) -> Mapping[str, Any]:
        if self.scale is not None:
            return {"prior_scale": float(self.scale)}
        names = ("location", "spread_in_common", "spread_between_orders", "spread_between_effects")
        return {f"prior_scale_{name}": getattr(self.latent.effects_prior, name) for name in names}

    @property
    def sparsity(self) -> float:
        """Half-counts per record, κ/N: half a record per cell of the smallest table, over the number of records.

        The error of the relaxation grows with it. Up to about 0.04, the population's probabilities keep their prior
        distribution within a few percent (`latent_prior`); above, intervals of latent counts are slightly too short.
        """
        if self.total is None:
            total = self.evidence.total
        else:
            total = self.total
        return self.latent.excess / max(total, 1.0)

    @property
    def operations_a_gradient(self) -> float:
        """Operations of one density and gradient: marginals, products with the basis, and cells."""
        model = self.evidence.specification
        size = self.latent.effects.size
        if self.latent.is_dense:
            products = _WORK_A_PRODUCT * size * size
        else:
            products = 0.0
        marginals = 3.0 * forecast(model.cardinalities, model.scopes).multiplications
        numbers = _WORK_A_NUMBER * (size + model.size)
        return WORK_A_STEP + marginals + products + numbers

    @cached_property
    def latent(self) -> LatentPrior:
        """Prior of the latent tables, and the preliminary estimate that scales the sampler's coordinates."""
        return LatentPrior(
            evidence=self.evidence, scale=self.scale, total=self.total, total_range=self.total_range
        )

    @property
    def _learns_scale(self) -> bool:
        return self.scale is None and bool(self.latent.effects_prior.count)

    @cached_property
    def density(self) -> Density:
        """Compiled density of this release; position 0 is the preliminary estimate."""
        latent = self.latent
        cells = self._measured.cells
        scales = latent.mode.log_scales
        return Density(
            visit=visit_effects,
            kinds=KINDS,
            arrays=(latent.data(), cells, latent.uniform, latent.plan.data, tuple(self._noise)),
            size=latent.block_whitening.pulled.size
            + (0 if self.scale is not None else scales.size),
            shapes={
                "counts": cells.shape,
                "total": (),
                "coordinates": (latent.effects.size,),
                "log_scale": scales.shape,
            },
        )

    def finish(self, draws: Mapping[str, np.ndarray], rng: np.random.Generator) -> Finished:
        """Return marginals, counts and effects of sampled draws; the population is drawn from p(β | n)."""
        latent = self.latent
        prior = self.latent.effects_prior
        counts, total = self._counts_and_total(draws)
        lead = total.shape
        draws_in_all = total.size
        if self._learns_scale:
            log_scales = np.asarray(draws["log_scale"], dtype=float)
        else:
            log_scales = np.broadcast_to(self.latent.mode.log_scales, (*lead, prior.count))
        coordinates = np.asarray(draws["coordinates"], dtype=float)
        tables = LatentTables(
            points=coordinates.reshape(draws_in_all, latent.effects.size),
            totals=total.reshape(draws_in_all),
            precisions=np.exp(-2 * log_scales.reshape(draws_in_all, -1))[:, prior.levels],
        )
        effects, marginals, acceptance = draw_potentials(
            latent.plan,
            tables,
            self.latent.curvature(),
            rng,
            excess=latent.excess,
            information=self._information,
        )
        finished = self.finished(
            effects.reshape(*lead, -1),
            marginals.reshape(*lead, -1),
            counts,
            total,
            log_scales,
            acceptance,
        )
        return replace(finished, least=-latent.excess * latent.uniform)

    @property
    def _information(self) -> FloatArray | None:
        """Fisher information of one record about each coordinate of a tied model, at the preliminary mode."""
        if self.latent.effects.matrix is None:
            return None
        mode = self.latent.mode
        prior = self.latent.effects_prior
        own = np.diag(self.latent.curvature()) - prior.precision(mode.log_scales)
        return np.maximum(own, 0.0) / math.exp(mode.log_total)

    def finished(
        self,
        effects: FloatArray,
        marginals: FloatArray,
        counts: FloatArray,
        total: FloatArray,
        log_scales: FloatArray,
        acceptance: float | None = None,
    ) -> Finished:
        """Return all quantities that follow from draws of potentials, tables, numbers of records and scales."""
        coordinates = self.latent.effects
        prior = self.latent.effects_prior
        names = dimension_names(self.evidence.specification.domain)
        own = log_scales[..., prior.levels]
        learned = {}
        if self._learns_scale:
            scores = (log_scales - prior.expected_log_scales) / np.sqrt(
                np.diag(prior.scale_covariance)
            )
            labels = scaled_effects(prior, names)
            learned = {f"scale of {effect}": scores[..., k] for k, effect in enumerate(labels)}
        # squared effects in prior standard deviations: mean 1 and variance 2 under the prior
        squares = (effects * np.exp(-own)) ** 2
        density = -0.5 * squares - own
        return Finished(
            marginals=marginals,
            counts=counts,
            effects=coordinates.untied(effects),
            total=total,
            scales=np.exp(log_scales),
            acceptance=acceptance,
            log_prior={
                table_name("effects", names, subset): density[..., start:stop].sum(axis=-1)
                for subset, (start, stop) in zip(
                    coordinates.subsets, pairwise(coordinates.offsets), strict=True
                )
            },
            learned=learned,
            prior_fit=(1 - squares).sum(axis=-1) / math.sqrt(2 * max(squares.shape[-1], 1)),
        )

    def prior_draws(self, size: int, rng: np.random.Generator) -> Finished:
        """Draw from the prior: see `RelaxedCounts.prior_draws`."""
        model = self.evidence.specification
        latent = self.latent
        prior = self.latent.effects_prior
        total = draw_totals(self.total, self.total_range, size, rng)
        if self.scale is not None:
            log_scales = np.full((size, prior.count), math.log(self.scale))
        else:
            expected = prior.expected_log_scales
            log_scales = rng.multivariate_normal(expected, prior.scale_covariance, size)
        effects = np.exp(log_scales)[:, prior.levels] * rng.standard_normal(
            (size, latent.effects.size)
        )
        marginals = np.zeros((size, model.size))
        counts = np.zeros((size, model.size))
        for k, potentials in enumerate(self.evidence.family.potentials(effects)):
            marginals[k] = latent.plan.moments(effects[k])[1]
            counts[k] = draw_tables(
                model.cardinalities, model.scopes, potentials, int(total[k]), rng
            )
        return self.finished(
            effects[np.newaxis],
            marginals[np.newaxis],
            counts[np.newaxis],
            total[np.newaxis].astype(float),
            log_scales[np.newaxis],
        )
