"""How the fit of an estimator ended."""

from __future__ import annotations

import enum


class Status(enum.StrEnum):
    """How an estimator ended. Not converging is data, not an exception."""

    CONVERGED = "converged"
    """The optimality condition holds to the stated tolerance."""
    ITERATION_LIMIT = "iteration limit"
    """The iterations ran out first."""
    STOPPED_EARLY = "stopped early"
    """The stopping rule ended the path on purpose: the estimate is regularised by it."""
    DIVERGED = "diverged"
    """The objective has no finite optimum along the path taken, or became not a number."""
    NOT_TRUSTED = "not trusted"
    """A check of the answer failed, for example loopy belief propagation that did not settle."""
    APPROXIMATE = "approximate"
    """Ended well, on approximate marginals or an approximate likelihood."""
