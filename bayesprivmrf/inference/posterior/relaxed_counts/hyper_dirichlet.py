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

from bayesprivmrf.errors import BayesPrivMRFError
from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.inference.posterior.forest import (
    JunctionForest,
    draw_log_rows,
)
from bayesprivmrf.inference.posterior.formulation import WORK_A_STEP, Finished
from bayesprivmrf.inference.posterior.measured import rough_counts
from bayesprivmrf.inference.posterior.relaxed_counts.density import Density
from bayesprivmrf.inference.posterior.relaxed_counts.engine import RelaxedCounts
from bayesprivmrf.inference.posterior.relaxed_counts.forest_density import KINDS, visit_forest
from bayesprivmrf.inference.posterior.relaxed_counts.rows import row_weights_data
from bayesprivmrf.inference.posterior.rows_prior import RowsPrior
from bayesprivmrf.inference.posterior.settings import PriorSettings
from bayesprivmrf.inference.posterior.shape_prior import ShapePrior
from bayesprivmrf.model.tables import FloatArray

# Operations of a gradient for each latent number (benchmark `engine_choice`)
_WORK_A_NUMBER = 170.0


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

    @cached_property
    def rows_prior(self) -> RowsPrior:
        """Prior of the rows."""
        return RowsPrior(
            evidence=self.evidence,
            total=self.total,
            total_range=self.total_range,
            concentration=self.concentration,
            is_cut=self.is_cut,
        )

    def __post_init__(self) -> None:
        _ = self.rows_prior  # which raises

    @staticmethod
    def refuses_prior(evidence: Evidence, settings: PriorSettings) -> BayesPrivMRFError | None:
        """Return the reason why Dirichlet rows do not support the model or the settings, or None."""
        return RowsPrior.refuses(evidence, settings)

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
        return WORK_A_STEP + _WORK_A_NUMBER * self.density.size

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

    @property
    def prior(self) -> ShapePrior:
        """Prior of the shapes of the rows."""
        return self.rows_prior.shapes

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
        log_rows = draw_log_rows(self.forest, whole + shapes, rng)
        return self.rows_prior.finished(log_rows, counts, total, shapes)

    def prior_draws(self, size: int, rng: np.random.Generator) -> Finished:
        """Draw from the prior: see `RelaxedCounts.prior_draws`."""
        return self.rows_prior.prior_draws(size, rng)

    @property
    def forest(self) -> JunctionForest:
        """Junction forest of the model."""
        return self.rows_prior.forest

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
