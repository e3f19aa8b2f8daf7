r"""A privacy filter: a total that is fixed in advance, charged before each step, however the steps were chosen.

Let the k-th step be :math:`\rho_k`-zCDP given the answers :math:`a` before it, where :math:`\rho_k(a)`, the kind of
step, and whether there is one at all are functions of those answers alone. For neighbours, and an order
:math:`\alpha > 1`, write :math:`L_k` for the likelihood ratio of the k-th answer. Given the answers before,
:math:`E'[L_k^\alpha] \le e^{\alpha (\alpha - 1) \rho_k}`, so that

.. math:: M_k = \exp\Bigl(-\alpha (\alpha - 1) \sum_{j \le k} \rho_j\Bigr) \prod_{j \le k} L_j^\alpha

is a supermartingale, and :math:`E'[M_k] \le 1`. If the filter sees to it that :math:`\sum_j \rho_j \le \rho` always,
then :math:`E'[\prod_j L_j^\alpha] \le e^{\alpha (\alpha - 1) \rho}` at the last step: all answers together are
:math:`\rho`-zCDP, as though the costs had been fixed in advance (Feldman and Zrnic 2021; Whitehouse et al. 2023).
The sum is exact, in fractions, so that rounding never hides a cost.
"""

from __future__ import annotations

from fractions import Fraction

from bayesprivmrf.errors import PrivacyError


class PrivacyFilter:
    """A total for zero-concentrated privacy, charged before each step.

    Parameters
    ----------
    total
        rho of all steps together, nats.
    """

    def __init__(self, total: float) -> None:
        self._total, self._spent = Fraction(total), Fraction(0)

    @property
    def left(self) -> float:
        """The budget that is left, nats, rounded down."""
        rest = self._total - self._spent
        found = float(rest)
        while Fraction(found) > rest:
            found = float(Fraction(found) * (1 - Fraction(1, 2**50)))
        return found

    @property
    def spent(self) -> Fraction:
        """The sum of all charges, nats, exactly."""
        return self._spent

    def charge(self, rho: float | Fraction) -> None:
        """Charge the next step, before it is run.

        Raises
        ------
        PrivacyError
            The step costs more than is left. Nothing was charged, and the step must not be run.
        """
        if not 0 <= Fraction(rho) <= self._total - self._spent:
            raise PrivacyError(
                f"a step of {float(rho)!r} nats must cost no more than the {self.left!r} that are left; take fewer."
            )
        self._spent += Fraction(rho)
