"""Guarantees of noisy statistics beside the cost of their noise, and what text forms say about a release."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from bayesprivmrf.checks import require
from bayesprivmrf.errors import GuaranteeWarning, PrivacyError, warn_caller
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.noise.kernels import LAPLACE, NORMAL
from bayesprivmrf.noise.likelihood import Likelihood
from bayesprivmrf.privacy import Adjacency, PrivacyGuarantee, compose
from bayesprivmrf.queries import Query
from bayesprivmrf.queries.sensitivity import LEAST_SCALE, sensitivity
from bayesprivmrf.release.base import Doubt, Provenance
from bayesprivmrf.release.codec import PersonRows
from bayesprivmrf.release.measurement import Measurement, Origin

# Mechanisms of this library that add noise to counts of all records: no secret sample explains too little noise
_COUNT_ALL_RECORDS = {"LaplaceStatistics", "GaussianStatistics", "SelectMeasure", "ParityQueries"}
# Smallest share of the records that a secret sample of another mechanism or publisher may have had; arbitrary, and
# far below the shares of real samples
_LEAST_SHARE = 1e-6
# Largest epsilon that is compared with a single cell; a larger one hides nothing, and its exponential may overflow
_LARGEST_EPSILON = 50.0
# Largest relative excess of a cost over its promise that rounding may cause
_ROUNDING = 1e-6
# Number of terms of a sum of tail probabilities of discrete noise; more are not needed for small scales
_TAIL_TERMS = 49


def doubt_of(
    guarantee: PrivacyGuarantee | None,
    noise: Sequence[Likelihood],
    model: ModelSpecification,
    queries: Sequence[Query] = (),
    mechanism: str = "",
) -> Doubt | None:
    """Return what contradicts a guarantee in the noise of a release; None if nothing does, or nothing is known.

    A secret random sample of the records would explain noise that costs too much. So would rounding by whoever
    published the scales, or tables of disjoint groups, whose costs do not add up. A promise is therefore false in two
    cases only. One release of a mechanism of this library counts all records; or a sample of one record in a million
    would not explain the noise either.
    """
    if guarantee is None:
        return None
    counts_all = mechanism in _COUNT_ALL_RECORDS
    if not counts_all and guarantee.unit not in ("record", "person"):
        return None
    text = _dearer_than_promised(guarantee, noise, model, queries)
    groups = ""
    if text is not None and len(noise) > 1:
        groups = " or disjoint groups"
    if not queries:
        text = text or _plainer_than_promised(guarantee, noise, model, share=1.0)
        text = text or (_plainer_together(guarantee, noise, model) if counts_all else None)
    if text is None:
        return None
    is_false = counts_all or (
        not queries
        and _plainer_than_promised(guarantee, noise, model, share=_LEAST_SHARE) is not None
    )
    verdict = "the promise is false"
    if not is_false:
        verdict = (
            f"the promise is wrong, unless the counted records were a secret random sample{groups}"
        )
    return Doubt(f"{text}: {verdict}; ask whoever made the file.", is_false)


def _plainer_than_promised(
    guarantee: PrivacyGuarantee,
    noise: Sequence[Likelihood],
    model: ModelSpecification,
    *,
    share: float,
) -> str | None:
    r"""Return a text if one cell of a table shows a record more plainly than the guarantee of any form allows.

    The noisy count of a cell is at least one with probability :math:`p_1 = P(N \ge 0)` if the cell holds one record,
    and with probability :math:`p_0 = P(N \ge 1)` if it holds none, for noise N. If the record is in a secret sample
    with probability s, :math:`p_1` becomes :math:`p_0 + s (p_1 - p_0)`. Hence every guarantee has

    .. math:: s (p_1 - p_0) \le (e^\epsilon - 1) p_0 + \delta
        \qquad\text{or}\qquad 2 s^2 (p_1 - p_0)^2 \le \rho.

    The second holds because :math:`\rho` bounds the Kullback-Leibler divergence, and Pinsker's inequality bounds it
    from below. Under replace-one neighbors a record moves to the cell from another one.
    """
    if guarantee.adjacency is Adjacency.REPLACE_ONE:
        has_impossible = model.possible is not None
        noise = [
            law
            for law, shape in zip(noise, model.shapes, strict=True)
            if math.prod(shape) > 1 and not has_impossible
        ]
    for law in noise:
        if not _is_known(law):
            continue
        gap, below = _plainness(law)
        if guarantee.rho is not None:
            is_kept = 2 * (share * gap) ** 2 <= guarantee.rho * (1 + _ROUNDING)
        else:
            assert guarantee.epsilon is not None
            is_large = guarantee.epsilon > _LARGEST_EPSILON
            if is_large:
                most = math.inf
            else:
                most = math.expm1(guarantee.epsilon) * below + guarantee.delta
            is_kept = share * gap <= most * (1 + _ROUNDING)
        if not is_kept:
            name = f"{law.name} noise of scale {law.scale:.4g}"
            return f"the release promises {_numbers(guarantee)}, but {name} in a cell shows more of a record"
    return None


def _plainer_together(
    guarantee: PrivacyGuarantee, noise: Sequence[Likelihood], model: ModelSpecification
) -> str | None:
    r"""Return a text if all tables together show a record more plainly than a guarantee with a delta allows.

    If the cells of one record hold this record alone rather than none, all of their noisy counts are at least one
    with probability :math:`\prod_j p_{1j}` rather than :math:`\prod_j p_{0j}`, as in `_plainer_than_promised`. So

    .. math:: \prod_j p_{1j} \le e^\epsilon \prod_j p_{0j} + \delta.

    Under replace-one neighbors the record leaves other cells, whose counts are then at most zero with the same
    probabilities, so that both products are squared. A guarantee without delta is compared with the exact cost, by
    `_dearer_than_promised`.
    """
    is_moved = guarantee.adjacency is Adjacency.REPLACE_ONE
    has_free_cells = model.possible is None and min(map(math.prod, model.shapes), default=0) > 1
    is_known = all(map(_is_known, noise))
    if (
        guarantee.epsilon is None
        or not guarantee.delta
        or not is_known
        or (is_moved and not has_free_cells)
    ):
        return None
    chances = [(gap + below, below) for gap, below in map(_plainness, noise)]
    with np.errstate(divide="ignore"):
        present, absent = (1 + is_moved) * np.log(chances).sum(axis=0)
    most = math.exp(min(guarantee.epsilon + absent, 1.0)) + guarantee.delta
    if math.exp(present) <= most * (1 + _ROUNDING):
        return None
    return (
        f"the release promises {_numbers(guarantee)}, but its tables together show more of a record"
    )


def _is_known(law: Likelihood) -> bool:
    """Return True for added noise whose density has one of the two kernels with a known cost."""
    has_kernel = law.smooth in (LAPLACE, NORMAL) and not law.is_tabled
    return has_kernel and law.scale > 0


def _plainness(law: Likelihood) -> tuple[float, float]:
    """Return P(N >= 0) - P(N >= 1) and P(N >= 1) for noise N, which is symmetric."""
    if law.is_discrete:
        gap = math.exp(float(law.log_probability(0, 0)))
        # the difference cancels if the scale is small, and the sum lacks terms if it is large
        by_terms = float(np.exp(law.log_probability(np.arange(1, _TAIL_TERMS + 1), 0)).sum())
        return gap, max((1 - gap) / 2, by_terms)
    if law.smooth is LAPLACE:
        return -math.expm1(-1 / law.scale) / 2, math.exp(-1 / law.scale) / 2
    place = 1 / (law.scale * math.sqrt(2))
    return math.erf(place) / 2, math.erfc(place) / 2


def _numbers(guarantee: PrivacyGuarantee) -> str:
    if guarantee.rho is not None:
        return f"rho = {guarantee.rho:.4g}"
    text = f"epsilon = {guarantee.epsilon:.4g}"
    if guarantee.delta:
        return f"{text}, delta = {guarantee.delta:.4g}"
    return text


def _dearer_than_promised(
    guarantee: PrivacyGuarantee,
    noise: Sequence[Likelihood],
    model: ModelSpecification,
    queries: Sequence[Query],
) -> str | None:
    r"""Return a text if the noise costs more than the guarantee promises; None if it does not, or is unknown.

    Without `queries`, the measurements are the whole table of each clique. A record adds one to one cell of each
    table, for all data. Two records that differ in every table exist if each table has two cells and no cell is
    impossible. Hence :math:`\Delta_1 = 1`, or 2 under replace-one, and :math:`\Delta_2^2 = 1` or 2 are attained in
    all tables at once. Laplace noise of scales b costs exactly :math:`\sum \Delta_1 / b`, continuous or discrete.
    Normal noise of scales s costs exactly :math:`\sum \Delta_2^2 / 2 s^2` under zero-concentrated privacy; discrete
    noise attains this at whole orders. A release costs at least as much, unless its records were sampled in secret,
    because a person has at least one record.

    With `queries`, the sensitivity of the stacked answers, :math:`\sum_q \lVert \Delta_q \rVert_1 / b_q` or
    :math:`\sum_q \lVert \Delta_q \rVert_2^2 / 2 s_q^2`, takes this place if neighbors are known to attain it. If some
    cells are impossible, the neighbors that attain it may be impossible too, so that the cost is unknown.
    """
    if guarantee.delta > 0:
        return None
    if guarantee.adjacency is Adjacency.ADD_OR_REMOVE_ONE:
        moved = 1
    else:
        moved = 2
    has_impossible = model.possible is not None
    if queries and has_impossible:
        return None
    if (
        moved == 2
        and not queries
        and (has_impossible or min(map(np.prod, model.shapes), default=0) < 2)
    ):
        return None
    promised = guarantee.epsilon
    kernel = LAPLACE
    if guarantee.rho is not None:
        promised = guarantee.rho
        kernel = NORMAL
    is_one_kind = all(each.smooth is kernel and not each.is_tabled for each in noise)
    if promised is None or not noise or not is_one_kind:
        return None
    norm = 1 if kernel is LAPLACE else 2
    if queries:
        # noise beyond these limits, which `sensitivity` sets, costs far more or far less than any promise
        scales = np.clip([each.scale for each in noise], LEAST_SCALE, 1 / LEAST_SCALE).tolist()
        found = sensitivity(queries, model, norm=norm, adjacency=guarantee.adjacency, scales=scales)
        power = found.power if found.is_exact else 0.0
    else:
        power = sum(moved / each.scale**norm for each in noise)
    cost = power / norm
    if cost <= promised * (1 + _ROUNDING):
        return None
    return f"the release promises {_numbers(guarantee)}, but its noise alone costs {cost:.4g}"


# Name of the mechanism in the provenance of tables that somebody else published. Files contain it.
PUBLISHED = "tables published elsewhere"


def inherited(
    model: ModelSpecification,
    measurements: Sequence[Measurement],
    guarantee: PrivacyGuarantee | None,
    total: Any,
) -> dict[str, Any]:
    """Return guarantee, provenance and person rows of a release that is made of measurements of other releases.

    What is computed from releases alone keeps their joint guarantee, whatever is declared or fitted. A release from
    which several measurements come counts once. The guarantee is about data inside the declared domain; if structural
    zeros of a release are not declared in `model`, this domain is larger, and the guarantee is not stated.

    Parameters
    ----------
    model
        The declared model.
    measurements
        The measurements. A measurement of a release knows it; others are published elsewhere.
    guarantee
        The guarantee that the caller states; None for that of the releases.
    total
        The public number of records, beside which no add-or-remove-one guarantee is inherited.

    Warns
    -----
    GuaranteeWarning
        All measurements are of releases with a guarantee, but no guarantee can be stated.
    """
    origins = dict.fromkeys(each._origin for each in measurements)
    known = [each for each in origins if each is not None]
    made = [each.provenance for each in known]
    is_whole = len(known) == len(origins) > 0
    promises = [each.guarantee for each in known if each.guarantee is not None]
    if guarantee is None and is_whole and len(promises) == len(known):
        guarantee = _joint_guarantee(model, known, promises)
        if (
            total is not None
            and guarantee is not None
            and guarantee.adjacency is Adjacency.ADD_OR_REMOVE_ONE
        ):
            guarantee = None
    if is_whole and len(made) == 1:
        provenance = made[0]
    else:
        names = [
            name if count == 1 else f"{count} releases of {name}"
            for name, count in Counter(each.mechanism for each in made).items()
        ]
        provenance = Provenance(
            mechanism=" and ".join(dict.fromkeys([*names, *([] if is_whole else [PUBLISHED])])),
            simulated=any(each.simulated for each in made),
        )
    rules = [each.person_rows for each in known if each.person_rows is not None]
    # rows of the person with most rows depend on each other, whichever release they come from
    rule = max(rules, key=lambda each: (each.dependent, each.at_most), default=None)
    return {"guarantee": guarantee, "provenance": provenance, "person_rows": rule}


def _joint_guarantee(
    model: ModelSpecification, origins: Sequence[Origin], promises: Sequence[PrivacyGuarantee]
) -> PrivacyGuarantee | None:
    """Return the sum of the guarantees of releases; None, after a warning, if they have none in this model."""
    problem = "hold for records that respect `impossible`, which the new model does not declare"
    remedy = "declare the same `impossible`"
    if all(set(each.model.impossible) <= set(model.impossible) for each in origins):
        try:
            return compose(*promises)
        except PrivacyError as error:
            problem = f"cannot be added ({str(error).rstrip('.')})"
            remedy = "keep the releases apart"
    warn_caller(
        f"the guarantees of the releases from which these measurements were taken {problem}, so the new release "
        f"states none; {remedy}, or pass `guarantee=`.",
        GuaranteeWarning,
    )
    return None


def different(measurements: Sequence[Measurement]) -> list[Measurement]:
    """Return measurements without repetitions of the same noisy answers, which cost no further budget."""
    found: dict[Any, Measurement] = {}
    for each in measurements:
        found.setdefault((repr(each.query), each.values.tobytes(), each.noise), each)
    return list(found.values())


def whole_total(total: Any) -> int:
    """Return a public number of records as an integer."""
    is_number = isinstance(total, int | float | np.integer | np.floating) and not isinstance(
        total, bool
    )
    is_count = is_number and 0 <= total < 2**63 and total == int(total)
    must = "be a whole number of records, at least 0, or None"
    require(is_count, "total", must, total, "give the public number")
    return int(total)


def facts_of(release: Any) -> list[tuple[str, str]]:
    """Return the names and values that the text form of a `NoisyStatistics` shows."""
    if release.has_tables:
        kind = "tables"
        unit = "cells"
    else:
        kind = "queries"
        unit = "numbers"
    # the number of records: the public one, or an estimate with its standard error
    error = release.total_standard_error
    records = "unknown from the release"
    if release.total is not None:
        records = f"{release.total:,} (public)"
    elif math.isfinite(error):
        records = f"about {release.estimated_total:,.0f} ± {error:,.0f}, from the release"
    deviations = np.sqrt(release.cell_variances())
    spread = "none"
    if deviations.size:
        low = float(deviations.min())
        high = float(deviations.max())
        if math.isclose(low, high):
            spread = f"{low:.3g}"
        else:
            spread = f"{low:.3g} to {high:.3g}"
    return [
        ("mechanism", release.provenance.mechanism),
        ("variables", f"{len(release.specification.domain.variables)}"),
        (kind, f"{len(release.measurements)} ({release.flat.size:,} {unit})"),
        (
            "noise",
            f"{', '.join(sorted({each.name for each in release.noise}))}; sd {spread} records a cell",
        ),
        ("records", records),
        ("privacy", release.privacy_statement()),
    ]


def promise_sentence(guarantee: PrivacyGuarantee | None, rows: PersonRows | None) -> str:
    """Return the sentence about a guarantee, with the number of counted rows of a person if that is stated."""
    if guarantee is None:
        return "No privacy guarantee is stated for these tables."
    if guarantee.unit != "person" or rows is None:
        return guarantee.sentence()
    if rows.is_weighed:
        weighed = ", each of K rows with the weight 1/K"
    else:
        weighed = ""
    return (
        f"{guarantee.sentence()} Of one person's rows at most {rows.at_most} were counted{weighed}."
    )
