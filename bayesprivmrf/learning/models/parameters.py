"""The parameters of a learned model as one vector: what intervals ask of it, and nothing else."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, Self

import numpy as np

from bayesprivmrf.errors import ModelError
from bayesprivmrf.model import Domain
from bayesprivmrf.model.tables import FloatArray, IntArray
from bayesprivmrf.noise.source import NoiseSource
from bayesprivmrf.privacy import NoiseLaw

if TYPE_CHECKING:
    import pandas as pd

    from bayesprivmrf.learning.models.solution import LearnedSolution

__all__ = ["Coordinates", "LearnedParameters", "LearningMap", "declared_index"]


class LearningMap(Protocol):
    """How a mechanism turns records into parameters: a frozen object of public settings.

    A map whose errors are known to first order may have a method ``linearised`` as well, which
    `bayesprivmrf.learning.intervals.interval` then prefers; it returns ``None`` for a release to which that does not
    apply.
    """

    def learn(
        self, codes: np.ndarray, counts: IntArray, total: float, source: NoiseSource, /
    ) -> tuple[FloatArray, ...]:
        """Return the parameters, in the order of the release's `parameters`.

        Parameters
        ----------
        codes, counts
            Records as states' codes, shape (rows, p), and how many each row stands for.
        total
            Their number as far as it may be used: public or noisy.
        source
            Source of the noise.
        """
        ...


class Coordinates(NamedTuple):
    """What the entries of a vector of parameters are."""

    groups: IntArray
    """The pair, variable or monomial that each one belongs to."""
    kinds: IntArray
    """Parameters of one kind are learned alike; -1 stands for what is not learned at all."""


class LearnedParameters(ABC):
    """Abstract base of what was learned by a known map: a frozen dataclass."""

    parameters: ClassVar[tuple[str, ...]]
    """Names of the fields that hold what was learned, in the order in which the map gives them."""

    domain: Domain
    total: float | None
    total_noise: NoiseLaw | None
    map: LearningMap | None

    @property
    def _without_map(self) -> str:
        """What an error says of intervals of couplings where the map is not known."""
        return (
            "an interval must simulate how the model was made, and this one does not know: it was fitted to parities "
            "without a law of their noise (use method='gaussian' for them), comes from an older file, or was made by "
            "hand."
        )

    @cached_property
    @abstractmethod
    def solution(self) -> LearnedSolution:
        """The model as an estimate like any other."""

    @abstractmethod
    def vector(self) -> FloatArray:
        """Return all parameters, each once."""

    @abstractmethod
    def with_vector(self, values: FloatArray) -> Self:
        """Return the same release with the parameters that a vector holds."""

    def labels(self, of: str) -> pd.Index:
        """Return what the couplings, or the fields, belong to: variables, and states where they have tables.

        Raises
        ------
        ModelError
            The model has no intervals of couplings.
        """
        raise ModelError(self._without_map)

    def places(self, of: str) -> IntArray:
        """Return where in the vector the entries of `labels` are."""
        return np.arange(self.vector().size)

    def coordinates(self) -> Coordinates:
        """Return what the entries of the vector are; by default each stands for itself, and all are alike."""
        size = self.vector().size
        return Coordinates(groups=np.arange(size), kinds=np.zeros(size, dtype=np.int64))

    def standard_noise(self, generator: np.random.Generator) -> FloatArray:
        """Return standard normal numbers of the vector's shape, in the directions in which parameters can move."""
        return generator.standard_normal(self.vector().size)

    def with_parameters(self, parts: tuple[FloatArray, ...]) -> Self:
        """Return the same release with other parameters, in the form in which the map gives them."""
        fields: Any = dict(zip(self.parameters, parts, strict=True))
        return replace(self, **fields)  # type: ignore[type-var]


def declared_index(levels: dict[str, list[Any]]) -> pd.Index:
    """Return an index whose entries are as they were declared.

    Parameters
    ----------
    levels
        Entries by the name of their level.
    """
    import pandas as pd

    if len(levels) == 1:
        ((name, values),) = levels.items()
        return pd.Index(pd.Series(values, dtype=object), name=name, tupleize_cols=False)
    return pd.MultiIndex.from_arrays(
        [pd.Series(v, dtype=object) for v in levels.values()], names=list(levels)
    )
