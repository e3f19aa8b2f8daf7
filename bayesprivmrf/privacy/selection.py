r"""The privacy cost of choices by the exponential mechanism, and a filter for steps that depend on earlier answers.

`selection_rho` is the cost of single choices, and `step_rho` that of the steps of private Frank-Wolfe.

**Bounded range.** A choice among candidates with :math:`P(j) \propto e^{u_j / b}` has bounded range: if for neighbors
the differences :math:`u_j - u'_j` lie in an interval of length R (over j), all log-ratios of probabilities lie in an
interval of length :math:`R / b` that contains 0. A mechanism whose range is :math:`\eta` is :math:`\eta^2/8`-zCDP
(Cesar and Rogers 2021, by Hoeffding's lemma for the privacy loss, whose exponential has mean one). The costs of
choices in turn add up, also where each choice depends on earlier ones.

**Privacy filter.** A filter has a total that is fixed in advance, and is charged before each step, however the steps
are chosen. Let the k-th step be :math:`\rho_k`-zCDP given the answers :math:`a` before it. Its cost
:math:`\rho_k(a)`, its kind, and whether there is a step at all are functions of those answers alone. For neighbors,
and an order :math:`\alpha > 1`, let :math:`L_k` be the likelihood ratio of the k-th answer. Given the earlier
answers, :math:`E'[L_k^\alpha] \le e^{\alpha (\alpha - 1) \rho_k}`, so that

.. math:: M_k = \exp\Bigl(-\alpha (\alpha - 1) \sum_{j \le k} \rho_j\Bigr) \prod_{j \le k} L_j^\alpha

is a supermartingale, and :math:`E'[M_k] \le 1`. The filter ensures that always :math:`\sum_j \rho_j \le \rho`. Then
:math:`E'[\prod_j L_j^\alpha] \le e^{\alpha (\alpha - 1) \rho}` at the last step. So all answers together are
:math:`\rho`-zCDP, as if the costs had been fixed in advance (Feldman and Zrnic 2021; Whitehouse et al. 2023). The sum
of the costs is an exact fraction, so that rounding never hides a cost.

**Steps of private Frank-Wolfe.** A step makes one choice for each regression, among signed atoms, by the
exponential mechanism at scale :math:`b = \kappa B`. B is a public bound on the residual of any record in this
regression at this step. For a record with residual q and features f, :math:`|f_j| \le 1`, the score of an atom is a
sum of :math:`q\, s f_j`. So it moves by at most :math:`|q|` in either direction when the record is added or removed,
and by at most :math:`|q| + |q'|` when it is replaced. Both signs of each atom are candidates, so the range of the
change over atoms is at most

- :math:`2 |q| \le 2 B` under add-or-remove-one,
- :math:`2 (|q| + |q'|) \le 4 B` under replace-one,

The zero-concentrated cost is :math:`\sum_c \text{range}_c^2 / (8 b_c^2)` over the choices of a step, times the number
of steps. For each kind of regression, `Exposure` has the largest sum of :math:`(\text{range}_c / r B_c)^2`, where r
is 2 under add-or-remove-one and 4 under replace-one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from bayesprivmrf.checks import positive_finite, truth, whole_number
from bayesprivmrf.errors import ArgumentError, PrivacyError
from bayesprivmrf.privacy.guarantee import Adjacency, round_up

# Addition to the range of a choice by floating point, in scales: see `bayesprivmrf.noise.NoiseSource.choose_several`.
ROUNDING = 2.0**-39

# Relative widenings of a scale that costs too much because of rounding: from two roundings to a factor of 2^12.
_WIDENINGS = [2.0**power for power in range(-51, 13)]
# Relative step by which a float is lowered until it is at most an exact number.
_ROUND_DOWN = Fraction(1, 2**50)

# Standard deviation of Gumbel noise, in scales: the noise on the scores of a choice.
GUMBEL_DEVIATION = math.pi / math.sqrt(6)


def selection_rho(
    score_range: float, scale: float, choices: int = 1, *, at_once: bool = False
) -> float:
    r"""Return the zero-concentrated cost, nats, of choices by the exponential mechanism: :math:`T (R/b)^2 / 8`.

    Parameters
    ----------
    score_range
        R: the largest minus the smallest change of a candidate's score between neighbors. It is 2D if each score
        moves by at most D in either direction, and D if all move in the same direction, as counts do when a record is
        added.
    scale
        b, in the unit of the scores.
    choices
        T, the number of choices.
    at_once
        True if the choices are the T best of one draw of noise (`choose_several`), whose rounding costs more.

    Returns
    -------
    float
        Cost, rounded up. It includes `ROUNDING`, :math:`T^2` times where the choices are made at once.

    Raises
    ------
    ArgumentError
        A number is out of range or of the wrong type.
    """
    score_range = positive_finite("score_range", score_range)
    scale = positive_finite("scale", scale)
    choices = whole_number("choices", choices, 1)
    at_once = truth("at_once", at_once)
    loss = Fraction(score_range) / Fraction(scale) + Fraction(_rounding(choices, at_once))
    return round_up(choices * loss * loss / 8)


def _rounding(choices: int, at_once: bool) -> float:
    if at_once:
        return ROUNDING * choices**2
    return ROUNDING


def selection_scale(
    score_range: float, rho: float, choices: int = 1, *, at_once: bool = False
) -> float:
    r"""Return the scale :math:`b = R \sqrt{T / (8 \rho)}` at which choices cost no more than `rho`, rounded up.

    Parameters
    ----------
    score_range
        R: the largest minus the smallest change of a candidate's score between neighbors; 2D if each score moves by
        at most D in either direction.
    rho
        Budget of all choices together, nats, positive.
    choices
        T, the number of choices.
    at_once
        True if the choices are the T best of one draw of noise, whose rounding, :math:`T^2 2^{-39}` scales, b pays
        for.

    Returns
    -------
    float
        b, in the unit of the scores.

    Raises
    ------
    ArgumentError
        A number is out of range or of the wrong type, or the budget is so large that no scale above zero keeps to
        it with the rounding.
    """
    choices = whole_number("choices", choices, 1)
    at_once = truth("at_once", at_once)
    rho = positive_finite("rho", rho)
    score_range = positive_finite("score_range", score_range)
    slack = math.sqrt(8 * rho / choices) - _rounding(choices, at_once)
    if slack > 0:
        scale = score_range / slack
    else:
        scale = math.inf

    def cost(wider: float) -> float:
        return selection_rho(score_range, wider, choices, at_once=at_once)

    return widened(scale, cost, rho, f"{choices} choices")


def widened(scale: float, cost: Callable[[float], float], rho: float, what: str) -> float:
    """Return a scale that costs no more than `rho`: the given one, or a slightly larger one because of rounding.

    Raises
    ------
    ArgumentError
        The scale is not a finite number above zero.
    """
    for widening in _WIDENINGS:
        if not 0 < scale < math.inf:
            break
        if cost(scale) <= rho:
            return scale
        scale *= 1 + widening
    raise ArgumentError(
        f"`rho` must leave {what} a finite noise scale, got {rho!r}; choose a budget nearer to one."
    )


class PrivacyFilter:
    """Budget for zero-concentrated privacy that is fixed in advance and charged before each step.

    Parameters
    ----------
    total
        rho of all steps together, nats.

    Examples
    --------
    >>> budget = PrivacyFilter(1.0)
    >>> budget.charge(0.25)
    >>> budget.left
    0.75
    """

    def __init__(self, total: float) -> None:
        self._total = Fraction(total)
        self._spent = Fraction(0)

    @property
    def left(self) -> float:
        """Remaining budget, nats, rounded down."""
        rest = self._total - self._spent
        found = float(rest)
        while Fraction(found) > rest:
            found = float(Fraction(found) * (1 - _ROUND_DOWN))
        return found

    @property
    def spent(self) -> Fraction:
        """Exact sum of all charges, nats."""
        return self._spent

    def charge(self, rho: float | Fraction) -> None:
        """Charge the cost of the next step, nats, before the step is run.

        Raises
        ------
        PrivacyError
            The step costs more than the remaining budget. Nothing was charged, and the step must not be run.
        """
        if not 0 <= Fraction(rho) <= self._total - self._spent:
            raise PrivacyError(
                f"a step must cost at most the {self.left!r} nats that remain, got {float(rho)!r}; plan fewer steps."
            )
        self._spent += Fraction(rho)


# Roundings in one choice of an atom: see `bayesprivmrf.mechanisms.frank_wolfe.choices.choose_atoms`
_ROUNDINGS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Exposure:
    r"""Influence of one record on the choices of a step.

    Parameters
    ----------
    squares
        Largest :math:`\sum_c (\text{range}_c / r B_c)^2`, with r = 4 under replace-one and 2 under add-or-remove-one.
    choices
        Number of choices in a step.
    """

    squares: int
    choices: int

    @classmethod
    def of_logistic(cls, regressions: int) -> Exposure:
        """Return the exposure of logistic regressions, each of which uses every record: one for each node, say."""
        return cls(squares=regressions, choices=regressions)

    @classmethod
    def of_pairs(cls, cardinalities: tuple[int, ...]) -> Exposure:
        r"""Return the exposure of logistic regressions for each two states of a node, on records in either state.

        A node of k states has k (k - 1)/2 regressions. Adding a record affects the k - 1 regressions of its state. A
        replacement that keeps the state affects k - 1 regressions. A replacement of a by a' affects the regression of
        {a, a'} in full. It also removes the record from k - 2 regressions and adds it to k - 2 others, in each of
        which the range is half of r B: together :math:`1 + 2 (k - 2)/4 = k/2 \le k - 1` squares.
        """
        return cls(
            squares=sum(k - 1 for k in cardinalities),
            choices=sum(k * (k - 1) // 2 for k in cardinalities),
        )

    @classmethod
    def of_softmax(cls, cardinalities: tuple[int, ...]) -> Exposure:
        r"""Return the exposure of one softmax regression for each node, with one choice for each state.

        The residual :math:`q = \pi - e_y` sums to 0, and :math:`q_c \ge 0` except for c = y, so
        :math:`\|q\|^2 \le 2 q_y^2 \le 2 B^2`. Under add-or-remove-one :math:`\sum_c (2 |q_c|)^2 \le 8 B^2`, which is
        two squares of 2B. Under replace-one
        :math:`\sum_c (2 |q_c| + 2 |q'_c|)^2 \le 4 (\|q\| + \|q'\|)^2 \le 32 B^2`, which is two squares of 4B and is
        attained by :math:`q = (-B, B, 0, ...)` and :math:`q' = (B, -B, 0, ...)`.
        """
        nodes = [k for k in cardinalities if k > 1]
        return cls(squares=2 * len(nodes), choices=sum(nodes))


def step_rho(exposure: Exposure, multiple: float, steps: int, adjacency: Adjacency) -> float:
    r"""Return the zero-concentrated cost of all steps, nats, rounded up.

    With :math:`\epsilon` the rounding of one choice, in scales,

    .. math:: \frac{T}{8} \sum_c \Bigl(\frac{\text{range}_c}{\kappa B_c} + \epsilon\Bigr)^2
        \le \frac{T}{8} \Bigl(\frac{r}{\kappa} \sqrt{\text{squares}} + \epsilon \sqrt{\text{choices}}\Bigr)^2 .

    Parameters
    ----------
    exposure
        Exposure of the regressions.
    multiple
        :math:`\kappa`, the scale of a choice divided by the bound B on the residuals of its regression.
    steps
        T, the number of steps.
    adjacency
        The neighboring relation.
    """
    reach = _reach(adjacency) / Fraction(multiple)
    rounding = _ROUNDINGS * Fraction(ROUNDING)
    mixed = math.isqrt(exposure.squares * exposure.choices) + 1  # an upper bound of the square root
    square = (
        reach**2 * exposure.squares + 2 * reach * rounding * mixed + rounding**2 * exposure.choices
    )
    return round_up(steps * square / 8)


def step_scale(exposure: Exposure, rho: float, steps: int, adjacency: Adjacency) -> float:
    r"""Return the multiple :math:`\kappa = r \sqrt{T\, \text{squares} / (8 \rho)}`, rounded up to keep to the budget.

    Under replace-one this is :math:`\sqrt{2 T\, \text{squares} / \rho}`, under add-or-remove-one half of it.

    Parameters
    ----------
    exposure
        Exposure of the regressions.
    rho
        Budget of all steps together, nats, positive.
    steps
        T, the number of steps.
    adjacency
        The neighboring relation.

    Raises
    ------
    ArgumentError
        The budget is out of range, or so large that no scale above zero keeps to it with the rounding.
    """
    rho = positive_finite("rho", rho)
    slack = math.sqrt(8 * rho / steps) - _ROUNDINGS * ROUNDING * math.sqrt(exposure.choices)
    if slack > 0:
        scale = _reach(adjacency) * math.sqrt(exposure.squares) / slack
    else:
        scale = math.inf
    return widened(
        scale, lambda wider: step_rho(exposure, wider, steps, adjacency), rho, f"{steps} steps"
    )


def _reach(adjacency: Adjacency) -> int:
    if adjacency is Adjacency.REPLACE_ONE:
        return 4
    return 2
