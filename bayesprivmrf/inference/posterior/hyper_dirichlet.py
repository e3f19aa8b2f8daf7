r"""Collapsed hyper-Dirichlet latent counts: the posterior of a decomposable model.

The prior is of Dirichlet distributions along the model's own junction forest,

.. math:: p(x) = \prod_C p(x_{C \setminus S} \mid x_S), \qquad
          p(\cdot \mid x_S) \sim \operatorname{Dirichlet}(α, \dots, α),

the root's whole table being one row (Dawid and Lauritzen 1993, section 4). Where all cliques have one size this
is the same law whichever clique is the root; where they have not, it depends on the root, which a public rule
chooses (`junction_forest`). Cells that cannot occur have probability zero, and a row has fewer cells for them.

Given the clique tables n of N records the parameters are conjugate, so the sampler moves the tables alone, with
the parameters integrated out: rows of Dirichlet-multinomial counts, relaxed to real numbers by `row_counts`,
observed with the mechanism's noise. Afterwards the parameters follow exactly, each row from Dirichlet(α + n):
sampling noise is in the marginals in full. A private N is log-uniform on a range that does not look at the
tables.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesprivmrf.errors import ModelError
from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.inference.posterior.forest_draws import (
    draw_log_rows,
    draw_tables,
    effects_of,
    marginals_of,
)
from bayesprivmrf.inference.posterior.forest_measurements import rough_counts
from bayesprivmrf.inference.posterior.formulation import Finished
from bayesprivmrf.inference.posterior.junction_forest import JunctionForest, junction_forest
from bayesprivmrf.inference.posterior.measured_cells import MeasuredCells
from bayesprivmrf.inference.posterior.noisy_tables import (
    absolute_cells,
    noise_data,
    observe_noisy_counts,
    target_acceptance,
)
from bayesprivmrf.inference.posterior.shape_prior import ShapePrior
from bayesprivmrf.model.tables import FloatArray

if TYPE_CHECKING:
    import pymc as pm

__all__ = ["HyperDirichlet"]


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

    Raises
    ------
    ModelError
        The cliques are not the bags of a junction forest.
    """

    evidence: Evidence
    concentration: float | None = None
    total: float | None = None
    total_range: tuple[float, float] = (1.0, 1e10)
    smoothing: float = 0.0

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
        """Nothing: the counts are all that `finish` needs."""
        return ()

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
    def structure(self) -> Hashable:
        """Cliques, measured tables, possible cells, kinds of noise, and whether N is public."""
        model, evidence = self.evidence.specification, self.evidence
        return (
            self.name,
            model.cardinalities,
            model.scopes,
            evidence.scopes,
            None if evidence.supported is None else evidence.supported.tobytes(),
            evidence.possible.tobytes(),
            absolute_cells(evidence).tobytes(),
            self.total is None,
            float(self.smoothing),
        )

    def data(self) -> Mapping[str, np.ndarray]:
        """Values of the ``pm.Data``, by name."""
        from bayesprivmrf.inference.posterior.row_weights import row_weights_data

        total = self.total if self.total is not None else self.evidence.total
        values = {
            "concentration": np.asarray(float(self.concentration)),
            **noise_data(self.evidence, whole_numbers=self.smoothing == 0),
            **row_weights_data(
                self.forest, self.concentration, *rough_counts(self.evidence, self.forest, total)
            ),
        }
        if self.total is not None:
            return {**values, "records": np.asarray(float(self.total))}
        return {**values, **self._total_data()}

    def model(self) -> pm.Model:
        """A PyMC model of this release.

        Variables: ``row_positions`` (the rows' probabilities, see `row_weights`), ``total`` where N is private,
        ``counts`` (possible cells of the model's cliques, clique after clique), a ``counts[a,b]`` for each
        clique with the variables as dims and the states as coords, and the observed ``noisy_counts``.
        """
        import pymc as pm
        import pytensor.tensor as pt

        from bayesprivmrf.inference.posterior.readable import declare_tables
        from bayesprivmrf.inference.posterior.row_counts import row_counts
        from bayesprivmrf.inference.posterior.row_weights import row_weights

        values, forest, measured = self.data(), self.forest, self._measured
        coords = {"cell": np.arange(forest.cells.size), "noisy_cell": np.arange(measured.targets.size)}
        with pm.Model(coords=coords) as model:
            alpha = pm.Data("concentration", values["concentration"])
            weights = row_weights(forest, alpha, values)
            total = pm.Data("records", values["records"]) if self.total is not None else self._total()
            rows = row_counts(forest, weights, total, alpha)
            counts = pm.Deterministic("counts", rows[np.argsort(forest.cells)], dims="cell")
            observe_noisy_counts(
                self.evidence, measured.measured(counts), smoothing=self.smoothing, whole_numbers=True
            )
            flat = pt.zeros(self.forest.offsets[-1])[measured.cells].set(counts)
            declare_tables(self.evidence.specification, flat)
        return model

    @cached_property
    def prior(self) -> ShapePrior:
        """The prior of the rows' shapes."""
        return ShapePrior(forest=self.forest, concentration=self.concentration)

    def start(self) -> Mapping[str, np.ndarray] | None:
        """None: every variable starts at its centre, and a private N near its estimate."""
        return None

    def finish(self, draws: Mapping[str, np.ndarray], rng: np.random.Generator) -> Finished:
        """Marginals, counts and effects of sampled draws; the parameters are drawn from Dirichlet(α + n)."""
        sampled = np.asarray(draws["counts"], dtype=float)
        lead = sampled.shape[:-1]
        counts = np.zeros((*lead, self.forest.offsets[-1]))
        counts[..., self._measured.cells] = sampled
        if self.total is not None:
            total = np.full(lead, float(self.total))
        else:
            total = np.asarray(draws["total"], dtype=float)
        cells = counts.reshape(math.prod(lead), counts.shape[-1]).T[self.forest.cells]
        return self._finished(draw_log_rows(self.forest, cells + self.concentration, rng), counts, total)

    def prior_draws(self, size: int, rng: np.random.Generator) -> Finished:
        """Exact draws of the prior, shape (1, size, ...), with the integer tables of N records each."""
        forest = self.forest
        if self.total is not None:
            total = np.full(size, round(self.total))
        else:
            low, high = np.log(self.total_range)
            total = np.rint(np.exp(rng.uniform(low, high, size))).astype(np.int64)
        shapes = self.prior.shapes(rng.standard_normal((size, self.prior.size)))
        log_rows = draw_log_rows(forest, shapes.T, rng)
        counts = np.zeros((1, size, forest.offsets[-1]))
        counts[0][:, forest.cells] = draw_tables(forest, log_rows, total, rng).T
        return self._finished(log_rows, counts, total[np.newaxis].astype(float))

    @property
    def forest(self) -> JunctionForest:
        """The model's junction forest."""
        assert self._forest is not None
        return self._forest

    @cached_property
    def _forest(self) -> JunctionForest | None:
        model = self.evidence.specification
        return junction_forest(model.cardinalities, model.scopes, self.evidence.supported)

    @cached_property
    def _measured(self) -> MeasuredCells:
        return MeasuredCells.of(self.evidence)

    def _total_data(self) -> dict[str, np.ndarray]:
        """Ends of log N, and centre and width of its position between them on the logit scale."""
        low, high = np.log(self.total_range)
        evidence = self.evidence
        is_known = evidence.has_total and math.isfinite(
            evidence.estimated_total
        )  # no variables: nothing tells it
        error = max(evidence.total_standard_error, 1e-3) if is_known else evidence.total
        guess = math.log(max(evidence.estimated_total, error, 1.0)) if is_known else 0.5 * (low + high)
        inside = min(max((guess - low) / (high - low), 1e-3), 1 - 1e-3)
        width = min(error / math.exp(guess), 1.0) / (high - low) / (inside * (1 - inside))
        values = {"low": low, "high": high, "centre": math.log(inside / (1 - inside)), "width": width}
        return {f"log_total_{name}": np.asarray(float(value)) for name, value in values.items()}

    def _total(self) -> Any:
        """Declare a private N, log-uniform; sampled on a scale on which the release puts it near zero."""
        import pymc as pm
        import pytensor.tensor as pt

        given: dict[str, Any] = {name: pm.Data(name, value) for name, value in self._total_data().items()}
        low, high, centre, width = given.values()
        position = pm.Logistic("total_position", -centre / width, 1 / width, initval=0.0)
        log_total = low + (high - low) * pt.sigmoid(centre + width * position)
        return pm.Deterministic("total", pt.exp(log_total))

    def _finished(self, log_rows: FloatArray, counts: FloatArray, total: FloatArray) -> Finished:
        """What follows from the rows' log-probabilities, shape (possible cells, draws)."""
        forest, lead = self.forest, counts.shape[:-1]
        marginals = np.zeros(counts.shape)
        marginals[..., forest.cells] = marginals_of(forest, log_rows).T.reshape(*lead, forest.cells.size)
        effects = effects_of(forest, log_rows)
        return Finished(
            marginals=marginals,
            counts=counts,
            effects=effects.reshape(*lead, effects.shape[-1]),
            total=total,
        )
