r"""Number of records needed to learn a model: lower bounds, and power laws fitted to measured errors.

`benchmarks/learning_law.py` fits

.. math:: \text{error}^2 = \frac{A \log p}{n} + \frac{B p^u}{(n \sqrt\rho)^v}

to ``benchmarks/results/learning.csv`` by least squares of logarithms. The error is the largest error of a coupling,
averaged over five Ising models with couplings of size 0.3 and random signs on random 3-regular graphs and on grids,
for replace-one neighbors, where that average is below 0.2. A fitted law is no bound. It says nothing about other
couplings, and little far from the data it was fitted to.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bayesprivmrf.checks import instance_of
from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.learning.lower_bounds import (
    SUCCESS,
    Goal,
    Task,
    fingerprinting_records,
    for_replacing,
    packing_records,
)
from bayesprivmrf.privacy import Adjacency, PrivacyGuarantee

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedLaw:
    """Fitted error of a mechanism as a function of records, variables and budget.

    Parameters
    ----------
    mechanism
        The mechanism, and the values of the settings that it needs.
    sampling, private
        Coefficients A and B.
    variables_power, total_power
        Exponents u and v.
    spread
        Standard deviation of the residuals of log mean errors.
    single
        Ratio to the law that the errors of 19 of 20 single populations stay below.
    """

    mechanism: str
    sampling: float
    private: float
    variables_power: float
    total_power: float
    spread: float
    single: float

    def error(self, variables: int, rho: float, total: float) -> float:
        """Return the expected error, nats, without a check of the ranges."""
        private = (
            self.private * variables**self.variables_power / (total * math.sqrt(rho)) ** self.total_power
        )
        return math.sqrt(self.sampling * math.log(variables) / total + private)

    def largest_error(self, task: Task) -> float:
        """Return the largest error that solves a task.

        For structure, edges are the couplings above half of the smallest, so 19 of 20 single errors must be below
        that half.
        """
        return task.size if task.goal == "parameters" else task.size / 2 / self.single

    def records_for(self, variables: int, rho: float, error: float) -> float:
        """Return the number of records for an expected error, without a check of the ranges."""
        low, high = 0.0, 200.0  # logarithms; the error falls with the records
        while high - low > 1e-9:
            middle = (low + high) / 2
            too_few = self.error(variables, rho, math.exp(middle)) > error
            low, high = (middle, high) if too_few else (low, middle)
        return math.exp(high)


# Smallest and largest fitted value, and the factor of extrapolation that is allowed beyond them
RANGES = {
    "variables": (10.0, 200.0, 4.0),
    "records": (3_000.0, 100_000.0, 4.0),
    "rho": (0.01, 10.0, 4.0),
    "width": (0.9, 1.2, 1.5),
    "error": (0.008, 0.2, 2.0),
    "coupling": (0.3, 0.3, 1.5),
}

# fitted by benchmarks/learning_samples.py
LAWS = (
    FittedLaw(
        mechanism="SelectMeasure(degree), told one neighbour more than there are",
        sampling=2.873,
        private=69.18,
        variables_power=1.149,
        total_power=2.0,
        spread=0.127,
        single=1.328,
    ),
    FittedLaw(
        mechanism="PrivateFrankWolfe(width), told the true width",
        sampling=3.941,
        private=2.643,
        variables_power=0.775,
        total_power=0.988,
        spread=0.108,
        single=1.196,
    ),
)


def stretch(task: Task, rho: float, total: float, error: float) -> tuple[str, bool]:
    """Return the inputs outside the fitted ranges, in words, and True if they are too far outside."""
    asked = {
        "variables": task.variables,
        "records": total,
        "rho": rho,
        "width": task.width,
        "error": error,
        "coupling": task.size if task.goal == "structure" else 0.3,
    }
    outside, is_far = [], False
    for name, (low, high, factor) in RANGES.items():
        ratio = max(low / asked[name], asked[name] / high)
        if ratio > 1:
            outside.append(f"{name} {asked[name]:.3g} (fitted {low:g} to {high:g})")
            is_far |= ratio > factor
    return ", ".join(outside), is_far


type Row = dict[str, Any]


def records_needed(
    variables: int,
    size: float,
    guarantee: PrivacyGuarantee | None = None,
    *,
    goal: Goal = "parameters",
    states: int = 2,
    order: int = 2,
    width: float = 1.0,
) -> pd.DataFrame:
    r"""Return the number of records needed to learn a Markov random field, by lower bounds and by measurement.

    Reads no data. docs/explanation/lower-bounds.md derives the lower bounds.

    Parameters
    ----------
    variables
        Number of variables p, at least 2.
    size
        For parameters, the allowed error :math:`\alpha` of a coupling, nats. For structure, the size :math:`\eta` of
        the smallest coupling of an edge, nats.
    guarantee
        Privacy guarantee, in any form; ``None`` for learning without privacy.
    goal
        ``"parameters"`` or ``"structure"``.
    states, order, width
        States k of a variable, largest number t of variables that interact, and the largest total size
        :math:`\lambda` of the couplings and field of a variable, nats.

    Returns
    -------
    DataFrame
        One row for each bound or law: ``kind`` (``"lower"`` or ``"measured"``), ``records`` (NaN without an answer),
        ``low`` and ``high`` (two standard deviations of the error about a fitted law; equal otherwise), ``constant``
        (``"proved"``, ``"fitted"`` or ``"extrapolated"``), ``source`` and ``says``.

    Raises
    ------
    ArgumentError
        A number is out of range, `guarantee` is not a guarantee, or an order above 2 has more than two states.

    Examples
    --------
    >>> from bayesprivmrf import planning
    >>> from bayesprivmrf.privacy import Adjacency, PrivacyGuarantee
    >>> promise = PrivacyGuarantee(rho=0.1, adjacency="replace-one")
    >>> table = planning.records_needed(50, 0.05, promise)
    >>> table.groupby("kind")["records"].min().round(-2).to_dict()
    {'lower': ..., 'measured': ...}
    """
    import pandas as pd

    if guarantee is not None:
        remedy = "write PrivacyGuarantee(rho=..., adjacency=...)"
        instance_of("guarantee", guarantee, PrivacyGuarantee, "be a PrivacyGuarantee or None", remedy)
    task = Task(variables=variables, size=size, goal=goal, states=states, order=order, width=width)
    rows: list[Row] = []
    for source, records, says in _bounds(task, for_replacing(guarantee)):
        said = says if records > 0 else "says nothing at this size, width and number of states"
        rows.append(
            {"kind": "lower", "records": records, "constant": "proved", "source": source, "says": said}
        )
    rows += _measured(task, guarantee)
    filled = [{"low": row["records"], "high": row["records"]} | row for row in rows]
    return pd.DataFrame(filled, columns=["kind", "records", "low", "high", "constant", "source", "says"])


def _bounds(task: Task, guarantee: PrivacyGuarantee | None) -> Iterator[tuple[str, float, str]]:
    names = "couplings" if task.goal == "parameters" else "graphs"
    said = f"to find all {names} with a probability of {SUCCESS:.3f}"
    yield "packing, no privacy", packing_records(task), said
    if guarantee is None:
        return
    if guarantee.form != "approximate":
        yield f"packing, {guarantee.form} privacy", packing_records(task, guarantee), said
    if task.goal == "parameters":
        source = f"fingerprinting, {guarantee.form} privacy"
        yield source, fingerprinting_records(task, guarantee), "for a root mean square error so small"


def _measured(task: Task, guarantee: PrivacyGuarantee | None) -> Iterator[Row]:
    rho = None if guarantee is None else rho_within(guarantee)
    if task.states > 2 or task.order > 2 or rho is None:
        return
    for law in LAWS:
        error = law.largest_error(task)
        records = law.records_for(task.variables, rho, error)
        outside, is_far = stretch(task, rho, records, error)
        row: Row = {
            "kind": "measured",
            "source": law.mechanism,
            "constant": "extrapolated" if outside else "fitted",
        }
        if is_far:
            yield row | {"records": math.nan, "says": f"too far from what was measured: {outside}"}
            continue
        factor = math.exp(2 * law.spread)
        low, high = (law.records_for(task.variables, rho, error * f) for f in (factor, 1 / factor))
        said = outside or "3-regular graphs and grids, couplings of size .3, two states"
        if task.goal == "structure":
            said += "; edges are couplings above half the size, all right in 19 of 20 models"
        if guarantee is not None and guarantee.adjacency is Adjacency.ADD_OR_REMOVE_ONE:
            said += "; measured for replace-one, whose noise is larger"
        yield row | {"records": records, "low": low, "high": high, "says": said}


def rho_within(guarantee: PrivacyGuarantee) -> float | None:
    """Return the rho that a zero-concentrated learner may spend, or ``None`` for a pure guarantee.

    Under an approximate guarantee it is the largest that implies it, to a millionth.
    """
    if guarantee.rho is not None:
        return guarantee.rho
    if guarantee.form == "pure":
        return None
    allowed = guarantee.epsilon
    assert allowed is not None

    def is_within(log_rho: float) -> bool:
        stated = PrivacyGuarantee(rho=math.exp(log_rho), adjacency=guarantee.adjacency)
        try:
            epsilon = stated.to_approximate(guarantee.delta).epsilon
        except ArgumentError:  # so large a rho that it has no epsilon
            return False
        assert epsilon is not None
        return epsilon <= allowed

    low, high = -60.0, math.log(max(allowed, 1e-20)) + 3
    if not is_within(low):
        return None
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (middle, high) if is_within(middle) else (low, middle)
    return math.exp(low)
