r"""The privacy cost of the steps of private Frank-Wolfe.

A step makes one choice for each regression, among signed atoms, by the exponential mechanism at scale
:math:`b = \kappa B`. B is a public bound on the residual of any record in this regression at this step. For a record
with residual q and features f, :math:`|f_j| \le 1`, the score of an atom is a sum of :math:`q\, s f_j`. So it moves
by at most :math:`|q|` in either direction when the record is added or removed, and by at most :math:`|q| + |q'|` when
it is replaced. Both signs of each atom are candidates, so the range of the change over atoms is at most

- :math:`2 |q| \le 2 B` under add-or-remove-one,
- :math:`2 (|q| + |q'|) \le 4 B` under replace-one,

The zero-concentrated cost is :math:`\sum_c \text{range}_c^2 / (8 b_c^2)` over the choices of a step, times the number
of steps. For each kind of regression, `Exposure` has the largest sum of :math:`(\text{range}_c / r B_c)^2`, where r
is 2 under add-or-remove-one and 4 under replace-one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from bayesprivmrf.checks import positive_finite
from bayesprivmrf.privacy.guarantee import Adjacency, round_up
from bayesprivmrf.privacy.selection import ROUNDING, widened

# Roundings in one choice of an atom: see `bayesprivmrf.learning.frank_wolfe.atoms.choose_atoms`
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
    square = reach**2 * exposure.squares + 2 * reach * rounding * mixed + rounding**2 * exposure.choices
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
    scale = _reach(adjacency) * math.sqrt(exposure.squares) / slack if slack > 0 else math.inf
    return widened(scale, lambda wider: step_rho(exposure, wider, steps, adjacency), rho, f"{steps} steps")


def _reach(adjacency: Adjacency) -> int:
    return 4 if adjacency is Adjacency.REPLACE_ONE else 2
