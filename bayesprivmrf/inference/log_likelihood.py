r"""Log-likelihood of a distribution given noisy numbers, with the latent counts integrated out.

The N records are a simple random sample from p, and their counts n are latent. The measured numbers are
:math:`y = A n + e`. With n and e taken for normal,

.. math:: y \sim \operatorname{Normal}(N A p, V), \qquad
          V = N A \,(\operatorname{diag}(p) - p p')\, A' + \operatorname{diag}(v),

where v is the variance of the noise. By these moments the noise-aware estimate of a smaller model weighs
the numbers (`bayesprivmrf.inference.noise_aware.smaller`). A variance v is at least 1/12, that of a rounding error.
"""

from __future__ import annotations

import math

import numpy as np

from bayesprivmrf.errors import ModelTooLargeError
from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.model.tables import FloatArray
from bayesprivmrf.noise.likelihood import LEAST_VARIANCE

# Largest number of measured numbers: their covariance takes 72 MB
_MOST_NUMBERS = 3000


def log_likelihood(evidence: Evidence, potentials: FloatArray) -> float:
    """Return the log-likelihood of potentials, nats.

    Parameters
    ----------
    evidence
        The measurements.
    potentials
        Potentials of the tables of the evidence, flat, nats.

    Raises
    ------
    ModelTooLargeError
        There are too many measured numbers for their covariance.
    """
    rows, numbers, noise = evidence.possible_numbers
    if len(numbers) > _MOST_NUMBERS:
        raise ModelTooLargeError(
            f"the log-likelihood must be of at most {_MOST_NUMBERS:,} measured numbers, got {len(numbers):,}; fit "
            "some of the measurements."
        )
    _, marginals, product = evidence.engine("exact").linearize(potentials)
    residual = numbers - evidence.total * (rows @ marginals)
    dense = rows.toarray()
    spread = evidence.total * np.array([rows @ product(row) for row in dense])
    spread = spread.reshape(len(numbers), len(numbers))
    spread += np.diag(np.maximum(noise, LEAST_VARIANCE))
    root = np.linalg.cholesky(spread)
    distance = np.linalg.solve(root, residual)
    log_root = float(np.log(np.diag(root)).sum())
    return -0.5 * (float(distance @ distance) + len(numbers) * math.log(2 * math.pi)) - log_root
