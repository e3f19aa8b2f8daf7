"""Mechanisms that installed packages bring, found by entry point."""

from __future__ import annotations

from importlib.metadata import entry_points

from bayesprivmrf.errors import BayesPrivMRFError
from bayesprivmrf.mechanisms.base import Mechanism

__all__ = ["ENTRY_POINT_GROUP", "available_mechanisms"]

ENTRY_POINT_GROUP = "bayesprivmrf.mechanisms"


def available_mechanisms() -> dict[str, type[Mechanism]]:
    """Return the mechanism classes of all installed packages, by their entry points' names.

    A package joins with a line in the group ``bayesprivmrf.mechanisms`` of its own project file:
    ``name = "package.module:MechanismClass"``. Each is imported when this is called, none before.

    Raises
    ------
    BayesPrivMRFError
        An entry point is no subclass of `Mechanism`, or two share a name.
    """
    found: dict[str, type[Mechanism]] = {}
    for point in entry_points(group=ENTRY_POINT_GROUP):
        mechanism = point.load()
        if not (isinstance(mechanism, type) and issubclass(mechanism, Mechanism)):
            raise BayesPrivMRFError(
                f"entry point {point.name!r} must be a subclass of Mechanism, got {point.value!r}; "
                "correct or remove the package that brings it."
            )
        if found.get(point.name, mechanism) is not mechanism:
            raise BayesPrivMRFError(f"two packages bring a mechanism named {point.name!r}; remove one.")
        found[point.name] = mechanism
    return found
