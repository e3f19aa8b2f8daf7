r"""The cost of the steps of private Frank-Wolfe.

A step makes one choice a regression, among signed atoms, by the exponential mechanism at scale :math:`b = \kappa B`,
with B a public bound of what one record's residual can be in this regression at this step. For a record with
residual q and features f, :math:`|f_j| \le 1`, the score of an atom is a sum of :math:`q\, s f_j`, so that it moves
by at most :math:`|q|` either way when the record is added or removed, and by :math:`|q| + |q'|` when it is replaced;
both signs of each atom are candidates. So the range of the change over atoms is at most

- :math:`2 |q| \le 2 B` under add-or-remove-one,
- :math:`2 (|q| + |q'|) \le 4 B` under replace-one,

and :math:`\sum_c \text{range}_c^2 / (8 b_c^2)` over the choices of a step, times the number of steps, is the
zero-concentrated cost. `Exposure` counts, for each kind of regression, how many times the square of the largest
range the sum is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from bayesprivmrf.checks import positive_finite
from bayesprivmrf.privacy.guarantee import Adjacency, round_up
from bayesprivmrf.privacy.selection import ROUNDING, widened

_ROUNDINGS = 3  # of one choice of an atom: see `bayesprivmrf.learning.frank_wolfe.atoms.choose_atoms`


@dataclass(frozen=True, slots=True, kw_only=True)
class Exposure:
    r"""How far one record reaches into the choices of a step.

    Parameters
    ----------
    squares
        Largest :math:`\sum_c (\text{range}_c / r B_c)^2`, with r = 4 under replace-one and 2 under add-or-remove-one.
    choices
        Choices that a step makes.
    """

    squares: int
    choices: int

    @classmethod
    def of_logistic(cls, regressions: int) -> Exposure:
        """Return the exposure of logistic regressions of one data set, such as one a node: each sees each record."""
        return cls(squares=regressions, choices=regressions)

    @classmethod
    def of_pairs(cls, cardinalities: tuple[int, ...]) -> Exposure:
        r"""Return the exposure of logistic regressions for each two states of a node, on records in either state.

        A node of k states has k (k - 1)/2 regressions. Adding a record touches the k - 1 of its state. Replacing one
        that stays in its state replaces it in k - 1. One that goes from a to a' is replaced in the regression of
        {a, a'}, leaves k - 2 others and joins k - 2 more, in each of which the range is half of r B: together
        :math:`1 + 2 (k - 2)/4 = k/2 \le k - 1` squares.
        """
        return cls(
            squares=sum(k - 1 for k in cardinalities),
            choices=sum(k * (k - 1) // 2 for k in cardinalities),
        )

    @classmethod
    def of_softmax(cls, cardinalities: tuple[int, ...]) -> Exposure:
        r"""Return the exposure of one softmax regression a node, with one choice for each state.

        The residual :math:`q = \pi - e_y` has :math:`q_c \ge 0` but for c = y and adds to 0, so
        :math:`\|q\|^2 \le 2 q_y^2 \le 2 B^2`. Under add-or-remove-one :math:`\sum_c (2 |q_c|)^2 \le 8 B^2`, two
        squares of 2B. Under replace-one :math:`\sum_c (2 |q_c| + 2 |q'_c|)^2 \le 4 (\|q\| + \|q'\|)^2 \le 32 B^2`,
        two squares of 4B, attained by :math:`q = (-B, B, 0, ...)` and :math:`q' = (B, -B, 0, ...)`.
        """
        nodes = [k for k in cardinalities if k > 1]
        return cls(squares=2 * len(nodes), choices=sum(nodes))


def step_rho(exposure: Exposure, multiple: float, steps: int, adjacency: Adjacency) -> float:
    r"""Return the cost of all steps, nats, rounded up.

    With :math:`\epsilon` for the rounding of one choice, in scales,

    .. math:: \frac{T}{8} \sum_c \Bigl(\frac{\text{range}_c}{\kappa B_c} + \epsilon\Bigr)^2
        \le \frac{T}{8} \Bigl(\frac{r}{\kappa} \sqrt{\text{squares}} + \epsilon \sqrt{\text{choices}}\Bigr)^2 .

    Parameters
    ----------
    exposure
        Exposure of the regressions.
    multiple
        :math:`\kappa`, the scale of a choice over the bound B of its regression's residuals.
    steps
        T, the number of steps.
    adjacency
        The neighbouring relation.
    """
    reach = _reach(adjacency) / Fraction(multiple)
    rounding = _ROUNDINGS * Fraction(ROUNDING)
    mixed = math.isqrt(exposure.squares * exposure.choices) + 1  # at least the root
    square = reach**2 * exposure.squares + 2 * reach * rounding * mixed + rounding**2 * exposure.choices
    return round_up(steps * square / 8)


def step_scale(exposure: Exposure, rho: float, steps: int, adjacency: Adjacency) -> float:
    r"""Return the multiple :math:`\kappa = r \sqrt{T\, \text{squares} / (8 \rho)}`, rounded up to keep to the budget.

    Under replace-one this is :math:`\sqrt{2 T\, \text{squares} / \rho}`, under add-or-remove-one half of it.

    Raises
    ------
    ArgumentError
        The budget is out of range, or so large that no scale above zero keeps to it with the rounding.
    """
    rho = positive_finite("rho", rho)
    slack = math.sqrt(8 * rho / steps) - _ROUNDINGS * ROUNDING * math.sqrt(exposure.choices)
    scale = _reach(adjacency) * math.sqrt(exposure.squares) / slack if slack > 0 else math.inf
    return widened(scale, lambda wider: step_rho(exposure, wider, steps, adjacency), rho, f"{steps} steps")


def _reach(adjacency: Adjacency) -> int:
    return 4 if adjacency is Adjacency.REPLACE_ONE else 2
