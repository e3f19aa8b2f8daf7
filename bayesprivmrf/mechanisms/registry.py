"""Mechanisms that installed packages bring, found by entry point."""

from __future__ import annotations

import warnings

from bayesprivmrf.errors import BayesPrivMRFError
from bayesprivmrf.kinds import installed
from bayesprivmrf.mechanisms.base import Mechanism

# group in the project files of packages that bring mechanisms
ENTRY_POINT_GROUP = "bayesprivmrf.mechanisms"


def available_mechanisms() -> dict[str, type[Mechanism]]:
    """Return the mechanism classes of all installed packages, by their entry points' names.

    A package joins with a line in the group ``bayesprivmrf.mechanisms`` of its own project file:
    ``name = "package.module:MechanismClass"``. Each is imported when this is called, none before.

    Raises
    ------
    BayesPrivMRFError
        Two share a name.

    Warns
    -----
    RuntimeWarning
        A package's mechanism cannot be imported, or is no subclass of `Mechanism`; it is left out, and all others
        are there.
    """
    found: dict[str, type[Mechanism]] = {}
    for point in installed(ENTRY_POINT_GROUP):
        try:
            mechanism = point.load()
            if not (isinstance(mechanism, type) and issubclass(mechanism, Mechanism)):
                raise TypeError("it must be a subclass of Mechanism")
        except Exception as error:  # whatever another package brings must not take the others along
            warnings.warn(
                f"the mechanism {point.name!r} ({point.value}) cannot be taken: {type(error).__name__}: {error}; "
                "correct or remove the package that brings it.",
                RuntimeWarning,
                stacklevel=2,
            )
            continue
        if found.get(point.name, mechanism) is not mechanism:
            raise BayesPrivMRFError(f"two packages bring a mechanism named {point.name!r}; remove one.")
        found[point.name] = mechanism
    return found
