r"""The parameters of a learned model as one vector, how records became them, and their intervals.

`learned.couplings_interval()` is post-processing of the release, which spends no budget. Its limits are of the
entries of the vector, in one of two forms; the method asks for them and labels them. Of `LearnedIsing` and
`LearnedPairwise` (`bayesprivmrf.learning.models.pairs`) the vector has each coupling once, in the order of pairs of
variables (for a `LearnedPairwise` of their states), then the fields; labels are these variables and states. A pair
was kept where its coupling is not zero; these pairs are the cliques of `specification`. The two forms are

- ``"linearised"``, to first order, by the method of that name of the `map` that made the release. For `SelectMeasure`
  they are of the errors of its fit, and for pairs that were left out the couplings that could have been left out
  (`bayesprivmrf.learning.select_measure.map`); for Frank-Wolfe with enough steps of the errors of its expected path
  (`bayesprivmrf.learning.frank_wolfe.interval`). It simulates eight releases, `SelectMeasure` none;
- ``"calibrated"``, for all others: a bootstrap from a model that the map turns into the estimate, which corrects the
  map's shrinkage (`bayesprivmrf.learning.intervals.calibrated`). Simulated releases vary as the release did, by
  sampling, choices and noise together: a model yields as many records as the release says there were, and the map
  learns from them, with noise of the same laws from a seeded generator. It shows a bar with the time that is left, at
  a terminal or in a notebook.

docs/how-to/learn-a-model.md has measured coverage.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, Self

import numpy as np

from bayesprivmrf.checks import generator, one_of, whole_number
from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.inference.asked import coverage
from bayesprivmrf.inference.interval_frame import Mark, RowStatus, interval_frame
from bayesprivmrf.inference.solution import Status
from bayesprivmrf.learning.intervals import calibrated
from bayesprivmrf.learning.intervals.calibrated import Coordinates, size_of
from bayesprivmrf.model import Domain
from bayesprivmrf.model.tables import FloatArray, IntArray
from bayesprivmrf.noise.source import NoiseSource
from bayesprivmrf.privacy import NoiseLaw

if TYPE_CHECKING:
    import pandas as pd

    from bayesprivmrf.learning.models.solution import LearnedSolution
    from bayesprivmrf.release.base import Provenance

# errors of `couplings_interval`
_NOT_LINEAR = (
    "`method` must not be 'linearised' for this release, whose errors are not known to first order: it was made by "
    "neither SelectMeasure nor Frank-Wolfe with two states, single variables measured and enough steps; leave it out."
)


class LearningMap(Protocol):
    """How a mechanism turns records into parameters: a frozen object of public settings.

    A map whose errors are known to first order may have a method ``linearised`` as well, which
    `LearnedParameters.couplings_interval` then prefers: of the release, the coverage, the number of records and a
    generator, it returns lower and upper limits of the vector, or ``None`` for a release to which it does not apply.
    """

    def learn(
        self, codes: np.ndarray, counts: IntArray, total: float, source: NoiseSource, /
    ) -> tuple[FloatArray, ...]:
        """Return the parameters, in the order of the release's `parameters`.

        Parameters
        ----------
        codes, counts
            Records as states' codes, shape (rows, p), and how many each row stands for.
        total
            Their number as far as it may be used: public or noisy.
        source
            Source of the noise.
        """
        ...


class LearnedParameters(ABC):
    """Abstract base of what was learned by a known map: a frozen dataclass."""

    parameters: ClassVar[tuple[str, ...]]
    """Names of the fields that hold what was learned, in the order in which the map gives them."""

    domain: Domain
    total: float | None
    total_noise: NoiseLaw | None
    map: LearningMap | None
    provenance: Provenance
    unsupported: tuple[tuple[int, ...], ...] | None

    @property
    def _without_map(self) -> str:
        """Words of an error about intervals of couplings where the map is not known."""
        return (
            "an interval must simulate how the model was made, and this one does not know: it was fitted to parities "
            "without a law of their noise (use method='gaussian' for them), was learned with the paper's constants "
            "(import benchmarks.papers.frank_wolfe of the repository), comes from an older file, or was made by hand."
        )

    @property
    @abstractmethod
    def status(self) -> Status:
        """How the fit ended."""

    @cached_property
    @abstractmethod
    def solution(self) -> LearnedSolution:
        """The model as an estimate like any other."""

    @abstractmethod
    def vector(self) -> FloatArray:
        """Return all parameters, each once."""

    @abstractmethod
    def with_vector(self, values: FloatArray) -> Self:
        """Return the same release with the parameters that a vector holds."""

    def labels(self, of: str) -> pd.Index:
        """Return what the couplings, or the fields, belong to; by default the place of each entry of the vector."""
        import pandas as pd

        return pd.RangeIndex(self.vector().size)

    def places(self, of: str) -> IntArray:
        """Return where in the vector the entries of `labels` are."""
        return np.arange(self.vector().size)

    def coordinates(self) -> Coordinates:
        """Return what the entries of the vector are; by default each stands for itself, and all are alike."""
        size = self.vector().size
        return Coordinates(groups=np.arange(size), kinds=np.zeros(size, dtype=np.int64))

    def _widths(self) -> FloatArray:
        """Return the size of each variable's couplings and field together, nats, shape (p,)."""
        return np.zeros(len(self.domain.variables))

    def _belong_to(self, is_chosen: np.ndarray) -> np.ndarray:
        """Return the entries that belong to some of the variables, given as a mask of shape (p,)."""
        return np.zeros(self.vector().size, dtype=bool)

    def _near_bound(self) -> np.ndarray:
        """Return the entries of variables whose width is near the declared bound, which would hide a larger width."""
        bound = getattr(self.map, "bound", None)
        # the bound binds from 0.85 of it on: on simulated chains most variables were above 0.76 of the bound where
        # it was at most the true width, and all below 0.67 where it was twice the true width
        return self._belong_to(self._widths() >= 0.85 * (np.inf if bound is None else bound))

    def by_support(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the entries that no released number determines, and the other entries that move with them.

        A state whose released count is within noise of 0 may have no record. The data then determine neither its
        probability relative to the other states of its variable nor its dependence on other variables: its field and
        its couplings could be of any size. The fields of variables that may be coupled with it, and entries that are
        centered over it, are determined only given those.
        """
        nothing = np.zeros(self.vector().size, dtype=bool)
        return nothing, nothing

    def standard_noise(self, generator: np.random.Generator) -> FloatArray:
        """Return standard normal numbers of the vector's shape, in the directions in which parameters can move."""
        return generator.standard_normal(self.vector().size)

    def with_parameters(self, parts: tuple[FloatArray, ...]) -> Self:
        """Return the same release with other parameters, in the form in which the map gives them."""
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
            one_of("method", method, ("linearised", "calibrated"), remedy="None chooses the better one")
        size, random = size_of(self, total), generator(rng)
        index, places = self.labels(of), self.places(of)
        limits = None if method == "calibrated" else self._linearised(prob, size, random)
        if method == "linearised" and limits is None:
            raise ArgumentError(_NOT_LINEAR)
        taken = "linearised" if limits is not None else "calibrated"
        if limits is not None:
            (low, high), is_unresponsive = limits, np.zeros(self.vector().size, dtype=bool)
        else:
            low, high, is_unresponsive = calibrated.limits(self, prob, replicates, random, size)
        is_absent, moves = self.by_support()
        is_absent &= low < high  # entries declared to be 0 stay 0
        is_unbounded = (np.isinf(low) | np.isinf(high)) & ~is_absent
        marks = [
            Mark(RowStatus.OK, f"{taken} limits", ~(is_unbounded | is_absent)[places]),
            Mark(
                RowStatus.DOUBTFUL,
                "no finite limit: the released numbers do not bound it",
                is_unbounded[places],
            ),
            Mark(RowStatus.PRIOR, "of a state that may have no record", is_absent[places]),
            Mark(RowStatus.PRIOR, "moves with effects of a state that may have no record", moves[places]),
            Mark(
                RowStatus.DOUBTFUL,
                "the learner hardly answers to its size, so limits may be too narrow",
                is_unresponsive[places],
            ),
            Mark(
                RowStatus.MODEL,
                "held by the declared width, which shrinks larger ones",
                self._near_bound()[places],
            ),
        ]
        if self.unsupported is None:
            marks.append(Mark(RowStatus.DOUBTFUL, "not known whether each state has records"))
        return interval_frame(
            self.vector()[places],
            np.where(is_absent, -np.inf, low)[places],
            np.where(is_absent, np.inf, high)[places],
            index,
            status=self.status,
            marks=marks,
            is_simulated=self.provenance.simulated,
        )

    def _linearised(
        self, prob: float, size: float, random: np.random.Generator
    ) -> tuple[FloatArray, FloatArray] | None:
        """Return limits to first order, ``None`` where the map has none for this release."""
        first_order = getattr(self.map, "linearised", None)
        return None if first_order is None else first_order(self, prob, size, random)


def declared_index(levels: dict[str, list[Any]]) -> pd.Index:
    """Return an index whose entries are as they were declared.

    Parameters
    ----------
    levels
        Entries by the name of their level.
    """
    import pandas as pd

    if len(levels) == 1:
        ((name, values),) = levels.items()
        return pd.Index(pd.Series(values, dtype=object), name=name, tupleize_cols=False)
    return pd.MultiIndex.from_arrays(
        [pd.Series(v, dtype=object) for v in levels.values()], names=list(levels)
    )
