r"""Hyper-Dirichlet posterior of a decomposable model, with the probabilities integrated out.

The prior has Dirichlet distributions along the junction forest of the model,

.. math:: p(x) = \prod_C p(x_{C \setminus S} \mid x_S), \qquad
          p(\cdot \mid x_S) \sim \operatorname{Dirichlet}(α, \dots, α),

where the whole table of the root is one row (Dawid and Lauritzen 1993, section 4). If all cliques have the same size,
the distribution does not depend on which clique is the root. Otherwise it does, and a public rule chooses the root
(`forest`). Structural zeros have the probability 0 and are not part of the rows.

Given the clique tables n of N records, the probabilities are conjugate. Therefore the sampler moves only the tables:
rows of Dirichlet-multinomial counts, relaxed to real numbers by `row_counts`, and observed with the mechanism's
noise. Each row is drawn afterwards from Dirichlet(α + k), which adds the sampling noise to the marginals. The k are
the whole numbers that the relaxed counts stand for: the nearest ones, and 0 for negative counts. Relaxed counts
themselves would be wrong here. The relaxed count of an empty cell is near -α/2 for small α, so Dirichlet(α + n) would
have half of the correct shape, and the log probability, whose standard deviation is about 1/α, would have twice that
deviation. The prior of a private N is log-uniform on a range that does not depend on the tables.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from bayesprivmrf.errors import ArgumentError, BayesPrivMRFError, ModelError
from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.inference.posterior.forest import (
    JunctionForest,
    draw_log_rows,
    draw_tables,
    effects_of,
    junction_forest,
    marginals_of,
)
from bayesprivmrf.inference.posterior.formulation import Finished, gradient_operations
from bayesprivmrf.inference.posterior.latent_prior import draw_totals
from bayesprivmrf.inference.posterior.measured import rough_counts
from bayesprivmrf.inference.posterior.noisy_tables import dimension_names
from bayesprivmrf.inference.posterior.relaxed_counts.density import Density
from bayesprivmrf.inference.posterior.relaxed_counts.engine import RelaxedCounts
from bayesprivmrf.inference.posterior.relaxed_counts.forest_density import KINDS, visit_forest
from bayesprivmrf.inference.posterior.relaxed_counts.rows import row_weights_data
from bayesprivmrf.inference.posterior.settings import PriorSettings
from bayesprivmrf.inference.posterior.shape_prior import ShapePrior
from bayesprivmrf.marginals.junction import junction_trees
from bayesprivmrf.model.tables import FloatArray


def is_decomposable(evidence: Evidence) -> bool:
    """Return True if the model's cliques are the bags of a junction forest."""
    return (
        junction_trees(evidence.specification.cardinalities, evidence.specification.scopes)
        is not None
    )


def _refusal(why: str, remedy: str = "formulation='log-linear', 'exact' or 'auto'") -> ModelError:
    return ModelError(f"the hyper-dirichlet formulation {why}; use {remedy}.")


# reason for two refusals
_NOT_DECOMPOSABLE = "needs a decomposable model, whose cliques are the bags of a junction forest"


@dataclass(frozen=True, kw_only=True, eq=False)
class HyperDirichlet(RelaxedCounts):
    """Posterior of a decomposable model over its latent clique tables.

    Its PyMC model has ``total`` if N is private. If shapes are learned it also has ``shapes`` of the rows, and
    ``inner``, the counts between the two steps of tables that are divided (`forest`).

    Parameters
    ----------
    concentration
        Prior counts per cell α > 0; 1 is uniform on the simplex of each row. None learns them.
    is_cut
        Whether tables with learned shapes may be divided into two steps (`forest`). Moves that keep exact sums need
        undivided tables.
    evidence, total, total_range
        Parameters of `RelaxedCounts`.

    Raises
    ------
    ModelError
        The cliques are not the bags of a junction forest.
    """

    concentration: float | None = None
    is_cut: bool = True

    name: ClassVar[str] = "hyper-Dirichlet"
    _of_whole_numbers: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not is_decomposable(self.evidence):
            raise _refusal(_NOT_DECOMPOSABLE)

    @staticmethod
    def refuses_prior(evidence: Evidence, settings: PriorSettings) -> BayesPrivMRFError | None:
        """Return the reason why Dirichlet rows do not support the model or the settings, or None."""
        model = evidence.specification
        if model.shares_transitions:
            return _refusal("does not support shared transitions", "formulation='exact' or 'auto'")
        if model.is_restricted:
            return _refusal(
                "has an independent prior for each table, and this model ties potentials"
            )
        if model.levels or model.ordinal:
            own = "levels" if model.levels else "ordinal"
            remedy = f"formulation='log-linear', 'exact' or 'auto', or declare the network without `{own}`"
            return _refusal("has no effects for levels of areas or scores of states", remedy)
        if not is_decomposable(evidence):
            return _refusal(_NOT_DECOMPOSABLE)
        if settings.scale is not None:
            return ArgumentError(
                "`scale` belongs to the log-linear formulation, and the default for this model is the "
                "hyper-Dirichlet prior; set formulation='log-linear', or leave `scale` out."
            )
        return None

    @property
    def judged(self) -> tuple[str, ...]:
        """``counts``, the latent counts of the possible cells of the cliques, and ``total`` if it is private."""
        return ("counts", *self._private)

    @property
    def hidden(self) -> tuple[str, ...]:
        """``shapes`` of the rows, and ``inner``, the counts between two steps, if shapes are learned."""
        if self.forest.is_inner.any():
            inner = ("inner",)
        else:
            inner = ()
        if self.prior.size:
            return (*inner, "shapes")
        return ()

    @property
    def _prior_settings(self) -> Mapping[str, Any]:
        return self.prior.settings

    @property
    def operations_a_gradient(self) -> float:
        """Operations of one evaluation of the density and its gradient."""
        return gradient_operations(self.density.size)

    @cached_property
    def density(self) -> Density:
        """Compiled density of this release."""
        forest = self.forest
        evidence = self.evidence
        cells = forest.cells.size
        own = forest.places.size
        shapes = self.prior.shapes(np.zeros(self.prior.size))
        if self.total is not None:
            total = self.total
        else:
            total = evidence.total
        rows = (
            forest.row_starts,
            forest.source_starts,
            forest.sources,
            np.argsort(forest.cells),
            self.prior.data,
            *row_weights_data(forest, shapes, *rough_counts(evidence, forest, total)),
            self._total_data(),
        )
        return Density(
            visit=visit_forest,
            kinds=KINDS,
            arrays=(rows, tuple(self._noise)),
            size=cells + (self.total is None) + self.prior.size,
            shapes={"counts": (own,), "inner": (cells - own,), "total": (), "shapes": (cells,)},
        )

    @cached_property
    def prior(self) -> ShapePrior:
        """Prior of the shapes of the rows."""
        return ShapePrior(forest=self.forest, concentration=self.concentration)

    def finish(self, draws: Mapping[str, np.ndarray], rng: np.random.Generator) -> Finished:
        """Return marginals, counts and effects of sampled draws; the rows are drawn given whole counts."""
        sampled = np.asarray(draws["counts"], dtype=float)
        (counts, total) = self._counts_and_total(draws)
        lead = sampled.shape[:-1]
        if self.prior.size:
            shapes = draws["shapes"]
        else:
            shapes = np.full(sampled.shape, self.concentration)
        if "inner" in draws:
            latent = np.concatenate([sampled, draws["inner"]], axis=-1)
        else:
            latent = sampled
        order = np.argsort(np.argsort(self.forest.cells))
        flat, shapes = (a.reshape(math.prod(lead), order.size).T[order] for a in (latent, shapes))
        whole = np.maximum(np.rint(flat), 0.0)
        return self.finished(draw_log_rows(self.forest, whole + shapes, rng), counts, total, shapes)

    def prior_draws(self, size: int, rng: np.random.Generator) -> Finished:
        """Draw from the prior: see `RelaxedCounts.prior_draws`."""
        forest = self.forest
        total = draw_totals(self.total, self.total_range, size, rng)
        shapes = self.prior.shapes(rng.standard_normal((size, self.prior.size)))
        log_rows = draw_log_rows(forest, shapes.T, rng)
        counts = self._all_cells(draw_tables(forest, log_rows, total, rng)[forest.places].T)[
            np.newaxis
        ]
        return self.finished(log_rows, counts, total[np.newaxis].astype(float), shapes.T)

    @cached_property
    def forest(self) -> JunctionForest:
        """Junction forest of the model."""
        model = self.evidence.specification
        in_steps = self.is_cut and self.concentration is None and len(model.scopes) > 1
        if in_steps:
            states = model.domain.states
        else:
            states = None
        forest = junction_forest(model.cardinalities, model.scopes, self.evidence.supported, states)
        assert forest is not None
        return forest

    def _total_data(self) -> FloatArray:
        """Return a public N, or the ends of log N and the center and width of its logistic position between them."""
        if self.total is not None:
            return np.array([float(self.total)])
        low, high = np.log(self.total_range)
        evidence = self.evidence
        # a release without variables does not determine N
        is_known = evidence.has_total and math.isfinite(evidence.estimated_total)
        if is_known:
            error = max(evidence.total_standard_error, 1e-3)
        else:
            error = evidence.total
        if is_known:
            guess = math.log(max(evidence.estimated_total, error, 1.0))
        else:
            guess = 0.5 * (low + high)
        # the center of the coordinate changes the speed of the sampler, not its distribution
        inside = min(max((guess - low) / (high - low), 1e-3), 1 - 1e-3)
        width = min(error / math.exp(guess), 1.0) / (high - low) / (inside * (1 - inside))
        return np.array([low, high, math.log(inside / (1 - inside)), width])

    def finished(
        self, log_rows: FloatArray, counts: FloatArray, total: FloatArray, shapes: FloatArray
    ) -> Finished:
        """Return all quantities that follow from log probabilities and shapes of the rows, both (cells, draws)."""
        forest = self.forest
        lead = counts.shape[:-1]
        marginals = self._all_cells(marginals_of(forest, log_rows)[forest.places].T).reshape(
            counts.shape
        )
        effects = effects_of(forest, log_rows)
        names = dimension_names(self.evidence.specification.domain)
        return Finished(
            marginals=marginals,
            counts=counts,
            effects=effects.reshape(*lead, effects.shape[-1]),
            total=total,
            **self.prior.described(log_rows, shapes, lead, names),
        )
