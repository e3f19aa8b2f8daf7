r"""Engine of whole records with normal effects, and the arrays that moves of the potentials read.

The posterior is that of `relaxed_counts.log_linear`, without its relaxation. Records of any log-linear model are
moved like those of a decomposable one, along the junction forest of the bags of a triangulation. Given the
potentials, :math:`p_β(x) = \prod_B p_β(x_B \mid x_S)`: the table of each bag is divided into rows, one for each state
of its separator, and the rows are given instead of integrated out.

An effect of areas with levels is a sum of one normal part for each level. In the coordinates of
`bayesprivmrf.model.contrast_parts` each part is a block of independent numbers with its own scale, and
`EffectsPrior.levels` has the scale of each coordinate. The moves need no other fact about levels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bayesprivmrf.errors import BayesPrivMRFError
from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.inference.mean_counts import MeanCounts
from bayesprivmrf.inference.posterior.forest import JunctionForest, junction_forest
from bayesprivmrf.inference.posterior.formulation import Finished
from bayesprivmrf.inference.posterior.latent_prior import LatentPrior, Whitening
from bayesprivmrf.inference.posterior.measured import MeasuredCells
from bayesprivmrf.inference.posterior.relaxed_counts.log_linear import LogLinear
from bayesprivmrf.inference.posterior.settings import PriorSettings
from bayesprivmrf.inference.posterior.whole_records.bounds import grouped
from bayesprivmrf.inference.posterior.whole_records.chains import Kept, RecordChain
from bayesprivmrf.inference.posterior.whole_records.effect_moves import (
    advance_effects,
    moves_together,
)
from bayesprivmrf.inference.posterior.whole_records.engine import RecordEngine, Start
from bayesprivmrf.marginals import Layout, array_engine
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.tables import FloatArray, IntArray
from bayesprivmrf.privacy import Gaussian

if TYPE_CHECKING:
    import pymc as pm

# Gradients of a sweep with respect to the potentials, as its work is estimated, and operations for each record and
# table in a move of the potentials that the records follow. With both, 0.5 to 1.5 times the measured nanoseconds are
# forecast for 31 releases of real tables
_GRADIENTS = 25
_WORK_A_FOLLOWER = 30.0
# Ridge on the information of records and noise, as a share of the curvature, that keeps it from being singular
_RIDGE = 1e-9
# Largest change of N in one move, in standard errors, and in records; both are arbitrary
_REACH = 3
_LARGEST_REACH = 2000


@dataclass(frozen=True, kw_only=True, eq=False)
class NormalEffects(RecordEngine):
    """Engine of a log-linear model, whose prior is normal effects.

    Parameters
    ----------
    scale
        Prior standard deviation of all effects, nats; None learns one for each effect. The other parameters are those
        of `RecordEngine`.
    """

    scale: float | None = None

    @classmethod
    def refuses(cls, evidence: Evidence, settings: PriorSettings) -> BayesPrivMRFError | None:
        """Return the reason why normal effects do not support the model or the settings, or None."""
        return LogLinear.refuses_prior(evidence, settings)

    @cached_property
    def relaxed(self) -> LogLinear:
        """Formulation with the same prior and relaxed counts."""
        return LogLinear(
            evidence=self.evidence, scale=self.scale, total=self.total, total_range=self.total_range
        )

    @property
    def no_relaxed(self) -> str | None:
        """Reason why relaxed counts cannot represent the measurements; None if they can."""
        if super().no_relaxed or self._statistics_tell_all:
            return super().no_relaxed
        return (
            "this posterior has no PyMC model: relaxed counts represent only the sums that a model with shared "
            "parameters depends on, and the measurements contain more. Read its draws in `tree`."
        )

    @cached_property
    def _statistics_tell_all(self) -> bool:
        """True if the measurements depend on the records only through the sufficient statistics of the model."""
        return MeanCounts(evidence=self.evidence).tells_all

    def model(self) -> pm.Model:
        """Return the PyMC model of the same posterior with relaxed counts: see `RecordEngine.model`.

        Under a model that omits interactions of measured tables, the tables themselves are relaxed
        (`bayesprivmrf.inference.posterior.whole_records.smaller_model`).
        """
        is_smaller = self.evidence.specification.interactions is not None
        if self.keeps_sums or not is_smaller or self.evidence.needs_whole_records:
            return super().model()
        # PyMC takes about a second to import, and most posteriors are sampled without it
        from bayesprivmrf.inference.posterior.whole_records.smaller_model import smaller_model

        return smaller_model(self)

    @property
    def judged(self) -> tuple[str, ...]:
        """``counts``, ``coordinates`` (β), ``log_scale`` if it is learned, and ``total`` if N is private."""
        return (*self.relaxed.judged, "coordinates")

    @property
    def settings(self) -> Mapping[str, Any]:
        """Settings of the prior, by name."""
        return self.relaxed.settings

    def prior_draws(self, size: int, rng: np.random.Generator) -> Finished:
        """Draw from the prior, shape (1, size, ...), with the tables of N whole records."""
        return self.relaxed.prior_draws(size, rng)

    @property
    def operations_a_sweep(self) -> float:
        """Operations of one sweep of one chain, with those of the moves of the potentials."""
        work = super().operations_a_sweep + _GRADIENTS * self.relaxed.operations_a_gradient
        if not self.effects.basis.size:
            return work
        followers = moves_together.py_func(self.first_total) * self.first_total
        return work + _WORK_A_FOLLOWER * followers * len(self.forest.tables)

    @cached_property
    def bagged(self) -> Evidence:
        """Same evidence under a model whose cliques are the bags of a triangulation."""
        return bag_evidence(self.evidence)

    @cached_property
    def forest(self) -> JunctionForest:
        """Junction forest of the bags."""
        model = self.bagged.specification
        forest = junction_forest(model.cardinalities, model.scopes, self.bagged.supported)
        assert forest is not None
        return forest

    @cached_property
    def preliminary(self) -> LatentPrior:
        """Preliminary estimate that scales the steps of the potentials; it gives exact sums normal noise."""
        latent = self.relaxed.latent
        if not self.keeps_sums:
            return latent
        noise = tuple(
            Gaussian(max(law.standard_deviation, 1.0))  # type: ignore[attr-defined]
            if law.is_exact or law.is_bounded
            else law
            for law in self.evidence.noise
        )
        return replace(latent, evidence=replace(self.evidence, noise=noise))

    @cached_property
    def effects(self) -> EffectData:
        """Arrays that moves of the potentials read."""
        rough = self.preliminary
        model = self.evidence.specification
        prior = rough.effects_prior
        cards = model.cardinalities
        own_tables = replace(
            self.bagged,
            queries=None,
            scopes=tuple(tuple(v for v in scope if cards[v] > 1) for scope in model.scopes),
            possible=self.evidence.supported_cells,
        )
        cells = MeasuredCells.of(own_tables)
        place = np.argsort(self.forest.cells)
        part_starts, parts = grouped(place[cells.sources], cells.targets[cells.sums], place.size)
        curvature = rough.curvature()
        precision = prior.precision(rough.mode.log_scales)
        own = curvature
        root = np.zeros((0, 0))
        if curvature.ndim == 2:
            own = np.diag(curvature).copy()
            root = np.linalg.inv(np.linalg.cholesky(curvature)).T
        whitening = self._whitening(curvature, precision)
        data = EffectData(
            part_starts=part_starts,
            parts=parts,
            levels=prior.levels.astype(np.int64),
            expected=prior.expected_log_scales,
            hyper=np.zeros((0, 0))
            if rough.scale is not None
            else np.linalg.inv(prior.scale_covariance),
            root=root,
            own=own,
            information=np.maximum(own - precision, 0.0) / np.exp(rough.mode.log_total),
            basis=whitening.basis,
            inverse=np.linalg.inv(whitening.basis),
            known=whitening.information,
            shares=whitening.shares,
            center=whitening.mode,
            scale=rough.mode.log_scales,
        )
        return data._replace(
            **{name: np.ascontiguousarray(x) for name, x in data._asdict().items()}
        )

    def _whitening(self, curvature: FloatArray, precision: FloatArray) -> Whitening:
        """Return coordinates in which the posterior of the potentials is nearly standard normal.

        They have no rows if the noisy tables have at least half of the information of whole records in every
        direction. Alternating moves of potentials and records then mix fast (Dempster, Laird and Rubin 1977, on
        missing information). They have none with exact sums, which moves that the records follow would violate.
        """
        mode = self.preliminary.mode
        prior = self.preliminary.effects_prior
        size = len(precision)
        nothing = np.zeros((0, 0))
        none = np.zeros(0)
        unused = Whitening(basis=nothing, information=none, shares=nothing, mode=none)
        if curvature.ndim == 1 or not size or self.keeps_sums:
            return unused
        records = curvature - np.diag(precision)
        noise = mode.noise_information()[:size, :size]
        ridge = _RIDGE * np.diag(curvature.diagonal())
        observed = noise - noise @ np.linalg.solve(noise + records + ridge, noise)
        present = np.linalg.eigvals(
            np.linalg.solve(curvature, observed + np.diag(precision))
        ).real.min()
        if present > 0.5:
            return unused
        return Whitening.of(observed, precision, mode.coordinates, prior.levels, prior.count)

    @cached_property
    def reach(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Largest change of N in one move: about its uncertainty given the release, 0 if that is small."""
        # such moves would violate exact sums
        if self.total is not None or self.keeps_sums:
            error = 0.0
        else:
            error = self.evidence.total_standard_error
        if error * error <= 2 * self.births:
            return 0
        return int(min(_REACH * error, _LARGEST_REACH))

    def start(self, rng: np.random.Generator) -> Start:
        """Draw potentials and scales near the preliminary estimate."""
        rough = self.preliminary
        latent = self.relaxed.latent
        whitening = rough.whitening
        size = latent.effects.size
        spread = rng.standard_normal(whitening.mode.size) / np.sqrt(whitening.information + 1)
        moved = whitening.mode + spread
        basis = whitening.basis
        if basis.shape[1] == moved.size:
            beta = basis @ moved
        else:
            beta = basis[:, 0] * moved
        log_scales = rough.mode.log_scales.copy()
        if self.scale is None and latent.effects_prior.count:
            log_scales += rough.log_scale_root @ rng.standard_normal(log_scales.size)
        tables = np.zeros(self.evidence.specification.size)
        kept = {"counts": tables, "coordinates": beta[:size].copy(), "log_scale": log_scales}
        # two steps to be tuned: size in whitened coordinates, and a count of its adaptations that slows the first
        step = np.array([0.5, 10.0, 0.5, 10.0])
        return Start(np.zeros(self.forest.cells.size), kept, {"step": step})

    def sweep(self, chain: RecordChain, sweeps: int) -> int:
        """Sweep records, their number, the potentials and their scales."""
        return advance_effects(
            chain.total, self.moves, self.births, self.reach, self.total_bounds, chain.wanted, chain.latent,
            chain.kept["counts"], chain.kept["coordinates"], chain.kept["log_scale"], chain.parts["step"],
            chain.is_tuning, chain.state, self.data, self.effects, self.relaxed.latent.plan.data, chain.rng, sweeps,
        )  # fmt: skip

    def read(self, kept: Kept) -> Kept:
        """Return stored draws with the counts of the model's possible cells."""
        return {**kept, "counts": kept["counts"][..., self.measured.cells]}

    def finish(self, draws: Mapping[str, np.ndarray], rng: np.random.Generator) -> Finished:
        """Return marginals, counts and effects of the draws."""
        effects = draws["coordinates"]
        total = np.asarray(draws["total"], dtype=float)
        counts = self.all_cells(draws["counts"])
        marginals = np.empty(counts.shape)
        for place in np.ndindex(total.shape):
            marginals[place] = self.relaxed.latent.plan.moments(effects[place])[1]
        return self.relaxed.finished(effects, marginals, counts, total, draws["log_scale"])


class EffectData(NamedTuple):
    """Constant arrays that compiled moves of the effects read, beside `RecordData` and `Plan.data`."""

    # where the cells of the model's cliques inside each bag cell begin in `parts`
    part_starts: IntArray
    parts: (
        IntArray  # flat over the model's cliques; each clique is in the first bag that contains it
    )
    levels: IntArray  # scale of each coordinate
    expected: FloatArray  # prior mean of log τ
    hyper: FloatArray  # prior precision of log τ; no rows if τ is fixed
    root: FloatArray  # root of the inverse curvature at a preliminary mode; `own` is the curvature's diagonal
    own: FloatArray
    information: FloatArray  # Fisher information of one record about each coordinate there
    basis: FloatArray  # basis of a `Whitening` of the posterior; no rows if the noisy tables say enough
    inverse: FloatArray  # inverse of `basis`, then Λ, shares and mode of the `Whitening`
    known: FloatArray
    shares: FloatArray
    center: FloatArray
    scale: FloatArray  # preliminary log τ


def bag_evidence(evidence: Evidence) -> Evidence:
    """Return the same evidence under a model whose cliques are the bags of a triangulation.

    Variables with a single state are left out of bags and tables, whose cells keep their order without them. Each of
    these variables is a bag of its own.
    """
    model = evidence.specification
    cards = model.cardinalities
    names = model.domain.variables
    tree = array_engine(Layout.build(cards, model.scopes)).tree
    bags = [tuple(names[v] for v in bucket.scope) for bucket in tree.buckets]
    several = {name for name, states in zip(names, cards, strict=True) if states > 1}
    alone = [(name,) for name in names if name not in several]
    bagged = ModelSpecification(domain=model.domain, cliques=(*bags, *alone))
    if evidence.supported is not None:
        impossible = [
            tuple(pair for pair in given if pair[0] in several) for given in model.impossible
        ]
        bagged = replace(bagged, impossible=tuple(impossible))
    queries = evidence.queries
    if queries is not None:
        scopes = [
            tuple(tuple(v for v in scope if v in several) for scope in query.scopes)
            for query in queries
        ]
        pairs = zip(queries, scopes, strict=True)
        queries = tuple(replace(query, model=bagged, scopes=own) for query, own in pairs)
    return replace(
        evidence,
        specification=bagged,
        queries=queries,
        scopes=tuple(tuple(v for v in scope if cards[v] > 1) for scope in evidence.scopes),
    )
