"""Mechanism and records of a command, made from its options."""

from __future__ import annotations

import argparse
import inspect
import json
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesprivmrf.checks import nearest, require
from bayesprivmrf.errors import ArgumentError, DataError
from bayesprivmrf.kinds import is_listed
from bayesprivmrf.mechanisms.reading.frame import Counts, frame_of, warn_of_counts
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.declaration_file import Declaration
from bayesprivmrf.records import read_records, recode
from bayesprivmrf.release import RELEASE_KINDS

if TYPE_CHECKING:
    import pandas as pd


# settings that have an option of their own, so that `--set` refuses them
_OWN_OPTIONS = ("epsilon", "rho", "adjacency")


def chosen_mechanism(options: argparse.Namespace, *, is_saved: bool = True) -> Any:
    """Return the mechanism of ``--mechanism``, with its budget, ``--adjacency`` and the settings of ``--set``.

    The mechanism checks its settings. By default it must accept a model file and make a release that can be saved.
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
            or "call other mechanisms from Python, or install the package that has this one."
        )
        raise ArgumentError(f"`--mechanism` must be one of {', '.join(fit)}, got {name!r}; {remedy}")
    kind = available[name]
    # a release without a file format must be refused before the budget is spent
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
    """Raise an error, before the budget is spent, if later commands could not find the class that reads a release."""
    if not is_listed(group, kind, made):
        raise ArgumentError(
            f"{made.__qualname__} must be listed as {kind!r}, its own name, in the entry-point group {group!r} of "
            "its package, so that later commands can read the release; list it, and install the package again."
        )


def _budget(name: str, known: Any, options: argparse.Namespace) -> dict[str, float]:
    """Return the budget of ``--epsilon`` or ``--rho``; empty for a mechanism that takes its budget by `--set`."""
    given = {key: getattr(options, key) for key in ("epsilon", "rho") if getattr(options, key) is not None}
    taken = [f"`--{key}`" for key in ("epsilon", "rho") if key in known]
    if given.keys() <= known.keys() and (given or not taken):
        return given
    asked = next((f"takes no `--{key}`" for key in given), "has a budget")
    instead = f"{' or '.join(taken)} instead" if taken else "its budget by `--set`, such as `--set delta=...`"
    raise ArgumentError(f"the mechanism {name!r} {asked}; give it {instead}.")


def _settings(name: str, kind: Any, given: list[str]) -> dict[str, Any]:
    """Return the settings of ``--set NAME=VALUE``; a value that is not JSON is text."""
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
                nearest(key, free)
                or "see `bayesprivmrf release --help` for settings with options of their own."
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


def recoded_records(
    options: argparse.Namespace, declaration: Declaration, person: str | None = None
) -> pd.DataFrame:
    """Return the recoded records of a file, with unchanged columns of counts (`--count`) and of persons."""
    records = read_records(options.data)
    variables = declaration.specification.domain.variables
    if options.count is None:
        warn_of_counts(records, variables)
    elif options.count in map(str, variables):
        raise ArgumentError(
            f"`--count` must name a column that is not a declared variable, got {options.count!r}; leave it out of "
            "the model file."
        )
    elif options.count not in records.columns:
        remedy = nearest(options.count, [str(name) for name in records.columns]) or "correct the name."
        raise ArgumentError(f"`--count` must name a column of the data, got {options.count!r}; {remedy}")
    data = recode(declaration, records)
    for column in (options.count, person):
        if column in records.columns and column not in data:
            data[column] = records[column]
    return data


def _units(specification: ModelSpecification, data: pd.DataFrame, count: str | None) -> np.ndarray:
    """Return how many records each row stands for."""
    # the largest number of records is that of mechanisms that use whole records
    column = Counts.of(count, specification.domain.variables, 2**27)
    return np.ones(len(data), dtype=np.int64) if column is None else column.units(data, frame_of(data))


def training_and_test(
    specification: ModelSpecification,
    data: pd.DataFrame,
    count: str | None,
    generator: np.random.Generator,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return a random three quarters of the records and the others; a row may be one record or several."""
    units = _units(specification, data, count)
    records = int(units.sum())
    train = int(0.75 * records)  # a usual share for comparisons of predictions
    if not 0 < train < records:
        raise DataError("`compare` must have at least 2 records, so that some can be held out, got fewer.")
    if count is None:
        order = generator.permutation(len(data))
        return data.iloc[order[:train]], data.iloc[order[train:]]
    taken = generator.multivariate_hypergeometric(units, train, method="marginals")
    return data.assign(**{count: taken}), data.assign(**{count: units - taken})
