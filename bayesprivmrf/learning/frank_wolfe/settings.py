"""Settings that all maps by regressions have: the number of steps, and how they are written down."""

from __future__ import annotations

import math
from typing import Any

from bayesprivmrf.learning.frank_wolfe.search import LARGEST_STEPS
from bayesprivmrf.privacy import Adjacency, DiscreteGaussian
from bayesprivmrf.privacy.frank_wolfe import Exposure, step_scale
from bayesprivmrf.release.codec import Fields

# Factor of `default_steps` for logistic regressions; measured, see docs/frank_wolfe.md
STEPS_OF_LOGISTIC = 0.11

_FEWEST_STEPS = 10  # even with much noise, a mean of fewer atoms is coarse; arbitrary


def default_steps(
    total: float,
    radius: float,
    exposure: Exposure,
    rho: float,
    adjacency: Adjacency,
    factor: float = STEPS_OF_LOGISTIC,
) -> int:
    r"""Return T from public numbers: a factor times :math:`(R n / \kappa_1)^{2/3}`, at least 10.

    The excess loss a record after T steps is of the order :math:`R^2/T + R \kappa_1 \sqrt{T} / n`, with
    :math:`\kappa_1` the noise multiple of a single step; the minimum over T has this form. The factor was measured:
    docs/frank_wolfe.md.
    """
    signal = radius * total / step_scale(exposure, rho, 1, adjacency)
    steps = math.ceil(factor * signal ** (2 / 3))
    return min(max(steps, _FEWEST_STEPS), LARGEST_STEPS)


def common_settings(content: Fields) -> dict[str, Any]:
    """Return the settings that all maps by regressions have, from a release's file."""
    # files of releases without them lack it
    scale = content.positive("singles") if "singles" in content else None
    return {
        "width": content.positive("width"),
        "rho": content.positive("rho"),
        "adjacency": Adjacency.checked(content.text("adjacency")),
        "steps": content.whole("steps", 1, LARGEST_STEPS, optional=True),
        "singles": None if scale is None else DiscreteGaussian(scale),
    }


def written_singles(law: DiscreteGaussian | None) -> dict[str, Any]:
    """Return the scale of the noise on single variables for a release's file; nothing where they are not measured."""
    return {} if law is None else {"singles": law.scale}
