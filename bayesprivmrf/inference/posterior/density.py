"""A posterior's compiled density, driven by data: nothing is compiled for a network.

A formulation has one compiled function,

    ``visit(task, position, by_latent, by_prior, data) -> latent, prior, likelihood, gradient``.

It gives the latent numbers at a position of the sampler, flat: counts first, then whatever else follows from the
position; the log density of the position under the prior, and that of the noisy counts given the latent numbers; and
for the task `FORWARD` no more, for `POSTERIOR` the gradient of the sum of the two, with the likelihood's force in
place of its derivative, and for `PULLBACK` the exact derivative by the position from those by the latent numbers and
by the prior's log density. One function, since each would be compiled with all that it calls; numba keeps it on disk.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from bayesprivmrf.model.tables import FloatArray

__all__ = ["FORWARD", "POSTERIOR", "PULLBACK", "Density"]

FORWARD, POSTERIOR, PULLBACK = range(3)


@dataclass(frozen=True, eq=False, kw_only=True)
class Density:
    """The density of one posterior.

    Parameters
    ----------
    visit
        The compiled function.
    data
        What it is driven by: arrays, and tuples of arrays.
    size
        Number of the sampler's positions.
    shapes
        Shape of each group of latent numbers, by name, in the order in which they lie.
    """

    visit: Callable[..., Any]
    data: tuple[Any, ...]
    size: int
    shapes: Mapping[str, tuple[int, ...]]

    @cached_property
    def places(self) -> dict[str, slice]:
        """Where each group lies among the latent numbers."""
        stops = np.cumsum([math.prod(shape) for shape in self.shapes.values()]).tolist()
        return {
            name: slice(start, stop)
            for name, start, stop in zip(self.shapes, [0, *stops], stops, strict=False)
        }

    @property
    def latent_size(self) -> int:
        """Number of latent numbers."""
        return sum(math.prod(shape) for shape in self.shapes.values())

    def posterior(self, position: FloatArray) -> tuple[float, FloatArray]:
        """Log density at a position, and what a sampler takes for its gradient."""
        _, prior, likelihood, gradient = self.visit(POSTERIOR, position, position, 1.0, self.data)
        return prior + likelihood, gradient

    def forward(self, position: FloatArray) -> tuple[FloatArray, float]:
        """Latent numbers, and the log prior density of the position."""
        latent, prior, _, _ = self.visit(FORWARD, position, position, 0.0, self.data)
        return latent, prior

    def pullback(self, position: FloatArray, by_latent: FloatArray, by_prior: float) -> FloatArray:
        """Derivative by the position, from those by the latent numbers and by the log prior density."""
        return self.visit(PULLBACK, position, by_latent, by_prior, self.data)[3]

    def expand(self, positions: FloatArray, names: Sequence[str]) -> dict[str, FloatArray]:
        """Groups of latent numbers at positions of shape (chain, draw, size), each of shape (chain, draw, ...)."""
        lead, flat = positions.shape[:2], np.ascontiguousarray(positions.reshape(-1, self.size))
        expanded = {name: np.empty((len(flat), *self.shapes[name])) for name in names}
        for place, position in enumerate(flat):
            latent, _ = self.forward(position)
            for name, values in expanded.items():
                values[place] = latent[self.places[name]].reshape(self.shapes[name])
        return {name: values.reshape(*lead, *self.shapes[name]) for name, values in expanded.items()}
