r"""Learning tasks, and lower bounds with their constants: below so many records no private learner solves the task.

All are for replace-one neighbors and independent records; d is the number of pairs, :math:`\lfloor p/2 \rfloor`.

**Fingerprinting** (parameters; in place of Theorem 5.1, whose constant rests on a lemma for one form of privacy).
Pair i has coupling :math:`\operatorname{atanh} \mu_i`, so the product X of its spins has mean :math:`\mu_i`, uniform
in :math:`\pm a`, :math:`a = \tanh \lambda`. Let f be the tanh of what is learned, held to :math:`\pm a`: tanh and
clipping shrink distances, so :math:`\gamma^2 = E \|f - \mu\|^2 \le d \alpha^2` for root mean square error
:math:`\alpha` of the d couplings. With :math:`g(\mu) = E f`,
:math:`(1 - \mu^2) g' = E (f - \mu) \sum_r (X_r - \mu)`. Weighted by :math:`w = (a^2 - \mu^2)/(1 - \mu^2)` and
integrated by parts, the mean over :math:`\mu` is :math:`2 E \mu g \ge a^2/3 - E (f - \mu)^2`. Summed over pairs,

.. math:: \sum_r E\, T_r \ge d a^2/3 - \gamma^2, \qquad T_r = \sum_i w_i (f_i - \mu_i)(X_{ri} - \mu_i).

Put a fresh copy in place of record r: the same sum :math:`T_r'` then has mean 0 and a second moment of at most
:math:`a^4 \gamma^2`, for :math:`w^2 (1 - \mu^2) \le a^4`. Privacy holds the two together: under a chi-squared
divergence of at most :math:`s^2`, :math:`E T_r \le s a^2 \gamma`. Here :math:`s^2 = e^{2\rho} - 1` (Rényi order 2),
and :math:`s = 2 \sinh(\epsilon/2)` for pure privacy. Under :math:`(\epsilon, \delta)`, positive and negative part
of T give :math:`E T_r \le \sinh(\epsilon) E|T_r'| + 2 \delta \max|T|` and :math:`|T| \le 4 a^3 d`. Hence

.. math:: n \ge \frac{\sqrt d\,(1/3 - \alpha^2/a^2)}{\alpha s}, \qquad
    n \ge \frac{\sqrt d\,(1/3 - \alpha^2/a^2)}{\alpha \sinh\epsilon + 8 \delta a \sqrt d}.

For more states, an even number, all signs of a pair's table are equal, and the same holds.

**Packing** (Theorems 7.1 and 7.4). M models: the uniform one, and all with h groups, as in
benchmarks/papers/hard_instances.py of the repository. Who has error below :math:`\eta/2`, or finds the graph, tells
them apart; say with probability b each. Independent records of a member and of the uniform one can be drawn so that
each record differs with probability :math:`\tau`, the total variation.

- Pure privacy: :math:`P_0(S_c) \ge E e^{-\epsilon D} 1_{S_c}`, D binomial of mean :math:`n\tau`; by
  Jensen's inequality given :math:`S_c` it is at least :math:`b e^{-\epsilon n \min(1, \tau/b)}`. These are
  disjoint and add up to at most 1 - b, so :math:`n \ge \max(1, b/\tau) \log(b (M - 1)/(1 - b)) / \epsilon`.
- Zero-concentrated: D replaced records cost :math:`\rho D^2`, so by convexity what is learned has at most
  :math:`\rho E D^2 = \rho (n^2 \tau^2 + n \tau (1 - \tau))` nats of information on the member. By Fano's inequality
  it must have at least :math:`\log M - H(b) - (1 - b) \log(M - 1)`.
- No privacy: the information is at most n KL, KL that of a record of a member from a uniform one.

The best h, and for larger interactions the best size of a group, is taken. :math:`\tau` is bounded by
:math:`\sqrt{KL/2}` and :math:`\sqrt{1 - e^{-KL}}`, KL being the smaller of the two directions. A pure guarantee is
zero-concentrated too, and every learner needs what one without privacy needs; the largest bound counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from bayesprivmrf.checks import one_of, positive_finite, whole_number
from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.privacy import Adjacency, PrivacyGuarantee

type Goal = Literal["parameters", "structure"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    r"""A learning task: a class of Markov random fields and the accuracy asked for.

    Parameters
    ----------
    variables
        Number of variables p, at least 2.
    size
        For parameters, the allowed error :math:`\alpha` of a coupling, nats. For structure, the size :math:`\eta` of
        the smallest coupling of an edge, nats.
    goal
        ``"parameters"`` for all couplings, ``"structure"`` for the edges only.
    states
        Number of states k of every variable.
    order
        Largest number t of variables that interact; above 2 for variables with two states only.
    width
        Largest total size :math:`\lambda` of the couplings and field of a variable, nats.

    Raises
    ------
    ArgumentError
        A number is out of range, or an order above 2 has more than two states.
    """

    variables: int
    size: float
    goal: Goal = "parameters"
    states: int = 2
    order: int = 2
    width: float = 1.0

    def __post_init__(self) -> None:
        one_of("goal", self.goal, ("parameters", "structure"))
        whole_number("variables", self.variables, 2, remedy="one variable has no coupling")
        whole_number("states", self.states, 2)
        whole_number("order", self.order, 2, self.variables, remedy="2 is for couplings of pairs")
        if self.order > 2 and self.states > 2:
            raise ArgumentError(
                f"`order` must be 2 for more than two states, got {self.order!r}; leave it out."
            )
        for name in ("size", "width"):
            object.__setattr__(self, name, positive_finite(name, getattr(self, name)))


# The probability of success that the paper asks of a learner
SUCCESS = 2 / 3


def for_replacing(guarantee: PrivacyGuarantee | None) -> PrivacyGuarantee | None:
    """Return the equivalent guarantee for replace-one neighbors.

    Replacing a record is to remove one and to add one: twice epsilon, four times rho, 1 + e^epsilon times delta.
    """
    if guarantee is None or guarantee.adjacency is Adjacency.REPLACE_ONE:
        return guarantee
    common = {"adjacency": Adjacency.REPLACE_ONE, "unit": guarantee.unit}
    if guarantee.rho is not None:
        return PrivacyGuarantee(rho=4 * guarantee.rho, **common)
    assert guarantee.epsilon is not None
    delta = min((1 + math.exp(min(guarantee.epsilon, 700.0))) * guarantee.delta, 1 - 2**-53)
    return PrivacyGuarantee(epsilon=2 * guarantee.epsilon, delta=delta, **common)


def reach(guarantee: PrivacyGuarantee) -> float:
    """Return s, the largest change of a mean by one record, in standard deviations."""
    if guarantee.rho is not None:
        return math.sqrt(math.expm1(min(2 * guarantee.rho, 700.0)))
    assert guarantee.epsilon is not None
    epsilon = min(guarantee.epsilon, 700.0)
    if guarantee.delta:
        return math.sinh(epsilon)
    return 2 * math.sinh(epsilon / 2)


def fingerprinting_records(task: Task, guarantee: PrivacyGuarantee) -> float:
    r"""Return the number of records below which some couplings have a root mean square error above `task.size`.

    Parameters
    ----------
    task
        The goal must be parameters and the number of states even, otherwise the bound is 0.
    guarantee
        Any form, for replace-one neighbors.

    Examples
    --------
    >>> guarantee = PrivacyGuarantee(rho=0.5, adjacency=Adjacency.REPLACE_ONE)
    >>> round(fingerprinting_records(Task(variables=200, size=0.05), guarantee), 1)  # sqrt(100) / 3 / .05 / 1.31
    50.2
    """
    pairs = task.variables // 2
    largest = math.tanh(task.width)
    spare = 1 / 3 - (task.size / largest) ** 2
    if task.goal != "parameters" or task.states % 2 or spare <= 0:
        return 0.0
    slack = 8 * guarantee.delta * largest * math.sqrt(pairs)
    return math.sqrt(pairs) * spare / (task.size * reach(guarantee) + slack)


def divergences(size: float, states: int = 2, order: int = 2) -> tuple[float, float]:
    r"""Return the Kullback-Leibler divergences between the distribution of a group and the uniform one, nats.

    Among the :math:`k^s` cells, half of :math:`K = (2 \lfloor k/2 \rfloor)^s` have log-potential :math:`\eta` and
    half :math:`-\eta`; the others have 0. With :math:`z = 1 + (\cosh\eta - 1) K / k^s` they are
    :math:`K k^{-s} \eta \sinh(\eta) / z - \log z` and :math:`\log z`.
    """
    coupled = (2 * (states // 2) / states) ** order
    scale = math.exp(-size)  # a factor that keeps large sizes finite
    cosh = (1 + scale**2) / 2
    sinh = (1 - scale**2) / 2
    mean = coupled * cosh + (1 - coupled) * scale
    log_mean = size + math.log(mean)
    return max(coupled * size * sinh / mean - log_mean, 0.0), log_mean


def variation(divergence: float) -> float:
    """Return the smaller of Pinsker's and Bretagnolle and Huber's bounds on the total variation distance."""
    return min(math.sqrt(divergence / 2), math.sqrt(-math.expm1(-divergence)))


def fano_nats(log_others: float, success: float = SUCCESS) -> float:
    """Return the information, nats, that identifies one of M models with a given probability of success.

    Parameters
    ----------
    log_others
        The logarithm of M - 1.
    success
        The mean probability over the models, in (0, 1).
    """
    entropy = -success * math.log(success) - (1 - success) * math.log1p(-success)
    return float(np.logaddexp(0.0, log_others)) - entropy - (1 - success) * log_others


def log_members(variables: int, order: int, groups: int, signs: int = 0) -> float:
    r"""Return the logarithm of the number of models with a given number of groups.

    The groups can be chosen in :math:`p! / ((p - sh)!\, (s!)^h\, h!)` ways, and each has :math:`2^{\mathrm{signs}}`
    tables.

    Parameters
    ----------
    variables, order, groups
        p, s and h, with s h at most p.
    signs
        How many signs a table has; 0 for one table.
    """
    return (
        math.lgamma(variables + 1)
        - math.lgamma(variables - order * groups + 1)
        - groups * math.lgamma(order + 1)
        - math.lgamma(groups + 1)
        + groups * signs * math.log(2)
    )


def _packings(task: Task) -> Iterator[tuple[float, float, float]]:
    """Yield log(M - 1), the divergence of a record from the uniform distribution, and the total variation."""
    if task.goal == "parameters":
        size = 2 * task.size
    else:
        size = task.size
    if size > task.width:
        return
    for order in range(2, task.order + 1):
        forward, backward = divergences(size, task.states, order)
        if task.goal == "parameters":
            signs = (task.states // 2) ** order
        else:
            signs = 0
        most = task.variables // order
        for groups in sorted({round(most ** (step / 60)) for step in range(61)}):
            others = log_members(task.variables, order, groups, signs)
            yield others, groups * forward, variation(groups * min(forward, backward))


def packing_records(
    task: Task, guarantee: PrivacyGuarantee | None = None, success: float = SUCCESS
) -> float:
    """Return the number of records below which no learner succeeds on every member of a packing.

    Parameters
    ----------
    task
        The task: what is to be learned.
    guarantee
        For replace-one neighbors; ``None`` for a learner without privacy. An approximate guarantee counts as none,
        because the packings say nothing of it.
    success
        The probability of success that is asked for, of each member, in (0, 1).

    Examples
    --------
    >>> guarantee = PrivacyGuarantee(epsilon=0.1, adjacency=Adjacency.REPLACE_ONE)
    >>> round(packing_records(Task(variables=100, size=0.4, goal="structure"), guarantee))
    1886
    """
    if guarantee is None or guarantee.form == "approximate":
        return max([0.0, *(fano_nats(m, success) / kl for m, kl, _ in _packings(task))])
    rho = guarantee.to_zero_concentrated().rho
    assert rho is not None
    found = [_concentrated(fano_nats(m, success), tv, rho) for m, _, tv in _packings(task)]
    if guarantee.epsilon is not None:
        odds = math.log(success / (1 - success))
        found += [
            max(1.0, success / tv) * (m + odds) / guarantee.epsilon for m, _, tv in _packings(task)
        ]
    return max([0.0, *found])


def _concentrated(nats: float, tv: float, rho: float) -> float:
    """Return the solution n of rho (n^2 tv^2 + n tv (1 - tv)) = nats."""
    if nats <= 0:
        return 0.0
    half = (1 - tv) / 2
    return (nats / rho) / (tv * (half + math.sqrt(half**2 + nats / rho)))
