"""Checks that a release does not contradict its own guarantee or number of records."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from bayesprivmrf.errors import ArgumentError, PrivacyError
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.noise.base import check_variance
from bayesprivmrf.privacy import Adjacency, NoiseLaw, PrivacyGuarantee
from bayesprivmrf.queries import Query
from bayesprivmrf.queries.sensitivity import LEAST_SCALE, sensitivity


def check_promise(
    guarantee: PrivacyGuarantee | None, noise: Iterable[tuple[str, NoiseLaw]], total: int | None
) -> None:
    """Raise where noise has no finite variance, or a guarantee stands beside no noise or a total that it protects.

    Parameters
    ----------
    guarantee
        The promise; None where there is none.
    noise
        The name of what was measured, and the law of its noise.
    total
        The public number of records.
    """
    noise = list(noise)
    for _, law in noise:
        check_variance(law)
    if guarantee is None:
        return
    if not isinstance(guarantee, PrivacyGuarantee):
        raise ArgumentError(
            f"`guarantee` must be a PrivacyGuarantee or None, got {type(guarantee).__name__}."
        )
    for name, law in noise:
        if not law.hides:
            raise PrivacyError(
                f"`guarantee` must be None where a table has no noise, got one beside the exact {name}; "
                "state the noise that was added, or leave the guarantee out."
            )
    if total is not None and guarantee.adjacency is Adjacency.ADD_OR_REMOVE_ONE:
        raise PrivacyError(
            "`total` must be None beside an add-or-remove-one guarantee, which protects the number of records; "
            "leave it out, or state a replace-one guarantee if that is what was promised."
        )


def dearer_than_promised(
    guarantee: PrivacyGuarantee | None,
    noise: Sequence[NoiseLaw],
    model: ModelSpecification,
    queries: Sequence[Query] = (),
) -> str | None:
    r"""Return a text if the noise costs more than was promised; None if not, or if it is unknown.

    Without `queries`, the noise is that of a whole table of each clique. A record adds one to one cell of each table,
    whatever the data, and two records that differ in every table exist where each table has two cells and none is
    impossible. So :math:`\Delta_1` = 1, or 2 under replace-one, and
    :math:`\Delta_2^2` = 1 or 2 are attained in all tables at once. Laplace noise of scales b costs exactly
    :math:`\sum \Delta_1 / b`, continuous or discrete; normal noise of scales s costs exactly
    :math:`\sum \Delta_2^2 / 2 s^2` under zero-concentrated privacy, which discrete noise attains at whole orders. A
    release costs no less, unless its records were sampled in secret; a person has at least one record.

    With `queries`, the same holds with the sensitivity :math:`\sum_q \lVert \Delta_q \rVert_1 / b_q` or
    :math:`\sum_q \lVert \Delta_q \rVert_2^2 / 2 s_q^2` of the stacked answers, where neighbors are known to attain
    it. Where cells are impossible, the neighbors that attain it may be, so the cost is unknown.
    """
    if guarantee is None or guarantee.delta > 0 or guarantee.unit not in ("record", "person"):
        return None
    moved = 1 if guarantee.adjacency is Adjacency.ADD_OR_REMOVE_ONE else 2
    has_impossible = model.possible is not None
    if queries and has_impossible:
        return None
    if moved == 2 and not queries and (has_impossible or min(map(np.prod, model.shapes), default=0) < 2):
        return None
    name, promised, kernel = "epsilon", guarantee.epsilon, "absolute"
    if guarantee.rho is not None:
        name, promised, kernel = "rho", guarantee.rho, "square"
    if promised is None or {law.kernel for law in noise} != {kernel}:
        return None
    norm = 1 if kernel == "absolute" else 2
    if queries:
        # outside these limits, which `sensitivity` sets, noise costs far more or far less than any promise
        scales = np.clip([law.scale for law in noise], LEAST_SCALE, 1 / LEAST_SCALE).tolist()
        found = sensitivity(queries, model, norm=norm, adjacency=guarantee.adjacency, scales=scales)
        power = found.power if found.is_exact else 0.0
    else:
        power = sum(moved / law.scale**norm for law in noise)
    cost = power / norm
    if cost <= promised * (1 + 1e-6):
        return None
    return (
        f"the release promises {name} = {promised:.4g}, but its noise alone costs {cost:.4g}: the promise is "
        "wrong, unless records were sampled in secret before they were counted; ask whoever made the file."
    )


def whole_total(total: Any) -> int:
    """Return a public number of records as an integer."""
    if (
        isinstance(total, bool)
        or not isinstance(total, int | float | np.integer | np.floating)
        or not 0 <= total < 2**63
        or total != int(total)
    ):
        raise ArgumentError(
            f"`total` must be a whole number of records, at least 0, or None, got {total!r}; give the public number."
        )
    return int(total)
