r"""Agreement of exact answers: whether some table has all of them, and whether they determine N.

Consistent tables of N records are :math:`n = N \bar n + J β`: the uniform ones of one record, and zero-sum effects
β of each set of variables inside a clique. So answers e to rows E agree if and only if :math:`E J β + N E \bar n =
e` has a solution, where N is given if it is public. They determine N if and only if the functional :math:`(β, N)
\mapsto N` is a linear combination of the equations. Both are tests of rank. Answers that only tables with negative
cells give pass these tests, unless an answer itself is a negative count; the estimators find them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bayesprivmrf.errors import ModelError
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.cliques import consistent_projection
from bayesprivmrf.model.effects import Effects
from bayesprivmrf.model.tables import FloatArray

# Misfit of a whole number, as a share of the largest answer or of one record, that is put down to rounding
_ROUNDING = 1e-6
# Largest number of effects and of answers that are solved as one dense matrix
_MOST_DENSE = 1500
# Singular value, as a share of the largest, below which a direction is not determined
_RANK = 1e-10
# Tolerance of a least-norm solution where the system is not formed
_TIGHT = 1e-12
# Absolute size of a product of contrasts below which it is a rounding error of 0
_NOTHING = 1e-12

# error where no counts give all the answers that have no noise
_CONTRADICTION = (
    "the answers without noise contradict each other: no table of counts gives them all; correct one, or "
    "state the law of the noise that it has."
)


def agreed_total(
    model: ModelSpecification,
    rows: Any,
    answers: FloatArray,
    empty: np.ndarray,
    total: float | None,
) -> float | None:
    """Return the number of records if it is given, or if the exact answers determine it.

    Parameters
    ----------
    model
        The declared model.
    rows, answers
        E, sparse, a column for each cell of the model's cliques, and e.
    empty
        Mask of the cells that cannot occur.
    total
        N where it is public.

    Raises
    ------
    ModelError
        No tables give all answers.
    """
    from scipy.sparse import eye_array, vstack

    negative = (answers < 0) & (np.asarray(rows.min(axis=1).todense()).ravel() >= 0)
    if negative.any():
        raise ModelError(_CONTRADICTION)
    identity: Any = eye_array(model.size, format="csr")
    rows = vstack([rows, identity[np.flatnonzero(empty)]], format="csr")
    answers = np.append(answers, np.zeros(int(empty.sum())))
    even = consistent_projection(model.cardinalities, model.scopes, np.zeros(model.size), total=1.0)
    share = rows @ even
    design = _design(
        Effects.of(model.cardinalities, model.scopes), rows, share, is_free=total is None
    )
    if total is None:
        wanted = answers
    else:
        wanted = answers - total * share
    solved = _solved(design, wanted)
    allowed = _ROUNDING * max(1.0, np.abs(answers).max(initial=0.0))
    if np.abs(design @ solved - wanted).max(initial=0.0) > allowed:
        raise ModelError(_CONTRADICTION)
    if total is not None:
        return total
    last = np.zeros(design.shape[1])
    last[-1] = 1.0
    weights = _solved(design.T, last)
    if np.abs(design.T @ weights - last).max() < _ROUNDING:
        return float(weights @ answers)
    return None


def _design(effects: Effects, rows: Any, share: FloatArray, *, is_free: bool) -> Any:
    """Return the matrix of the equations, or its products if it is large, with a column for N if N is free."""
    from scipy.sparse.linalg import LinearOperator

    if max(effects.size, rows.shape[0]) <= _MOST_DENSE:
        design = clean(rows @ effects.margins(np.eye(effects.size)).T)
        if is_free:
            return np.column_stack([design, share])
        return design
    design = effects_operator(effects, rows)
    if not is_free:
        return design
    shape = (rows.shape[0], effects.size + 1)
    operator: Any = LinearOperator
    return operator(
        shape,
        matvec=lambda x: design.matvec(np.ravel(x)[:-1]) + np.ravel(x)[-1] * share,
        rmatvec=lambda y: np.append(design.rmatvec(np.ravel(y)), share @ np.ravel(y)),
        dtype=float,
    )


def effects_operator(effects: Effects, rows: Any) -> Any:
    """Return the operator from zero-sum effects to what they add to the answers of sparse rows."""
    from scipy.sparse.linalg import LinearOperator

    transposed = rows.T.tocsr()
    operator: Any = LinearOperator
    return operator(
        (rows.shape[0], effects.size),
        matvec=lambda beta: rows @ effects.margins(np.ravel(beta)),
        rmatvec=lambda answers: clean(effects.coordinates(transposed @ np.ravel(answers))),
        dtype=float,
    )


def clean(values: FloatArray) -> FloatArray:
    """Return values with rounding errors of 0 replaced by 0: no effect changes an answer that determines N."""
    return np.where(np.abs(values) < _NOTHING, 0.0, values)


def _solved(design: Any, wanted: FloatArray) -> FloatArray:
    """Return the least-squares solution of least norm."""
    from scipy.sparse.linalg import lsqr

    if isinstance(design, np.ndarray):
        return np.linalg.lstsq(design, wanted, rcond=_RANK)[0]
    return lsqr(design, wanted, atol=_TIGHT, btol=_TIGHT)[0]
