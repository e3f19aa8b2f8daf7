"""Command ``bayesprivmrf release``, the only one that spends privacy budget."""

from __future__ import annotations

import argparse
import base64
import sys
import warnings
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bayesprivmrf.cli.learned import description
from bayesprivmrf.cli.mechanism import chosen_mechanism, recoded_records, require_listed
from bayesprivmrf.cli.output import NO_KERNEL, claim_file, json_text, promised, remark
from bayesprivmrf.errors import PrivacyError, ReleaseFileError
from bayesprivmrf.mechanisms import StatisticsMechanism
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.declaration_file import read_declaration
from bayesprivmrf.noise.base import ENTRY_POINT_GROUP
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
        print(json_text(_described(release, target) | summary))
        return
    print(release)
    if "couplings" in summary:
        print(f"\n{description(release, summary, target)}")


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


def _described(release: Any, target: Path) -> dict[str, Any]:
    """Return the facts of a release for JSON."""
    return {
        "path": str(target),
        "kind": release.kind,
        "mechanism": release.provenance.mechanism,
        "settings": dict(release.provenance.settings),
        "guarantee": promised(release),
        "statement": release.privacy_statement(),
        "versions": dict(release.provenance.versions),
        "total": getattr(release, "total", None),
    }
