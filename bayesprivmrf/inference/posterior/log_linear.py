"""log-linear (work in progress)"""

from __future__ import annotations

import math
import os
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesprivmrf.inference.effects_prior import EffectsPrior
from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.inference.noise_aware_mode import Mode, Settings, noise_aware_mode
from bayesprivmrf.inference.posterior.formulation import Finished
from bayesprivmrf.inference.posterior.names import dimension_names, state_labels, table_name
from bayesprivmrf.inference.posterior.noisy_tables import absolute_cells, noise_data, observe_noisy_counts
from bayesprivmrf.inference.posterior.record_tables import draw_tables
from bayesprivmrf.inference.posterior.whitening import Whitening
from bayesprivmrf.model.effects import Effects
from bayesprivmrf.model.tables import FloatArray, IntArray

if TYPE_CHECKING:
    import pymc as pm

    from bayesprivmrf.inference.posterior.effects_engine import Plan

__all__ = ["LogLinear"]

_LOGISTIC_PRECISION = 3 / math.pi**2


@dataclass(frozen=True, kw_only=True, eq=False)
class LogLinear:
    """The posterior of any log-linear model."""

    evidence: Evidence
    scale: float | None = None
    total: float | None = None
    total_range: tuple[float, float] = (1.0, 1e10)
    smoothing: float = 0.0

    @property
    def name(self) -> str:
        """Name of the formulation."""
        return "log-linear"

    @property
    def judged(self) -> tuple[str, ...]:
        """``counts`` of the possible cells of the model's cliques; ``log_scale`` if learnt, ``total`` if private."""
        learnt = () if self.scale is not None or not self.prior.orders else ("log_scale",)
        return ("counts", *learnt, *(() if self.total is not None else ("total",)))

    @property
    def hidden(self) -> tuple[str, ...]:
        """The coordinates θ' of the latent tables."""
        return ("coordinates",)

    @property
    def settings(self) -> Mapping[str, Any]:
        """The prior's settings, by name."""
        settings: dict[str, Any] = {}
        if self.scale is not None:
            settings["prior_scale"] = float(self.scale)
        else:
            settings["prior_scale_location"] = self.prior.location
            settings["prior_scale_spread_in_common"] = self.prior.spread_in_common
            settings["prior_scale_spread_between_orders"] = self.prior.spread_between_orders
        if self.total is None:
            settings["total_range"] = tuple(float(end) for end in self.total_range)
        if self.smoothing > 0:
            settings["smoothing"] = float(self.smoothing)
        return settings

    @property
    def structure(self) -> Hashable:
        """Cliques, measured tables, possible cells, kinds of noise, and what of τ and N is known."""
        model, evidence = self.evidence.specification, self.evidence
        return (
            self.name,
            model.cardinalities,
            model.scopes,
            evidence.scopes,
            None if evidence.supported is None else evidence.supported.tobytes(),
            evidence.possible.tobytes(),
            absolute_cells(evidence).tobytes(),
            self.scale is None,
            self.total is None,
            float(self.smoothing),
        )

    # numbers of the release

    @cached_property
    def effects(self) -> Effects:
        """Coordinates of the potentials."""
        model = self.evidence.specification
        return Effects.of(model.cardinalities, model.scopes)

    @cached_property
    def prior(self) -> EffectsPrior:
        """The prior of the coordinates."""
        return EffectsPrior(effects=self.effects)

    @cached_property
    def plan(self) -> Plan:
        """The compiled marginals."""
        from bayesprivmrf.inference.posterior.effects_engine import Plan

        return Plan.of(self.effects, self.evidence.supported)

    @cached_property
    def mode(self) -> Mode:
        """A preliminary estimate, on which only the sampler's speed depends."""
        low, high = self.total_range
        if self.total is not None:
            low = high = self.total
        scale = self.prior.location if self.scale is None else self.scale
        settings = Settings(scale=scale, total_range=(low, high), rounds=3, tolerance=0.3)
        return noise_aware_mode(self.evidence, settings)

    @cached_property
    def _spread(self) -> FloatArray:
        """Variance of one record's statistic of each coordinate under the uniform distribution."""
        cards, effects = self.effects.cardinalities, self.effects
        sizes = [1 / math.prod(cards[v] for v in subset) for subset in effects.subsets]
        return np.repeat(sizes, np.diff(effects.offsets))

    @cached_property
    def _total_bounds(self) -> dict[str, float]:
        low, high = np.log(self.total_range)
        inside = min(max((self.mode.log_total - low) / (high - low), 1e-3), 1 - 1e-3)
        return {"low": low, "high": high, "centre": math.log(inside / (1 - inside))}

    @cached_property
    def whitening(self) -> Whitening:
        """Coordinates in which the sampler moves."""
        mode, prior = self.mode, self.prior
        total = math.exp(mode.log_total)
        precision = 1 / (1 / prior.precision(mode.log_scales) + 1 / (total * self._spread))
        information, point, groups = mode.noise_information(), mode.coordinates, prior.levels
        if self.total is None:
            bounds = self._total_bounds
            share = 1 / (1 + math.exp(-bounds["centre"]))
            slope = np.ones(len(point) + 1)
            slope[-1] = (bounds["high"] - bounds["low"]) * share * (1 - share)
            information = information * (np.outer(slope, slope) if information.ndim == 2 else slope**2)
            precision = np.append(precision, _LOGISTIC_PRECISION)
            point, groups = np.append(point, 0.0), np.append(groups, len(prior.orders))
        elif information.ndim == 2:
            information = information[:-1, :-1]
        else:
            information = information[:-1]
        return Whitening.of(information, precision, point, groups, len(prior.orders) + (self.total is None))

    def data(self) -> Mapping[str, np.ndarray]:
        """Values of the ``pm.Data``, by name."""
        values = {**noise_data(self.evidence), **self.whitening.data()}
        values["preliminary_log_scale"] = np.asarray(self.mode.log_scales)
        values["preliminary_log_total"] = np.asarray(float(self.mode.log_total))
        if self.scale is None:
            values["log_scale_root"] = self._log_scale_root()
        if self.total is not None:
            values["records"] = np.asarray(float(self.total))
        else:
            values |= {
                f"log_total_{name}": np.asarray(float(value)) for name, value in self._total_bounds.items()
            }
        return values

    def _log_scale_root(self) -> FloatArray:
        """Root of the covariance of log τ that the preliminary estimate suggests."""
        sizes = np.bincount(self.prior.levels, minlength=len(self.prior.orders))
        precision = self.prior._hyper_precision + np.diag(0.5 * sizes)
        return np.linalg.inv(np.linalg.cholesky(precision)).T

    def start(self) -> Mapping[str, np.ndarray] | None:
        """None: every variable starts near the preliminary estimate."""
        return None

    def model(self) -> pm.Model:
        """The model"""
        import pymc as pm
        import pytensor.tensor as pt

        from bayesprivmrf.inference.posterior.marginals_op import marginal_moments

        values, size = self.data(), self.effects.size
        given: dict[str, Any] = {}
        coords = {"cell": np.arange(self._cells.size), "noisy_cell": np.arange(self._targets.size)}
        with pm.Model(coords=coords) as model:
            for name, value in values.items():
                if name not in ("noisy_counts_data", "noise_scale"):
                    given[name] = pm.Data(name, value)
            log_scale = self._log_scale(given)
            z = pm.Normal("position", 0.0, 1.0, shape=size + (self.total is None))
            precision_of = self._precision(given)
            first = precision_of(given["preliminary_log_scale"], given["preliminary_log_total"])
            # the log-precision relative to the preliminary one, by group
            x, log_jacobian = self._unwhitened(given, z, log_scale)
            coordinates = pm.Deterministic("coordinates", x[:size])
            if self.total is None:
                u = given["log_total_centre"] + x[size]
                share = pt.sigmoid(u)
                log_total = (
                    given["log_total_low"] + (given["log_total_high"] - given["log_total_low"]) * share
                )
                total = pm.Deterministic("total", pt.exp(log_total))
                pm.Potential("total_prior", pt.log(share) + pt.log1p(-share))
            else:
                total = given["records"]
                log_total = pt.log(total)
            precision = precision_of(log_scale, log_total)
            pm.Potential(
                "effects_prior",
                0.5 * pt.sum(pt.log(precision))
                - 0.5 * pt.sum(precision * coordinates**2)
                + log_jacobian
                + 0.5 * pt.sum(z**2),
            )
            moments = marginal_moments(self.plan, coordinates)
            flat = total * moments.marginals
            counts = pm.Deterministic("counts", flat[self._cells], dims="cell")
            observe_noisy_counts(self.evidence, self._measured(counts), smoothing=self.smoothing)
            self._readable(flat)
        return model

    def _precision(self, given: Mapping[str, Any]) -> Any:
        import pytensor.tensor as pt

        levels = self.prior.levels

        def precision(log_scale: Any, log_total: Any) -> Any:
            return 1 / (pt.exp(2 * log_scale)[levels] + pt.exp(-log_total) / self._spread)

        return precision

    def _log_scale(self, given: Mapping[str, Any]) -> Any:
        """Declare log τ of each order, or give the fixed one."""
        import pymc as pm
        import pytensor.tensor as pt

        if self.scale is not None:
            return given["preliminary_log_scale"]
        prior = self.prior
        count = len(prior.orders)
        v = pm.Normal("scale_position", 0.0, 1.0, shape=count)
        log_scale = pm.Deterministic(
            "log_scale", given["preliminary_log_scale"] + pt.dot(given["log_scale_root"], v)
        )
        gap = log_scale - prior.expected_log_scales
        pm.Potential(
            "scale_prior", -0.5 * pt.dot(gap, pt.dot(prior._hyper_precision, gap)) + 0.5 * pt.sum(v**2)
        )
        return log_scale

    def _unwhitened(self, given: Mapping[str, Any], z: Any, log_scale: Any) -> tuple[Any, Any]:
        """x and the log-determinant of its derivative by z."""
        import pytensor.tensor as pt

        ratio = self._group_ratio(given, log_scale)
        information, shares = given["whitening_information"], given["whitening_shares"]
        now = information + pt.exp(pt.dot(shares, ratio))
        u = given["whitening_mode"] * (information + 1) / now + z / pt.sqrt(now)
        basis = given["whitening_basis"]
        x = pt.dot(basis, u) if self._is_dense else basis * u
        return x, -0.5 * pt.sum(pt.log(now))

    @property
    def _is_dense(self) -> bool:
        from bayesprivmrf.inference.noise_aware_mode import DENSE_LIMIT

        return self.effects.size <= DENSE_LIMIT

    def _group_ratio(self, given: Mapping[str, Any], log_scale: Any) -> Any:
        """Log of each group's prior precision relative to the preliminary one; 0 for the total."""
        import pytensor.tensor as pt

        count = len(self.prior.orders)
        sizes = np.maximum(np.bincount(self.prior.levels, minlength=count), 1)
        inverse = np.bincount(self.prior.levels, weights=1 / self._spread, minlength=count) / sizes
        scatter = pt.exp(-given["preliminary_log_total"]) * inverse
        first = given["preliminary_log_scale"]
        ratio = pt.log(pt.exp(2 * first) + scatter) - pt.log(pt.exp(2 * log_scale) + scatter)
        return pt.concatenate([ratio, np.zeros(1)]) if self.total is None else ratio

    # cells

    @cached_property
    def _cells(self) -> IntArray:
        supported = self.evidence.supported
        size = self.evidence.specification.size
        return np.arange(size) if supported is None else np.flatnonzero(supported)

    @cached_property
    def _targets(self) -> IntArray:
        return np.flatnonzero(self.evidence.possible)

    @cached_property
    def _membership(self) -> tuple[IntArray, IntArray]:
        """Possible cells (as numbered in `counts`) and the measured cell (as numbered in `_targets`) of each."""
        evidence, model = self.evidence, self.evidence.specification
        rank = np.full(evidence.offsets[-1], -1)
        rank[self._targets] = np.arange(self._targets.size)
        number = np.full(model.size, -1)
        number[self._cells] = np.arange(self._cells.size)
        sources, targets = [np.zeros(0, int)], [np.zeros(0, int)]
        for position, scope in enumerate(evidence.scopes):
            home = next(c for c, holder in enumerate(model.scopes) if set(holder) >= set(scope))
            holder, shape = model.scopes[home], model.shapes[home]
            states = np.unravel_index(np.arange(math.prod(shape)), shape)
            own = [model.cardinalities[v] for v in scope]
            cells = np.ravel_multi_index(tuple(states[holder.index(v)] for v in scope), own)
            mine = number[model.offsets[home] : model.offsets[home + 1]]
            sources.append(mine[mine >= 0])
            targets.append(rank[evidence.offsets[position] + cells[mine >= 0]])
        return np.concatenate(sources), np.concatenate(targets)

    def _measured(self, counts: Any) -> Any:
        import pytensor.tensor as pt

        sources, targets = self._membership
        if np.array_equal(targets, np.arange(self._targets.size)):
            same = np.array_equal(sources, np.arange(self._cells.size))
            return counts if same else counts[sources]
        return pt.inc_subtensor(pt.zeros(self._targets.size)[targets], counts[sources])

    def _readable(self, flat: Any) -> None:
        import pymc as pm

        model = self.evidence.specification
        names = dimension_names(model.domain)
        for position, name in enumerate(names):
            pm.modelcontext(None).add_coord(name, state_labels(model.domain, position))
        for clique, scope in enumerate(model.scopes):
            table = flat[model.offsets[clique] : model.offsets[clique + 1]].reshape(model.shapes[clique])
            pm.Deterministic(table_name("counts", names, scope), table, dims=tuple(names[v] for v in scope))

    # afterwards

    def finish(self, draws: Mapping[str, np.ndarray], rng: np.random.Generator) -> Finished:
        """Superpopulation step."""
        from bayesprivmrf.inference.posterior.superpopulation import superpopulation

        sampled = np.asarray(draws["counts"], dtype=float)
        lead = sampled.shape[:-1]
        model = self.evidence.specification
        counts = np.zeros((*lead, model.size))
        counts[..., self._cells] = sampled
        total = np.full(lead, float(self.total)) if self.total is not None else np.asarray(draws["total"])
        if self.scale is not None or not self.prior.orders:
            log_scales = np.broadcast_to(self.mode.log_scales, (*lead, len(self.prior.orders)))
        else:
            log_scales = np.asarray(draws["log_scale"], dtype=float)
        flat = math.prod(lead)
        size = self.effects.size
        points = np.ascontiguousarray(np.asarray(draws["coordinates"], dtype=float).reshape(flat, size))
        precisions = np.exp(-2 * log_scales.reshape(flat, -1))[:, self.prior.levels]
        betas, marginals = self._superpopulation(points, total.reshape(flat), precisions, rng)
        return Finished(
            marginals=marginals.reshape(*lead, -1),
            counts=counts,
            effects=betas.reshape(*lead, size),
            total=np.asarray(total, dtype=float),
            scales=np.exp(log_scales),
        )

    def _superpopulation(self, points, total, precisions, rng):
        from bayesprivmrf.inference.posterior.effects_engine import fisher_information
        from bayesprivmrf.inference.posterior.superpopulation import superpopulation

        mode = self.mode
        if self._is_dense:
            info = math.exp(mode.log_total) * fisher_information(
                np.ascontiguousarray(mode.coordinates), *self.plan.tape
            )
        else:
            raise NotImplementedError
        info = info + np.diag(self.prior.precision(mode.log_scales))
        how = os.environ.get("GEN_SUPER", "mh")
        betas, marginals, acceptance = superpopulation(
            self.plan,
            points,
            np.ascontiguousarray(total),
            np.ascontiguousarray(precisions),
            info,
            rng,
            iterations=4,
            spread=self._spread if how == "coherent" else None,
        )
        self.__dict__["acceptance"] = acceptance
        return betas, marginals

    def prior_draws(self, size: int, rng: np.random.Generator) -> Finished:
        """Exact draws of the prior, shape (1, size, ...), with the integer tables of N records each."""
        model, prior = self.evidence.specification, self.prior
        if self.total is not None:
            total = np.full(size, round(self.total))
        else:
            low, high = np.log(self.total_range)
            total = np.rint(np.exp(rng.uniform(low, high, size))).astype(np.int64)
        count = len(prior.orders)
        if self.scale is not None:
            log_scales = np.full((size, count), math.log(self.scale))
        else:
            common, own = rng.standard_normal((size, 1)), rng.standard_normal((size, count))
            log_scales = prior.expected_log_scales + prior.spread_in_common * common
            log_scales = log_scales + prior.spread_between_orders * own
        effects = np.exp(log_scales)[:, prior.levels] * rng.standard_normal((size, self.effects.size))
        marginals, counts = np.zeros((size, model.size)), np.zeros((size, model.size))
        for k in range(size):
            marginals[k] = self.plan.moments(effects[k])[1]
            flat = self.effects.potentials(effects[k])
            if self.evidence.supported is not None:
                flat[~self.evidence.supported] = -np.inf
            counts[k] = draw_tables(model.cardinalities, model.scopes, flat, int(total[k]), rng)
        return Finished(
            marginals=marginals[np.newaxis],
            counts=counts[np.newaxis],
            effects=effects[np.newaxis],
            total=total[np.newaxis].astype(float),
            scales=np.exp(log_scales)[np.newaxis],
        )
