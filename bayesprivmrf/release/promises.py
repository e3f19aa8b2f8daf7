"""Checks that a release does not contradict its own guarantee or number of records.

Facts and sentences that a release of noisy numbers shows of itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from bayesprivmrf.checks import instance_of, require
from bayesprivmrf.errors import PrivacyError
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.noise.base import check_variance
from bayesprivmrf.privacy import Adjacency, NoiseLaw, PrivacyGuarantee
from bayesprivmrf.queries import Query
from bayesprivmrf.queries.sensitivity import LEAST_SCALE, sensitivity
from bayesprivmrf.release.person_rows import PersonRows


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
    instance_of("guarantee", guarantee, PrivacyGuarantee, "be a PrivacyGuarantee or None")
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
    is_number = isinstance(total, int | float | np.integer | np.floating) and not isinstance(total, bool)
    is_count = is_number and 0 <= total < 2**63 and total == int(total)
    must = "be a whole number of records, at least 0, or None"
    require(is_count, "total", must, total, "give the public number")
    return int(total)


def facts_of(release: Any) -> list[tuple[str, str]]:
    """Return the facts that `NoisyStatistics` shows of itself: names and values."""
    kind, unit = ("tables", "cells") if release.has_tables else ("queries", "numbers")
    return [
        ("mechanism", release.provenance.mechanism),
        ("variables", f"{len(release.specification.domain.variables)}"),
        (kind, f"{len(release.measurements)} ({release.flat.size:,} {unit})"),
        ("noise", _noise(release.noise)),
        ("records", _records(release)),
        ("privacy", release.privacy_statement()),
    ]


def told_promise(guarantee: PrivacyGuarantee | None, rows: PersonRows | None) -> str:
    """Return the sentence of a guarantee, with the number of counted rows of a person, where that is stated."""
    if guarantee is None:
        return "No privacy guarantee is stated for these tables."
    if guarantee.unit != "person" or rows is None:
        return guarantee.sentence()
    weighed = ", each of K rows with the weight 1/K" if rows.is_weighed else ""
    return f"{guarantee.sentence()} Of one person's rows at most {rows.at_most} were counted{weighed}."


def _records(release: Any) -> str:
    """Return the number of records: the public one, or an estimate with its standard error."""
    if release.total is not None:
        return f"{release.total:,} (public)"
    error = release.total_standard_error
    if not math.isfinite(error):
        return "not told by the release"
    return f"about {release.estimated_total:,.0f} ± {error:,.0f}, from the release"


def _noise(laws: tuple[NoiseLaw, ...]) -> str:
    """Return the names of laws and their standard deviations."""
    names = ", ".join(sorted({law.name for law in laws}))
    deviations = [law.standard_deviation for law in laws]
    if not deviations:
        return f"{names}; sd none records a cell"
    low, high = min(deviations), max(deviations)
    spread = f"{low:.3g}" if math.isclose(low, high) else f"{low:.3g} to {high:.3g}"
    return f"{names}; sd {spread} records a cell"
