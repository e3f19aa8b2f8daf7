"""``bayesprivmrf release``: the one command that spends privacy budget."""

from __future__ import annotations

import argparse
import base64
import sys
import warnings
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bayesprivmrf.cli.learned import told
from bayesprivmrf.cli.mechanism import chosen_mechanism, recoded_records, require_listed
from bayesprivmrf.cli.output import NO_KERNEL, claim_file, json_text, promised, remark
from bayesprivmrf.errors import PrivacyError, ReleaseFileError
from bayesprivmrf.mechanisms import StatisticsMechanism
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.declaration_file import read_declaration
from bayesprivmrf.noise.continuous import ENTRY_POINT_GROUP
from bayesprivmrf.release.file import reserved_space


def run(options: argparse.Namespace) -> None:
    """Check all that can fail, count, add noise, save, and say what was promised."""
    target = claim_file(options.out, force=options.force, sources=[options.data, options.model])
    declaration = read_declaration(options.model)
    mechanism = chosen_mechanism(options)
    if mechanism.promise(declaration.specification) is None:
        raise PrivacyError(
            f"the mechanism {type(mechanism).__name__} promises nothing, so there is nothing to release under; "
            "call it from Python."
        )
    _require_listed_laws(mechanism, declaration.specification)
    data = recoded_records(options, declaration, getattr(mechanism, "person", None))
    with reserved_space(target, _largest_file(mechanism, declaration.specification)):
        release = mechanism.release(declaration.specification, data, count=options.count)
    _save(release, target, overwrite=options.force)
    # said first, for whatever goes wrong while the release is shown has lost nothing
    remark(f"Saved to {target}. The budget is spent; what is made of this file spends nothing more.\n")
    summary = release.summary()
    if options.json:
        print(json_text(_described(release, target) | summary))
        return
    print(release)
    if "couplings" in summary:
        print(f"\n{told(release, summary, target)}")


def _require_listed_laws(mechanism: Any, model: ModelSpecification) -> None:
    """Raise unless `fit` will find the laws of noisy tables, and say where few methods take them."""
    if not isinstance(mechanism, StatisticsMechanism):
        return
    with warnings.catch_warnings(action="ignore"):  # they are shown when the release is made
        laws = mechanism.noise_laws(model)
    if any(law.kernel is None for law in laws):
        remark(NO_KERNEL)
    for made in {type(law) for law in laws}:
        require_listed(ENTRY_POINT_GROUP, made.name, made)


def _largest_file(mechanism: Any, model: ModelSpecification) -> int:
    """Return bytes that hold whatever the mechanism releases: numbers, the declaration, and a million more."""
    cells = max(kind._most_numbers(model) for kind in mechanism.releases)
    return 8 * (cells + len(repr(model.domain))) + 2**20


def _save(release: Any, target: Path, *, overwrite: bool) -> None:
    """Save a release that is paid for; where no file can be written, print the bytes of the file."""
    try:
        release.save(target, overwrite=overwrite)
    except ReleaseFileError as error:
        remedy = (
            "are the release in base64: keep them in a file, here release.txt, and "
            "`python -m base64 -d release.txt > your.release` makes the release of it."
        )
        try:
            text = base64.encodebytes(release._as_file()).decode()
        except ReleaseFileError:  # its own package writes what cannot be read
            text = _in_words(release)
            remedy = "are all that it holds: keep them, and mend the package that made it."
        print(text)
        raise ReleaseFileError(
            f"{error} The budget is spent, and the lines on standard output {remedy}"
        ) from None


def _in_words(release: Any) -> str:
    """Return every field of a release in full."""
    names = [one.name for one in fields(release)] if is_dataclass(release) else list(vars(release))
    with np.printoptions(threshold=sys.maxsize):
        return "\n".join(f"{name} = {getattr(release, name)!r}" for name in names)


def _described(release: Any, target: Path) -> dict[str, Any]:
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
