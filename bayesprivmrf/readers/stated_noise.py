"""Noise distributions of published numbers, from a stated family and a scale or variance."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bayesprivmrf.checks import instance_of, require
from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.model.tables import FloatArray
from bayesprivmrf.noise import NoiseDistribution, NoNoise, Within
from bayesprivmrf.noise.continuous import named_law
from bayesprivmrf.readers.columns import as_number, number_of
from bayesprivmrf.release.given import noise_of_variance


def family(noise: Any) -> type[NoiseDistribution]:
    """Return the noise distributions of a family, given as a class or by its name in files.

    Raises
    ------
    ArgumentError
        The value is neither a class of noise distributions nor a known name.
    """
    if isinstance(noise, type) and issubclass(noise, NoiseDistribution):
        return noise
    must = "be a family of noise distributions, such as DiscreteGaussian or 'discrete-gaussian'"
    return named_law(instance_of("noise", noise, str, must))


def deviation_of(value: Any) -> float:
    """Return the standard deviation of a measurement; an `ArgumentError` if it is negative or not a finite number."""
    return _number("the standard deviation of a measurement", value)


def noise_of_deviation(kind: type[NoiseDistribution], deviation: Any) -> NoiseDistribution:
    """Return the distribution of a family that has a standard deviation; see `deviation_of`."""
    number = deviation_of(deviation)
    return noise_of_variance(kind, number * number)


def stated_noise(
    count: int,
    noise: Any,
    *,
    names: Sequence[Any] | None = None,
    scales: Sequence[Any] | None = None,
    variances: Sequence[Any] | None = None,
) -> list[NoiseDistribution]:
    """Return the noise distribution of each row.

    Parameters
    ----------
    count
        Number of rows.
    noise
        The distribution of all rows, a family whose parameter each row states, or None.
    names, scales, variances
        The entries of the columns about the noise; None if there is no such column.

    Raises
    ------
    ArgumentError
        A distribution is not stated, is stated twice, lacks its parameter, or has two contradictory parameters.
    """
    columns = {"law": names, "scale": scales, "variance": variances}
    given = [f"`{name}`" for name, column in columns.items() if column is not None]
    if isinstance(noise, NoiseDistribution):
        if given:
            raise ArgumentError(
                f"`noise` must be a family of distributions beside a column {given[0]}, got a distribution; leave "
                "one of them out."
            )
        return [noise] * count
    if names is not None and noise is not None:
        raise ArgumentError(
            "`noise` must be left out beside a column `law`, which states the distribution of each row."
        )
    if names is None and noise is None:
        raise ArgumentError(
            "the distribution of the noise must be stated, and a variance does not determine it; write "
            "noise='discrete-gaussian', noise=Laplace(2.0) or another, or add a column `law`."
        )
    known: dict[Any, NoiseDistribution] = {}
    found = []
    for row in range(count):
        stated = tuple(None if column is None else column[row] for column in (names, scales, variances))
        key = tuple(map(str, stated))
        if key not in known:
            name, scale, variance = stated
            known[key] = _distribution(family(noise if name is None else str(name).strip()), scale, variance)
        found.append(known[key])
    return found


def values_and_noise(
    entries: Sequence[Any], noise: Sequence[NoiseDistribution], withheld: Mapping[Any, Any] | None
) -> tuple[FloatArray, list[NoiseDistribution]]:
    """Return the number and the noise distribution of each row.

    A withheld count is given as the midpoint of its bounds, with the distribution `noise.Within`.

    Raises
    ------
    ArgumentError
        `withheld` does not map marks that are not numbers to pairs of bounds.
    DataError
        An entry is neither a number nor a mark.
    """
    must = "map marks to bounds, such as {'<10': (0, 9)}"
    given = instance_of("withheld", {} if withheld is None else withheld, Mapping, must)
    bounds = {str(mark).strip(): pair for mark, pair in given.items()}
    for mark, pair in bounds.items():
        require(
            isinstance(pair, tuple | list) and len(pair) == 2 and not _is_number(mark),
            "withheld",
            "map marks that are not numbers to pairs of bounds, such as {'<10': (0, 9)}",
            f"{mark!r} and a {type(pair).__name__}",
        )
    values, found = [], []
    remedy = "state in `withheld` the bounds of a withheld count, such as {'<10': (0, 9)}"
    for entry, distribution in zip(entries, noise, strict=True):
        pair = bounds.get(str(entry).strip())
        if pair is None:
            values.append(number_of("the entries of `value`", entry, remedy))
            found.append(distribution)
            continue
        lower, upper = pair
        value, own = Within.between(lower, upper, distribution)
        values.append(value)
        found.append(own)
    return np.array(values), found


def _distribution(kind: type[NoiseDistribution], scale: Any, variance: Any) -> NoiseDistribution:
    """Return the distribution of a family from a scale or a variance, or from both if they agree."""
    has_scale, has_variance = not _is_empty(scale), not _is_empty(variance)
    if not has_scale and not has_variance:
        if kind is NoNoise:
            return NoNoise()
        raise ArgumentError(
            f"the distribution {kind.name!r} must have a `scale` or a `variance` in each row, got neither; add one."
        )
    by_scale = _of_scale(kind, _number("`scale`", scale)) if has_scale else None
    by_variance = noise_of_variance(kind, _number("`variance`", variance)) if has_variance else None
    if by_scale is None or by_variance is None:
        return by_scale or by_variance  # type: ignore[return-value]
    # a thousandth, because published figures are rounded
    if not math.isclose(by_scale.variance, by_variance.variance, rel_tol=1e-3):
        raise ArgumentError(
            f"`scale` and `variance` of the distribution {kind.name!r} must agree and have one unit, but contradict "
            "each other in some row; leave out the column that is wrong."
        )
    return by_scale


def _of_scale(kind: type[NoiseDistribution], scale: float) -> NoiseDistribution:
    try:
        return kind(scale)  # type: ignore[call-arg]
    except TypeError:
        raise ArgumentError(
            f"a `scale` alone does not determine the distribution {kind.name!r}; give the distribution as `noise`."
        ) from None


def _is_empty(value: Any) -> bool:
    return value is None or value != value or (isinstance(value, str) and not value.strip())


def _is_number(text: str) -> bool:
    return not math.isnan(as_number(text))


def _number(what: str, value: Any) -> float:
    number = as_number(value)
    if not 0 <= number < math.inf:
        raise ArgumentError(f"{what} must be a finite number of at least 0, got another.")
    return number
