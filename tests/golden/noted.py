"""Golden results as JSON: how they are written, on which machine, and how two of them are compared.

Numbers are written out; long rows of whole numbers or labels are hashed.
"""

from __future__ import annotations

import hashlib
import json
import math
import platform
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

import numpy as np

LONGEST = 48  # numbers that are written out

CLOSE = 1e-6
CLOSE_ENDS = 2e-4
"""Of intervals' ends, which rest on fits whose last steps another processor's rounding decides."""

type Found = dict[str, Any]


def has_intervals(fit: Any) -> bool:
    """Whether a fit has intervals; one without a measure of its error refuses."""
    from bayesprivmrf.errors import NoIntervalError

    try:
        fit.interval(list(fit.specification.domain.variables[:1]))
    except NoIntervalError:
        return False
    return True


def noted(value: Any) -> Any:
    """A result as JSON holds it: numbers written out, long rows of whole numbers or labels hashed."""
    if hasattr(value, "columns"):  # a data frame
        return {"columns": [str(name) for name in value.columns]} | {
            f"column {name}": noted(value[name].to_numpy()) for name in value.columns
        }
    if isinstance(value, np.ndarray):
        if value.size <= LONGEST:
            return [
                each if isinstance(each, int | float) else repr(each)
                for each in value.ravel().tolist()
            ]
        if value.dtype.kind == "f":
            return noted(np.concatenate([value.ravel()[: LONGEST - 1], [value.sum()]]))
        text = "\n".join(map(repr, value.ravel().tolist()))
        return {"shape": list(value.shape), "sha256": hashlib.sha256(text.encode()).hexdigest()}
    if hasattr(value, "to_numpy"):
        return noted(value.to_numpy())
    if isinstance(value, np.generic):
        return value.item()
    return value


def machine() -> dict[str, str]:
    """What a chain of floating-point numbers depends on, beside this library."""
    names = ("nutpie", "numba", "numpy", "pymc", "scipy")
    return {"machine": platform.machine(), "system": platform.system()} | {
        name: version(name) for name in names
    }


def as_written(found: dict[str, Found]) -> dict[str, Any]:
    """Results as they come back from JSON."""
    return json.loads(json.dumps(found))


def differences(kept: Any, now: Any, path: str = "", close: float = CLOSE) -> Iterator[str]:
    """Paths at which two results differ: whole numbers and text at all, other numbers by more than `close`.

    The tolerance is relative, and absolute for numbers below 1.
    """
    if isinstance(kept, dict) and isinstance(now, dict):
        for key in [*kept, *(key for key in now if key not in kept)]:
            here = f"{path} > {key}" if path else key
            if key not in now or key not in kept:
                yield f"{here}: {'gone' if key not in now else 'new'}"
            else:
                yield from differences(kept[key], now[key], here, close)
    elif isinstance(kept, list) and isinstance(now, list) and len(kept) == len(now):
        for position, (one, other) in enumerate(zip(kept, now, strict=True)):
            yield from differences(one, other, f"{path}[{position}]", close)
    elif isinstance(kept, float) and isinstance(now, float):
        if "interval of" in path:
            close = max(close, CLOSE_ENDS)
        if not (
            math.isclose(kept, now, rel_tol=close, abs_tol=close)
            or (math.isnan(kept) and math.isnan(now))
        ):
            yield f"{path}: {kept!r} is now {now!r}"
    elif type(kept) is not type(now) or kept != now:
        yield f"{path}: {kept!r} is now {now!r}"
