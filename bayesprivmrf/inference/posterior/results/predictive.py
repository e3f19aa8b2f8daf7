r"""The posterior predictive probability of records.

.. math:: p(x \mid y) = E[\,p(x; θ) \mid y\,] \approx \frac{1}{D} \sum_d \exp\Bigl(\sum_C θ_{d,C}(x_C) - A(θ_d)\Bigr)
"""

from __future__ import annotations

import numpy as np

from bayesprivmrf.inference.posterior.results.draws import Draws
from bayesprivmrf.marginals import marginal_engine
from bayesprivmrf.model.tables import FloatArray

_HELD = 4_000_000
"""Log probabilities held at once."""


def log_predictive(draws: Draws, states: np.ndarray, most: int) -> FloatArray:
    """Log of the mean over the posterior of the probability of each joint state.

    Parameters
    ----------
    draws
        The posterior.
    states
        Joint states, as codes, shape (number, variables).
    most
        Approximate number of draws over which the mean is taken.

    Returns
    -------
    ndarray
        Shape (number,), nats.
    """
    model = draws.model
    engine = marginal_engine(model.cardinalities, model.scopes)
    potentials = [draws.potentials(chain, draw) for chain, draw in draws.pairs(most)]
    log_partition = np.array([engine.log_partition(each) for each in potentials])
    table = np.array(potentials)
    cells = [
        start + np.ravel_multi_index(tuple(states[:, v] for v in scope), shape)
        for start, scope, shape in zip(model.offsets, model.scopes, model.shapes, strict=False)
    ]
    result = np.empty(len(states))
    step = max(1, _HELD // len(table))
    for begin in range(0, len(states), step):
        part = slice(begin, begin + step)
        logs = np.zeros((len(table), len(result[part]))) - log_partition[:, np.newaxis]
        for own in cells:
            logs += table[:, own[part]]
        result[part] = np.logaddexp.reduce(logs, axis=0) - np.log(len(table))
    return result
