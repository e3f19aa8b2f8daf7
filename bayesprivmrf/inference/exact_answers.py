r"""Answers without noise as linear constraints :math:`E n = e` on the tables.

Whether they agree, and tell the number of records, is asked when evidence is gathered (`agreement`).

**How an estimate honours them.** Of all distributions whose tables have :math:`N E μ = e`, the one nearest to an
estimate θ, by the divergence :math:`\mathrm{KL}(\cdot \,\|\, p_θ)`, has the potentials :math:`θ + E'g` with

.. math:: g = \arg\min_g \; \log Z(θ + E'g) - g'e/N,

since the gradient of that convex function is :math:`E μ(θ + E'g) - e/N`, and by Pythagoras any other such
distribution is farther off (Csiszár 1975, the I-projection). The cells of an answer 0 get the probability 0 but for
rounding.

**Where every answer is without noise**, the maximum likelihood estimate has the tables :math:`μ` of the data. If the
cliques can be ordered so that each meets those before it inside one of them, in a separator S (a decomposable model),

.. math:: p(x) = \prod_C μ_C(x_C) \big/ \prod_S μ_S(x_S) ,

a cell without records having the potential minus infinity (Lauritzen 1996, Proposition 4.18). Otherwise the same
product over a largest spanning tree of the cliques begins the search for the nearest distribution, by L-BFGS, and
Newton's steps take the last digits.

References
----------
Csiszár (1975). I-divergence geometry of probability distributions and minimization problems. Annals of Probability 3,
146-158.
Lauritzen (1996). Graphical Models. Oxford University Press. Section 4.4.1.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bayesprivmrf.errors import ModelError
from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.inference.interval_frame import Status
from bayesprivmrf.inference.optimize import ridge_mode
from bayesprivmrf.marginals import MarginalEngine
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.tables import FloatArray

# Probability by which a constraint may be missed
_TOLERANCE = 1e-9

# most iterations of a search; arbitrary, and a search that reaches it counts as failed
_ITERATIONS = 2000
# Error of a probability at which a search ends: a few rounding errors of a sum over the cells
_GIVEN_BACK = 1e-14

# Most products with the covariance in a Newton step; steps near an optimum take far fewer
_MOST_PRODUCTS = 400


def refuse_shared(evidence: Evidence) -> None:
    """Raise where an estimate that honours answers without noise would leave a model of shared parameters."""
    model = evidence.specification
    if evidence.constraints is None or not (model.is_restricted or model.shares_transitions):
        return
    effects = evidence.family.effects
    rows = evidence.constraints[0].toarray().astype(float)
    # E'g may be potentials of the model for every g, as with the public sizes of waves
    if model.shares_transitions or max(map(effects.missed, rows)) >= _TOLERANCE:
        raise ModelError(
            "answers without noise are given back exactly by potentials of their own, and this model shares its "
            "parameters between cliques; leave those answers out (a public number of records is `total=`), or "
            "declare the network without `tied` and `ordinal`."
        )


def honoured(
    evidence: Evidence, engine: MarginalEngine, potentials: FloatArray
) -> tuple[FloatArray, bool]:
    """Return potentials of the nearest distribution that gives the answers without noise, and whether there is one.

    Parameters
    ----------
    evidence, engine
        The evidence of the releases; an engine of the model's cliques.
    potentials
        θ, shape (model size,), minus infinity at impossible cells.
    """
    if evidence.constraints is None:
        return potentials, True
    refuse_shared(evidence)
    rows, answers = evidence.constraints
    norms = np.sqrt(rows.power(2) @ evidence.supported_cells.astype(float))
    rows = rows.multiply(1 / norms[:, np.newaxis]).tocsr()
    nearest, missed = _nearest(engine, potentials, rows, answers / norms / evidence.total)
    return nearest, missed <= 1e3 * _TOLERANCE


def _nearest(
    engine: MarginalEngine, potentials: FloatArray, rows: Any, wanted: FloatArray
) -> tuple[FloatArray, float]:
    """Return θ + E'g with E μ as wanted, and by how much it misses that."""
    from scipy.sparse.linalg import LinearOperator, cg

    transposed = rows.T.tocsr()
    size = len(wanted)
    operator: Any = LinearOperator

    def means_at(tilt: FloatArray) -> tuple[float, FloatArray]:
        log_partition, marginals = engine.marginals(potentials + transposed @ tilt)
        return log_partition, rows @ marginals

    start = np.zeros(size)
    search = {"gradient_tolerance": _TOLERANCE, "iterations": _ITERATIONS}
    found = ridge_mode(means_at, wanted, start, start, **search)
    if found.status is Status.DIVERGED:
        return potentials, np.inf
    tilt = found.point
    best = found.point
    least = np.inf
    # Newton steps for the last digits, as long as each halves the error; two or three suffice after L-BFGS
    for _ in range(8):
        if not np.isfinite(tilt).all():
            break
        _, marginals, product = engine.linearize(potentials + transposed @ tilt)
        gap = wanted - rows @ marginals
        missed = float(np.abs(gap).max(initial=0.0))
        if not missed < 0.5 * least:
            break
        least = missed
        best = tilt
        if least <= _GIVEN_BACK:
            break
        # tilts that cancel are a null space, which conjugate gradients never enter
        curvature = operator(
            (size, size),
            matvec=lambda g, product=product: rows @ product(transposed @ g),
            dtype=float,
        )
        # of a gap of nothing but rounding errors in that space, which ends the loop
        with np.errstate(all="ignore"):
            tilt = tilt + cg(curvature, gap, rtol=1e-6, maxiter=_MOST_PRODUCTS)[0]
    return potentials + transposed @ best, least


def of_forest(model: ModelSpecification, target: FloatArray) -> FloatArray:
    """Return the log of each clique's table over that of its separator, along a largest spanning forest.

    They are the potentials of the maximum likelihood estimate where the model is decomposable; elsewhere the search
    for it begins there. The target holds consistent tables of the cliques, shape (model size,), probabilities.
    """
    scopes = model.scopes
    # the largest intersection with a clique that is placed
    nearest = [frozenset[int]()] * len(scopes)
    left = set(range(len(scopes)))
    flat = np.zeros(model.size)
    while left:
        clique = max(left, key=lambda one: (len(nearest[one]), -one))
        left.remove(clique)
        separator = [v for v in scopes[clique] if v in nearest[clique]]
        shape = [model.cardinalities[v] if v in separator else 1 for v in scopes[clique]]
        if separator:
            below = model.project(target, separator).reshape(shape)
        else:
            below = np.ones(shape)
        block = slice(*model.offsets[clique : clique + 2])
        table = target[block].reshape(model.shapes[clique])
        ratio = np.divide(table, below, out=np.zeros_like(table), where=table > 0)
        with np.errstate(divide="ignore"):
            flat[block] = np.log(ratio).ravel()
        for one in left:
            shared = frozenset(scopes[one]) & frozenset(scopes[clique])
            nearest[one] = max(nearest[one], shared, key=len)
    return flat


def without_records(basis: Any, wanted: FloatArray) -> np.ndarray:
    """Return a mask of cells that must be empty: they are in a sum of zero with nonnegative coefficients.

    Parameters
    ----------
    basis
        Sparse, a row for each cell and a column for each sum.
    wanted
        The sums, shape (columns,).
    """
    empty = (wanted <= _TOLERANCE * max(float(wanted.max(initial=0.0)), 0.0)) & (
        basis.min(axis=0).toarray().ravel() >= 0
    )
    return np.asarray(abs(basis) @ empty.astype(float)).ravel() > 0
