r"""The posterior of any log-linear model: normal effects, latent tables, and the population behind them.

.. math:: β \sim N(0, T(τ)), \qquad x_1, \dots, x_N \sim p_β, \qquad n = \text{tables of the records}, \qquad
          y_i \sim \text{noise around } n_i,

with a scale τ for each effect, learned, or one fixed for all, and a private N log-uniform on a range that does not
look at the tables. NUTS moves τ, N and the latent tables n, in coordinates θ' (`latent_prior`) that are whitened by a
preliminary estimate (`whitening`). Each draw of the tables then gets a draw of the population from p(β | n), which
the noisy tables do not enter (`superpopulation`). Without that last step an interval of n / N would pass for one of
μ: where the noise is small beside sampling variation it covers a fraction of what it says.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesprivmrf.inference.evidence import WIDEST_RANGE, Evidence
from bayesprivmrf.inference.posterior.effort import gradient_operations
from bayesprivmrf.inference.posterior.formulation import Finished
from bayesprivmrf.inference.posterior.latent_prior import LatentPrior
from bayesprivmrf.inference.posterior.log_uniform import draw_totals
from bayesprivmrf.inference.posterior.measured_cells import MeasuredCells
from bayesprivmrf.inference.posterior.names import dimension_names, scaled_effects, table_name
from bayesprivmrf.inference.posterior.preliminary import Preliminary
from bayesprivmrf.inference.posterior.record_tables import draw_tables
from bayesprivmrf.inference.posterior.relaxed.density import Density
from bayesprivmrf.inference.posterior.relaxed.effects_density import KINDS, visit_effects
from bayesprivmrf.inference.posterior.relaxed.noisy_tables import (
    NoiseData,
    observe_noisy_counts,
    target_acceptance,
)
from bayesprivmrf.marginals import forecast
from bayesprivmrf.model.effects import Effects
from bayesprivmrf.model.tables import FloatArray

if TYPE_CHECKING:
    import pymc as pm


@dataclass(frozen=True, kw_only=True, eq=False)
class LogLinear:
    """The posterior of a log-linear model over its latent tables.

    Parameters
    ----------
    evidence
        The releases.
    scale
        τ of all effects, nats; None learns one for each.
    total
        The public number of records N; None where it is private.
    total_range
        Lower and upper end of the log-uniform prior of a private N, records.
    smoothing
        δ of a smoothed Laplace likelihood, in noise scales; 0 for the exact one.
    """

    evidence: Evidence
    scale: float | None = None
    total: float | None = None
    total_range: tuple[float, float] = WIDEST_RANGE
    smoothing: float = 0.0

    @property
    def name(self) -> str:
        """Name of the formulation."""
        return "log-linear"

    @property
    def judged(self) -> tuple[str, ...]:
        """``counts`` of the model's possible cells; ``log_scale`` where it is learned, ``total`` where private."""
        learned = ("log_scale",) if self._learns_scale else ()
        return ("counts", *learned, *(() if self.total is not None else ("total",)))

    @property
    def hidden(self) -> tuple[str, ...]:
        """``coordinates``, the θ' of the latent tables."""
        return ("coordinates",)

    @property
    def settings(self) -> Mapping[str, Any]:
        """The prior's settings, by name."""
        prior = self.latent.effects_prior
        settings: dict[str, Any] = {}
        if self.scale is not None:
            settings["prior_scale"] = float(self.scale)
        else:
            settings["prior_scale_location"] = prior.location
            settings["prior_scale_spread_in_common"] = prior.spread_in_common
            settings["prior_scale_spread_between_orders"] = prior.spread_between_orders
            settings["prior_scale_spread_between_effects"] = prior.spread_between_effects
        if self.total is None:
            settings["total_range"] = tuple(float(end) for end in self.total_range)
        if self.smoothing > 0:
            settings["smoothing"] = float(self.smoothing)
        return settings

    @property
    def sparsity(self) -> float:
        """κ/N: half a record a cell of the smallest table, over the number of records the release speaks of.

        The relaxation's error grows with it: the population's probabilities keep their prior law within a few
        per cent up to about 0.04 (`latent_prior`), and latent counts have slightly short intervals beyond.
        """
        total = self.evidence.total if self.total is None else self.total
        return self.latent.excess / max(total, 1.0)

    @property
    def acceptance(self) -> float:
        """Mean acceptance probability for which the sampler's step is tuned."""
        return target_acceptance(self.evidence, self.smoothing)

    @property
    def operations_a_gradient(self) -> float:
        """Operations of one evaluation of the density and its gradient: marginals, products with the basis, cells."""
        model, size = self.evidence.specification, self.latent.effects.size
        products = 2.0 * size * size if self.preliminary.is_dense else 0.0
        marginals = 3.0 * forecast(model.cardinalities, model.scopes).multiplications
        return marginals + products + gradient_operations(size + model.size)

    @cached_property
    def latent(self) -> LatentPrior:
        """The prior of the latent tables."""
        return LatentPrior(evidence=self.evidence)

    @cached_property
    def preliminary(self) -> Preliminary:
        """What stretches the sampler's coordinates."""
        return Preliminary(
            evidence=self.evidence,
            latent=self.latent,
            scale=self.scale,
            total=self.total,
            total_range=self.total_range,
        )

    @cached_property
    def _measured(self) -> MeasuredCells:
        return MeasuredCells.of(self.evidence)

    @property
    def _learns_scale(self) -> bool:
        return self.scale is None and bool(self.latent.effects_prior.count)

    @cached_property
    def _noise(self) -> NoiseData:
        return NoiseData.of(self.evidence, self._measured, smoothing=self.smoothing, whole_numbers=False)

    @property
    def density(self) -> Density:
        """The compiled density of this release; position zero is the preliminary estimate."""
        latent, cells, stretching = self.latent, self._measured.cells, self.preliminary.data()
        return Density(
            visit=visit_effects,
            kinds=KINDS,
            arrays=(tuple(stretching), cells, latent.uniform, tuple(latent.plan.tape), tuple(self._noise)),
            size=stretching.mode.size + stretching.root.shape[0],
            shapes={
                "counts": cells.shape,
                "total": (),
                "coordinates": (latent.effects.size,),
                "log_scale": stretching.scale.shape,
            },
        )

    def model(self) -> pm.Model:
        """A PyMC model of this release.

        Variables: ``position``, whitened, of everything that is sampled; ``log_scale`` (log τ of each effect) where
        it is learned; ``total`` where N is private; ``coordinates`` (θ'); ``counts`` (possible cells of the model's
        cliques, clique after clique), a ``counts[a,b]`` for each clique with the variables as dims and the states as
        coords; and the observed ``noisy_counts``. Draws from the prior are those of `prior_draws`.
        """
        import pymc as pm
        import pytensor.tensor as pt

        from bayesprivmrf.inference.posterior.relaxed.latent_op import declare_latent
        from bayesprivmrf.inference.posterior.relaxed.readable import declare_tables

        cells = self._measured
        coords = {"cell": np.arange(cells.cells.size), "noisy_cell": np.arange(cells.targets.size)}
        with pm.Model(coords=coords, model=None) as model:  # by itself, inside another's context too
            latent = declare_latent(self.density)
            for name in ("coordinates", *self.judged[1:]):
                pm.Deterministic(name, latent[name])
            counts = pm.Deterministic("counts", latent["counts"], dims="cell")
            observe_noisy_counts(self._noise, counts)
            flat = pt.zeros(self.latent.effects.cells)[cells.cells].set(counts)
            declare_tables(self.evidence.specification, flat)
        return model

    def finish(self, draws: Mapping[str, np.ndarray], rng: np.random.Generator) -> Finished:
        """Marginals, counts and effects of sampled draws; the population's are drawn from p(β | n)."""
        from bayesprivmrf.inference.posterior.superpopulation import draw_potentials

        latent, prior = self.latent, self.latent.effects_prior
        sampled = np.asarray(draws["counts"], dtype=float)
        lead, draws_in_all = sampled.shape[:-1], math.prod(sampled.shape[:-1])
        counts = np.zeros((*lead, latent.effects.cells))
        counts[..., self._measured.cells] = sampled
        total = np.asarray(draws["total"] if self.total is None else np.full(lead, self.total), dtype=float)
        if self._learns_scale:
            log_scales = np.asarray(draws["log_scale"], dtype=float)
        else:
            log_scales = np.broadcast_to(self.preliminary.mode.log_scales, (*lead, prior.count))
        effects, marginals, acceptance = draw_potentials(
            latent.plan,
            np.asarray(draws["coordinates"], dtype=float).reshape(draws_in_all, latent.effects.size),
            total.reshape(draws_in_all),
            np.exp(-2 * log_scales.reshape(draws_in_all, -1))[:, prior.levels],
            self.preliminary.curvature(),
            rng,
            excess=latent.excess,
            information=self._information,
        )
        finished = self.finished(
            effects.reshape(*lead, -1), marginals.reshape(*lead, -1), counts, total, log_scales, acceptance
        )
        return replace(finished, least=-latent.excess * latent.uniform)

    @property
    def _information(self) -> FloatArray | None:
        """Fisher's information of one record about each coordinate of a tied model, at the preliminary mode."""
        if isinstance(self.latent.effects, Effects):
            return None
        mode, prior = self.preliminary.mode, self.latent.effects_prior
        own = np.diag(self.preliminary.curvature()) - prior.precision(mode.log_scales)
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
        """All that follows from draws of potentials, tables, numbers of records and scales."""
        coordinates = self.latent.effects
        return Finished(
            marginals=marginals,
            counts=counts,
            effects=effects if isinstance(coordinates, Effects) else coordinates.untied(effects),
            total=total,
            scales=np.exp(log_scales),
            acceptance=acceptance,
            log_prior=self._log_prior(effects, log_scales),
            learned=self._learned(log_scales),
            prior_fit=self._prior_fit(effects, log_scales),
        )

    def prior_draws(self, size: int, rng: np.random.Generator, *, is_whole: bool = False) -> Finished:
        """Draw from the prior, shape (1, size, ...), with the integer tables of N records each.

        `is_whole` draws a private N in proportion to 1/N on the whole numbers, as whole records have it.
        """
        model, latent, prior = self.evidence.specification, self.latent, self.latent.effects_prior
        total = draw_totals(self.total, self.total_range, size, rng, is_whole=is_whole)
        if self.scale is not None:
            log_scales = np.full((size, prior.count), math.log(self.scale))
        else:
            expected = prior.expected_log_scales
            log_scales = rng.multivariate_normal(expected, prior.scale_covariance, size)
        effects = np.exp(log_scales)[:, prior.levels] * rng.standard_normal((size, latent.effects.size))
        marginals, counts = np.zeros((size, model.size)), np.zeros((size, model.size))
        for k, potentials in enumerate(self._potentials(effects)):
            marginals[k] = latent.plan.moments(effects[k])[1]
            counts[k] = draw_tables(model.cardinalities, model.scopes, potentials, int(total[k]), rng)
        return self.finished(
            effects[np.newaxis],
            marginals[np.newaxis],
            counts[np.newaxis],
            total[np.newaxis].astype(float),
            log_scales[np.newaxis],
        )

    def _log_prior(self, effects: FloatArray, log_scales: FloatArray) -> dict[str, FloatArray]:
        """Log density of each effect's coordinates given the scales, but for its constant."""
        coordinates, levels = self.latent.effects, self.latent.effects_prior.levels
        names = dimension_names(self.evidence.specification.domain)
        own = log_scales[..., levels]
        density = -0.5 * (effects * np.exp(-own)) ** 2 - own
        return {
            table_name("effects", names, subset): density[..., start:stop].sum(axis=-1)
            for subset, (start, stop) in zip(coordinates.subsets, pairwise(coordinates.offsets), strict=True)
        }

    def _prior_fit(self, effects: FloatArray, log_scales: FloatArray) -> FloatArray:
        """Sum of squares of the effects in their prior deviations, standardised and negative."""
        own = log_scales[..., self.latent.effects_prior.levels]
        squares = (effects * np.exp(-own)) ** 2
        return (1 - squares).sum(axis=-1) / math.sqrt(2 * max(squares.shape[-1], 1))

    def _learned(self, log_scales: FloatArray) -> dict[str, FloatArray]:
        if not self._learns_scale:
            return {}
        prior = self.latent.effects_prior
        standardised = (log_scales - prior.expected_log_scales) / np.sqrt(np.diag(prior.scale_covariance))
        effects = scaled_effects(prior, dimension_names(self.evidence.specification.domain))
        return {f"scale of {effect}": standardised[..., k] for k, effect in enumerate(effects)}

    def _potentials(self, effects: FloatArray) -> FloatArray:
        flat = self.latent.effects.potentials(effects)
        if self.evidence.supported is not None:
            flat[..., ~self.evidence.supported] = -np.inf
        return flat
