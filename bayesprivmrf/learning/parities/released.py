"""Released parities: noisy expectations of products of two-state variables, and models fitted to them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from bayesprivmrf.checks import at_least, whole_number
from bayesprivmrf.errors import ConsistencyWarning, ModelError, warn_caller
from bayesprivmrf.files import Json
from bayesprivmrf.inference.solution import Status
from bayesprivmrf.interruption import INTERRUPTED_BY
from bayesprivmrf.learning.models.monomials import (
    LearnedMonomials,
    by_monomial,
    restored_sets,
    sets_content,
)
from bayesprivmrf.learning.models.solution import Signal
from bayesprivmrf.learning.parities.fit import MonomialsByParities
from bayesprivmrf.model import Domain, ModelSpecification
from bayesprivmrf.model.monomials import Monomials
from bayesprivmrf.model.tables import FloatArray
from bayesprivmrf.privacy import NoiseDistribution, NoNoise, PrivacyGuarantee
from bayesprivmrf.queries import parities, weighted
from bayesprivmrf.release import Measurement, NoisyStatistics
from bayesprivmrf.release.base import Provenance, Released
from bayesprivmrf.release.codec import Fields, domain_content, numbers, restored_domain

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ReleasedParities(Released):
    r"""Released noisy sums of the parities :math:`\chi_I(x) = \prod_{i \in I} x_i` over the records.

    The first declared state of a variable is -1, the second +1.

    Parameters
    ----------
    domain
        Variables and states, as declared.
    sets
        The sets I; the sum of the empty set is the number of records.
    sums
        Sums, records, shape (K,): whole numbers with the noise of `law`. Without a law, they are the number of
        records times the expectations under a privately fitted distribution.
    law
        Distribution of the noise on each sum but that of the empty set, or ``None``.
    total_law
        Distribution of the noise on the number of records.
    guarantee
        Privacy guarantee of the release.
    provenance
        Mechanism, settings and library versions of the release.
    details
        Public numbers about the release: the method, rounds, noise scales.

    Examples
    --------
    >>> import pandas as pd
    >>> import bayesprivmrf as bpm
    >>> from bayesprivmrf.mechanisms import ParityQueries
    >>> data = pd.DataFrame({"a": ["no", "yes"] * 500, "b": ["no", "yes"] * 500})
    >>> network = bpm.declare(states={"a": ["no", "yes"], "b": ["no", "yes"]})
    >>> released = ParityQueries(rho=1.0, order=2).release(network, data, rng=1)
    >>> bool(released.values["a", "b"] > 0.9)  # equal in every record
    True
    """

    domain: Domain
    sets: Monomials
    sums: FloatArray
    law: NoiseDistribution | None
    total_law: NoiseDistribution
    guarantee: PrivacyGuarantee
    provenance: Provenance
    details: Mapping[str, Any] = field(default_factory=dict)

    kind = "released-parities"
    _without_tables = "the law of its noise is not known, and its own `fit()` makes a model of it"
    format_version = 3

    def __post_init__(self) -> None:
        sums = np.array(self.sums, dtype=float)
        if self.sets.variables != len(self.domain.variables) or sums.shape != (len(self.sets),):
            raise ModelError(
                f"`sums` must hold {len(self.sets)} numbers, one a set, got {sums.shape}."
            )
        if not np.isfinite(sums).all():
            raise ModelError("`sums` must be finite, got NaN or infinity in some entry.")
        sums.flags.writeable = False
        object.__setattr__(self, "sums", sums)

    @property
    def total(self) -> float:
        """Number of records, public or noisy, at least 1."""
        return max(float(self.sums[0]), 1.0)

    @property
    def has_total(self) -> bool:
        """True if the number of records is public or was measured separately from the sums."""
        return self.total_law != self.law

    @property
    def means(self) -> FloatArray:
        """Sums divided by the total, shape (K,); noise may put them outside -1 and 1."""
        return self.sums / self.total

    @cached_property
    def values(self) -> pd.Series:
        """Expectation of each parity by tuples of variables, sorted by size, without the empty set."""
        return by_monomial(self.domain.variables, self.sets, self.means, "expectation").iloc[1:]

    @property
    def standard_deviation(self) -> float:
        """Standard deviation of the noise on each value, given the total; NaN if the noise has no closed form."""
        if self.law is None:
            return math.nan
        return self.law.standard_deviation / self.total

    @cached_property
    def statistics(self) -> NoisyStatistics | None:  # type: ignore[override]
        """The noisy sums as measurements for all estimators; ``None`` if their noise has no known distribution.

        The cliques are the maximal sets. The sums are answers to `bayesprivmrf.queries.parities`. A number of records
        with a budget of its own is a separate measurement, and a public one is the ``total``.
        """
        if self.law is None:
            return None
        names = self.domain.variables
        together = not self.has_total
        cliques = tuple(tuple(names[v] for v in members) for members in self.sets.largest())
        asked = parities(self.sets.order, with_empty=together)
        found = [Measurement(asked, self.sums[not together :], self.law)]
        is_public = not self.total_law.variance > 0
        if not together and not is_public:
            records = weighted(names[0], matrix=[[1, 1]], labels=["records"])
            found.append(Measurement(records, self.sums[:1], self.total_law))
        return NoisyStatistics(
            specification=ModelSpecification(domain=self.domain, cliques=cliques),
            measurements=found,
            guarantee=self.guarantee,
            provenance=self.provenance,
            total=round(self.sums[0]) if is_public else None,
        )

    def fit(self, order: int | None = None, *, ridge: float | None = None) -> LearnedMonomials:
        """Fit a t-wise model to the released sums; this post-processing costs no budget.

        The default is the posterior mode of the coefficients. It accounts for noise and sampling, estimates a prior
        for each size of monomials from the release, and is finite for any noise
        (`bayesprivmrf.learning.parities.mode`).

        Parameters
        ----------
        order
            Size of the largest monomials in the model, by default that of the release; 2 for an Ising model.
        ridge
            Replaces the prior by a plain penalty, at least 0: the log likelihood of one record minus half of `ridge`
            times the squared coefficients is maximized, nats. 0 is maximum likelihood, which has no finite solution
            if noise made a rare event impossible. It is the default for values of a distribution with full support,
            as those of ``"pmw"``.

        Returns
        -------
        LearnedMonomials
            The model, with the guarantee of the release. Its status is ``"converged"``, ``"approximate"`` if the
            curvature is a Monte Carlo estimate (in wide models), ``"iteration limit"``, ``"diverged"`` if a plain
            penalty has no maximum, or ``"not trusted"`` if the noise hides the number of records or the distribution
            of most variables (`bayesprivmrf.learning.models.solution`).

        Raises
        ------
        ArgumentError
            The order exceeds that of the release, or the ridge is out of range.
        ModelTooLargeError
            Exact inference does not fit in memory, as for 26 variables and all their pairs.
        """
        if order is None:
            order = self.sets.order
        order = whole_number("order", order, 1, self.sets.order)
        if ridge is not None:
            ridge = at_least("ridge", ridge, 0)
        if ridge is None and self.details.get("method") == "pmw":
            ridge = 0.0
        fitting = MonomialsByParities(
            sets=Monomials(variables=self.sets.variables, levels=self.sets.levels[: order + 1]),
            law=NoNoise() if self.law is None else self.law,
            has_total=self.has_total,
            ridge=ridge,
            total_law=self.total_law if self.has_total else NoNoise(),
        )
        coefficients, details = fitting.fitted(self.sums[: len(fitting.sets)])
        signal = self._signal()
        stopped = {}
        if INTERRUPTED_BY in self.details:
            stopped["status"] = str(Status.STOPPED_EARLY.value)
        if self.has_total and self.total_law.variance > 0:
            paid = self.total_law
        else:
            paid = None
        learned = LearnedMonomials(
            domain=self.domain,
            sets=fitting.sets,
            coefficients=coefficients,
            guarantee=self.guarantee,
            provenance=self.provenance,
            total=self.total,
            total_noise=paid,
            map=None if self.law is None else fitting,
            details={**self.details, **details, **stopped, **signal.details},
            unsupported=signal.unsupported,
        )
        if order < self.sets.order:  # the model has no parameters for sums of more variables
            return learned
        judged = learned.solution.judged(self.statistics, is_shrunk=True)
        for problem in judged.contradictions:
            warn_caller(f"{problem}. The fit is not trusted.", ConsistencyWarning)
        return replace(learned, details={**judged.stats, "status": judged.status.value})

    def _signal(self) -> Signal:
        """Return the signal in the sums of single variables, if their noise has a known distribution."""
        variance = self.total_law.variance
        if self.law is None:
            return Signal.of(self.total, math.sqrt(variance), (), ())
        spins = self.sums[1 : 1 + len(self.domain.variables)].astype(float)
        counts = [np.array([self.total - s, self.total + s]) / 2 for s in spins]
        deviation = math.sqrt(self.law.variance + variance) / 2
        return Signal.of(self.total, math.sqrt(variance), counts, [deviation] * len(counts))

    def _facts(self) -> list[tuple[str, str]]:
        if self.law is None:
            noise = "no law in closed form"
        else:
            noise = f"sd {self.standard_deviation:.3g} a value"
        return [
            (
                "mechanism",
                f"{self.provenance.mechanism}, {self.details.get('method', 'unknown method')}",
            ),
            ("variables", f"{len(self.domain.variables)}"),
            ("parities", f"{len(self.sets) - 1:,} of order up to {self.sets.order}; {noise}"),
            ("records", f"about {self.total:,.0f}"),
            ("privacy", self.privacy_statement()),
        ]

    def _content(self) -> dict[str, Json]:
        return {
            **sets_content(self.sets, self.details),
            "law": None if self.law is None else self.law.as_dict(),
            "total_law": self.total_law.as_dict(),
            **domain_content(self.domain),
        }

    def _array(self) -> np.ndarray:
        return self.sums

    @classmethod
    def _restored(cls, content: Fields, array: np.ndarray, **stamp: Any) -> Self:
        domain = restored_domain(content)
        sets = restored_sets(content, len(domain.variables))
        return cls(
            domain=domain,
            sets=sets,
            sums=numbers(array, (len(sets),)),
            law=content.law("law", optional=True),
            total_law=content.law("total_law"),
            details=content.mapping("details"),
            **stamp,
        )
