"""Privacy guarantees as frozen values: form, numbers, neighboring relation and privacy unit."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from decimal import ROUND_CEILING, Context
from fractions import Fraction
from typing import Any, Literal

from bayesprivmrf.checks import instance_of, positive_finite, probability, require, truth
from bayesprivmrf.errors import ArgumentError, PrivacyError
from bayesprivmrf.escapes import printable

type Form = Literal["pure", "zero-concentrated", "approximate"]


class Adjacency(enum.Enum):
    """The neighboring relation: which pairs of data sets a release must make hard to tell apart.

    Under ``ADD_OR_REMOVE_ONE`` one data set has one unit more than the other, so the number of units is protected as
    well. Under ``REPLACE_ONE`` both have the same, public, number of units, and they differ in one unit.

    Examples
    --------
    >>> Adjacency("replace-one")
    <Adjacency.REPLACE_ONE: 'replace-one'>
    """

    ADD_OR_REMOVE_ONE = "add-or-remove-one"
    REPLACE_ONE = "replace-one"

    @classmethod
    def checked(cls, value: Any) -> Adjacency:
        """Return a member from a member or its name; anything else raises an ArgumentError."""
        try:
            return cls(value)
        except ValueError:
            raise ArgumentError(
                f"`adjacency` must be 'add-or-remove-one' or 'replace-one', got {value!r}."
            ) from None


def round_up(exact: Fraction) -> float:
    """Return the smallest float that is not below an exact rational number."""
    try:
        nearest = float(exact)
    except OverflowError:
        return math.inf
    if Fraction(nearest) >= exact:
        return nearest
    return math.nextafter(nearest, math.inf)


def root_up(squared: float) -> float:
    """Return the square root of a number, rounded up to a float."""
    root = math.sqrt(squared)
    if Fraction(root) ** 2 >= Fraction(squared):
        return root
    return math.nextafter(root, math.inf)


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivacyGuarantee:
    r"""A differential-privacy guarantee: one of three forms, a neighboring relation and a unit.

    For all neighboring data sets D, D' inside the declared domain and all sets S of outputs,

    - pure: :math:`P(M(D) \in S) \le e^{\epsilon} P(M(D') \in S)`;
    - approximate: :math:`P(M(D) \in S) \le e^{\epsilon} P(M(D') \in S) + \delta`;
    - zero-concentrated: :math:`D_\alpha(M(D) \| M(D')) \le \rho \alpha` for every order :math:`\alpha > 1`
      of the Rényi divergence.

    Parameters
    ----------
    epsilon
        Privacy loss, nats: positive, or zero where ``delta`` is positive. ``None`` for the zero-concentrated form.
    delta
        Probability in [0, 1); positive means the approximate form.
    rho
        Parameter of the zero-concentrated form, nats, positive; ``None`` for the other forms.
    adjacency
        The neighboring relation.
    unit
        The protected unit of the data: ``"record"``, ``"person"`` or ``"node's outcome"``, for instance.

    Raises
    ------
    ArgumentError
        A number is out of range, or the form is not exactly one of the three.

    References
    ----------
    Dwork, Roth 2014, Definition 2.4. Bun, Steinke 2016, Definition 1.1.

    Examples
    --------
    >>> PrivacyGuarantee(epsilon=1.0, adjacency=Adjacency.ADD_OR_REMOVE_ONE).form
    'pure'
    """

    epsilon: float | None = None
    delta: float = 0.0
    rho: float | None = None
    adjacency: Adjacency
    unit: str = "record"

    def __post_init__(self) -> None:
        set_field = object.__setattr__
        set_field(self, "adjacency", Adjacency.checked(self.adjacency))
        set_field(self, "delta", probability("delta", self.delta, zero=True))
        given = f"{self.epsilon!r} and {self.rho!r}"
        remedy = "`rho` alone states zero-concentrated privacy"
        is_one = (self.epsilon is None) != (self.rho is None)
        require(is_one, "exactly one of `epsilon` and `rho`", "be given", given, remedy)
        if self.rho is not None:
            set_field(self, "rho", positive_finite("rho", self.rho))
            require(
                self.delta == 0,
                "delta",
                "be 0 beside `rho`",
                self.delta,
                "convert to one form first",
            )
        elif not (self.delta > 0 and type(self.epsilon) in {int, float} and self.epsilon == 0):
            set_field(self, "epsilon", positive_finite("epsilon", self.epsilon))
        is_text = (
            isinstance(self.unit, str) and self.unit.strip() and printable(self.unit) == self.unit
        )
        must = "name the privacy unit on one line"
        remedy = "write 'record' or 'person'"
        require(is_text, "unit", must, repr(self.unit), remedy)

    @property
    def form(self) -> Form:
        """Form of the guarantee: ``"pure"``, ``"zero-concentrated"`` or ``"approximate"``."""
        if self.rho is not None:
            return "zero-concentrated"
        if self.delta > 0:
            return "approximate"
        return "pure"

    def _with(self, **numbers: float) -> PrivacyGuarantee:
        return PrivacyGuarantee(adjacency=self.adjacency, unit=self.unit, **numbers)

    def to_approximate(self, delta: float) -> PrivacyGuarantee:
        r"""Return the smallest (epsilon, delta) guarantee at a given delta that this one implies.

        From the zero-concentrated form, OpenDP's privacy-profile map gives it (the bound of Canonne, Kamath
        and Steinke 2020, Corollary 13, which minimizes over the Rényi order).

        From :math:`(\epsilon, \delta_0)`, which is pure where :math:`\delta_0 = 0`: every such pair of output
        distributions is a post-processing of one mechanism. This mechanism shows its input with probability
        :math:`\delta_0`, and otherwise answers by randomized response, truthfully with odds :math:`e^{\epsilon}`. At
        :math:`\epsilon' \le \epsilon` its best event is "shown, or answered yes", so

        .. math:: \delta(\epsilon') = \delta_0
            + (1 - \delta_0) \frac{e^{\epsilon} - e^{\epsilon'}}{1 + e^{\epsilon}},

        which is solved for :math:`\epsilon'`. No smaller value is implied by the guarantee alone.

        Parameters
        ----------
        delta
            Second parameter of the result, in (0, 1), and at least the guarantee's own delta.

        Returns
        -------
        PrivacyGuarantee
            Approximate form, same relation and unit; epsilon rounded up.

        Raises
        ------
        ArgumentError
            ``delta`` is not in (0, 1), or rho is too large to be converted.
        PrivacyError
            ``delta`` is below the guarantee's own.

        References
        ----------
        Kairouz, Oh, Viswanath 2015, Theorem 3.1 (randomized response dominates).
        """
        delta = probability("delta", delta, zero=False)
        if self.rho is not None:
            return self._with(epsilon=_zero_concentrated_epsilon(self.rho, delta), delta=delta)
        must = f"be at least the guarantee's own {self.delta!r}"
        remedy = "a smaller delta is not implied at any epsilon"
        require(delta >= self.delta, "delta", must, delta, remedy, error=PrivacyError)
        assert self.epsilon is not None
        spare = (delta - self.delta) / (1.0 - self.delta)
        return self._with(epsilon=_randomized_response_epsilon(self.epsilon, spare), delta=delta)

    def to_zero_concentrated(self) -> PrivacyGuarantee:
        r"""Return the smallest zero-concentrated guarantee that a pure one implies, rho = epsilon tanh(epsilon/2).

        Randomized response with odds :math:`e^{\epsilon}` dominates every :math:`\epsilon`-private pair. With
        :math:`x = \alpha - 1/2` its Rényi divergence is

        .. math:: (\alpha - 1) D_\alpha = f(x^2) - f(1/4), \qquad
            f(u) = \log \cosh(\epsilon \sqrt u).

        :math:`f` is concave, because :math:`f'(u) = \epsilon \tanh(\epsilon \sqrt u) / (2 \sqrt u)` is decreasing. So
        f lies below its tangent at 1/4, whose slope is :math:`\epsilon \tanh(\epsilon/2)`. As
        :math:`x^2 - 1/4 = \alpha (\alpha - 1)`, it follows that
        :math:`D_\alpha \le \alpha\, \epsilon \tanh(\epsilon/2)`, with equality as :math:`\alpha \to 1`. This is below
        the customary :math:`\epsilon^2 / 2`.

        Returns
        -------
        PrivacyGuarantee
            Zero-concentrated form, rho rounded up; the guarantee itself if it already has this form.

        Raises
        ------
        PrivacyError
            The guarantee is approximate, which implies no zero-concentrated one.
        ArgumentError
            Rho would be larger than any float.
        """
        if self.form == "zero-concentrated":
            return self
        must = "be 0 for a zero-concentrated guarantee"
        remedy = "compose in the approximate form instead"
        require(self.delta == 0, "delta", must, self.delta, remedy, error=PrivacyError)
        assert self.epsilon is not None
        tight = self.epsilon * math.tanh(self.epsilon / 2) * ROUND_UP
        # infinite, not an error, where it overflows
        customary = self.epsilon * self.epsilon / 2 * ROUND_UP
        return self._with(rho=max(min(tight, customary), math.nextafter(0.0, 1.0)))

    def sentence(self) -> str:
        """Return one sentence for a paper: form, numbers, relation, unit, and the data to which it applies.

        Numbers have six digits and are rounded up, so that the sentence never promises more than the guarantee.
        """
        if self.rho is not None:
            promise = f"zero-concentrated differential privacy with rho = {_shown(self.rho)}"
        elif self.delta > 0:
            numbers = f"epsilon = {_shown(self.epsilon)}, delta = {_shown(self.delta)}"
            promise = f"approximate differential privacy with {numbers}"
        else:
            promise = f"pure differential privacy with epsilon = {_shown(self.epsilon)}"
        if self.adjacency is Adjacency.REPLACE_ONE:
            relation = (
                f"that differ in the replacement of one {self.unit}, their number being public"
            )
        else:
            relation = f"that differ in the addition or removal of one {self.unit}"
        return (
            f"The release satisfies {promise} for data sets {relation}; "
            "the guarantee is for data inside the declared domain."
        )

    def as_dict(self) -> dict[str, Any]:
        """Return plain values that JSON can hold; `from_dict` is its inverse."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {"form": self.form, **values, "adjacency": self.adjacency.value}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> PrivacyGuarantee:
        """Return the guarantee from the values of `as_dict`; its numbers are checked again.

        Raises
        ------
        ArgumentError
            The values do not describe a guarantee, or the form does not match the numbers.
        """
        names = [field.name for field in fields(cls)]
        is_whole = isinstance(values, Mapping) and values.keys() >= {"form", *names}
        must = f"be a mapping with form, {', '.join(names)}, as `as_dict` makes it"
        require(is_whole, "values", must, type(values).__name__)
        made = cls(**{name: values[name] for name in names})
        is_form = isinstance(values["form"], str) and values["form"] == made.form
        must = f"be {made.form!r}, which the numbers imply"
        require(is_form, "form", must, repr(values["form"]), "correct one of them")
        return made


# End of the name of a privacy unit that stays in its group in all neighboring data
WITHIN_GROUP = " within its group"
# Factor above the rounding of a few operations, since the error of libm is a few units of 2^-53
ROUND_UP = 1 + 2.0**-50
# Significant digits of numbers in sentences
_DIGITS = 6


def compose(*guarantees: PrivacyGuarantee, disjoint: bool = False) -> PrivacyGuarantee:
    r"""Return the joint guarantee of several releases from one data set, or from disjoint parts of it.

    Epsilons, deltas and rhos add up (basic composition), also where a later mechanism was chosen after
    seeing an earlier release. A pure guarantee counts as an approximate one whose delta is 0. The sums are exact
    rational numbers, rounded up once.

    Releases of disjoint groups of people need no addition (parallel composition): with ``disjoint=True`` the result
    has the largest epsilon, delta and rho. The notes say what must hold, and prove it.

    Parameters
    ----------
    guarantees
        The guarantee of each release.
    disjoint
        True if each release was made from the records of one group, and no unit has records in two of the groups. A
        person with rows in several areas is in several groups: leave `disjoint` out then.

    Returns
    -------
    PrivacyGuarantee
        The joint guarantee. With ``disjoint=True`` under replace-one neighbors its unit is, for instance,
        ``"record within its group"``.

    Raises
    ------
    PrivacyError
        The guarantees differ in neighboring relation or unit, or only some of them are zero-concentrated, so that
        they have no sum.
    ArgumentError
        No guarantee was given, or an argument is not a guarantee.

    Notes
    -----
    Let :math:`D_1, \dots, D_m` be the records of the groups, and let release k read :math:`D_k` alone; it may depend
    on the earlier releases. The list of groups is public, and a rule that looks at one unit at a time says to which
    group the unit belongs. (To be among the largest incomes is no such rule, because one person then moves others.)

    *Add-or-remove-one.* Neighbors differ in one unit. It has one group, say k, and all other groups are equal. Given
    the releases before it, release k keeps its promise. The releases after it have the same distribution given all
    before them, so they are post-processing. The joint release therefore keeps the promise of release k. Each
    :math:`(\epsilon_k, \delta_k)` implies :math:`(\max \epsilon, \max \delta)`, and each :math:`\rho_k` implies
    :math:`\max \rho`.

    *Replace-one.* If the new unit has the group of the old one, the same proof holds. If it has another group, two
    groups change their sizes. Replace-one guarantees treat the size of each group as public, so they promise
    nothing here, not even the sum of the two largest. The result is therefore about neighbors in which a unit keeps
    its group, and its unit says so. If the group is itself private, release under add-or-remove-one. A replaced unit
    is then removed once and added once. If the unit moves, the pure loss is at most the sum of the two largest
    epsilons. If it keeps its group, the loss is at most twice the largest one. The unit does not name the grouping: a
    sum over two groupings, such as areas and ages, is about units that keep their groups in both.

    References
    ----------
    Dwork, Roth 2014, Theorem 3.16. Bun, Steinke 2016, Lemma 1.7. McSherry 2009, Theorem 4 (parallel composition).

    Examples
    --------
    >>> one = PrivacyGuarantee(rho=0.25, adjacency="add-or-remove-one")
    >>> compose(one, one).rho, compose(one, one, disjoint=True).rho
    (0.5, 0.25)
    """
    disjoint = truth("disjoint", disjoint)
    require(guarantees, "compose", "be given at least one guarantee", "none")
    for guarantee in guarantees:
        remedy = "nothing composes with an unprotected release"
        if isinstance(guarantee, list | tuple):
            remedy = "write a star before it, as in compose(*guarantees)"
        elif isinstance(getattr(guarantee, "guarantee", None), PrivacyGuarantee):
            remedy = "pass its attribute `guarantee`"
        instance_of("compose", guarantee, PrivacyGuarantee, "be given guarantees", remedy)
    # a pure promise is the approximate one whose delta is 0
    forms = ["pure or approximate" if g.rho is None else "zero-concentrated" for g in guarantees]
    convert = "convert pure ones with `to_zero_concentrated()`, or concentrated ones with `to_approximate(delta)`"
    for what, values, remedy in (
        ("unit", [g.unit for g in guarantees], "state both for the same privacy unit"),
        (
            "neighboring relation",
            [g.adjacency.value for g in guarantees],
            "release both under one relation",
        ),
        ("form", forms, convert),
    ):
        seen = sorted(set(values))
        must = f"share one {what} to be composed"
        require(
            len(seen) == 1, "all guarantees", must, " and ".join(seen), remedy, error=PrivacyError
        )
    first = guarantees[0]
    if disjoint:
        return _of_disjoint_groups(guarantees)
    if first.rho is not None:
        return first._with(rho=_sum_up(g.rho for g in guarantees))
    delta = _sum_up(g.delta for g in guarantees)
    require(
        delta < 1,
        "the deltas",
        "add up to less than 1",
        delta,
        "make them smaller",
        error=PrivacyError,
    )
    return first._with(epsilon=_sum_up(g.epsilon for g in guarantees), delta=delta)


def _of_disjoint_groups(guarantees: Sequence[PrivacyGuarantee]) -> PrivacyGuarantee:
    """Return the joint guarantee of releases of disjoint groups, whose relation, unit and form are equal."""
    first = guarantees[0]
    unit = first.unit
    if first.adjacency is Adjacency.REPLACE_ONE and not unit.endswith(WITHIN_GROUP):
        unit += WITHIN_GROUP
    largest: dict[str, Any] = {}
    for name in ("epsilon", "delta", "rho"):
        values = [getattr(each, name) for each in guarantees]
        stated = [value for value in values if value is not None]
        if stated:
            largest[name] = max(stated)
    return replace(first, unit=unit, **largest)


def _shown(value: float | None) -> str:
    """Return a number with six digits, rounded up."""
    assert value is not None
    text = f"{value:.6g}"
    if float(text) >= value:
        return text
    # the next decimal of six digits that is not below
    above = float(Context(prec=_DIGITS, rounding=ROUND_CEILING).create_decimal_from_float(value))
    if above < math.inf:
        return f"{above:.6g}"
    return repr(value)


def _sum_up(values: Iterable[float | None]) -> float:
    return round_up(sum((Fraction(value) for value in values if value is not None), Fraction(0)))


def _randomized_response_epsilon(epsilon: float, delta: float) -> float:
    """Solve delta = (e^epsilon - e^e) / (1 + e^epsilon) for e >= 0, rounded up."""
    inside = -delta * (1.0 + math.exp(-epsilon))
    if inside <= -1.0:
        return 0.0
    solved = epsilon + math.log1p(inside)
    if solved <= 0:
        return 0.0
    return min(epsilon, solved + (ROUND_UP - 1) * (1.0 + epsilon))


def _zero_concentrated_epsilon(rho: float, delta: float) -> float:
    """Return epsilon at delta of rho-zCDP, by OpenDP's map from zero-concentrated to approximate privacy."""
    from opendp import combinators, domains, measurements, metrics
    from opendp.mod import OpenDPException, enable_features

    enable_features("contrib")
    space = domains.atom_domain(T="i64"), metrics.absolute_distance(T=float)
    measurement = measurements.make_gaussian(*space, scale=1.0)
    distance = math.sqrt(2.0) * math.sqrt(rho)
    while measurement.map(distance) < rho:  # the stand-in must not promise more than rho
        distance = math.nextafter(distance, math.inf)
    try:
        epsilon = combinators.make_zCDP_to_approxDP(measurement).map(distance).epsilon(delta)
    except OpenDPException:
        epsilon = math.inf
    require(epsilon < math.inf, "rho", "be small enough for its epsilon to be computed", rho)
    return epsilon
