"""Mechanism that the options ask for.

Records of a command: read, recoded by the model file, and split for an evaluation.
"""

from __future__ import annotations

import argparse
import inspect
import json
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesprivmrf.checks import nearest, require
from bayesprivmrf.errors import ArgumentError, DataError
from bayesprivmrf.kinds import is_listed
from bayesprivmrf.mechanisms.reading.frame import frame_of
from bayesprivmrf.mechanisms.reading.row_counts import Counts, warn_of_counts
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.declaration_file import Declaration
from bayesprivmrf.records import read_records, recode
from bayesprivmrf.release import RELEASE_KINDS

if TYPE_CHECKING:
    import pandas as pd


# settings with an option of their own, which `--set` refuses
_OWN_OPTIONS = ("epsilon", "rho", "adjacency")


def chosen_mechanism(options: argparse.Namespace, *, is_saved: bool = True) -> Any:
    """Mechanism of ``--mechanism``, its budget, ``--adjacency`` and ``--set``; settings are checked by it.

    By default it must take a declared model and make a release that can be saved.
    """
    from bayesprivmrf.mechanisms import available_mechanisms

    name = options.mechanism or ("laplace" if options.rho is None else "gaussian")
    available: dict[str, Any] = available_mechanisms()
    fit = sorted(key for key, kind in available.items() if kind.runs_from_file or not is_saved)
    if name not in fit:
        remedy = (
            "call it from Python."
            if name in available
            else nearest(name, fit)
            or "what is not listed is called from Python, or brought by another package."
        )
        raise ArgumentError(f"`--mechanism` must be one of {', '.join(fit)}, got {name!r}; {remedy}")
    kind = available[name]
    # that a release has no file format must not turn out after the budget is spent
    if is_saved and not (kind.releases and all(map(RELEASE_KINDS.holds, kind.releases))):
        raise ArgumentError(
            f"`--mechanism` must be one whose release can be saved, got {name!r}, which names no such kind in "
            "`releases`; call it from Python."
        )
    if is_saved:
        for made in kind.releases:
            require_listed(RELEASE_KINDS.group, made.kind, made)
    known = inspect.signature(kind).parameters
    settings = _budget(name, known, options) | _settings(name, kind, options.set)
    if "adjacency" in known:
        settings["adjacency"] = options.adjacency
    elif options.adjacency != "add-or-remove-one":
        raise ArgumentError(f"the mechanism {name!r} has no choice of `--adjacency`.")
    missing = [key for key, one in known.items() if one.default is one.empty and key not in settings]
    if missing:
        wanted = " ".join(f"--set {key}=..." for key in missing)
        raise ArgumentError(f"the mechanism {name!r} must be given {', '.join(missing)}; add {wanted}.")
    return kind(**settings)


def require_listed(group: str, kind: str, made: type) -> None:
    """Raise unless a later command finds the class of what it reads, before it is paid for."""
    if not is_listed(group, kind, made):
        raise ArgumentError(
            f"{made.__qualname__} must be listed as {kind!r}, its own name, in the entry-point group {group!r} of "
            "its package, or no later command could read the release; list it, and install the package again."
        )


def _budget(name: str, known: Any, options: argparse.Namespace) -> dict[str, float]:
    """Return the budget of ``--epsilon`` or ``--rho``; a mechanism without either takes it as a setting."""
    given = {key: getattr(options, key) for key in ("epsilon", "rho") if getattr(options, key) is not None}
    taken = [f"`--{key}`" for key in ("epsilon", "rho") if key in known]
    if given.keys() <= known.keys() and (given or not taken):
        return given
    asked = next((f"takes no `--{key}`" for key in given), "has a budget")
    instead = f"{' or '.join(taken)} instead" if taken else "its budget by `--set`, such as `--set delta=...`"
    raise ArgumentError(f"the mechanism {name!r} {asked}; give it {instead}.")


def _settings(name: str, kind: Any, given: list[str]) -> dict[str, Any]:
    """Return the settings of ``--set NAME=VALUE``: values are JSON, or else text."""
    free = [key for key in inspect.signature(kind).parameters if key not in _OWN_OPTIONS]
    found: dict[str, Any] = {}
    for text in given:
        key, equals, value = text.partition("=")
        if key in _OWN_OPTIONS:
            raise ArgumentError(
                f"`{key}` must be given by its own option, got `--set {text}`; use `--{key} {value or '...'}`."
            )
        if equals and key in kind.removed_settings:
            raise ArgumentError(f"{name!r} has no setting {key!r} any more: {kind.removed_settings[key]}.")
        if equals and key not in free:
            remedy = (
                nearest(key, free) or "see `bayesprivmrf release --help` for what has an option of its own."
            )
            raise ArgumentError(
                f"`--set` must name a setting of {name!r} ({', '.join(free)}), got {key!r}; {remedy}"
            )
        require(bool(equals) and key not in found, "--set", "be NAME=VALUE, each name once", repr(text))
        try:
            found[key] = json.loads(value)
        except ValueError:
            found[key] = value
    return found


__all__ = ["recoded_records", "training_and_test"]

_TRAINING_SHARE = 0.75  # usual in comparisons of predictions; arbitrary
# Largest number of records of a frequency table, that of mechanisms which use whole records
_MOST_SPLIT = 2**27


def recoded_records(
    options: argparse.Namespace, declaration: Declaration, person: str | None = None
) -> pd.DataFrame:
    """Return the recoded records of a file, with its columns of counts (`--count`) and of persons as they are."""
    records = read_records(options.data)
    data = recode(declaration, records)
    if options.count is None:
        warn_of_counts(records, declaration.specification.domain.variables)
    for column in (options.count, person):
        if column in records.columns and column not in data:
            data[column] = records[column]
    return data


def _units(specification: ModelSpecification, data: pd.DataFrame, count: str | None) -> np.ndarray:
    """Return how many records each row stands for."""
    column = Counts.of(count, specification.domain.variables, _MOST_SPLIT)
    return np.ones(len(data), dtype=np.int64) if column is None else column.units(data, frame_of(data))


def training_and_test(
    specification: ModelSpecification,
    data: pd.DataFrame,
    count: str | None,
    generator: np.random.Generator,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Split the records at random, each with equal probability, whether a row is one record or several."""
    units = _units(specification, data, count)
    records = int(units.sum())
    train = int(_TRAINING_SHARE * records)
    if not 0 < train < records:
        raise DataError("`compare` needs at least 2 records, to hold some out.")
    if count is None:
        order = generator.permutation(len(data))
        return data.iloc[order[:train]], data.iloc[order[train:]]
    taken = generator.multivariate_hypergeometric(units, train, method="marginals")
    return data.assign(**{count: taken}), data.assign(**{count: units - taken})
