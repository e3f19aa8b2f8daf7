"""Estimators: they take releases only, and so cannot weaken what was promised."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bayesprivmrf.inference.cgm import CGM
    from bayesprivmrf.inference.naive_mle import NaiveMLE
    from bayesprivmrf.inference.solution import Solution, Status, uniform_solution

__all__ = ["CGM", "NaiveMLE", "Solution", "Status", "uniform_solution"]

_HOMES = {
    "CGM": "cgm",
    "NaiveMLE": "naive_mle",
    "Solution": "solution",
    "Status": "solution",
    "uniform_solution": "solution",
}


def __getattr__(name: str) -> object:
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(f"bayesprivmrf.inference.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
