r"""Collapsed hyper-Dirichlet latent counts: the posterior of a decomposable model.

The prior is of Dirichlet distributions along the model's own junction forest,

.. math:: p(x) = \prod_C p(x_{C \setminus S} \mid x_S), \qquad
          p(\cdot \mid x_S) \sim \operatorname{Dirichlet}(α, \dots, α),

the root's whole table being one row (Dawid and Lauritzen 1993, section 4). Where all cliques have one size this
is the same law whichever clique is the root; where they have not, it depends on the root, which a public rule
chooses (`forest`). Cells that cannot occur have probability zero, and a row has fewer cells for them.

Given the clique tables n of N records the parameters are conjugate, so the sampler moves the tables alone, with
the parameters integrated out: rows of Dirichlet-multinomial counts, relaxed to real numbers by `row_counts`,
observed with the mechanism's noise. Afterwards the parameters follow, each row from Dirichlet(α + k): sampling noise
is in the marginals in full. The k are the whole numbers that the relaxed counts stand for, the nearest, and zero
below. They, and not the relaxed counts, are what the parameters depend on: of a cell that nobody is in the relaxed
count lies near -α/2 where α is small, so that Dirichlet(α + n) would give it half of its shape, and the logarithm of
its probability, whose deviation is about 1/α, twice the deviation. A private N is log-uniform on a range that does
not look at the tables.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesprivmrf.errors import ModelError
from bayesprivmrf.inference.evidence import WIDEST_RANGE, Evidence
from bayesprivmrf.inference.posterior.effort import gradient_operations, relaxed_work
from bayesprivmrf.inference.posterior.forest import JunctionForest, junction_forest
from bayesprivmrf.inference.posterior.forest_draws import (
    draw_log_rows,
    draw_tables,
    effects_of,
    marginals_of,
)
from bayesprivmrf.inference.posterior.forest_measurements import rough_counts
from bayesprivmrf.inference.posterior.formulation import Finished
from bayesprivmrf.inference.posterior.log_uniform import draw_totals
from bayesprivmrf.inference.posterior.measured_cells import MeasuredCells
from bayesprivmrf.inference.posterior.names import dimension_names, table_name
from bayesprivmrf.inference.posterior.relaxed.density import Density
from bayesprivmrf.inference.posterior.relaxed.forest_density import KINDS, RowData, visit_forest
from bayesprivmrf.inference.posterior.relaxed.noisy_tables import (
    NoiseData,
    observe_noisy_counts,
    target_acceptance,
)
from bayesprivmrf.inference.posterior.relaxed.rows import inverse_softened, row_coordinates, row_weights_data
from bayesprivmrf.inference.posterior.shape_prior import ShapePrior, turned
from bayesprivmrf.model.tables import FloatArray

if TYPE_CHECKING:
    import pymc as pm


@dataclass(frozen=True, kw_only=True, eq=False)
class HyperDirichlet:
    """The posterior of a decomposable model over its latent clique tables.

    Parameters
    ----------
    evidence
        The releases.
    concentration
        α > 0, prior counts a cell; 1 is uniform on each row's simplex.
    total
        The public number of records N; None where it is private.
    total_range
        Lower and upper end of the log-uniform prior of a private N, records.
    smoothing
        δ of a smoothed Laplace likelihood, in noise scales; 0 for the exact one.
    is_cut
        Whether rows of learned shapes may be cut into steps (`forest`); moves that keep exact sums take whole rows.

    Raises
    ------
    ModelError
        The cliques are not the bags of a junction forest.
    """

    evidence: Evidence
    concentration: float | None = None
    total: float | None = None
    total_range: tuple[float, float] = WIDEST_RANGE
    smoothing: float = 0.0
    is_cut: bool = True

    def __post_init__(self) -> None:
        if self._forest is None:
            raise ModelError(
                "the hyper-Dirichlet formulation needs a decomposable model, whose cliques are the bags of a "
                "junction forest; use formulation='log-linear', which takes any cliques."
            )

    @property
    def name(self) -> str:
        """Name of the formulation."""
        return "hyper-Dirichlet"

    @property
    def judged(self) -> tuple[str, ...]:
        """``counts``: latent counts of the model's cliques, possible cells only; and ``total`` if private."""
        return ("counts",) if self.total is not None else ("counts", "total")

    @property
    def hidden(self) -> tuple[str, ...]:
        """Where shapes are learned, ``shapes`` of the rows and ``inner``, the counts between their steps."""
        inner = ("inner",) if self.forest.is_inner.any() else ()
        return (*inner, "shapes") if self.prior.size else ()

    @property
    def settings(self) -> Mapping[str, Any]:
        """The prior's settings, by name."""
        settings: dict[str, Any] = dict(self.prior.settings)
        if self.total is None:
            settings["total_range"] = tuple(float(end) for end in self.total_range)
        if self.smoothing > 0:
            settings["smoothing"] = float(self.smoothing)
        return settings

    @property
    def sparsity(self) -> float:
        """0: the relaxed counts have the moments of the true ones at any number of records."""
        return 0.0

    @property
    def acceptance(self) -> float:
        """Mean acceptance probability for which the sampler's step is tuned."""
        return target_acceptance(self.evidence, self.smoothing)

    @property
    def operations_a_gradient(self) -> float:
        """Operations of one evaluation of the density and its gradient (`effort`)."""
        return gradient_operations(self.density.size)

    @property
    def work(self) -> float:
        """Operations per effective draw (`effort`)."""
        laws = [law for law in self.evidence.noise if law.base_law.kernel == "absolute"]
        return relaxed_work(self.density.size, min((law.scale for law in laws), default=math.inf))

    @property
    def density(self) -> Density:
        """The compiled density of this release."""
        cells, own = self.forest.cells.size, self.forest.places.size
        return Density(
            visit=visit_forest,
            kinds=KINDS,
            arrays=(tuple(self._rows), tuple(self._noise)),
            size=cells + (self.total is None) + self.prior.size,
            shapes={"counts": (own,), "inner": (cells - own,), "total": (), "shapes": (cells,)},
        )

    def model(self) -> pm.Model:
        """A PyMC model of this release.

        Variables: ``position`` (the rows' probabilities, see `rows`, and a private N), ``total`` where N is
        private, ``counts`` (possible cells of the model's cliques, clique after clique), a ``counts[a,b]`` for each
        clique with the variables as dims and the states as coords, and the observed ``noisy_counts``.
        """
        import pymc as pm
        import pytensor.tensor as pt

        from bayesprivmrf.inference.posterior.relaxed.latent_op import declare_latent
        from bayesprivmrf.inference.posterior.relaxed.readable import declare_tables

        cells = self._measured
        sizes = {"cell": cells.cells.size, "noisy_cell": cells.targets.size}
        inner = self.forest.cells.size - cells.cells.size
        coords = {name: np.arange(size) for name, size in (sizes | {"inner_cell": inner}).items()}
        with pm.Model(coords=coords, model=None) as model:  # by itself, inside another's context too
            latent = declare_latent(self.density, self._draw_positions)
            counts = pm.Deterministic("counts", latent["counts"], dims="cell")
            if self.total is None:
                pm.Deterministic("total", latent["total"])
            if self.prior.size:
                pm.Deterministic("inner", latent["inner"], dims="inner_cell")
                pm.Deterministic("shapes", latent["shapes"])
            observe_noisy_counts(self._noise, counts)
            flat = pt.zeros(self.forest.offsets[-1])[cells.cells].set(counts)
            declare_tables(self.evidence.specification, flat)
        return model

    @cached_property
    def prior(self) -> ShapePrior:
        """The prior of the rows' shapes."""
        return ShapePrior(forest=self.forest, concentration=self.concentration)

    def finish(self, draws: Mapping[str, np.ndarray], rng: np.random.Generator) -> Finished:
        """Marginals, counts and effects of sampled draws; the parameters are drawn given whole counts."""
        sampled = np.asarray(draws["counts"], dtype=float)
        lead = sampled.shape[:-1]
        shapes = draws["shapes"] if self.prior.size else np.full(sampled.shape, self.concentration)
        latent = np.concatenate([sampled, draws["inner"]], axis=-1) if "inner" in draws else sampled
        counts = np.zeros((*lead, self.forest.offsets[-1]))
        counts[..., self._measured.cells] = sampled
        if self.total is not None:
            total = np.full(lead, float(self.total))
        else:
            total = np.asarray(draws["total"], dtype=float)
        order = np.argsort(np.argsort(self.forest.cells))
        flat, shapes = (a.reshape(math.prod(lead), order.size).T[order] for a in (latent, shapes))
        whole = np.maximum(np.rint(flat), 0.0)
        return self.finished(draw_log_rows(self.forest, whole + shapes, rng), counts, total, shapes)

    def prior_draws(self, size: int, rng: np.random.Generator, *, is_whole: bool = False) -> Finished:
        """Draw from the prior, shape (1, size, ...), with the integer tables of N records each.

        `is_whole` draws a private N in proportion to 1/N on the whole numbers, as whole records have it.
        """
        forest = self.forest
        total = draw_totals(self.total, self.total_range, size, rng, is_whole=is_whole)
        shapes = self.prior.shapes(rng.standard_normal((size, self.prior.size)))
        log_rows = draw_log_rows(forest, shapes.T, rng)
        counts = np.zeros((1, size, forest.offsets[-1]))
        counts[0][:, np.sort(forest.cells)[: forest.places.size]] = draw_tables(forest, log_rows, total, rng)[
            forest.places
        ].T
        return self.finished(log_rows, counts, total[np.newaxis].astype(float), shapes.T)

    @property
    def forest(self) -> JunctionForest:
        """The model's junction forest."""
        assert self._forest is not None
        return self._forest

    @cached_property
    def _forest(self) -> JunctionForest | None:
        model = self.evidence.specification
        in_steps = self.is_cut and self.concentration is None and len(model.scopes) > 1
        return junction_forest(
            model.cardinalities,
            model.scopes,
            self.evidence.supported,
            model.domain.states if in_steps else None,
        )

    @cached_property
    def _measured(self) -> MeasuredCells:
        return MeasuredCells.of(self.evidence)

    @cached_property
    def _noise(self) -> NoiseData:
        return NoiseData.of(self.evidence, self._measured, smoothing=self.smoothing, whole_numbers=True)

    @cached_property
    def _rows(self) -> RowData:
        forest, evidence = self.forest, self.evidence
        shapes = self.prior.shapes(np.zeros(self.prior.size))
        total = self.total if self.total is not None else evidence.total
        return RowData(
            forest.row_starts,
            forest.source_starts,
            forest.sources,
            np.argsort(forest.cells),
            self.prior.tape,
            *row_weights_data(forest, shapes, *rough_counts(evidence, forest, total)),
            self._total_data(),
        )

    def _total_data(self) -> FloatArray:
        """A public N; or the ends of log N, and centre and width of its position between them, logistic."""
        if self.total is not None:
            return np.array([float(self.total)])
        low, high = np.log(self.total_range)
        evidence = self.evidence
        is_known = evidence.has_total and math.isfinite(
            evidence.estimated_total
        )  # no variables: nothing tells it
        error = max(evidence.total_standard_error, 1e-3) if is_known else evidence.total
        guess = math.log(max(evidence.estimated_total, error, 1.0)) if is_known else 0.5 * (low + high)
        # the center of the coordinate changes the speed of the sampler, not its distribution
        inside = min(max((guess - low) / (high - low), 1e-3), 1 - 1e-3)
        width = min(error / math.exp(guess), 1.0) / (high - low) / (inside * (1 - inside))
        return np.array([low, high, math.log(inside / (1 - inside)), width])

    def _draw_positions(self, rng: np.random.Generator, size: int) -> FloatArray:
        """Draws of the prior in the sampler's coordinates, shape (size, positions)."""
        forest, data = self.forest, self._rows
        shape_positions = rng.standard_normal((size, self.prior.size))
        shapes = self.prior.shapes(np.array([turned(own, data.shapes) for own in shape_positions]))
        log_rows = draw_log_rows(forest, shapes.T, rng).T
        kappa = data.freedom + np.add.reduceat(shapes, forest.row_starts[:-1], axis=1)
        log_sums = np.log(rng.gamma(kappa, data.centre / kappa))
        log_weights = log_rows + np.repeat(log_sums, forest.row_sizes, axis=1) - data.log_scale
        rows = inverse_softened(log_weights.ravel()).reshape(log_weights.shape)
        for row, own in zip(rows, shapes, strict=True):
            given = own, data.shapes.fixed, forest.row_starts, data.shift, data.scale, data.centre
            origin, share, _, _ = row_coordinates(*given)
            row[:] = (row - origin) / np.sqrt(share)
        if self.total is not None:
            return np.concatenate([rows, shape_positions], axis=1)
        places = (rng.logistic(size=(size, 1)) - data.total[2]) / data.total[3]
        return np.concatenate([rows, places, shape_positions], axis=1)

    def finished(
        self, log_rows: FloatArray, counts: FloatArray, total: FloatArray, shapes: FloatArray
    ) -> Finished:
        """What follows from the rows' log-probabilities and shapes, (possible cells, draws) both."""
        forest, lead = self.forest, counts.shape[:-1]
        marginals = np.zeros(counts.shape)
        own = np.sort(forest.cells)[: forest.places.size]
        marginals[..., own] = marginals_of(forest, log_rows)[forest.places].T.reshape(*lead, own.size)
        effects = effects_of(forest, log_rows)
        log_prior, fit = self.prior.judged(log_rows, shapes)
        return Finished(
            marginals=marginals,
            counts=counts,
            effects=effects.reshape(*lead, effects.shape[-1]),
            total=total,
            log_prior=self._of_cliques(lead, log_prior),
            learned=self._by_table("concentration", lead, self.prior.standardised(shapes)),
            prior_fit=fit.reshape(lead),
        )

    def _of_cliques(self, lead: tuple[int, ...], values: FloatArray) -> dict[str, FloatArray]:
        """Draws of the sum over each clique's tables, of which `values` has a row for each."""
        names = dimension_names(self.evidence.specification.domain)
        homes = np.array([table.clique for table in self.forest.tables])
        return {
            table_name("rows", names, self.forest.scopes[clique]): values[homes == clique]
            .sum(axis=0)
            .reshape(lead)
            for clique in self.forest.order
        }

    def _by_table(self, kind: str, lead: tuple[int, ...], values: FloatArray) -> dict[str, FloatArray]:
        """Draws of one number a table of the forest, in which `values` has a row for each."""
        names = dimension_names(self.evidence.specification.domain)
        kinds = (f"{kind}_{table.step}" if table.step else kind for table in self.forest.tables)
        labels = [
            table_name(k, names, table.scope) for k, table in zip(kinds, self.forest.tables, strict=True)
        ]
        return {label: row.reshape(lead) for label, row in zip(labels, values, strict=False)}
