"""The common part of releases by private Frank-Wolfe: checks of settings, and the cost and noise of steps."""

from __future__ import annotations

import math
from typing import Any

from bayesprivmrf.audit import Choices
from bayesprivmrf.checks import positive_finite, whole_number
from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.learning.frank_wolfe import LARGEST_STEPS, ByRegressions, SparseLogistic
from bayesprivmrf.planning import Outlay
from bayesprivmrf.privacy import Adjacency
from bayesprivmrf.privacy.selection import GUMBEL_DEVIATION

_LARGEST_SIZE = 1000.0  # nats


def choices_outlay(fitted: ByRegressions | SparseLogistic, rho: float, total: float | None) -> Outlay:
    r"""Return the cost of the steps and the noise of their choices.

    At 0 the score of a coupling w that stands alone is about :math:`N w B / a` records, B being the largest residual
    there and a the map's `reference`; scores of what is not coupled are near 0. An atom is picked with a weight of
    :math:`e^{u / \kappa B}`, so that the coupling's atom is picked from among K in half of all cases where
    :math:`w = a \kappa \log K / N`. For much smaller couplings the steps are nearly uniform draws.
    """
    if total is None and fitted.steps is None:
        return Outlay(step="choices, in as many steps as the number of records asks for", rho=rho)
    steps = fitted.steps_for(total)
    multiple = fitted.multiple(steps)
    moved = 4.0 if fitted.adjacency is Adjacency.REPLACE_ONE else 2.0  # bounds of residuals, see `Exposure`
    found = None if total is None else fitted.reference * multiple * math.log(fitted.atoms) / max(total, 1.0)
    return Outlay(
        step=f"{steps} steps of {fitted.exposure.choices} choice{'' if fitted.exposure.choices == 1 else 's'}",
        rho=rho,
        count=steps * fitted.exposure.choices,
        noise_sd=multiple * GUMBEL_DEVIATION,
        draws=(Choices(scale=multiple, score_range=moved, copies=steps * fitted.exposure.squares),),
        smallest_coupling=found,
    )


def checked_size(name: str, value: Any) -> float:
    """Return a bound of coefficients, positive and no larger than any log-odds could be."""
    size = positive_finite(name, value)
    if size > _LARGEST_SIZE:
        raise ArgumentError(
            f"`{name}` must be at most {_LARGEST_SIZE:g}, got {size!r}; log-odds of ten are nearly certain already."
        )
    return size


def checked_steps(steps: Any) -> int | None:
    """Return the number of steps, or ``None`` for the default."""
    if steps is None:
        return None
    return whole_number("steps", steps, 1, LARGEST_STEPS, remedy="leave it out for a default")
