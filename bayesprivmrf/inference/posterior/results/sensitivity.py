r"""Which answers the prior decides: how far they move when the prior is made stronger.

The prior of one part of the model, a clique's rows or one effect, is raised to the power λ. To first order in log λ,
at λ = 1, the posterior mean of a quantity q moves by cov(q, log prior); in its own standard deviations,

.. math:: s = \frac{|\operatorname{cov}(q, \log p)|}{\operatorname{sd}(q)},

which draws tell without another fit. The density of a Dirichlet row is taken by its log-ratios, as
:math:`\prod_i r_i^{α_i}`, so that its power is one of λα prior counts: a uniform row, too, has something that can be
made stronger. A quantity is called the prior's where s is above 1 for some part: doubling the prior counts there, or
the precision of the effect, would move it by 0.7 standard deviations or more.

``arviz.psense(posterior.tree)`` computes the same for finite steps of λ, all parts at once.

References
----------
Kallioinen, Paananen, Bürkner, Vehtari (2024). Detecting and diagnosing prior and likelihood sensitivity with
power-scaling. Statistics and Computing 34, 57.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from bayesprivmrf.model.tables import FloatArray

LARGEST_SENSITIVITY = 1.0
"""Standard deviations by log λ from which a quantity is the prior's."""
_ERRORS = 3.0
"""Standard errors of independent draws that are allowed for."""


def prior_sensitivity(drawn: FloatArray, log_prior: Mapping[str, FloatArray]) -> FloatArray:
    """Largest s over the parts of the prior, less its Monte Carlo error.

    Parameters
    ----------
    drawn
        Draws of the quantities, shape (chain, draw, ...).
    log_prior
        Log density of each part, nats, shape (chain, draw) each.

    Returns
    -------
    ndarray
        Shape of one draw; 0 where a quantity does not vary.
    """
    size = math.prod(drawn.shape[:2])
    values = drawn.reshape(size, math.prod(drawn.shape[2:]))
    parts = np.array([part.reshape(size) for part in log_prior.values()]).reshape(len(log_prior), size)
    values, parts = values - values.mean(axis=0), parts - parts.mean(axis=1, keepdims=True)
    spread = values.std(axis=0)
    moves = np.abs(parts @ values) / size / np.where(spread > 0, spread, np.inf)
    error = _ERRORS * parts.std(axis=1) / math.sqrt(size)
    largest = np.maximum(moves - error[:, np.newaxis], 0.0).max(axis=0, initial=0.0)
    return largest.reshape(drawn.shape[2:])


def is_decided_by_prior(drawn: FloatArray, log_prior: Mapping[str, FloatArray]) -> np.ndarray:
    """Mask of the quantities whose sensitivity is above 1."""
    return prior_sensitivity(drawn, log_prior) > LARGEST_SENSITIVITY
