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

In files, a learning map registers its kind, and gives its settings as plain values. The numbers of what was measured
stand at the end of the array of a model's file.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, Self

import numpy as np

from bayesprivmrf.checks import generator, one_of, whole_number
from bayesprivmrf.errors import ArgumentError, ReleaseFileError
from bayesprivmrf.inference.asked import coverage
from bayesprivmrf.inference.interval_frame import Mark, RowStatus, interval_frame
from bayesprivmrf.inference.solution import Status
from bayesprivmrf.kinds import Kinds
from bayesprivmrf.learning import calibrated
from bayesprivmrf.learning.calibrated import Coordinates, size_of
from bayesprivmrf.model import Domain
from bayesprivmrf.model.tables import FloatArray, IntArray
from bayesprivmrf.noise.source import NoiseSource
from bayesprivmrf.privacy import NoiseDistribution
from bayesprivmrf.release import NoisyStatistics
from bayesprivmrf.release.codec import (
    Fields,
    details_content,
    positions,
    restored_model,
)

if TYPE_CHECKING:
    import pandas as pd

    from bayesprivmrf.learning.models.solution import LearnedSolution
    from bayesprivmrf.release.base import Provenance


class LearningMap(Protocol):
    """Protocol of a learning map: a frozen object of public settings that turns records into parameters.

    A map may also have a method ``linearised(learned, prob, total, generator)`` that returns first-order lower and
    upper limits of the vector, or ``None`` for a release to which it does not apply. `couplings_interval` prefers it.
    """

    def learn(
        self, codes: np.ndarray, counts: IntArray, total: float, source: NoiseSource, /
    ) -> tuple[FloatArray, ...]:
        """Return the parameters, in the order of the release's `parameters`.

        Parameters
        ----------
        codes, counts
            Records as states' codes, shape (rows, p), and the number of records that each row represents.
        total
            Public or noisy number of records.
        source
            Source of the noise.
        """
        ...


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

    def places(self, of: str) -> IntArray:
        """Return the positions of the entries of `labels` in the vector."""
        return np.arange(self.vector().size)

    def coordinates(self) -> Coordinates:
        """Return the group and kind of each entry; by default each is a group by itself, and all are of one kind."""
        size = self.vector().size
        return Coordinates(groups=np.arange(size), kinds=np.zeros(size, dtype=np.int64))

    def _belong_to_wide(self, width: float) -> np.ndarray:
        """Return a mask of the entries of variables whose couplings and field have at least a size, nats."""
        return np.zeros(self.vector().size, dtype=bool)

    def by_support(self) -> tuple[np.ndarray, np.ndarray]:
        """Return masks of the entries that no released number determines, and of others that depend on them.

        A state whose released count is within noise of 0 may have no record. The data then determine neither its
        probability nor its dependence on other variables, so its field and couplings could be of any size. The fields
        of variables that may be coupled with it, and entries that are centered over it, depend on these.
        """
        nothing = np.zeros(self.vector().size, dtype=bool)
        return nothing, nothing

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
        first_order = None if method == "calibrated" else getattr(self.map, "linearised", None)
        limits = None if first_order is None else first_order(self, prob, size, random)
        if method == "linearised" and limits is None:
            raise ArgumentError(
                "`method` must not be 'linearised' for this release, which was made by neither SelectMeasure nor "
                "Frank-Wolfe with two states, single variables measured and enough steps; leave it out."
            )
        taken = "linearised" if limits is not None else "calibrated"
        if limits is not None:
            (low, high), is_unresponsive = limits, np.zeros(self.vector().size, dtype=bool)
        else:
            low, high, is_unresponsive = calibrated.limits(self, prob, replicates, random, size)
        is_absent, moves = self.by_support()
        is_absent &= low < high  # couplings that the declaration excludes have limits of 0
        is_unbounded = (np.isinf(low) | np.isinf(high)) & ~is_absent
        bound = getattr(self.map, "bound", None)
        # the bound binds from 0.85 of it on: on simulated chains most variables were above 0.76 of the bound where
        # it was at most the true width, and all below 0.67 where it was twice the true width
        is_held = self._belong_to_wide(0.85 * (np.inf if bound is None else bound))
        narrow = "the learner hardly answers to its size, so limits may be too narrow"
        rows = (
            (RowStatus.OK, f"{taken} limits", ~(is_unbounded | is_absent)),
            (RowStatus.DOUBTFUL, "no finite limit: the released numbers do not bound it", is_unbounded),
            (RowStatus.PRIOR, "of a state that may have no record", is_absent),
            (RowStatus.PRIOR, "moves with effects of a state that may have no record", moves),
            (RowStatus.DOUBTFUL, narrow, is_unresponsive),
            (RowStatus.MODEL, "held by the declared width, which shrinks larger ones", is_held),
        )
        marks = [Mark(status, note, mask[places]) for status, note, mask in rows]
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


# kinds of learning maps that files can name, those of installed packages too
_MAPS: Kinds[SavedMap] = Kinds("bayesprivmrf.learning_maps")


class SavedMap:
    """Mixin of a learning map that is written to release files; a subclass with a `kind` registers itself."""

    kind: ClassVar[str]
    learns: ClassVar[tuple[str, ...]] = ("coupling_matrix", "field_vector")
    """The `parameters` of the releases whose map it can be."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "kind" in vars(cls):
            _MAPS.add(cls.kind, cls)

    @abstractmethod
    def as_dict(self) -> dict[str, Any]:
        """Return the kind and the settings as values that JSON can hold."""

    @classmethod
    @abstractmethod
    def from_dict(cls, content: Fields, basis: Any) -> Self:
        """Return the map that `as_dict` described.

        Parameters
        ----------
        content
            What `as_dict` wrote.
        basis
            Knowledge of the release: the number of states of each variable, or the sets of a model of monomials.
        """


def common_content(learned: Any) -> dict[str, Any]:
    """Return the entries that the files of all learned models have, besides the domain."""
    found: dict[str, Any] = {}
    if learned.statistics is not None:  # all but its numbers, and the domain, which is the model's
        content = learned.statistics._content()
        known = {name: content[name] for name in ("cliques", "noise", "total")}
        if "queries" in content:
            known |= {"queries": content["queries"], "numbers": learned.statistics.flat.size}
        found["statistics"] = known
    if learned.unsupported is not None:
        found["unsupported"] = list(map(list, learned.unsupported))
    return found | {"total": learned.total, "details": details_content(learned.details)}


def map_content(learned: Any) -> dict[str, Any]:
    """Return the entries of the noise on the total and of the map, ``None`` for one that files do not hold."""
    noise, known = learned.total_noise, learned.map
    return {
        "total_noise": None if noise is None else noise.as_dict(),
        "map": known.as_dict() if isinstance(known, SavedMap) else None,
    }


def _restored_map(written: Any, parameters: tuple[str, ...], basis: Any) -> Any:
    """Return the map of a release with given parameters; ``None`` for a kind that no installed package brings."""
    if written is None:
        return None
    content = Fields(written)
    made = _MAPS.find(content.text("kind"))
    if made is not None and made.learns != parameters:
        raise ReleaseFileError(f"its map must be one to {', '.join(parameters)}, got {made.kind!r}")
    return None if made is None else made.from_dict(content, basis)


def require_states(content: Fields, basis: tuple[int, ...]) -> None:
    """Raise unless a map has the numbers of states of its release."""
    if content.items("cardinalities") != list(basis):
        raise ReleaseFileError("`cardinalities` of its map must be the numbers of its variables' states")


def written_pairs(content: Fields, name: str, size: int) -> IntArray:
    """Return pairs of ascending positions, shape (P, 2)."""
    found = np.array([positions(pair, size) for pair in content.items(name)], dtype=np.int64).reshape(-1, 2)
    if not (found[:, 0] < found[:, 1]).all():
        raise ReleaseFileError(f"`{name}` must be pairs of ascending positions")
    return found


def restored_fields(
    content: Fields, domain: Domain, measured: np.ndarray, parameters: tuple[str, ...], basis: Any, stamp: Any
) -> dict[str, Any]:
    """Return the fields that every learned model has, of a file's content.

    Parameters
    ----------
    measured
        The last numbers of the file's array: noisy tables or answers.
    parameters, basis
        The `parameters` of the release, and what its map knows of it: see `SavedMap`. A basis of None is that of a
        model without a map, whose file has neither that nor a law of the noise on the total.
    stamp
        Guarantee and provenance.
    """
    support, statistics = None, None
    if "unsupported" in content:  # older files do not say which states have no support
        written, count = content.items("unsupported"), len(domain.variables)
        if len(written) != count:
            raise ReleaseFileError(f"`unsupported` must hold {count} lists, got {len(written)}")
        support = tuple(positions(own, k) for own, k in zip(written, domain.cardinalities, strict=True))
    if "statistics" in content and content["statistics"] is not None:
        statistics = NoisyStatistics._restored(_measured(content), measured, **stamp)
    return {
        "domain": domain,
        "total": content.number("total", optional=True),
        "total_noise": None if basis is None else content.law("total_noise", optional=True),
        "details": content.mapping("details"),
        "unsupported": support,
        "map": None if basis is None else _restored_map(content["map"], parameters, basis),
        "statistics": statistics,
        **stamp,
    }


def statistics_size(content: Fields, domain: Domain) -> int:
    """Return how many numbers of a file's array are noisy tables, or answers to queries."""
    if "statistics" not in content or content["statistics"] is None:
        return 0
    measured = _measured(content)
    return measured.whole("numbers", 0) if "numbers" in measured else restored_model(measured, domain).size


def _measured(content: Fields) -> Fields:
    shared = {name: content[name] for name in ("variables", "states")}
    return Fields({"cliques_declared": True, **shared, **content.mapping("statistics")})
