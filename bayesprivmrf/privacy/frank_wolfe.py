r"""What the steps of private Frank-Wolfe cost.

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

import numpy as np

from bayesprivmrf.checks import positive_finite
from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.privacy.guarantee import Adjacency, round_up
from bayesprivmrf.privacy.selection import ROUNDING

__all__ = ["Exposure", "atoms_range", "laplace_rho", "step_rho", "step_scale"]

_ROUNDINGS = 3  # of one choice of an atom: see `bayesprivmrf.learning.frank_wolfe.atoms.choose_atoms`
_PASSES = 64


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
        """One logistic regression a node, or several of one data set: each sees each record."""
        return cls(squares=regressions, choices=regressions)

    @classmethod
    def of_pairs(cls, cardinalities: tuple[int, ...]) -> Exposure:
        r"""One logistic regression for each pair of states of each node, seen by the records in either state.

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
        r"""One softmax regression a node, one choice for each state.

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
        Of the regressions.
    multiple
        :math:`\kappa`, the scale of a choice over the bound B of its regression's residuals.
    steps
        T.
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
    for widening in range(_PASSES):
        if not 0 < scale < math.inf:
            break
        if step_rho(exposure, scale, steps, adjacency) <= rho:
            return scale
        scale *= 1 + 2.0 ** (widening - 51)
    raise ArgumentError(
        f"`rho` must leave a noise scale that is a finite number above zero, got {rho!r} for {steps} steps; "
        "choose a budget nearer to one."
    )


def _reach(adjacency: Adjacency) -> int:
    return 4 if adjacency is Adjacency.REPLACE_ONE else 2


def laplace_rho(regressions: int, scale: float, bound: int, steps: int) -> float:
    r"""Return the cost, nats, rounded up, of choosing the largest of scores with discrete Laplace noise, replace-one.

    Fix the noise of all other atoms. One atom is chosen where its own noise is at least a whole number that depends
    on the others (ties go to the first in a public order). A neighbour moves its score by at most 2B one way and the
    others by at most 2B the other way, hence that number by at most 4B, and the probability by a factor of at most
    :math:`e^{\epsilon}`, :math:`\epsilon = 4 B / b`: two bounds, for the scores do not all move one way.
    A pure guarantee costs :math:`\epsilon^2 / 2`, at each step of each regression that is replaced.

    Parameters
    ----------
    regressions
        How many a record is in, counted with weights where it is not replaced but added or removed.
    scale
        b of the noise.
    bound
        B, of what one record's residual can be.
    steps
        How many choices each makes.
    """
    loss = Fraction(4 * bound) / Fraction(scale)
    return round_up(regressions * steps * loss * loss / 2)


def atoms_range(atoms: np.ndarray, bound: int, adjacency: Adjacency) -> int:
    r"""Return the range of the changes of scores :math:`-\langle s, g \rangle` over the given atoms.

    With g the sum of the records' gradients, whose entries are at most B in size, the changes of two atoms' scores
    differ by :math:`\langle s - s', g - g' \rangle \le \|s - s'\|_1 \|g - g'\|_\infty`, and
    :math:`\|g - g'\|_\infty` is at most B where a record is added or removed and 2B where it is replaced. For a
    Lipschitz loss B is the Lipschitz constant with respect to the l1 norm; for the atoms :math:`\pm R e_j` the range
    is the paper's :math:`\|C\|_1 L_1` twice or four times.

    Parameters
    ----------
    atoms
        Whole numbers, shape (atoms, d).
    bound
        B, of one record's gradient in each entry.
    adjacency
        The neighbouring relation.
    """
    atoms = np.asarray(atoms, dtype=np.int64)
    distance = max(int(np.abs(atoms - one).sum(axis=1).max()) for one in atoms)
    return distance * bound * (2 if adjacency is Adjacency.REPLACE_ONE else 1)
