r"""Prior of Dirichlet rows along the junction forest of a decomposable model, whatever the sampler moves.

The module `relaxed_counts.hyper_dirichlet` has the formula. Relaxed counts and whole records share this prior.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from bayesprivmrf.errors import ArgumentError, BayesPrivMRFError, ModelError
from bayesprivmrf.inference.evidence import WIDEST_RANGE, Evidence
from bayesprivmrf.inference.posterior.forest import (
    JunctionForest,
    draw_log_rows,
    draw_tables,
    effects_of,
    junction_forest,
    marginals_of,
)
from bayesprivmrf.inference.posterior.formulation import Finished
from bayesprivmrf.inference.posterior.latent_prior import draw_totals
from bayesprivmrf.inference.posterior.noisy_tables import dimension_names
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
class RowsPrior:
    """Prior of the rows of a decomposable model, of their shapes, and of the number of records.

    Parameters
    ----------
    evidence
        Evidence of the releases.
    total
        Public number of records N; None if it is private.
    total_range
        Lower and upper end of the log-uniform prior of a private N, records.
    concentration
        Prior counts per cell α > 0; 1 is uniform on the simplex of each row. None learns them.
    is_cut
        Whether tables with learned shapes may be divided into two steps (`forest`). Moves that keep exact sums need
        undivided tables.

    Raises
    ------
    ModelError
        The cliques are not the bags of a junction forest.
    """

    evidence: Evidence
    total: float | None = None
    total_range: tuple[float, float] = WIDEST_RANGE
    concentration: float | None = None
    is_cut: bool = True

    def __post_init__(self) -> None:
        if not is_decomposable(self.evidence):
            raise _refusal(_NOT_DECOMPOSABLE)

    @staticmethod
    def refuses(evidence: Evidence, settings: PriorSettings) -> BayesPrivMRFError | None:
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
                "`scale` belongs to the log-linear prior, and `concentration` and formulation='hyper-dirichlet' ask "
                "for Dirichlet rows; leave `scale` out, or the other setting."
            )
        return None

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

    @cached_property
    def shapes(self) -> ShapePrior:
        """Prior of the shapes of the rows."""
        return ShapePrior(forest=self.forest, concentration=self.concentration)

    @property
    def settings(self) -> Mapping[str, Any]:
        """Settings of the prior, by name."""
        if self.total is not None:
            return self.shapes.settings
        ends = tuple(float(end) for end in self.total_range)
        return {**self.shapes.settings, "total_range": ends}

    def prior_draws(self, size: int, rng: np.random.Generator) -> Finished:
        """Draw from the prior, shape (1, size, ...), with the tables of N whole records."""
        forest = self.forest
        total = draw_totals(self.total, self.total_range, size, rng)
        shapes = self.shapes.shapes(rng.standard_normal((size, self.shapes.size)))
        log_rows = draw_log_rows(forest, shapes.T, rng)
        counts = self.all_cells(draw_tables(forest, log_rows, total, rng)[forest.places].T)[
            np.newaxis
        ]
        return self.finished(log_rows, counts, total[np.newaxis].astype(float), shapes.T)

    def all_cells(self, values: np.ndarray) -> FloatArray:
        """Return the values of all cells of the cliques, 0 in impossible ones, given those of the possible cells."""
        full = np.zeros((*values.shape[:-1], self.evidence.specification.size))
        full[..., self.evidence.supported_cells] = values
        return full

    def finished(
        self, log_rows: FloatArray, counts: FloatArray, total: FloatArray, shapes: FloatArray
    ) -> Finished:
        """Return all quantities that follow from log probabilities and shapes of the rows, both (cells, draws)."""
        forest = self.forest
        lead = counts.shape[:-1]
        marginals = self.all_cells(marginals_of(forest, log_rows)[forest.places].T).reshape(
            counts.shape
        )
        effects = effects_of(forest, log_rows)
        names = dimension_names(self.evidence.specification.domain)
        fit = self.shapes.described(log_rows, shapes, lead, names)
        return Finished(
            marginals=marginals,
            counts=counts,
            effects=effects.reshape(*lead, effects.shape[-1]),
            total=total,
            log_prior=fit.log_prior,
            learned=fit.learned,
            prior_fit=fit.prior_fit,
        )
