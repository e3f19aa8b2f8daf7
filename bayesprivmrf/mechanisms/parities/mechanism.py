"""`ParityQueries`: parities of two-state variables up to an order, by Gaussian noise or multiplicative weights."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, final

import numpy as np

from bayesprivmrf.audit import Choices, Sums
from bayesprivmrf.checks import one_of, require, require_memory, whole_number
from bayesprivmrf.interruption import stopped_details
from bayesprivmrf.learning.parities.released import ReleasedParities
from bayesprivmrf.marginals import DEFAULT_MEMORY_LIMIT
from bayesprivmrf.mechanisms.base import Stamp
from bayesprivmrf.mechanisms.calibration import discrete_gaussian_laws
from bayesprivmrf.mechanisms.parities.multiplicative_weights import (
    Steps,
    multiplicative_weights,
)
from bayesprivmrf.mechanisms.parities.sums import noisy_parity_sums, parity_sums
from bayesprivmrf.mechanisms.record_mechanisms import CodedRecords, LearningMechanism, LearningPlan
from bayesprivmrf.model import Monomials
from bayesprivmrf.noise import NoiseSource
from bayesprivmrf.planning import Outlay
from bayesprivmrf.privacy import (
    Adjacency,
    DiscreteGaussian,
    NoNoise,
    parity_l2_sensitivity,
    selection_scale,
    squared_l2_sensitivity,
)
from bayesprivmrf.privacy.selection import GUMBEL_DEVIATION

type Method = Literal["gaussian", "pmw", "auto"]

# Largest number of rounds of multiplicative weights by default; measured, see docs/explanation/parities.md
MOST_ROUNDS = 200

# Largest error of Gaussian noise with which "auto" still takes it; measured, see docs/explanation/parities.md
_LARGEST_ERROR = 0.1

# Most variables for which "auto" takes multiplicative weights, which have 2^p numbers
_MOST_VARIABLES = 16

# Bytes of multiplicative weights for each of 2^p joint states: four arrays of numbers, beside one sign a round
_BYTES_OF_A_STATE = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Parities:
    """Public part of a release of parities: the sets, and the Gaussian noise where it may be drawn."""

    sets: Monomials
    law: DiscreteGaussian | None


type ParityPlan = LearningPlan[Parities]


@final
@dataclass(frozen=True, kw_only=True)
class ParityQueries(LearningMechanism[Parities, ReleasedParities]):
    r"""Release the expectations of all products of up to t two-state variables, :math:`E \prod_{i \in I} x_i`.

    The first declared state is -1, the second +1. If cliques are declared, only products inside a clique are
    released.

    Parameters
    ----------
    rho
        Budget, nats, positive.
    order
        t, from 1 to p.
    method
        ``"gaussian"``: discrete Gaussian noise on all sums at once, with their exact joint sensitivity
        (`bayesprivmrf.privacy.largest_sum`); unbiased, with a known distribution. ``"pmw"``: private multiplicative
        weights, a distribution over all 2^p records, corrected where it is most wrong; better where noise would drown
        that many sums. ``"auto"``: Gaussian noise, unless its largest error would exceed 0.1 and p is at most 16.
    rounds
        Number of rounds of ``"pmw"``; by default chosen from the budget and the number of records, public or noisy.
    adjacency, missing, other
        See `LearningMechanism`. Under add-or-remove-one the number of records is private: ``"gaussian"`` releases it
        as the sum of the empty product, and the other methods measure it with 2 % of the budget.

    Raises
    ------
    ArgumentError
        A setting is out of range.
    ModelError
        A variable does not have two states; raised at release.
    ModelTooLargeError
        The sums, or the 2^p numbers of ``"pmw"``, do not fit in memory; raised at release.

    References
    ----------
    Hardt, Rothblum 2010; Hardt, Ligett, McSherry 2012 (multiplicative weights). Zhang, Kamath, Kulkarni, Wu 2020,
    section 4.2.

    Examples
    --------
    >>> import numpy as np, pandas as pd, bayesprivmrf as bpm
    >>> model = bpm.declare(states={v: [0, 1] for v in "abc"})
    >>> data = pd.DataFrame(np.random.default_rng(0).integers(0, 2, (5000, 3)), columns=list("abc"))
    >>> parities = ParityQueries(rho=1.0, order=2).release(model, data, rng=1)
    >>> bool(parities.values.abs().max() < 0.1)
    True
    """

    releases = (ReleasedParities,)
    _runs_compiled: ClassVar[bool] = False
    _sought: ClassVar[str] = "interactions"
    _remedy: ClassVar[str] = "spend more, declare fewer variables, or take a smaller order"

    order: int
    method: Method = "auto"
    rounds: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        whole_number("order", self.order, 1)
        one_of("method", self.method, ("gaussian", "pmw", "auto"), remedy="'auto' chooses")
        if self.rounds is not None:
            whole_number("rounds", self.rounds, 1)
            must = f"be None for the method {self.method!r}"
            require(self.method == "pmw", "rounds", must, self.rounds, "take method='pmw'")

    @property
    def needs_total(self) -> bool:
        """True if the number of records is measured separately; a Gaussian release contains it as a sum."""
        return self.method != "gaussian"

    def _map(self, plan: LearningPlan[Any]) -> Parities:
        sets = Monomials.of(plan.specification, self.order)
        law = None
        rounds = self.rounds or MOST_ROUNDS
        if self.method != "pmw":
            sensitivity = parity_l2_sensitivity(
                sets, self.adjacency, with_empty=not plan.knows_total
            )
            (law,) = discrete_gaussian_laws([1.0], plan.learning, sensitivity)
        if self.method == "pmw":
            what = f"multiplicative weights over {sets.variables} variables"
            needed = (_BYTES_OF_A_STATE + rounds) * 2**sets.variables
            require_memory(what, needed, "use method='gaussian'", DEFAULT_MEMORY_LIMIT)
        if self.method != "gaussian":
            for number in (1, rounds):
                # a scale out of range is refused here, before the budget is spent
                self._scales(plan, number)
        return Parities(sets=sets, law=law)

    def _randomise(
        self, plan: ParityPlan, exact: CodedRecords, source: NoiseSource, stamp: Stamp
    ) -> ReleasedParities:
        total = self._total(plan, exact, source)
        sets = plan.map.sets
        law = None
        method = self._chosen(plan, total)
        details: dict[str, Any] = {"method": method}
        if method == "gaussian":
            if total is None:
                known = None
            else:
                known = np.array([round(total)])
            law = plan.map.law
            assert law is not None
            sums = noisy_parity_sums(
                exact.sensitive_spins, exact.sensitive_counts, sets, law, source, known
            )
        else:
            assert total is not None
            rounds = self._rounds(plan, total)
            details["rounds"] = rounds
            counted = parity_sums(exact.sensitive_spins, exact.sensitive_counts, sets)
            steps = self._scales(plan, rounds)
            sums = total * multiplicative_weights(counted, sets, total, source, steps)
            details |= stopped_details()
        # the noise of the number of records: none, its own, or that of all sums
        if plan.is_total_public:
            total_law = NoNoise()
        else:
            total_law = plan.total_noise or law
        assert total_law is not None
        release = ReleasedParities(
            domain=plan.specification.domain,
            sets=sets,
            sums=sums.astype(float),
            law=law,
            total_law=total_law,
            details=details,
            **stamp.fields,
        )
        self._warn(plan, float(release.sums[0]))
        return release

    def _outlays(self, plan: ParityPlan, total: float | None) -> list[Outlay]:
        r"""Return the steps of the measurement.

        The largest error of K sums with Gaussian noise of scale σ is about :math:`\sigma \sqrt{2 \log 2K}`. A choice
        among 2K atoms by weights :math:`e^{u / \kappa}` detects a score of about :math:`\kappa \log 2K`. Divided by
        N, either is about the smallest expectation that is not lost, and so about the smallest interaction.
        """
        size = len(plan.map.sets)
        law = plan.map.law
        first = self._total_outlay(plan)
        if self.method == "auto" and total is None:
            method = self.method
        else:
            method = self._chosen(plan, total)
        step = f"products of up to {self.order} variables"
        records = max(total or 0.0, 1.0)
        count: int | None = None
        noise = smallest = None
        draws: tuple[Sums | Choices, ...] = ()
        if method == "gaussian" and law is not None:
            moved = squared_l2_sensitivity(
                plan.map.sets, self.adjacency, with_empty=not plan.knows_total
            )
            count = size - plan.knows_total
            noise = law.standard_deviation
            draws = (Sums(law=law, copies=moved),)
            smallest = law.scale * math.sqrt(2 * math.log(2 * size)) / records
        elif total is None or method == "auto":
            step += f", by {method}"
        else:
            count = self._rounds(plan, total)
            step = f"{count} rounds of {method}"
            steps = self._scales(plan, count)
            draws = (
                Choices(scale=steps.choice_scale, score_range=2 * self._moved, copies=count),
                Sums(law=steps.measurement, copies=count * round(self._moved**2)),
            )
            noise = GUMBEL_DEVIATION * steps.choice_scale
            smallest = steps.choice_scale * math.log(2 * size) / records
        outlay = Outlay(step=step, rho=plan.learning, count=count, noise_sd=noise, draws=draws)
        return [*first, outlay if total is None else replace(outlay, smallest_coupling=smallest)]

    def _chosen(self, plan: ParityPlan, total: float | None) -> str:
        """Return the method; "auto" chooses by public numbers and a total that is public or noisy."""
        if self.method != "auto" or plan.map.law is None or total is None:
            return self.method
        largest = plan.map.law.scale * math.sqrt(2 * math.log(2 * len(plan.map.sets))) / total
        if largest <= _LARGEST_ERROR or plan.map.sets.variables > _MOST_VARIABLES:
            return "gaussian"
        return "pmw"

    def _scales(self, plan: LearningPlan[Any], rounds: int) -> Steps:
        """Return the steps of multiplicative weights: the scale of the choices, and the noise of measurements."""
        budget = plan.learning
        moved = self._moved
        choosing = 0.5 * budget  # the other half measures
        (law, *_) = discrete_gaussian_laws([1 / rounds] * rounds, budget - choosing, moved)
        scale = selection_scale(2.0 * moved, choosing, rounds)
        return Steps(rounds=rounds, choice_scale=scale, measurement=law)

    @property
    def _moved(self) -> float:
        """Largest change of one sum between neighbors, records."""
        if self.adjacency is Adjacency.ADD_OR_REMOVE_ONE:
            return 1.0
        return 2.0

    def _rounds(self, plan: ParityPlan, total: float) -> int:
        r"""Return T, about :math:`0.63 (N \sqrt\rho / D)^{2/3}`; measured, see docs/explanation/parities.md."""
        if self.rounds is not None:
            return int(self.rounds)
        strength = total * math.sqrt(plan.learning) / self._moved
        wanted = math.ceil(0.63 * strength ** (2 / 3))
        return max(5, min(wanted, MOST_ROUNDS))
