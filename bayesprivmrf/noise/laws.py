"""The noise laws of the library, and how a file's law is found again."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any

from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.noise.base import REGISTRY, NoiseLaw

# imported for `REGISTRY`, which each distribution enters where it is defined
from bayesprivmrf.noise.continuous import Gaussian as Gaussian
from bayesprivmrf.noise.continuous import Laplace as Laplace
from bayesprivmrf.noise.discrete import DiscreteGaussian as DiscreteGaussian
from bayesprivmrf.noise.discrete import DiscreteLaplace as DiscreteLaplace
from bayesprivmrf.noise.discrete import NoNoise as NoNoise
from bayesprivmrf.noise.within import Within as Within

# Group of entry points under which packages list their noise laws
ENTRY_POINT_GROUP = "bayesprivmrf.noise_laws"


def noise_from_dict(values: Mapping[str, Any]) -> NoiseLaw:
    """Return the noise law that `NoiseLaw.as_dict` described.

    Raises
    ------
    ArgumentError
        No law of that name was defined or installed, or a field has a value that the law refuses.

    Examples
    --------
    >>> noise_from_dict({"name": "laplace", "scale": 2.0})
    Laplace(scale=2.0)
    """
    if not isinstance(values, Mapping) or not isinstance(values.get("name"), str):
        raise ArgumentError(f"`values` must map `name` and a law's fields, got a {type(values).__name__}.")
    settings = dict(values)
    name = settings.pop("name")
    law = named_law(name)
    try:
        return law(**settings)
    except TypeError as error:
        raise ArgumentError(f"`values` must hold the fields of the noise law {name!r}: {error}.") from None


def named_law(name: str) -> type[NoiseLaw]:
    """Return the class of the noise law that files call by a name.

    Raises
    ------
    ArgumentError
        No law of that name was defined or installed.
    """
    if name not in REGISTRY:
        for point in entry_points(group=ENTRY_POINT_GROUP, name=name):
            point.load()
    if name not in REGISTRY:
        raise ArgumentError(
            f"`name` must be a known noise law ({', '.join(REGISTRY)}), got {name!r}; import or install the "
            "package that defines it, whose entry point must have this name, or update this one."
        )
    return REGISTRY[name]
