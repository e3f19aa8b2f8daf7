r"""Number of records needed to learn a model: power laws fitted to measured errors.

`benchmarks/learning_law.py` fits

.. math:: \text{error}^2 = \frac{A \log p}{n} + \frac{B p^u}{(n \sqrt\rho)^v}

to ``benchmarks/results/learning.csv`` by least squares of logarithms. The error is the largest error of a coupling,
averaged over five Ising models with couplings of size 0.3 and random signs on random 3-regular graphs and on grids,
for replace-one neighbors, where that average is below 0.2. A fitted law is no bound. It says nothing about other
couplings, and little far from the data it was fitted to. Lower bounds on the number of records, which hold for every
private learner, are in ``benchmarks/papers/lower_bounds.py`` of the repository.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from bayesprivmrf.checks import instance_of, one_of, positive_finite, require, whole_number
from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.privacy import Adjacency, PrivacyGuarantee

if TYPE_CHECKING:
    import pandas as pd

type Goal = Literal["parameters", "structure"]


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
            self.private
            * variables**self.variables_power
            / (total * math.sqrt(rho)) ** self.total_power
        )
        return math.sqrt(self.sampling * math.log(variables) / total + private)

    def largest_error(self, goal: Goal, size: float) -> float:
        """Return the largest error that reaches a goal.

        For structure, edges are the couplings above half of the smallest, so 19 of 20 single errors must be below
        that half.
        """
        if goal == "parameters":
            return size
        return size / 2 / self.single

    def records_for(self, variables: int, rho: float, error: float) -> float:
        """Return the number of records for an expected error, without a check of the ranges."""
        # logarithms; the error falls with the records
        low = 0.0
        high = 200.0
        while high - low > 1e-9:
            middle = (low + high) / 2
            too_few = self.error(variables, rho, math.exp(middle)) > error
            if too_few:
                low = middle
            else:
                high = middle
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
    r"""Return the number of records needed to learn a Markov random field, by laws fitted to measurements.

    Reads no data. docs/explanation/lower-bounds.md explains the laws, and derives lower bounds for every learner.

    Parameters
    ----------
    variables
        Number of variables p, at least 2.
    size
        For parameters, the allowed error :math:`\alpha` of a coupling, nats. For structure, the size :math:`\eta` of
        the smallest coupling of an edge, nats.
    guarantee
        Privacy guarantee; ``None`` for learning without privacy, which has no law.
    goal
        ``"parameters"`` for all couplings, ``"structure"`` for the edges only.
    states, order, width
        States k of a variable, largest number t of variables that interact, and the largest total size
        :math:`\lambda` of the couplings and field of a variable, nats.

    Returns
    -------
    DataFrame
        One row for each law: ``kind`` (``"measured"``), ``records`` (NaN without an answer), ``low`` and ``high``
        (two standard deviations of the error about a fitted law), ``constant`` (``"fitted"`` or
        ``"extrapolated"``), ``source`` (the mechanism) and ``says``.

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
    {'measured': ...}
    """
    import pandas as pd

    one_of("goal", goal, ("parameters", "structure"))
    whole_number("variables", variables, 2, remedy="one variable has no coupling")
    whole_number("states", states, 2)
    whole_number("order", order, 2, variables, remedy="2 is for couplings of pairs")
    require(
        order == 2 or states == 2, "order", "be 2 for more than two states", order, "leave it out"
    )
    size = positive_finite("size", size)
    width = positive_finite("width", width)
    if guarantee is not None:
        remedy = "write PrivacyGuarantee(rho=..., adjacency=...)"
        instance_of(
            "guarantee", guarantee, PrivacyGuarantee, "be a PrivacyGuarantee or None", remedy
        )
    if guarantee is None:
        rho = None
    else:
        rho = rho_within(guarantee)
    rows: list[dict[str, Any]] = []
    for law in LAWS:
        row = {
            "kind": "measured",
            "source": law.mechanism,
            "records": math.nan,
            "constant": "extrapolated",
        }
        if states > 2 or order > 2:
            rows.append(row | {"says": "only pairs of two-state variables were measured"})
        elif rho is None:
            rows.append(row | {"says": "only zero-concentrated privacy was measured"})
        else:
            answer = _by_law(law, variables, rho, goal, size, width)
            if guarantee is not None and guarantee.adjacency is Adjacency.ADD_OR_REMOVE_ONE:
                larger = "measured for replace-one, whose noise is larger"
                answer["says"] = f"{answer['says']}; {larger}"
            rows.append(row | answer)
    return pd.DataFrame(
        rows, columns=["kind", "records", "low", "high", "constant", "source", "says"]
    )


def _by_law(
    law: FittedLaw, variables: int, rho: float, goal: Goal, size: float, width: float
) -> dict[str, float | str]:
    """Return the number of records by one law, and the inputs outside the fitted ranges in words."""
    error = law.largest_error(goal, size)
    records = law.records_for(variables, rho, error)
    asked = {"variables": variables, "records": records, "rho": rho, "width": width, "error": error}
    if goal == "structure":
        asked["coupling"] = size
    outside = []
    is_far = False
    for name, value in asked.items():
        low, high, factor = RANGES[name]
        ratio = max(low / value, value / high)
        if ratio > 1:
            outside.append(f"{name} {value:.3g} (fitted {low:g} to {high:g})")
            is_far |= ratio > factor
    said = ", ".join(outside) or "3-regular graphs and grids, couplings of size .3, two states"
    if is_far:
        return {"says": f"too far from what was measured: {said}"}
    if goal == "structure":
        said += "; edges are couplings above half the size, all right in 19 of 20 models"
    factor = math.exp(2 * law.spread)
    low, high = (law.records_for(variables, rho, error * f) for f in (factor, 1 / factor))
    if outside:
        constant = "extrapolated"
    else:
        constant = "fitted"
    return {"records": records, "low": low, "high": high, "constant": constant, "says": said}


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

    low = -60.0
    high = math.log(max(allowed, 1e-20)) + 3
    if not is_within(low):
        return None
    while high - low > 1e-6:
        middle = (low + high) / 2
        if is_within(middle):
            low = middle
        else:
            high = middle
    return math.exp(low)
