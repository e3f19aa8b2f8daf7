r"""The log-linear family of a model.

A declared model is the family of distributions with the potentials

.. math:: θ = θ_0 + D β ,

D being the map from zero-sum coordinates (`bayesprivmrf.model.ties.coordinates_of`) and the base :math:`θ_0` being 0,
or minus infinity at cells that cannot occur. Estimators, posteriors and tests of fit read the family from
`Evidence.family` and nothing else of the declaration, so that a feature that restricts the map or shifts the base
reaches all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Literal

import numpy as np

from bayesprivmrf.errors import ModelTooLargeError
from bayesprivmrf.marginals import MarginalEngine, marginal_engine
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.effects import Effects
from bayesprivmrf.model.tables import FloatArray
from bayesprivmrf.model.ties import coordinates_of, shared_basis

type Inference = Literal["exact", "loopy"]


@dataclass(frozen=True, eq=False)
class LogLinearFamily:
    """All distributions of a declared model, in zero-sum coordinates β; `family_of` makes it.

    Parameters
    ----------
    model
        The declared model.
    """

    model: ModelSpecification

    @cached_property
    def supported(self) -> np.ndarray | None:
        """Mask of the clique cells that some possible joint state reaches; None if all may occur.

        A structural zero can exclude cells of other cliques. They are found as the zero marginals of the uniform
        distribution; where that is too large, the declared zeros alone are used.
        """
        if self.model.possible is None:
            return None
        try:
            return self.engine("exact").marginals(np.where(self.model.possible, 0.0, -np.inf))[1] > 0
        except ModelTooLargeError:
            return self.model.possible

    @cached_property
    def base(self) -> FloatArray:
        """Potentials at β = 0, shape (model size,): 0, or minus infinity at cells that cannot occur."""
        base = np.zeros(self.model.size)
        if self.supported is not None:
            base[~self.supported] = -np.inf
        return base

    @cached_property
    def effects(self) -> Effects:
        """Zero-sum coordinates of the potentials, restricted as the model declares."""
        return coordinates_of(self.model)

    @property
    def is_free(self) -> bool:
        """True if the coordinates reach every distribution of the cliques."""
        return self.effects.size == self.effects.full.size

    @cached_property
    def basis(self) -> Any | None:
        """Sparse B of the potentials θ_0 + B β over shared tables or scores; None without restrictions."""
        return shared_basis(self.model)

    def potentials(self, beta: FloatArray) -> FloatArray:
        """Return potentials of the model's cliques, nats, shape (..., d) to (..., model size)."""
        return self.effects.potentials(beta) + self.base

    def untied_potentials(self, beta: FloatArray) -> FloatArray:
        """Return potentials from coordinates of the model without ties, as posteriors store them."""
        return self.effects.full.potentials(beta) + self.base

    def coordinates(self, potentials: FloatArray) -> FloatArray:
        """Return the coordinates nearest to potentials, minus infinity at impossible cells; shape (d,)."""
        inside = np.isfinite(potentials) & np.isfinite(self.base)
        return self.effects.coordinates(np.where(inside, potentials, 0.0) - np.where(inside, self.base, 0.0))

    def engine(self, inference: Inference) -> MarginalEngine:
        """Return the engine for marginals of the model's cliques."""
        return marginal_engine(self.model.cardinalities, self.model.scopes, kind=inference)


@lru_cache(maxsize=32)
def family_of(model: ModelSpecification) -> LogLinearFamily:
    """Return the log-linear family of a model; recent families are cached."""
    return LogLinearFamily(model)
