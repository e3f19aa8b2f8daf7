"""Command ``bayesprivmrf release``, the only one that spends privacy budget.

Other commands make the mechanism and the records of their options here as well.
"""

from __future__ import annotations

import argparse
import base64
import inspect
import json
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesprivmrf.checks import nearest, require
from bayesprivmrf.cli.output import (
    NO_KERNEL_REMARK,
    SHOWN,
    aligned,
    claim_file,
    counted,
    json_text,
    promised,
    remark,
    show,
)
from bayesprivmrf.errors import ArgumentError, PrivacyError, ReleaseFileError
from bayesprivmrf.files import Json
from bayesprivmrf.kinds import is_listed
from bayesprivmrf.learning.models.base import LearnedNetwork
from bayesprivmrf.learning.models.solution import status_with_advice
from bayesprivmrf.learning.select_measure.rounds_solution import RoundsSolution
from bayesprivmrf.mechanisms import StatisticsMechanism, available_mechanisms
from bayesprivmrf.mechanisms.reading.frame import warn_of_counts
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.declaration_file import Declaration, read_declaration
from bayesprivmrf.noise.base import ENTRY_POINT_GROUP
from bayesprivmrf.records import read_records, recode
from bayesprivmrf.release import RELEASE_KINDS
from bayesprivmrf.release.file import reserved_space

if TYPE_CHECKING:
    import pandas as pd


# settings that have an option of their own, so that `--set` refuses them
_OWN_OPTIONS = ("epsilon", "rho", "adjacency")


def run(options: argparse.Namespace) -> None:
    """Check everything that can fail, count, add noise, save the release, and print its promise."""
    target = claim_file(options.out, force=options.force, sources=[options.data, options.model])
    declaration = read_declaration(options.model)
    mechanism = chosen_mechanism(options)
    if mechanism.promise(declaration.specification) is None:
        raise PrivacyError(
            f"`--mechanism` must be private, but {type(mechanism).__name__} promises nothing; call it from Python."
        )
    _require_listed_noise(mechanism, declaration.specification)
    data = recoded_records(options, declaration, getattr(mechanism, "person", None))
    # An upper bound on the bytes of a release: its numbers, the declaration, and a MiB for the rest
    cells = max(kind._most_numbers(declaration.specification) for kind in mechanism.releases)
    with reserved_space(target, 8 * (cells + len(repr(declaration.specification.domain))) + 2**20):
        release = mechanism.release(declaration.specification, data, count=options.count)
    # Save a release whose budget is spent; if the file cannot be written, print its bytes
    try:
        release.save(target, overwrite=options.force)
    except ReleaseFileError as error:
        remedy = (
            "are the release in base64: save them in a file, such as release.txt, and restore the release with "
            "`python -m base64 -d release.txt > your.release`."
        )
        try:
            text = base64.encodebytes(release._as_file()).decode()
        except ReleaseFileError:  # the package of this kind of release writes an unreadable file
            text = _as_text(release)
            remedy = (
                "are all fields of the release: save them, and correct the package that made it."
            )
        show(text)
        raise ReleaseFileError(
            f"{error} The budget is spent, and the lines on standard output {remedy}"
        ) from None
    # printed first, because an error while the release is shown loses nothing
    remark(
        f"Saved to {target}. The budget is spent; results computed from this file spend nothing more.\n"
    )
    summary = release.summary()
    if options.json:
        provenance = release.provenance
        described = {
            "path": str(target),
            "kind": release.kind,
            "mechanism": provenance.mechanism,
            "settings": dict(provenance.settings),
            "guarantee": promised(release),
            "statement": release.privacy_statement(),
            "versions": dict(provenance.versions),
            "total": getattr(release, "total", None),
        }
        show(json_text(described | summary))
        return
    show(release)
    if "couplings" in summary:
        show(f"\n{_description(release, summary, f'bayesprivmrf.load_release({str(target)!r})')}")
        show(f"\n{_next_step(release, target)}")


def _require_listed_noise(mechanism: Any, model: ModelSpecification) -> None:
    """Raise an error if `fit` would not find the tables' noise distributions; remark if few methods use them."""
    if not isinstance(mechanism, StatisticsMechanism):
        return
    with warnings.catch_warnings(action="ignore"):  # the release shows the warnings
        distributions = mechanism.noise_laws(model)
    if any(each.smooth is None for each in distributions):
        remark(NO_KERNEL_REMARK)
    for made in {type(each) for each in distributions}:
        require_listed(ENTRY_POINT_GROUP, made.name, made)


def _as_text(release: Any) -> str:
    """Return all fields of a release as text, without abbreviations."""
    if is_dataclass(release):
        names = [one.name for one in fields(release)]
    else:
        names = list(vars(release))
    with np.printoptions(threshold=sys.maxsize):
        return "\n".join(f"{name} = {getattr(release, name)!r}" for name in names)


def _description(release: LearnedNetwork, summary: Mapping[str, Any], loaded: str) -> str:
    """Return status, measurements and the ten largest couplings of a learned model.

    A coupling is the entry of its table with the largest size, which may be large by noise alone. It is shown from
    three standard errors. With a standard error of a nat or more, its size is unknown: some states rarely occur
    together.

    Parameters
    ----------
    release, summary
        Learned model, and its summary.
    loaded
        Python code that loads the model, for the hints.
    """
    details = summary["details"]
    couplings = summary["couplings"]
    lines = [f"Status: {status_with_advice(summary['status'], details)}."]
    if "tables_measured" in details:
        rounds = details["tables_by_round"]
        if len(rounds) > 1:
            by_round = f", in {len(rounds)} rounds of {', '.join(map(str, rounds))}"
        else:
            by_round = ""
        lines.append(
            f"Measured: {counted(details['tables_measured'], 'table')} of several variables{by_round}."
        )
    elif "pairs_measured" in details:
        pairs = counted(details["pairs_measured"], "pair")
        lines.append(
            f"Measured: {pairs}, of which {details['pairs_kept']} stood out from the noise."
        )
    lines.append("")
    heading = f"{release.graph_heading}, nats"
    if not couplings:
        nothing = "No pair stood out from the noise, which is not evidence that the variables are independent."
        return "\n".join([*lines, nothing])
    if any(each["error"] is None for each in couplings):
        remedy = f"in Python, {loaded}.couplings_interval() gives intervals"
        shown = _table(couplings, "coupling")
        return "\n".join(
            [*lines, f"{heading}:", shown, f"Their standard errors are not shown; {remedy}."]
        )
    if len(release.domain.variables) <= 100:  # all dependences then take about a second
        edges = sorted(
            release.graph(weight="dependence").edges(data="weight"), key=lambda edge: -edge[2]
        )
        pairs = [{"variables": edge[:2], "dependence": edge[2]} for edge in edges]
        lines.append(
            "Strongest dependences given all other variables, from 0 to 1, noise included:"
        )
        lines += [_table(pairs, "dependence"), ""]
    sized = [each for each in couplings if each["error"] < 1.0]
    clear = [each for each in sized if abs(each["coupling"]) > 3.0 * each["error"]]
    if clear:
        lines += [f"{heading}, with standard errors:", _table(clear, "coupling", "error")]
    if hidden := len(sized) - len(clear):
        what = (
            f"The effect of {counted(hidden, 'pair')} is less than three times its standard error"
        )
        lines.append(f"{what}, so it may be noise.")
    if sizeless := len(couplings) - len(sized):
        lines.append(
            f"The effect of {counted(sizeless, 'pair')} is not known to within a nat, because some states rarely "
            f"occur together; in Python, {loaded}.graph(weight='dependence') weights states by their frequency."
        )
    return "\n".join(lines)


def _table(pairs: Sequence[Mapping[str, Any]], *numbers: str) -> str:
    """Return the first pairs of variables as a plain table with the given columns of numbers."""
    rows = [
        [*map(str, each["variables"]), *(f"{each[name]:.3f}" for name in numbers)]
        for each in pairs[:SHOWN]
    ]
    return aligned(["variable", "other", *numbers], rows, left=2)


def _next_step(release: LearnedNetwork, path: Path) -> str:
    """Return a hint on the next step, which spends no budget."""
    loaded = f"bayesprivmrf.load_release({str(path)!r})"
    if release.statistics is None:
        return f"Next: {loaded}.sample(1000) in Python draws synthetic records, which spends no budget."
    if isinstance(release.solution, RoundsSolution):
        asked = f".interval({list(release.domain.variables[:2])!r}) gives a table with intervals"
    else:
        asked = ".couplings_interval() gives intervals of the couplings"
    return (
        f"Next: `bayesprivmrf fit {path}` fits what was measured, which spends no budget; in Python, "
        f"{loaded}{asked}, and .graph() gives the pairs that stand out."
    )


def chosen_mechanism(options: argparse.Namespace, *, is_saved: bool = True) -> Any:
    """Return the mechanism of ``--mechanism``, with its budget, ``--adjacency`` and the settings of ``--set``.

    The mechanism checks its settings. By default it must accept a model file and make a release that can be saved.
    """
    name = options.mechanism or ("laplace" if options.rho is None else "gaussian")
    available: dict[str, Any] = available_mechanisms()
    fit = sorted(key for key, kind in available.items() if kind.runs_from_file or not is_saved)
    python = "call it from Python"
    remedy = (
        nearest(name, fit)
        or "call other mechanisms from Python, or install the package that has this one"
    )
    remedy = python if name in available else remedy
    require(name in fit, "--mechanism", f"be one of {', '.join(fit)}", repr(name), remedy)
    kind = available[name]
    if is_saved:
        # a release without a file format must be refused before the budget is spent
        is_kind = kind.releases and all(map(RELEASE_KINDS.holds, kind.releases))
        seen = f"{name!r}, which names no such kind in `releases`"
        require(is_kind, "--mechanism", "be one whose release can be saved", seen, python)
        for made in kind.releases:
            require_listed(RELEASE_KINDS.group, made.kind, made)
    known = inspect.signature(kind).parameters
    settings = _budget(name, known, options) | _settings(name, kind, options.set)
    if "adjacency" in known:
        settings["adjacency"] = options.adjacency
    elif options.adjacency != "add-or-remove-one":
        raise ArgumentError(f"the mechanism {name!r} has no choice of `--adjacency`.")
    missing = [
        key for key, one in known.items() if one.default is one.empty and key not in settings
    ]
    wanted = " ".join(f"--set {key}=..." for key in missing)
    must = f"be given {', '.join(missing)}"
    what = f"the mechanism {name!r}"
    require(not missing, what, must, "none", f"add {wanted}")
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
    given = {
        key: getattr(options, key)
        for key in ("epsilon", "rho")
        if getattr(options, key) is not None
    }
    taken = [f"`--{key}`" for key in ("epsilon", "rho") if key in known]
    if given.keys() <= known.keys() and (given or not taken):
        return given
    asked = next((f"takes no `--{key}`" for key in given), "has a budget")
    if taken:
        instead = f"{' or '.join(taken)} instead"
    else:
        instead = "its budget by `--set`, such as `--set delta=...`"
    raise ArgumentError(f"the mechanism {name!r} {asked}; give it {instead}.")


def _settings(name: str, kind: Any, given: list[str]) -> dict[str, Json]:
    """Return the settings of ``--set NAME=VALUE``; a value that is not JSON is text."""
    free = [key for key in inspect.signature(kind).parameters if key not in _OWN_OPTIONS]
    found: dict[str, Any] = {}
    for text in given:
        key, equals, value = text.partition("=")
        remedy = f"use `--{key} {value or '...'}`"
        require(
            key not in _OWN_OPTIONS, key, "be given by its own option", f"`--set {text}`", remedy
        )
        require(
            bool(equals) and key not in found, "--set", "be NAME=VALUE, each name once", repr(text)
        )
        if key in kind.removed_settings:
            raise ArgumentError(
                f"{name!r} has no setting {key!r} any more: {kind.removed_settings[key]}."
            )
        remedy = nearest(key, free) or "see `bayesprivmrf release --help` for other options"
        must = f"name a setting of {name!r} ({', '.join(free)})"
        require(key in free, "--set", must, repr(key), remedy)
        try:
            found[key] = json.loads(value)
        except ValueError:
            found[key] = value
    return found


def recoded_records(
    options: argparse.Namespace, declaration: Declaration, person: str | None = None
) -> pd.DataFrame:
    """Return the recoded records of a file, with unchanged columns of counts (`--count`) and of persons."""
    records = read_records(options.data)
    variables = declaration.specification.domain.variables
    if options.count is None:
        warn_of_counts(records, variables)
    else:
        remedy = "leave it out of the model file"
        is_variable = options.count in map(str, variables)
        must = "name a column that is not a declared variable"
        require(not is_variable, "--count", must, repr(options.count), remedy)
        remedy = nearest(options.count, map(str, records.columns)) or "correct the name"
        is_column = options.count in records.columns
        require(is_column, "--count", "name a column of the data", repr(options.count), remedy)
    data = recode(declaration, records)
    for column in (options.count, person):
        if column in records.columns and column not in data:
            data[column] = records[column]
    return data
