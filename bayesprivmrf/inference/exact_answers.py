r"""Answers without noise, as linear constraints :math:`E n = e` on the tables: never as answers with a little noise.

Whether they agree, and tell the number of records, is asked when evidence is gathered (`agreement`).

**How an estimate honours them.** Of all distributions whose tables have :math:`N E μ = e`, the one nearest to an
estimate θ, by the divergence :math:`\mathrm{KL}(\cdot \,\|\, p_θ)`, has the potentials :math:`θ + E'g` with

.. math:: g = \arg\min_g \; \log Z(θ + E'g) - g'e/N,

since the gradient of that convex function is :math:`E μ(θ + E'g) - e/N`, and by Pythagoras any other such
distribution is farther off (Csiszár 1975, the I-projection). The cells of an answer 0 get the probability 0 but for
rounding.

References
----------
Csiszár (1975). I-divergence geometry of probability distributions and minimization problems. Annals of Probability 3,
146-158.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bayesprivmrf.errors import ModelError
from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.inference.optimize import minimize
from bayesprivmrf.inference.solution import Status
from bayesprivmrf.marginals import MarginalEngine
from bayesprivmrf.model.effects import Effects
from bayesprivmrf.model.tables import FloatArray
from bayesprivmrf.model.ties import coordinates_of

__all__ = ["honoured", "refuse_shared"]

_TOLERANCE = 1e-9
"""Probability by which a constraint may be missed."""

_ITERATIONS = 2000
_NEWTON_ROWS = 400
"""Constraints up to which the last digits are found by Newton's method."""


def refuse_shared(evidence: Evidence) -> None:
    """Raise where an estimate that honours answers without noise would leave a model of shared parameters."""
    model = evidence.specification
    if evidence.exact is None or not (model.is_restricted or model.shares_transitions):
        return
    if model.shares_transitions or not _lies_in_model(evidence):
        raise ModelError(
            "answers without noise are given back exactly by potentials of their own, and this model shares its "
            "parameters between cliques; leave those answers out (a public number of records is `total=`), or "
            "declare the network without `tied` and `ordinal`."
        )


def _lies_in_model(evidence: Evidence) -> bool:
    """Whether E'g are potentials of the model for every g, as those of the public numbers of waves are."""
    assert evidence.exact is not None
    coordinates = coordinates_of(evidence.specification)
    rows = evidence.exact[0].toarray().astype(float)
    return isinstance(coordinates, Effects) or max(map(coordinates.missed, rows)) < _TOLERANCE


def honoured(evidence: Evidence, engine: MarginalEngine, potentials: FloatArray) -> tuple[FloatArray, bool]:
    """Potentials of the nearest distribution that gives the answers without noise, and whether there is one.

    Parameters
    ----------
    evidence, engine
        The evidence of the releases; an engine of the model's cliques.
    potentials
        θ, shape (model size,), minus infinity at impossible cells.
    """
    if evidence.exact is None:
        return potentials, True
    refuse_shared(evidence)
    rows, answers = evidence.exact
    norms = np.sqrt(rows.power(2) @ evidence.supported_cells.astype(float))
    rows = rows.multiply(1 / norms[:, np.newaxis]).tocsr()
    wanted, transposed = answers / norms / evidence.total, rows.T.tocsr()

    def objective(tilt: FloatArray) -> tuple[float, FloatArray]:
        log_partition, marginals = engine.marginals(potentials + transposed @ tilt)
        return float(log_partition - wanted @ tilt), rows @ marginals - wanted

    start = np.zeros(len(wanted))
    found = minimize(objective, start, gradient_tolerance=_TOLERANCE, iterations=_ITERATIONS)
    tilt = found.point
    if found.status is Status.DIVERGED:
        return potentials, False
    if len(wanted) <= _NEWTON_ROWS:
        tilt = _refined(rows, transposed, wanted, engine, potentials, tilt)
    missed = np.abs(objective(tilt)[1]).max(initial=0.0)
    return potentials + transposed @ tilt, bool(missed <= 1e3 * _TOLERANCE)


def _refined(
    rows: Any,
    transposed: Any,
    wanted: FloatArray,
    engine: MarginalEngine,
    potentials: FloatArray,
    tilt: FloatArray,
) -> FloatArray:
    """The tilt after some of Newton's steps, as long as they come nearer."""
    least, best = np.inf, tilt
    for _ in range(8):
        _, marginals, product = engine.linearize(potentials + transposed @ tilt)
        gap = wanted - rows @ marginals
        if not np.abs(gap).max(initial=0.0) < 0.5 * least:
            break
        least, best = np.abs(gap).max(initial=0.0), tilt
        if least < 1e-14:
            break
        columns = [rows @ product(column) for column in transposed.T.toarray()]
        curvature = np.array(columns).reshape(len(wanted), len(wanted))
        tilt = tilt + np.linalg.lstsq(curvature, gap, rcond=1e-12)[0]
    return best
