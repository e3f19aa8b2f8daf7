"""A measurement: what was asked, what was answered with noise, and the law of that noise."""

from __future__ import annotations

import copy
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from bayesprivmrf.checks import is_labeled, number_array, sides_of
from bayesprivmrf.errors import ArgumentError, ModelError
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.labeled import aligned
from bayesprivmrf.privacy import NoiseLaw
from bayesprivmrf.queries import Query


@dataclass(frozen=True, eq=False, kw_only=False)
class Measurement:
    """The noisy answers to one query.

    Parameters
    ----------
    query
        The query that was measured, such as ``bayesprivmrf.queries.table("age")``.
    values
        The noisy answers, one for each row of the query, in the order of its labels; shape (rows,). A DataFrame,
        Series, DataArray or mapping with labels may have another order: either the query's variables and their
        states, or the labels of its rows. It is aligned with the model when a release is made of it.
    noise
        The law of their noise; the rows' noise is independent.

    Raises
    ------
    ArgumentError
        An argument is of another type.
    ModelError
        The values are no finite numbers in one row, or not whole under a law of whole numbers.
    """

    query: Query
    values: np.ndarray
    noise: NoiseLaw

    def __post_init__(self) -> None:
        for name, kind in (("query", Query), ("noise", NoiseLaw)):
            if not isinstance(getattr(self, name), kind):
                raise ArgumentError(
                    f"`{name}` of a measurement must be a {kind.__name__}, got a "
                    f"{type(getattr(self, name)).__name__}; write Measurement(table('age'), values, Laplace(2.0))."
                )
        if is_labeled(self.values) or sides_of(self.values) is not None:
            object.__setattr__(self, "values", copy.deepcopy(self.values))
            return
        values = np.array(number_array("values", self.values), copy=True)
        if values.ndim != 1 or values.dtype.kind not in "iuf":
            raise ModelError(
                f"the values of {self.query!r} must be numbers in one row, got shape {values.shape} of "
                f"{values.dtype}; give a table as `table.ravel()`, axes as the query writes them."
            )
        check_answers(f"the values of {self.query!r}", values, self.noise)
        values.flags.writeable = False
        object.__setattr__(self, "values", values)

    def aligned(self, model: ModelSpecification) -> Measurement:
        """Return the measurement with its values as an array in the order of the query's rows.

        Raises
        ------
        ModelError
            The labels of the values are neither those of the query's axes nor those of its rows.
        """
        if isinstance(self.values, np.ndarray):
            return self
        what, (names, states) = f"the values of {self.query!r}", self.query._axes(model)
        try:
            return replace(self, values=aligned(what, self.values, names, states).ravel())
        except ModelError:
            if len(states) == 1 and not is_labeled(self.values):
                raise
            with suppress(ModelError):
                rows = self.query.bind(model).labels
                return replace(self, values=aligned(what, self.values, None, [rows]))
            raise


def check_answers(name: str, values: np.ndarray, noise: NoiseLaw) -> None:
    """Raise a `ModelError` where noisy numbers are not finite, or not whole under a law of whole numbers."""
    if not np.isfinite(values).all():
        raise ModelError(f"{name} must be finite, got NaN or infinity; leave out what was not answered.")
    if noise.is_discrete and not np.array_equal(values, np.rint(values)):
        if noise.name == "none":
            raise ModelError(
                f"{name} must be whole numbers, being exact counts; state the noise if there is some."
            )
        raise ModelError(
            f"{name} must be whole numbers under {noise.name} noise; state the continuous law if that is what "
            "was added."
        )
