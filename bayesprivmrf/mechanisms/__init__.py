"""The only code that sees data: each mechanism reads records and lets out a release.

``from bayesprivmrf.mechanisms import ...`` is the line that a privacy reviewer looks for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import lazy_loader

from bayesprivmrf.errors import BayesPrivMRFError, removed, warn_caller
from bayesprivmrf.kinds import installed

if TYPE_CHECKING:
    from bayesprivmrf.mechanisms.base import Mechanism

_present, _, __all__ = lazy_loader.attach_stub(__name__, __file__)
_removed = removed(__name__, {"DPSGDSearch": "benchmarks/papers/dpsgd_search.py of the repository"})
__all__ += ["available_mechanisms"]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    if name in __all__:
        return _present(name)
    return _removed(name)


def available_mechanisms() -> dict[str, type[Mechanism]]:
    """Return the mechanism classes of all installed packages, by their entry points' names.

    A package joins with a line in the group ``bayesprivmrf.mechanisms`` of its own project file:
    ``name = "package.module:MechanismClass"``. The classes are imported by this call, and not before.

    Raises
    ------
    BayesPrivMRFError
        Two different mechanisms have the same name.

    Warns
    -----
    RuntimeWarning
        A package's mechanism cannot be imported, or is no subclass of `Mechanism`. It is left out, and all others are
        returned.

    Examples
    --------
    >>> "laplace" in available_mechanisms()
    True
    """
    from bayesprivmrf.mechanisms.base import Mechanism

    found: dict[str, type[Mechanism]] = {}
    for point in installed("bayesprivmrf.mechanisms"):
        try:
            mechanism = point.load()
            if not (isinstance(mechanism, type) and issubclass(mechanism, Mechanism)):
                raise TypeError("it must be a subclass of Mechanism")
        except Exception as error:  # a fault in one package must not hide the others
            warn_caller(
                f"the mechanism {point.name!r} ({point.value}) cannot be imported: {type(error).__name__}: {error}; "
                "correct or remove its package.",
                RuntimeWarning,
            )
            continue
        if found.get(point.name, mechanism) is not mechanism:
            raise BayesPrivMRFError(
                f"mechanisms must have different names, got two named {point.name!r}; remove one package."
            )
        found[point.name] = mechanism
    return found
