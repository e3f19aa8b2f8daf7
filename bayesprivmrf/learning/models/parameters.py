r"""The parameters of a learned model as one vector, the map that learned them, and their intervals.

`learned.couplings_interval()` is post-processing of the release and costs no budget. It labels limits of the entries
of the vector. The vector of `LearnedIsing` and `LearnedPairwise` (`bayesprivmrf.learning.models.pairs`) holds each
coupling once, in the order of pairs of variables (and of their states for a `LearnedPairwise`), then the fields.
There are two methods:

- ``"linearised"`` limits to first order, if the map that made the release has a method of this name. `SelectMeasure`
  uses the errors of its fit, and for pairs left out the couplings that could have been missed
  (`bayesprivmrf.learning.select_measure.map`). Frank-Wolfe with enough steps uses the errors of its expected path
  (`bayesprivmrf.learning.frank_wolfe.interval`), and simulates eight releases.
- ``"calibrated"`` limits for all others: a bootstrap from a model that the map turns into the estimate
  (`bayesprivmrf.learning.calibrated`), which corrects the shrinkage of the map. Simulated releases vary as
  the real one, by sampling, choices and noise together. The model draws as many records as the release reports, and
  the map learns from them with the same noise distributions. A terminal or notebook shows a progress bar.

docs/how-to/learn-a-model.md reports the measured coverage.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np

from bayesprivmrf.checks import generator, one_of, truth, whole_number
from bayesprivmrf.inference.asked import coverage
from bayesprivmrf.inference.solution import Status
from bayesprivmrf.learning.calibrated import Coordinates, size_of
from bayesprivmrf.learning.models.couplings_interval import CouplingsAsked, couplings_frame
from bayesprivmrf.learning.models.maps import LearningMap
from bayesprivmrf.model import Domain
from bayesprivmrf.model.tables import FloatArray, IntArray
from bayesprivmrf.privacy import NoiseDistribution

if TYPE_CHECKING:
    import pandas as pd

    from bayesprivmrf.learning.models.solution import LearnedSolution
    from bayesprivmrf.release.base import Provenance


# Share of the declared width from which it counts as binding: on simulated chains most variables were above 0.76 of
# the width where it was at most the true one, and all below 0.67 where it was twice the true one
_BINDING = 0.85

type Entry = tuple[tuple[int, ...], tuple[int, ...]]


class LearnedParameters(ABC):
    """Abstract base of releases whose parameters form a vector; subclasses are frozen dataclasses."""

    parameters: ClassVar[tuple[str, ...]]
    """Names of the dataclass fields with the learned parameters, in the order of `LearningMap.learn`."""

    domain: Domain
    total: float | None
    total_noise: NoiseDistribution | None
    map: LearningMap | None
    provenance: Provenance
    unsupported: tuple[tuple[int, ...], ...] | None

    @property
    def _without_map(self) -> str:
        """Message of the error about intervals of a model without a learning map."""
        return (
            "an interval must simulate how the model was made, and this one does not know: it was fitted to parities "
            "without a law of their noise (use method='gaussian' for them), was learned with the paper's constants "
            "(import benchmarks.papers.frank_wolfe of the repository), comes from an older file, or was made by hand."
        )

    @property
    @abstractmethod
    def status(self) -> Status:
        """Status of the fit."""

    @cached_property
    @abstractmethod
    def solution(self) -> LearnedSolution:
        """The model as a `Solution`."""

    @abstractmethod
    def vector(self) -> FloatArray:
        """Return all parameters, each of them once."""

    @abstractmethod
    def with_vector(self, values: FloatArray) -> Self:
        """Return the release with its parameters replaced by those in a vector."""

    def labels(self, of: str) -> pd.Index:
        """Return the labels of the couplings or fields; by default the positions in the vector."""
        import pandas as pd

        return pd.RangeIndex(self.vector().size)

    def _vector_entries(self) -> list[Entry]:
        """Return the variables and the states of each entry of the vector, by default none.

        States are positions among the states of all variables; an effect of two states has the second one.
        """
        return [((), ())] * self.vector().size

    def places(self, of: str) -> IntArray:
        """Return the positions of the couplings, or of the fields, in the vector."""
        orders = np.array([len(variables) for variables, _ in self._vector_entries()])
        return np.flatnonzero(orders > 1 if of == "couplings" else orders == 1)

    def _is_eligible(self, variables: tuple[int, ...]) -> bool:
        """Return False for a pair that the learner leaves out by declaration."""
        mask = getattr(self.map, "eligible", None)
        return mask is None or len(variables) != 2 or bool(mask[variables])

    def coordinates(self) -> Coordinates:
        """Return the effect of each entry as its group, and the number of the effect's variables as its kind."""
        scopes = [variables for variables, _ in self._vector_entries()]
        states = self.domain.cardinalities
        groups = {scope: place for place, scope in enumerate(dict.fromkeys(scopes))}
        # kinds are numbered in the order of the vector
        orders = list(dict.fromkeys(len(scope) for scope in scopes if scope))
        kinds = {}
        for scope in groups:
            is_learned = scope and min(states[v] for v in scope) > 1 and self._is_eligible(scope)
            if is_learned:
                kinds[scope] = orders.index(len(scope))
            else:
                kinds[scope] = -1
        return Coordinates(
            groups=np.array([groups[scope] for scope in scopes]),
            kinds=np.array([kinds[scope] for scope in scopes]),
        )

    def _widths(self) -> FloatArray:
        r"""Return :math:`\max_a \sum_I \max |h_I(a, \cdot)|`, summed over the effects I of a variable, shape (p,)."""
        largest: dict[tuple[int, tuple[int, ...]], float] = {}
        for (variables, states), size in zip(
            self._vector_entries(), np.abs(self.vector()).tolist(), strict=True
        ):
            for state in states:
                largest[state, variables] = max(largest.get((state, variables), 0.0), size)
        by_state = np.zeros(sum(self.domain.cardinalities))
        for (state, _), size in largest.items():
            by_state[state] += size
        return np.maximum.reduceat(by_state, np.cumsum([0, *self.domain.cardinalities[:-1]]))

    def _held_by_width(self) -> np.ndarray:
        """Return a mask of the entries with a variable that the declared width of the map holds."""
        bound = getattr(self.map, "width", np.inf)
        is_wide = self._widths() >= _BINDING * bound
        return np.array([is_wide[list(variables)].any() for variables, _ in self._vector_entries()])

    def by_support(self) -> tuple[np.ndarray, np.ndarray]:
        """Return masks of the entries that no released number determines, and of others that depend on them.

        A state whose released count is within noise of 0 may have no record. The data then determine neither its
        probability nor its dependence on other variables, so its field and couplings could be of any size. The fields
        of variables that may be coupled with it, and entries that are centered over it, depend on these.
        """
        lacking = set[int]()
        absent = set[int]()
        start = 0
        for v, (own, states) in enumerate(
            zip(self.unsupported or (), self.domain.cardinalities, strict=False)
        ):
            if own:
                lacking.add(v)
                # a variable with records in one state is a constant
                absent |= {start + s for s in (own if len(own) < states - 1 else range(states))}
            start += states
        entries = self._vector_entries()
        is_absent = np.array([not absent.isdisjoint(states) for _, states in entries])
        touched = [not lacking.isdisjoint(variables) for variables, _ in entries]
        # what is left of an effect without its lacking variables
        rests = {
            tuple(v for v in variables if v not in lacking)
            for (variables, _), is_touched in zip(entries, touched, strict=True)
            if is_touched and self._is_eligible(variables)
        }
        moves = np.array(touched) | np.array([variables in rests for variables, _ in entries])
        return is_absent, moves & ~is_absent

    def standard_noise(self, generator: np.random.Generator) -> FloatArray:
        """Return standard normal numbers of the vector's shape, projected on the constraints of the parameters."""
        return generator.standard_normal(self.vector().size)

    def with_parameters(self, parts: tuple[FloatArray, ...]) -> Self:
        """Return the release with its parameters replaced by those of `LearningMap.learn`."""
        fields: Any = dict(zip(self.parameters, parts, strict=True))
        return replace(self, **fields)  # type: ignore[type-var]

    def couplings_interval(
        self,
        prob: float = 0.9,
        rng: int | np.random.Generator | None = None,
        replicates: int = 100,
        *,
        of: Literal["couplings", "fields"] = "couplings",
        method: Literal["linearised", "calibrated"] | None = None,
        total: float | None = None,
        given: None = None,
        progress_bar: bool | None = None,
    ) -> pd.DataFrame:
        """Return intervals for all couplings or all fields; they cost no privacy budget.

        docs/how-to/learn-a-model.md explains the two methods and reports their coverage. Both draw records from the
        learned model, so limits vary a little between calls unless `rng` is a seed. After `SelectMeasure` the limits
        of pairs that were left out vary most.

        Parameters
        ----------
        prob
            Coverage of each interval, in (0, 1).
        rng
            Seed or generator; ``None`` for a new random one in each call.
        replicates
            Number of simulated releases, at least 2, for ``"calibrated"``, which adds a fifth for its search.
            ``"linearised"`` ignores it: it simulates eight releases after Frank-Wolfe and none after `SelectMeasure`.
        of
            ``"couplings"`` or ``"fields"``.
        method
            ``"linearised"`` uses a first-order approximation of the learner's errors, ``"calibrated"`` a bootstrap.
            The default is ``"linearised"`` where it exists: after `SelectMeasure` with a degree, and after
            Frank-Wolfe on variables with two states, if single variables were measured and at least 50 steps taken.
        total
            Number of records to simulate; by default that of the release.
        given
            Must be ``None``: couplings have no conditional intervals.
        progress_bar
            True to show the progress of ``"calibrated"``, False to hide it; None where a person watches.

        Returns
        -------
        pandas.DataFrame
            Columns ``estimate``, ``lower`` and ``upper``, nats, ``status`` and ``note``. There is one row for each
            field or coupling: a pair of variables, and a pair of their states unless all variables have two. Limits
            hold for each row separately, not simultaneously. They are infinite, and the status is ``prior`` or
            ``doubtful``, where the released numbers do not bound a parameter. The note of a finite interval names
            its method, and the status is no better than that of the model. A linearised interval corrects the
            shrinkage that the prior causes. The estimate does not, so it need not be the center.

        Raises
        ------
        ArgumentError
            An argument is out of range.
        ModelError
            The release has no learning map or no number of records. Models of tables, as ``SelectMeasure(rho)``
            learns them in rounds, have intervals of marginals by `interval` instead.
        """
        prob = coverage(prob)
        replicates = whole_number("replicates", replicates, 2)
        one_of("of", of, ("couplings", "fields"))
        if method is not None:
            one_of(
                "method", method, ("linearised", "calibrated"), remedy="None chooses the better one"
            )
        size = size_of(self, total)
        random = generator(rng)
        if progress_bar is not None:
            truth("progress_bar", progress_bar)
        asked = CouplingsAsked(
            prob=prob,
            of=of,
            method=method,
            replicates=replicates,
            size=size,
            progress_bar=progress_bar,
        )
        return couplings_frame(self, asked, random)
