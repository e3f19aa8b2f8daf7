"""The contract of every mechanism: check the public inputs, read the data once, charge, add noise, stamp."""

from __future__ import annotations

import functools
import inspect
import traceback
import warnings
from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, final

import numpy as np

from bayesprivmrf.checks import NamedSettings, on_objects, require
from bayesprivmrf.errors import (
    ArgumentError,
    BayesPrivMRFError,
    BayesPrivMRFWarning,
    ConsistencyWarning,
    DataError,
    DeclarationWarning,
    NoiseWarning,
    PrivacyError,
    warn_caller,
)
from bayesprivmrf.files import Json
from bayesprivmrf.interruption import drawn
from bayesprivmrf.marginals import marginal_engine
from bayesprivmrf.noise import NoiseSource, SecureNoise, noise_source
from bayesprivmrf.noise.source import whole_counts
from bayesprivmrf.planning import Outlay, checked_total, outlay_preview
from bayesprivmrf.privacy import DiscreteGaussian, PrivacyGuarantee
from bayesprivmrf.release import Provenance, Released

if TYPE_CHECKING:
    import pandas as pd


class Ledger(Protocol):
    """Account of the budget that was spent on a data set; a protocol that any object with `spend` fulfills."""

    def spend(self, guarantee: PrivacyGuarantee, provenance: Provenance) -> object:
        """Record the cost of the next release, or raise an error if the budget does not allow it.

        After an error no noise is drawn and nothing is released.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """The guarantee and the provenance that a mechanism writes on its release."""

    guarantee: PrivacyGuarantee | None
    provenance: Provenance

    @property
    def fields(self) -> dict[str, Any]:
        """Guarantee and provenance as keyword arguments of a release."""
        return {"guarantee": self.guarantee, "provenance": self.provenance}


@dataclass(frozen=True, kw_only=True)
class Mechanism[NetworkT, PlanT, ExactT, ReleaseT](NamedSettings, ABC):
    """Abstract mechanism: the base class of the only code that sees data.

    The four type parameters are the public model that `release` takes (a declared `DiscreteMarkovNetwork`, an
    `IsingNetwork`), the plan, the exact values to which noise is added, and the release.

    A subclass is a frozen keyword-only dataclass. Its fields are its public settings, which ``__post_init__`` checks.
    It supplies four hooks; `release` is final and calls them in this order:

    1. ``_prepare(network)``: check everything public and return a plan, without data. A declared model is a pgmpy
       network from Python and a `ModelSpecification` from the command line; `ModelSpecification.from_pgmpy` takes
       either.
    2. ``_guarantee(plan)``: return the guarantee, without data.
    3. ``_read(plan, data)``: the only hook that reads records. It checks them and returns the exact values: an array,
       refused here unless it is of whole numbers, or an object such as `CodedRecords` that the last hook counts; the
       source of noise refuses its sums unless they are whole. Error messages name columns, but no values and no
       number of records. An error of another library may quote the data, so only its type and place are shown. A
       class that sets ``takes_count`` gets the column of a frequency table as a third argument where `release` is
       given one.
    4. The ledger, if any, is charged.
    5. ``_randomise(plan, exact, source, stamp)``: draw noise from `source` alone, and return a release that contains
       nothing exact and carries the stamp; a release without the stamp is withheld. The hook must not fail, nor issue
       a warning that a filter may turn into an error: the budget is spent, and an exception loses the release.

    So every refusal comes before anything is spent. A class that runs compiled code tries it on made-up records
    before the charge, so that nothing is imported or compiled afterwards. If ``_randomise`` fails nevertheless, the
    noise may have been drawn, and the charge stands. `promise` is final as well, and ends after the second hook.

    A class that sets ``runs_from_file`` to True takes a declared model and reads records. It lists the classes of its
    releases in ``releases``. If all of them are kinds of `Released` that can be saved, the command line can run it.

    Raises
    ------
    TypeError
        A subclass overrides `release` or `promise`; raised when the class is created.
    ArgumentError
        A setting is given that the mechanism does not have.
    """

    runs_from_file: ClassVar[bool] = False
    takes_count: ClassVar[bool] = False
    """True if `_read` takes the column of a frequency table with the number of records for each row."""
    releases: ClassVar[tuple[type[Released], ...]] = ()
    removed_settings: ClassVar[Mapping[str, str]] = {}
    """Settings that no longer exist, each with the text of an error about its replacement."""
    _runs_compiled: ClassVar[bool] = False
    """True if `_randomise` runs compiled code, which `release` then tries before anything is charged."""
    _accountant: ClassVar[str] = ""
    """Remedy in the error of an audit, for mechanisms whose guarantee an accountant computes."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name in ("release", "promise"):
            if inspect.getattr_static(cls, name) is not inspect.getattr_static(Mechanism, name):
                raise TypeError(
                    f"{cls.__name__} must not override `{name}`, which fixes the order of check, charge and noise; "
                    "implement `_prepare`, `_guarantee`, `_read` and `_randomise` instead."
                )

    def __new__(cls, *_: Any, **settings: Any) -> Self:
        """Return a new mechanism, after a check that it has all given settings."""
        known = inspect.signature(cls).parameters.values()
        takes_all = any(one.kind is one.VAR_KEYWORD for one in known)
        for name in () if takes_all else settings.keys() - {one.name for one in known}:
            if name in cls.removed_settings:
                raise ArgumentError(
                    f"{cls.__name__} has no `{name}` anymore: {cls.removed_settings[name]}."
                )
            needed = ", ".join(f"`{one.name}`" for one in known if one.default is one.empty)
            optional = ", ".join(f"`{one.name}`" for one in known if one.default is not one.empty)
            raise ArgumentError(
                f"{cls.__name__} has no setting `{name}`; it must be given {needed or 'none'}, and takes "
                f"{optional or 'no other'}."
            )
        return super().__new__(cls, *_)

    @final
    @on_objects
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
            The declared model that the mechanism needs: public.
        data
            The records, or the nodes' outcomes: sensitive.
        rng
            ``None`` draws the noise from a cryptographic source. A seed or a generator makes a simulated release,
            which protects nobody and is marked as simulated.
        ledger
            Object whose `spend` is called after all checks and before the noise is drawn; not together with `rng`.
            Anybody who knows the seed of a simulated release can remove its noise, so that its cost is larger than
            its guarantee.
        count
            Name of the column of a frequency table with the number of records for each row. The release is the same
            as if each row were repeated that often, and neighbors differ in one record: one count changes by 1.

        Returns
        -------
        release
            Frozen, with ``guarantee`` and ``provenance``. It contains nothing exact, except under a mechanism that
            states that it promises nothing.

        Raises
        ------
        ArgumentError, ModelError
            A public input is wrong. Nothing was read, and nothing was spent.
        DataError
            The data does not fit the declaration, or another library raised an error while reading it, of which only
            type and place are shown. Nothing was spent, unless the place is `_randomise`. The message contains no
            value of the data, but the fact that it was raised is not private: guarantees are for data inside the
            declared domain.
        PrivacyError
            The data gave numbers that are not whole. Or, after the charge, the release lacks its stamp and is
            withheld.
        """
        source = noise_source(rng)
        _check_ledger(ledger, rng)
        must = f"be left out of {type(self).__name__}, where a row is one record"
        require(count is None or self.takes_count, "count", must, count, "repeat the rows")
        counted = () if count is None else (count,)
        plan = self._prepare(network)
        guarantee = self._promised(plan)
        must = f"be None for {type(self).__name__}, which promises nothing to charge"
        require(
            ledger is None or guarantee is not None,
            "ledger",
            must,
            "one",
            "leave it out",
            error=PrivacyError,
        )
        provenance = Provenance(
            mechanism=type(self).__name__,
            settings=self._settings(),
            simulated=source.is_simulated,
            versions=dict(_versions()),
        )
        exact = self._called("_read", plan, data, *counted)
        must = "return the values that get noise"
        remedy = "correct it"
        name = f"`_read` of {type(self).__name__}"
        require(exact is not None, name, must, "None", remedy, error=PrivacyError)
        if isinstance(exact, np.ndarray):  # numbers that are not whole cannot get noise
            whole_counts(exact)
        if self._runs_compiled and not source.is_simulated:
            _rehearse(self._twin())
        if ledger is not None and guarantee is not None:
            ledger.spend(guarantee, provenance)
        stamp = Stamp(guarantee=guarantee, provenance=provenance)
        made = drawn(
            type(self).__name__, lambda: self._called("_randomise", plan, exact, source, stamp)
        )
        self._check_stamp(made, stamp)
        return made

    def _twin(self) -> Mechanism[Any, Any, Any, Any] | None:
        """Return a mechanism of the same class and method for three variables a, b and c of two states each.

        Before a budget is charged it releases made-up records, so that all code that the release needs is loaded or
        compiled by then. None if there is no such code.
        """
        return None

    def _called(self, hook: str, *given: Any) -> Any:
        """Call a hook that sees data, and withhold the message and context of another library's error."""
        try:
            return getattr(self, hook)(*given)
        except (BayesPrivMRFError, ImportError, BayesPrivMRFWarning, KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            # a panic of Polars, Arrow or OpenDP is no Exception; nor is a warning that raises
            failure = type(error)
            line = traceback.extract_tb(error.__traceback__)[:2][-1]  # in the hook itself
        # raised outside the handler, whose error would be kept as context
        where = f"`{hook}` of {type(self).__name__}, at {Path(line.filename).name}:{line.lineno}"
        for kind, cause in ((MemoryError, "memory"), (TimeoutError, "time")):
            if issubclass(failure, kind):
                raise kind(f"{cause} ran out in {where}")
        raise DataError(
            f"unexpected {failure.__name__} in {where}; its message is withheld, because it may quote the data."
        )

    def _check_stamp(self, made: Any, stamp: Stamp) -> None:
        """Refuse a release whose guarantee differs from the charge, or that hides that its noise was seeded."""
        tables = inspect.getattr_static(type(made), "statistics", None)
        # a property is the release itself, or made from it; stored statistics have a stamp of their own
        if isinstance(tables, property):
            stored = None
        else:
            stored = getattr(made, "statistics", None)
        seeded = getattr(
            getattr(stored, "provenance", None), "simulated", stamp.provenance.simulated
        )
        promised = getattr(stored, "guarantee", stamp.guarantee)
        is_stamped = getattr(made, "guarantee", self) == stamp.guarantee == promised
        is_ours = getattr(made, "provenance", stamp.provenance) == stamp.provenance
        must = "return a release with the guarantee and the provenance of its stamp"
        given = f"{type(made).__name__} without them, and it is withheld"
        remedy = "correct `_randomise`, and try it with `rng`, which spends nothing"
        is_right = (
            made is not None and is_stamped and is_ours and seeded == stamp.provenance.simulated
        )
        require(is_right, type(self).__name__, must, given, remedy, error=PrivacyError)

    @final
    @on_objects
    def promise(self, network: NetworkT) -> PrivacyGuarantee | None:
        """Return the guarantee of a release: check the public inputs, read no data, and spend nothing.

        Warnings about the declaration appear in `preview` and `release` only.

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
        is_guarantee = guarantee is None or isinstance(guarantee, PrivacyGuarantee)
        given = type(guarantee).__name__
        must = "promise a PrivacyGuarantee or None"
        remedy = "correct `_guarantee`"
        require(is_guarantee, type(self).__name__, must, given, remedy, error=PrivacyError)
        return guarantee

    @on_objects
    def preview(self, network: NetworkT, total: float | None = None) -> pd.DataFrame:
        """Return the steps of a release with their costs and noise, before any data is read or budget spent.

        A mechanism that does not list its steps has one row: the cost of a release.

        Parameters
        ----------
        network
            The declared model, as for `release`.
        total
            A public guess of the number of records, from 1 to 1e12, with which the noise is compared.

        Returns
        -------
        DataFrame
            One row for each step, whose ``rho`` or ``epsilon`` add up to that of the guarantee; see
            `bayesprivmrf.planning.outlay_preview`. For statistics, `noise_preview` and `query_preview` there.

        Raises
        ------
        ArgumentError, ModelError
            `release` would raise the same error before it reads anything, or ``total`` is not a number of records.

        Warns
        -----
        NoiseWarning
            The noise would hide nearly all tables, answers or couplings at `total` records.
        """
        from bayesprivmrf.mechanisms.preview import Preview

        if total is None:
            known = None
        else:
            known = checked_total(total)
        plan = self._prepare(network)
        frame, problems = self._preview(plan, known)
        for problem in problems:
            warn_caller(problem, NoiseWarning)
        return Preview.of(frame, self, self._promised(plan))

    def _preview(self, plan: PlanT, total: float | None) -> tuple[pd.DataFrame, list[str]]:
        """Return the table of a preview, and warnings about noise that would hide the records."""
        return outlay_preview(self._outlays(plan, total), total), []

    def outlays(self, network: NetworkT, total: float | None = None) -> list[Outlay]:
        """Return the steps of a release as objects with cost, noise and random draws; `preview` shows their table."""
        if total is None:
            known = None
        else:
            known = checked_total(total)
        return self._outlays(self._prepare(network), known)

    def _outlays(self, plan: PlanT, total: float | None) -> list[Outlay]:
        """Return the steps of a release; by default one step with the whole cost."""
        promised = self._promised(plan)
        cost: dict[str, Any] = (
            {} if promised is None else {"rho": promised.rho, "epsilon": promised.epsilon}
        )
        return [Outlay(step="release", **cost)]

    @abstractmethod
    def _prepare(self, network: NetworkT) -> PlanT:
        """Return the plan, after a check of everything public."""

    @abstractmethod
    def _guarantee(self, plan: PlanT) -> PrivacyGuarantee | None:
        """Return the guarantee of a release under this plan, ``None`` if nothing is promised."""

    @abstractmethod
    def _read(self, plan: PlanT, data: Any) -> ExactT:
        """Return the exact values, after a check of the records; the only hook that sees these."""

    @abstractmethod
    def _randomise(self, plan: PlanT, exact: ExactT, source: NoiseSource, stamp: Stamp) -> ReleaseT:
        """Return the release: exact values with noise from `source`, and the fields of the stamp."""

    @final
    def _keep(self, **checked: Any) -> None:
        """Set checked values of settings in ``__post_init__``, where the fields are already frozen."""
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    def _settings(self) -> dict[str, Json]:
        """Return the settings as numbers and text for the provenance."""
        return {field.name: _plain(getattr(self, field.name)) for field in fields(self)}


def _check_ledger(ledger: Any, rng: Any) -> None:
    if ledger is None:
        return
    if isinstance(ledger, type):
        given = f"the class {ledger.__name__}"
    else:
        given = type(ledger).__name__
    is_ledger = not isinstance(ledger, type) and callable(getattr(ledger, "spend", None))
    require(is_ledger, "ledger", "be an object with a method `spend`", given, "make an object")
    # a simulated release protects nobody and costs more than it promises
    must = "be None where `rng` is given, because a simulated release protects nobody"
    require(rng is None, "ledger", must, "both", "leave out one of the two")


# twins that were rehearsed in this process, by class and settings
_REHEARSED: set[str] = set()


def _rehearse(twin: Mechanism[Any, Any, Any, Any] | None) -> None:
    """Load the compiled engine and the source of noise, and release made-up records by a twin of the mechanism.

    A broken installation, a damaged cache of compiled code or a missing feature of OpenDP then shows before the
    budget is charged. A rehearsal takes a fraction of a second once in a process, and microseconds afterwards.
    """
    marginal_engine([2, 2], [(0, 1)]).marginals(np.zeros(4))
    SecureNoise().add(np.zeros(1, dtype=np.int64), DiscreteGaussian(1.0))
    if twin is None or repr(twin) in _REHEARSED:
        return
    import pandas as pd

    from bayesprivmrf.model import declare

    network = declare({name: [0, 1] for name in "abc"}, [("a", "b", "c")])
    cells = pd.MultiIndex.from_product([[0, 1]] * 3, names=[*"abc"]).to_frame(index=False)
    plan = twin._prepare(network)
    provenance = Provenance(
        mechanism=type(twin).__name__, settings=twin._settings(), simulated=False
    )
    stamp = Stamp(guarantee=twin._promised(plan), provenance=provenance)
    with warnings.catch_warnings(action="ignore"):
        exact = twin._read(plan, pd.concat([cells] * 4))
        twin._randomise(plan, exact, SecureNoise(), stamp)
    _REHEARSED.add(repr(twin))


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return str(getattr(value, "value", value))


@functools.cache
def _versions() -> Mapping[str, str]:
    """Return the versions of the libraries on which the numbers of a release depend."""
    found = {}
    for name in ("bayesprivmrf", "opendp", "numpy"):
        found[name] = "not installed"
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found
