"""Noise scales for a budget, rounded up until OpenDP's own privacy maps give no more than this budget."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache

from bayesprivmrf.checks import at_least, positive_finite, require, whole_number
from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.model.domain import listed
from bayesprivmrf.noise.kernels import LAPLACE
from bayesprivmrf.privacy import DiscreteGaussian, DiscreteLaplace

# Largest scale, records: with larger ones a noisy count could leave the 64-bit integers, which changes the noise
_LARGEST_SCALE = 1e12


def discrete_laplace_laws(
    shares: Sequence[float], epsilon: float, sensitivity: int
) -> tuple[DiscreteLaplace, ...]:
    r"""Return the discrete Laplace noise of each table, for a joint pure guarantee.

    Table C has L1 sensitivity :math:`\Delta` and scale :math:`b_C`. For neighbors whose tables are n and n',
    the likelihood ratio of each cell is :math:`e^{(|y - n'| - |y - n|)/b_C} \le e^{|n - n'|/b_C}`. So the joint
    loss is at most :math:`\sum_C \Delta / b_C`. With :math:`b_C = \Delta / (w_C \epsilon)` and shares
    :math:`w_C` that add up to one, this is :math:`\epsilon`.

    Parameters
    ----------
    shares
        :math:`w_C`, positive, one for each table.
    epsilon
        Joint budget, nats.
    sensitivity
        :math:`\Delta`, records: the L1 sensitivity of one table, a whole number.

    Returns
    -------
    tuple of DiscreteLaplace
        Scales rounded up.

    Raises
    ------
    ArgumentError
        A number is out of range or of the wrong type, the shares add up to more than one, or the budget is so
        small that a scale exceeds 10^12 records, or so large that it has no scale.
    """
    epsilon = positive_finite("epsilon", epsilon)
    sensitivity = whole_number("sensitivity", sensitivity, 1)
    parts = [share * epsilon for share in _checked(shares)]
    return _rounded_up(DiscreteLaplace, parts, "epsilon", epsilon, sensitivity)


def discrete_gaussian_laws(
    shares: Sequence[float], rho: float, sensitivity: float
) -> tuple[DiscreteGaussian, ...]:
    r"""Return the discrete Gaussian noise of each table, for a joint zero-concentrated guarantee.

    Discrete Gaussian noise of scale :math:`\sigma_C` on whole numbers moved by :math:`\Delta` in L2 costs
    :math:`\rho_C = \Delta^2 / (2 \sigma_C^2)` (Canonne, Kamath, Steinke 2020, Theorem 4 and Corollary 16), and
    costs add up over tables. With :math:`\sigma_C^2 = \Delta^2 / (2 w_C \rho)` and shares :math:`w_C` that add up to
    one, the joint cost is :math:`\rho`. For even shares over m tables this is the usual
    :math:`\sigma^2 = m \Delta^2 / (2 \rho)` for the joint sensitivity :math:`\sqrt{m} \Delta`.

    Parameters
    ----------
    shares
        :math:`w_C`, positive, one for each table.
    rho
        Joint budget, nats.
    sensitivity
        :math:`\Delta`, records: the L2 sensitivity of one table, rounded up.

    Returns
    -------
    tuple of DiscreteGaussian
        Scales rounded up.

    Raises
    ------
    ArgumentError
        A number is out of range or of the wrong type, the shares add up to more than one, or the budget is so
        small that a scale exceeds 10^12 records, or so large that it has no scale.
    """
    rho = positive_finite("rho", rho)
    sensitivity = positive_finite("sensitivity", sensitivity)
    parts = [math.sqrt(2 * share * rho) for share in _checked(shares)]
    return _rounded_up(DiscreteGaussian, parts, "rho", rho, sensitivity)


def promised_loss(
    laws: Sequence[DiscreteLaplace | DiscreteGaussian], sensitivity: float
) -> Fraction:
    """Return the exact sum, over tables, of the privacy loss by OpenDP's maps: epsilon or rho, nats.

    Parameters
    ----------
    laws
        The noise of each table.
    sensitivity
        Sensitivity of one table, records: in L1 (a whole number) for Laplace noise, in L2 for Gaussian noise.

    Raises
    ------
    ArgumentError
        A distribution is not discrete Laplace or Gaussian noise, or the sensitivity is out of range.

    Examples
    --------
    >>> float(promised_loss(discrete_laplace_laws([0.5, 0.5], 1.0, 1), 1))
    1.0
    """
    laws = listed("`laws`", laws, error=ArgumentError)
    try:
        kernels = {law.smooth for law in laws if law.measurement}
    except AttributeError:
        raise ArgumentError(
            "`laws` must be discrete Laplace or Gaussian noise, got another kind; see noise_laws."
        ) from None
    if LAPLACE in kernels:
        sensitivity = whole_number("sensitivity", sensitivity, most=2**53)
    else:
        sensitivity = at_least("sensitivity", sensitivity, 0.0)
    return sum((_promised(law, sensitivity) for law in laws), Fraction(0))


@lru_cache(maxsize=4096)
def _promised(law: DiscreteLaplace | DiscreteGaussian, sensitivity: float) -> Fraction:
    return Fraction(law.measurement().map(sensitivity))


def _rounded_up[LawT: (DiscreteLaplace, DiscreteGaussian)](
    law: Callable[[float], LawT],
    parts: Sequence[float],
    name: str,
    budget: float,
    sensitivity: float,
) -> tuple[LawT, ...]:
    """Return noise whose scales are the sensitivity over each part, or a little more to keep to the budget."""
    scales = [sensitivity / part if part > 0 else math.inf for part in parts]
    refuse_excess(name, budget, scales)
    laws = tuple(law(scale) for scale in scales)
    # a few passes are enough: each widens every scale by one more unit in its last place
    for widening in range(1, 64 + len(scales)):
        if promised_loss(laws, sensitivity) <= Fraction(budget):
            return laws
        laws = tuple(
            law(math.nextafter(scale * (1 + widening * 2.0**-52), math.inf)) for scale in scales
        )
    raise ArgumentError(
        f"the noise scales for a budget of {budget!r} must keep to it by OpenDP's own maps, but do not; "
        "choose a budget or shares nearer to one."
    )


def _checked(shares: Sequence[float]) -> list[float]:
    """Return checked shares: each positive, together at most one up to the rounding of a division."""
    given = listed("`shares`", shares, error=ArgumentError)
    checked = [
        positive_finite(f"shares[{position}]", share) for position, share in enumerate(given)
    ]
    is_one = sum(map(Fraction, checked)) <= 1 + len(checked) * Fraction(2) ** -52
    require(
        is_one, "shares", "add up to at most one", math.fsum(checked), "divide each by their sum"
    )
    return checked


def refuse_excess(
    name: str, budget: float, scales: Sequence[float], what: str = "table", least: float = 0.0
) -> None:
    """Raise an ArgumentError if a budget makes a noise scale too small or too large."""
    smallest = min(scales, default=1.0)
    largest = max(scales, default=1.0)
    must = f"give every {what} a noise scale above {f'{least:.0e} records' if least else 'zero'}"
    require(smallest > least, name, must, budget, "choose a smaller budget")
    several = {"table": "tables", "query": "queries"}[what]
    must = f"give every {what} a noise scale of at most {_LARGEST_SCALE:.0e} records"
    given = f"{budget!r} for {len(scales)} {several}"
    remedy = f"choose a larger budget or fewer {several}"
    require(largest <= _LARGEST_SCALE, name, must, given, remedy)
