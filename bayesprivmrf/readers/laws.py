"""The law of somebody else's noise, from what they say of it: a family, and its scale or variance."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bayesprivmrf.checks import instance_of, require
from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.model.tables import FloatArray
from bayesprivmrf.noise import NoiseLaw, NoNoise, Within
from bayesprivmrf.noise.continuous import named_law
from bayesprivmrf.readers.columns import as_number, number_of
from bayesprivmrf.release.given import law_of_variance

# Remedy where an entry is no number
_WITHHELD = "say in `withheld` what a mark of a withheld count stands for, such as {'<10': (0, 9)}"

# How far a stated variance may be from that of the stated scale, as a share of it: figures are rounded
_AGREE = 1e-3


def family(noise: Any) -> type[NoiseLaw]:
    """Return the class of noise laws that is meant by a class, or by the name that files have for it.

    Raises
    ------
    ArgumentError
        It is neither.
    """
    if isinstance(noise, type) and issubclass(noise, NoiseLaw):
        return noise
    must = "be a family of noise laws, such as DiscreteGaussian or 'discrete-gaussian'"
    return named_law(instance_of("noise", noise, str, must))


def deviation_of(value: Any) -> float:
    """Return a measurement's standard deviation.

    Raises
    ------
    ArgumentError
        It is no number, negative, or not finite.
    """
    return _number("the standard deviation of a measurement", value)


def law_of_deviation(kind: type[NoiseLaw], deviation: Any) -> NoiseLaw:
    """Return a family's law of a standard deviation.

    Raises
    ------
    ArgumentError
        It is no number, negative, or not finite.
    """
    number = deviation_of(deviation)
    return law_of_variance(kind, number * number)


def stated_laws(
    count: int,
    noise: Any,
    *,
    names: Sequence[Any] | None = None,
    scales: Sequence[Any] | None = None,
    variances: Sequence[Any] | None = None,
) -> list[NoiseLaw]:
    """Return the law of each of some rows.

    Parameters
    ----------
    count
        How many rows there are.
    noise
        A law of all rows, a family whose parameter each row states, or None.
    names, scales, variances
        The entries of each row about its law; None where there is no such column.

    Raises
    ------
    ArgumentError
        A law is not stated, is stated twice, lacks its parameter, or has two that contradict each other.
    """
    columns = {"law": names, "scale": scales, "variance": variances}
    given = [f"`{name}`" for name, column in columns.items() if column is not None]
    if isinstance(noise, NoiseLaw):
        if given:
            raise ArgumentError(
                f"`noise` must be a family of laws beside a column {given[0]}, got a whole law; leave one "
                f"of them out."
            )
        return [noise] * count
    if names is not None and noise is not None:
        raise ArgumentError(
            "`noise` must be left out beside a column `law`, which states the law of each row."
        )
    if names is None and noise is None:
        raise ArgumentError(
            "the law of the noise must be stated, and no variance tells it: write noise='discrete-gaussian', "
            "noise=Laplace(2.0) or another, or add a column `law`."
        )
    known: dict[Any, NoiseLaw] = {}
    laws = []
    for row in range(count):
        said = tuple(None if column is None else column[row] for column in (names, scales, variances))
        key = tuple(map(str, said))
        if key not in known:
            name, scale, variance = said
            known[key] = _law(family(noise if name is None else str(name).strip()), scale, variance)
        laws.append(known[key])
    return laws


def values_and_laws(
    entries: Sequence[Any], laws: Sequence[NoiseLaw], withheld: Mapping[Any, Any] | None
) -> tuple[FloatArray, list[NoiseLaw]]:
    """Return the number and law of each row; of a withheld one the midpoint of its bounds, and their law.

    Raises
    ------
    ArgumentError
        `withheld` does not map marks, which are no numbers, to a pair of bounds.
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
            "map marks that are no numbers to pairs of bounds, such as {'<10': (0, 9)}",
            f"{mark!r} and a {type(pair).__name__}",
        )
    values, found = [], []
    for entry, law in zip(entries, laws, strict=True):
        pair = bounds.get(str(entry).strip())
        if pair is None:
            values.append(number_of("the entries of `value`", entry, _WITHHELD))
            found.append(law)
            continue
        lower, upper = pair
        value, own = Within.between(lower, upper, law)
        values.append(value)
        found.append(own)
    return np.array(values), found


def _law(kind: type[NoiseLaw], scale: Any, variance: Any) -> NoiseLaw:
    has_scale, has_variance = not _is_empty(scale), not _is_empty(variance)
    if not has_scale and not has_variance:
        if kind is NoNoise:
            return NoNoise()
        raise ArgumentError(
            f"the law {kind.name!r} must have its parameter in each row, a `scale` or a `variance`, got none; add it."
        )
    by_scale = _of_scale(kind, _number("`scale`", scale)) if has_scale else None
    by_variance = law_of_variance(kind, _number("`variance`", variance)) if has_variance else None
    if by_scale is None or by_variance is None:
        return by_scale or by_variance  # type: ignore[return-value]
    if not math.isclose(by_scale.variance, by_variance.variance, rel_tol=_AGREE):
        raise ArgumentError(
            f"`scale` and `variance` of the law {kind.name!r} must be of one law and one unit, but contradict each "
            "other in some row; leave out the column that is wrong."
        )
    return by_scale


def _of_scale(kind: type[NoiseLaw], scale: float) -> NoiseLaw:
    try:
        return kind(scale)  # type: ignore[call-arg]
    except TypeError:
        raise ArgumentError(
            f"the law {kind.name!r} is not fixed by a `scale` alone; give the law itself as `noise`."
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
