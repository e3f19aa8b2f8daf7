"""The contract of every mechanism: check all that is public, read the data once, charge, randomise, stamp."""

from __future__ import annotations

import functools
import inspect
import traceback
import warnings
from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, fields
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, final

import numpy as np

from bayesprivmrf.errors import (
    OWN_WARNINGS,
    ArgumentError,
    BayesPrivMRFError,
    ConsistencyWarning,
    DataError,
    DeclarationWarning,
    InterruptionWarning,
    PrivacyError,
)
from bayesprivmrf.interruption import heard
from bayesprivmrf.mechanisms.noise_warning import warn_without_raising
from bayesprivmrf.noise import NoiseSource, noise_source
from bayesprivmrf.noise.source import whole_counts
from bayesprivmrf.planning import Outlay, checked_total, outlay_preview
from bayesprivmrf.privacy import PrivacyGuarantee
from bayesprivmrf.release import Provenance, Released

if TYPE_CHECKING:
    import pandas as pd


class Ledger(Protocol):
    """Keeps account of what was spent on a data set."""

    def spend(self, guarantee: PrivacyGuarantee, provenance: Provenance) -> object:
        """Record the cost of a release about to be made, or raise if the budget does not allow it.

        If this raises, no noise is drawn and nothing is released.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """The mark that the base writes on a release: the guarantee, and how it was made."""

    guarantee: PrivacyGuarantee | None
    provenance: Provenance

    @property
    def fields(self) -> dict[str, Any]:
        """Both, as arguments of a release."""
        return {"guarantee": self.guarantee, "provenance": self.provenance}


# failures from outside, which a second call of `_randomise` may survive
_INTERRUPTIONS = (KeyboardInterrupt, MemoryError, TimeoutError)


@dataclass(frozen=True, kw_only=True)
class Mechanism[NetworkT, PlanT, ExactT, ReleaseT](ABC):
    """Abstract base of the only code that sees data.

    Its four types are the public model that `release` takes (a declared `DiscreteMarkovNetwork`, an `IsingNetwork`),
    the plan, what the noise is added to, and the release.

    A subclass is a frozen keyword-only dataclass whose fields are its public settings, checked in
    ``__post_init__``. It supplies four hooks; `release` is final and calls them in this order:

    1. ``_prepare(network)``: check everything public and return a plan, without data. A declared model comes as a
       pgmpy network from Python and as a `ModelSpecification` from the command line;
       `ModelSpecification.from_pgmpy` takes either.
    2. ``_guarantee(plan)``: return what will be promised, without data.
    3. ``_read(plan, data)``: the one hook that reads records. It checks them and returns what the noise is
       added to: an array, refused here unless it is of whole numbers, or an object such as `CodedRecords` that the
       next hook counts, whose sums `source` refuses unless they are whole. Its errors name columns, never values and
       never how many records there are. An error of another library may quote the data, so that only its type and
       place are shown. A class that sets ``takes_count`` is given the column of a frequency table as a third
       argument, where `release` is given one.
    4. the ledger, if any, is charged;
    5. ``_randomise(plan, exact, source, stamp)``: draw noise from `source` alone, and return a release
       that holds nothing exact and carries the stamp; one without it is withheld. It must not fail, nor issue a
       warning that a filter may turn into an error: the budget is spent, and an exception loses the release.

    So every refusal comes before anything is spent. A charge cannot be taken back: if ``_randomise`` fails all the
    same, the noise may have been drawn, so the charge stands. `promise` is final
    as well and ends after the second hook.

    A class that sets ``runs_from_file`` to True takes a declared model and reads records, and names in ``releases``
    the classes of what it releases. If each is a kind of `Released` that can be saved, the command line can run it.

    Raises
    ------
    TypeError
        A subclass overrides `release` or `promise`; raised when the class is created.
    ArgumentError
        A setting is given that the mechanism does not have.
    """

    runs_from_file: ClassVar[bool] = False
    takes_count: ClassVar[bool] = False
    """True if `_read` takes the column of a frequency table that says how many records a row stands for."""
    releases: ClassVar[tuple[type[Released], ...]] = ()
    removed_settings: ClassVar[Mapping[str, str]] = {}
    """Settings that no longer exist, each with the words of an error about its replacement."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name in ("release", "promise"):
            if getattr(cls, name) is not getattr(Mechanism, name):
                raise TypeError(
                    f"{cls.__name__} must not override `{name}`, which holds the order of check, charge and noise; "
                    "implement `_prepare`, `_guarantee`, `_read` and `_randomise` instead."
                )

    def __new__(cls, *_: Any, **settings: Any) -> Self:
        """Refuse a setting that the mechanism does not have, with the names of those that it has."""
        made = super().__new__(cls)
        known = inspect.signature(cls).parameters.values()
        if any(one.kind is one.VAR_KEYWORD for one in known):
            return made
        for name in settings.keys() - {one.name for one in known}:
            if name in cls.removed_settings:
                raise ArgumentError(
                    f"{cls.__name__} has no setting `{name}` any more: {cls.removed_settings[name]}."
                )
            needed = [f"`{one.name}`" for one in known if one.default is one.empty]
            optional = [f"`{one.name}`" for one in known if one.default is not one.empty]
            raise ArgumentError(
                f"{cls.__name__} has no setting `{name}`; it must be given {', '.join(needed) or 'none'}, and takes "
                f"{', '.join(optional) or 'no other'}."
            )
        return made

    @final
    def release(
        self,
        network: NetworkT,
        data: Any,
        *,
        rng: int | np.random.Generator | None = None,
        ledger: Ledger | None = None,
        count: Hashable | None = None,
    ) -> ReleaseT:
        """Make one release from the data.

        Parameters
        ----------
        network
            The declared model, of the mechanism's own kind: public.
        data
            The records, or the nodes' outcomes: sensitive.
        rng
            ``None`` draws the noise from a cryptographic source. A seed or a generator makes a simulated
            release, which protects nobody and says so.
        ledger
            Charged after every check has passed and before noise is drawn; not together with `rng`. Whoever knows
            the seed of a simulated release can remove its noise, so the release costs more than it promises, and a
            ledger that held the promise would be wrong.
        count
            Name of the column of a frequency table that says how many records each row stands for. The release is the
            same as if each row were repeated that often, and neighbors differ in one record: one count changes by 1.

        Returns
        -------
        release
            Frozen; carries ``guarantee`` and ``provenance``. Nothing in it is exact unless the mechanism
            says that it promises nothing.

        Raises
        ------
        ArgumentError, ModelError
            Something public is wrong. Nothing was read, nothing was spent.
        DataError
            The data does not fit the declaration, or another library raised an error where it was read, of
            which only type and place are shown. Nothing was spent, unless the place is `_randomise`. The message
            holds no value of the data, yet the fact that it was raised is not private: guarantees are for data inside
            the domain.
        PrivacyError
            The data gave numbers that are not whole. Or, after the charge, the release lacks its stamp and is
            withheld.
        """
        source = noise_source(rng)
        _check_ledger(ledger, rng)
        counted = () if count is None else (self._checked_count(count),)
        plan = self._prepare(network)
        guarantee = self._promised(plan)
        if ledger is not None and guarantee is None:
            raise PrivacyError(
                f"{type(self).__name__} promises nothing, so there is nothing to charge a `ledger` with; "
                "leave it out."
            )
        provenance = Provenance(
            mechanism=type(self).__name__,
            settings=self._settings(),
            simulated=source.is_simulated,
            versions=dict(_versions()),
        )
        exact = self._called("_read", plan, data, *counted)
        self._check_exact(exact)
        if ledger is not None and guarantee is not None:
            ledger.spend(guarantee, provenance)
        stamp = Stamp(guarantee=guarantee, provenance=provenance)
        made = self._paid(plan, exact, source, stamp)
        self._check_stamp(made, stamp)
        return made

    def _paid(self, *given: Any) -> Any:
        """Call `_randomise` after its cost was charged: a first interruption loses nothing, a second one is obeyed.

        A learner keeps its results up to the interruption. For other mechanisms the method is called once more, with
        fresh noise, unless a warning has said something about the noise of the first call: two draws would cost more
        than was charged.
        """
        with heard() as names:
            try:
                made = self._called("_randomise", *given)
            except _INTERRUPTIONS:
                if names or names.has_disclosed:
                    raise
                made = self._called("_randomise", *given)
        if names:
            is_outside = names[0] in {each.__name__ for each in _INTERRUPTIONS}
            what = f"{'was interrupted by' if is_outside else 'failed with'} a {names[0]}"
            warn_without_raising(
                f"{type(self).__name__} {what} after its budget was spent: the release "
                "holds what was computed until then, costs the whole promise, and has the status `stopped early`. "
                "Fit its `statistics` with another estimator, which spends no budget.",
                InterruptionWarning,
            )
        return made

    def _checked_count(self, count: Any) -> Hashable:
        if not self.takes_count:
            raise ArgumentError(
                f"`count` must be left out of {type(self).__name__}, where a row is one record; repeat the rows."
            )
        return count

    def _called(self, hook: str, *given: Any) -> Any:
        """Call a hook that sees data: another library's error may quote it, in its message or its context."""
        try:
            return getattr(self, hook)(*given)
        except (BayesPrivMRFError, ImportError, *OWN_WARNINGS, KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            # a panic of Polars, Arrow or OpenDP is no Exception; nor a warning that raises
            failure, line = type(error), traceback.extract_tb(error.__traceback__)[:2][-1]  # the hook's own
        # raised here, outside the handler, whose error would be kept as context
        where = f"`{hook}` of {type(self).__name__}, at {Path(line.filename).name}:{line.lineno}"
        if issubclass(failure, MemoryError):
            raise MemoryError(f"memory ran out in {where}")
        if issubclass(failure, TimeoutError):
            raise TimeoutError(f"time ran out in {where}")
        raise DataError(
            f"unexpected {failure.__name__} in {where}; its message is withheld, for it may quote the data."
        )

    def _check_exact(self, exact: Any) -> None:
        """Refuse, while nothing is spent, what no source adds noise to: nothing, or numbers that are not whole."""
        if exact is None:
            raise PrivacyError(
                f"`_read` of {type(self).__name__} must return what noise is added to, got None; correct it."
            )
        if isinstance(exact, np.ndarray):
            whole_counts(exact)

    def _check_stamp(self, made: Any, stamp: Stamp) -> None:
        """Refuse a release that states another promise than was charged, or hides that its noise was seeded."""
        tables = inspect.getattr_static(type(made), "statistics", None)
        held = None if isinstance(tables, property) else getattr(made, "statistics", None)  # one is stamped
        seeded = getattr(getattr(held, "provenance", None), "simulated", stamp.provenance.simulated)
        promised = getattr(held, "guarantee", stamp.guarantee)
        right = (
            made is not None
            and getattr(made, "guarantee", self) == stamp.guarantee
            and getattr(made, "provenance", stamp.provenance) == stamp.provenance
            and seeded == stamp.provenance.simulated
            and promised == stamp.guarantee
        )
        if not right:
            raise PrivacyError(
                f"{type(self).__name__} must return a release with the guarantee and the provenance of its stamp, "
                f"got {type(made).__name__} without them, and it is withheld; correct `_randomise`, and try it with "
                "`rng`, which spends nothing."
            )

    @final
    def promise(self, network: NetworkT) -> PrivacyGuarantee | None:
        """Tell what a release would promise: check all that is public, read no data, spend nothing.

        Warnings about the declaration are left to `preview` and `release`.

        Parameters
        ----------
        network
            The declared model, as for `release`.

        Returns
        -------
        PrivacyGuarantee or None
            The guarantee of every release made with these settings; ``None`` if nothing is promised.

        Raises
        ------
        ArgumentError, ModelError
            `release` would raise the same before it reads anything.
        """
        with warnings.catch_warnings():
            for category in (DeclarationWarning, ConsistencyWarning):
                warnings.simplefilter("ignore", category)
            return self._promised(self._prepare(network))

    def _promised(self, plan: PlanT) -> PrivacyGuarantee | None:
        guarantee = self._guarantee(plan)
        if guarantee is not None and not isinstance(guarantee, PrivacyGuarantee):
            raise PrivacyError(
                f"{type(self).__name__} must promise a PrivacyGuarantee or None, got {type(guarantee).__name__}; "
                "correct its hook."
            )
        return guarantee

    def preview(self, network: NetworkT, total: float | None = None) -> pd.DataFrame:
        """Tell what a release will do, one row a table or a step, before any data is read or budget spent.

        A mechanism without a preview of its own has one row: the cost of a release.

        Parameters
        ----------
        network
            The declared model, as for `release`.
        total
            A public guess of the number of records, to compare the noise with.

        Raises
        ------
        ArgumentError, ModelError
            `release` would raise the same before it reads anything; or ``total`` is no number of records.
        """
        from bayesprivmrf.mechanisms.preview import Preview

        known = None if total is None else checked_total(total)
        frame = outlay_preview(self.outlays(network, known), known)
        return Preview.of(frame, self, self.promise(network))

    def outlays(self, network: NetworkT, total: float | None = None) -> list[Outlay]:
        """Return the steps of a release as values: what each costs, its noise, and what is drawn.

        Parameters
        ----------
        network, total
            The declared model and the number of records, as for `preview`, which makes a table of the steps.
        """
        return self._outlays(self._prepare(network), total)

    def _outlays(self, plan: PlanT, total: float | None) -> list[Outlay]:
        """Return the steps of a release; by default one, with the cost of all."""
        promised = self._promised(plan)
        cost: dict[str, Any] = {} if promised is None else {"rho": promised.rho, "epsilon": promised.epsilon}
        return [Outlay(step="release", **cost)]

    @abstractmethod
    def _prepare(self, network: NetworkT) -> PlanT:
        """Check everything public and return the plan."""

    @abstractmethod
    def _guarantee(self, plan: PlanT) -> PrivacyGuarantee | None:
        """Return what a release under this plan promises, ``None`` for nothing."""

    @abstractmethod
    def _read(self, plan: PlanT, data: Any) -> ExactT:
        """Check the records and return what the noise is added to. The only hook that sees them."""

    @abstractmethod
    def _randomise(self, plan: PlanT, exact: ExactT, source: NoiseSource, stamp: Stamp) -> ReleaseT:
        """Return the release: noise from `source` on the exact values, with the stamp's fields."""

    @final
    def _keep(self, **checked: Any) -> None:
        """Replace settings by their checked values, in ``__post_init__``: the fields of the class are frozen."""
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    def _settings(self) -> dict[str, Any]:
        """Return the settings as numbers and text, for the provenance."""
        return {field.name: _plain(getattr(self, field.name)) for field in fields(self)}


def _check_ledger(ledger: Any, rng: Any) -> None:
    if ledger is None:
        return
    if isinstance(ledger, type) or not callable(getattr(ledger, "spend", None)):
        what = f"the class {ledger.__name__}" if isinstance(ledger, type) else type(ledger).__name__
        raise ArgumentError(f"`ledger` must be an object with a method `spend`, got {what}; make one.")
    if rng is not None:
        raise ArgumentError(
            "`ledger` must be None where `rng` is given: a simulated release protects nobody, so that its promise is "
            "not what it costs; leave out one of the two."
        )


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return str(getattr(value, "value", value))


@functools.cache
def _versions() -> Mapping[str, str]:
    """Versions of the libraries that a release's numbers depend on."""
    found = {}
    for name in ("bayesprivmrf", "opendp", "numpy"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found
