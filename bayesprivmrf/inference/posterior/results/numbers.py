"""Labeled array of estimates that Python's `round` takes, in a module of its own because xarray is slow to import."""

from __future__ import annotations

from typing import Any

import xarray as xr


class _Numbers(xr.DataArray):
    """DataArray that can be rounded with `round(numbers, digits)`, as a number can."""

    __slots__ = ()

    def __round__(self, digits: int | None = None) -> Any:
        """Return the rounded numbers: a plain number for a single one, and otherwise an array."""
        if self.ndim:
            return self.round(digits or 0)
        return round(self.item(), digits)


def that_rounds(array: xr.DataArray) -> xr.DataArray:
    """Return an array with the same values and labels that Python's `round` takes."""
    return _Numbers(array)
