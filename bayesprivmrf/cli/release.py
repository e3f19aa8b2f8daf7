"""Command ``bayesprivmrf release``, the only one that spends privacy budget."""

from __future__ import annotations

import argparse
import base64
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bayesprivmrf.cli.mechanism import chosen_mechanism, recoded_records, require_listed
from bayesprivmrf.cli.output import (
    NO_KERNEL,
    SHOWN,
    aligned,
    claim_file,
    counted,
    json_text,
    promised,
    remark,
)
from bayesprivmrf.errors import PrivacyError, ReleaseFileError
from bayesprivmrf.learning.models.advice import status_with_advice
from bayesprivmrf.learning.models.base import LearnedNetwork
from bayesprivmrf.learning.rounds.solution import RoundsSolution
from bayesprivmrf.mechanisms import StatisticsMechanism
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.declaration_file import read_declaration
from bayesprivmrf.noise.continuous import ENTRY_POINT_GROUP
from bayesprivmrf.release.file import reserved_space


def run(options: argparse.Namespace) -> None:
    """Check everything that can fail, count, add noise, save the release, and print its promise."""
    target = claim_file(options.out, force=options.force, sources=[options.data, options.model])
    declaration = read_declaration(options.model)
    mechanism = chosen_mechanism(options)
    if mechanism.promise(declaration.specification) is None:
        raise PrivacyError(
            f"`--mechanism` must have a privacy guarantee, but {type(mechanism).__name__} promises nothing; call "
            "it from Python."
        )
    _require_listed_noise(mechanism, declaration.specification)
    data = recoded_records(options, declaration, getattr(mechanism, "person", None))
    with reserved_space(target, _largest_file(mechanism, declaration.specification)):
        release = mechanism.release(declaration.specification, data, count=options.count)
    _save(release, target, overwrite=options.force)
    # printed first, because an error while the release is shown loses nothing
    remark(f"Saved to {target}. The budget is spent; results computed from this file spend nothing more.\n")
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
        print(json_text(described | summary))
        return
    print(release)
    if "couplings" in summary:
        print(f"\n{_description(release, summary, f'bayesprivmrf.load_release({str(target)!r})')}")
        print(f"\n{_next_step(release, target)}")


def _require_listed_noise(mechanism: Any, model: ModelSpecification) -> None:
    """Raise an error if `fit` would not find the tables' noise distributions; remark if few methods use them."""
    if not isinstance(mechanism, StatisticsMechanism):
        return
    with warnings.catch_warnings(action="ignore"):  # the release shows the warnings
        distributions = mechanism.noise_laws(model)
    if any(each.kernel is None for each in distributions):
        remark(NO_KERNEL)
    for made in {type(each) for each in distributions}:
        require_listed(ENTRY_POINT_GROUP, made.name, made)


def _largest_file(mechanism: Any, model: ModelSpecification) -> int:
    """Return an upper bound on the bytes of a release: its numbers, the declaration, and a MiB for the rest."""
    cells = max(kind._most_numbers(model) for kind in mechanism.releases)
    return 8 * (cells + len(repr(model.domain))) + 2**20


def _save(release: Any, target: Path, *, overwrite: bool) -> None:
    """Save a release whose budget is spent; if the file cannot be written, print its bytes."""
    try:
        release.save(target, overwrite=overwrite)
    except ReleaseFileError as error:
        remedy = (
            "are the release in base64: save them in a file, such as release.txt, and restore the release with "
            "`python -m base64 -d release.txt > your.release`."
        )
        try:
            text = base64.encodebytes(release._as_file()).decode()
        except ReleaseFileError:  # the package of this kind of release writes an unreadable file
            text = _as_text(release)
            remedy = "are all fields of the release: save them, and correct the package that made it."
        print(text)
        raise ReleaseFileError(
            f"{error} The budget is spent, and the lines on standard output {remedy}"
        ) from None


def _as_text(release: Any) -> str:
    """Return all fields of a release as text, without abbreviations."""
    names = [one.name for one in fields(release)] if is_dataclass(release) else list(vars(release))
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
    details, couplings = summary["details"], summary["couplings"]
    lines = [f"Status: {status_with_advice(summary['status'], details)}."]
    if "tables_measured" in details:
        rounds = details["tables_by_round"]
        by_round = f", in {len(rounds)} rounds of {', '.join(map(str, rounds))}" if len(rounds) > 1 else ""
        lines.append(
            f"Measured: {counted(details['tables_measured'], 'table')} of several variables{by_round}."
        )
    elif "pairs_measured" in details:
        pairs = counted(details["pairs_measured"], "pair")
        lines.append(f"Measured: {pairs}, of which {details['pairs_kept']} stood out from the noise.")
    lines.append("")
    heading = f"{release.graph_heading}, nats"
    if not couplings:
        nothing = (
            "No pair stood out from the noise, which is not evidence that the variables are independent."
        )
        return "\n".join([*lines, nothing])
    if any(each["error"] is None for each in couplings):
        remedy = f"in Python, {loaded}.couplings_interval() gives intervals"
        shown = _table(couplings, "coupling")
        return "\n".join([*lines, f"{heading}:", shown, f"Their standard errors are not shown; {remedy}."])
    if len(release.domain.variables) <= 100:  # all dependences then take about a second
        edges = sorted(release.graph(weight="dependence").edges(data="weight"), key=lambda edge: -edge[2])
        pairs = [{"variables": edge[:2], "dependence": edge[2]} for edge in edges]
        lines.append("Strongest dependences given all other variables, from 0 to 1, noise included:")
        lines += [_table(pairs, "dependence"), ""]
    sized = [each for each in couplings if each["error"] < 1.0]
    clear = [each for each in sized if abs(each["coupling"]) > 3.0 * each["error"]]
    if clear:
        lines += [f"{heading}, with standard errors:", _table(clear, "coupling", "error")]
    if hidden := len(sized) - len(clear):
        what = f"The effect of {counted(hidden, 'pair')} is less than three times its standard error"
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
        [*map(str, each["variables"]), *(f"{each[name]:.3f}" for name in numbers)] for each in pairs[:SHOWN]
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
