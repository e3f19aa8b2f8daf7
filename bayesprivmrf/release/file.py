"""The file format of releases: a zip of one JSON document and one array, with a version and a checksum.

``release.json`` holds the format's name and version, the SHA-256 of the content, and the content, which names
its kind; ``tables.npy`` the noisy tables' flat view, the public couplings beside a network's estimate, or the numbers
of a learnt model. Nothing is pickled. A published format never changes meaning:
a change is a new version. The checksum has no key: it detects accidents, not forgery.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import tempfile
import zipfile
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from bayesprivmrf.errors import BayesPrivMRFError, ForeignFileError, NewerFormatError, ReleaseFileError
from bayesprivmrf.model import Domain, ModelSpecification
from bayesprivmrf.privacy import PrivacyGuarantee, noise_from_dict
from bayesprivmrf.release import NoisyStatistics, Provenance

__all__ = ["FORMAT_VERSION", "read_release", "require_writable", "write_release"]

FORMAT_NAME = "bayesprivmrf-release"
FORMAT_VERSION = 3
_VERSION_OF = {  # the first version that has the kind
    "noisy-statistics": 1,
    "network-estimate": 2,
    "learned-ising": 3,
    "learned-monomials": 3,
    "learned-pairwise": 3,
    "learned-potentials": 3,
    "learned-regression": 3,
    "released-parities": 3,
}
_HOME_OF = {  # by name: releases do not depend on networks, nor on what is learnt
    "network-estimate": "bayesprivmrf.network.estimate_file",
    "learned-ising": "bayesprivmrf.learning.models.pairs_file",
    "learned-monomials": "bayesprivmrf.learning.parities.file",
    "learned-pairwise": "bayesprivmrf.learning.models.pairs_file",
    "learned-potentials": "bayesprivmrf.learning.models.potentials_file",
    "learned-regression": "bayesprivmrf.learning.models.regression_file",
    "released-parities": "bayesprivmrf.learning.parities.file",
}
_DOCUMENT, _ARRAY = "release.json", "tables.npy"
_ZIP_MAGIC = b"PK\x03\x04"
_EPOCH = (1980, 1, 1, 0, 0, 0)  # equal releases give equal files


def require_writable(path: str | os.PathLike[str]) -> Path:
    """Path as given, if a file can be written there; checked before any budget is spent.

    Raises
    ------
    ReleaseFileError
        The folder does not exist or cannot be written, or the path is a folder.
    """
    target = Path(path)
    folder = target.parent
    if target.is_dir():
        raise ReleaseFileError(f"`path` must name a file, got the folder {str(target)!r}.")
    if not folder.is_dir():
        raise ReleaseFileError(f"`path` must lie in an existing folder, got {str(folder)!r}; make it first.")
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
        if target.exists():
            with target.open("r+b"):
                pass
    except OSError as error:
        raise ReleaseFileError(f"`path` must be writable, got {str(target)!r} ({error.strerror}).") from None
    return target


def write_release(release: Any, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Write a release; the file appears whole or not at all. Exact tables are readable by their owner alone.

    Raises
    ------
    ReleaseFileError
        The path cannot be written, or holds another release and `overwrite` is False.
    """
    target = require_writable(path)
    array = io.BytesIO()
    content, numbers = _parts(release)
    np.save(array, numbers, allow_pickle=False)
    digest = _digest(content, array.getvalue())
    held = None if overwrite else _held(target, digest)
    if held is not None:
        raise ReleaseFileError(
            f"{str(target)!r} holds {held}; choose another name, or pass `overwrite=True`."
        )
    version = _VERSION_OF[release.kind]
    document = {"format": FORMAT_NAME, "version": version, "sha256": digest, "content": content}
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as raw, zipfile.ZipFile(raw, "w", zipfile.ZIP_DEFLATED) as archive:
            text = json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False)
            archive.writestr(zipfile.ZipInfo(_DOCUMENT, _EPOCH), text, zipfile.ZIP_DEFLATED)
            archive.writestr(zipfile.ZipInfo(_ARRAY, _EPOCH), array.getvalue(), zipfile.ZIP_DEFLATED)
        os.chmod(temporary, 0o600 if release.is_exact else 0o666 & ~_umask())
        os.replace(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _held(target: Path, digest: str) -> str | None:
    """What a path holds that must not be lost, in words: another whole release, or a file of another kind."""
    another = "another release, which cannot be made again without spending budget"
    try:
        return another if _read_document(target)[0]["sha256"] != digest else None
    except NewerFormatError:
        return another
    except ForeignFileError:
        return "a file that is no release"
    except ReleaseFileError:  # nothing, or what is left of a release
        return None


def read_release(path: str | os.PathLike[str]) -> Any:
    """Read a release and check its version and checksum."""
    target = Path(path)
    document, array = _read_document(target)
    try:
        return _restored(document["content"], np.load(io.BytesIO(array), allow_pickle=False))
    except BayesPrivMRFError:
        raise
    except Exception as error:
        raise _damaged(target) from error


def _read_document(target: Path) -> tuple[dict[str, Any], bytes]:
    """Document and array of a release file whose version is known and whose checksum holds."""
    if not target.is_file():
        raise ReleaseFileError(f"there is no release file at {str(target)!r}.")
    try:
        with target.open("rb") as file:
            head = file.read(len(_ZIP_MAGIC))
        if not _ZIP_MAGIC.startswith(head):  # a release that was cut short still begins as one
            raise _foreign(target)
        with zipfile.ZipFile(target) as archive:
            if _DOCUMENT not in archive.namelist():
                raise _foreign(target)
            document = json.loads(archive.read(_DOCUMENT))
            array = archive.read(_ARRAY)
        if document["format"] != FORMAT_NAME:
            raise _foreign(target)
        version = document["version"]
        if not isinstance(version, int) or version > FORMAT_VERSION:
            raise NewerFormatError(
                f"{str(target)!r} has format version {version}, newer than {FORMAT_VERSION}, "
                "the newest that this bayesprivmrf reads; upgrade it."
            )
        if document["sha256"] != _digest(document["content"], array):
            raise _damaged(target)
    except BayesPrivMRFError:
        raise
    except Exception as error:  # of zip, JSON and the decompressors
        raise _damaged(target) from error
    return document, array


def _damaged(target: Path) -> ReleaseFileError:
    return ReleaseFileError(
        f"{str(target)!r} is not a whole release file: it was cut short or altered; take a fresh copy."
    )


def _foreign(target: Path) -> ReleaseFileError:
    return ForeignFileError(
        f"{str(target)!r} is not a release of bayesprivmrf; give a file that `release.save` or "
        "`bayesprivmrf release` wrote."
    )


def _digest(content: Any, array: bytes) -> str:
    text = json.dumps(content, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode() + b"\0" + array).hexdigest()


def _parts(release: Any) -> tuple[dict[str, Any], np.ndarray]:
    """Content and array of a release of any kind."""
    if isinstance(release, NoisyStatistics):
        return _content(release), release.tables.flat
    home = import_module(_HOME_OF[release.kind])
    content = home.content_of(release) | {
        **_subject(release),
        "kind": release.kind,
        "guarantee": release.guarantee.as_dict(),
        "provenance": _provenance(release.provenance),
    }
    return content, home.array_of(release)


def _restored(content: dict[str, Any], array: np.ndarray) -> Any:
    if content["kind"] == NoisyStatistics.kind:
        return _release(content, array)
    return import_module(_HOME_OF[content["kind"]]).restored(
        content,
        array,
        **_restored_subject(content),
        guarantee=PrivacyGuarantee.from_dict(content["guarantee"]),
        provenance=Provenance(**content["provenance"]),
    )


def _subject(release: Any) -> dict[str, Any]:
    """What a release is about: the nodes of its network, or variables and states."""
    if release.kind == "network-estimate":
        return {"nodes": [_encode(node) for node in release.network.nodes]}
    return {
        "variables": [_encode(v) for v in release.domain.variables],
        "states": [[_encode(label) for label in labels] for labels in release.domain.states],
    }


def _restored_subject(content: dict[str, Any]) -> dict[str, Any]:
    if "nodes" in content:
        return {"nodes": tuple(_decode(node) for node in content["nodes"])}
    return {"domain": _domain(content)}


def _domain(content: dict[str, Any]) -> Domain:
    return Domain(
        variables=tuple(_decode(v) for v in content["variables"]),
        states=tuple(tuple(_decode(label) for label in labels) for labels in content["states"]),
    )


def _provenance(provenance: Provenance) -> dict[str, Any]:
    return {
        "mechanism": provenance.mechanism,
        "settings": {str(key): _setting(value) for key, value in provenance.settings.items()},
        "simulated": provenance.simulated,
        "versions": dict(provenance.versions),
    }


def _content(release: NoisyStatistics) -> dict[str, Any]:
    model = release.specification
    return {
        "kind": release.kind,
        "variables": [_encode(v) for v in model.domain.variables],
        "states": [[_encode(label) for label in labels] for labels in model.domain.states],
        "cliques": [list(scope) for scope in model.scopes],
        "impossible": [
            [[model.domain.index(v), model.domain.code(v, label)] for v, label in assignment]
            for assignment in model.impossible
        ],
        "cliques_declared": model.cliques_declared,
        "noise": [law.as_dict() for law in release.noise],
        "guarantee": None if release.guarantee is None else release.guarantee.as_dict(),
        "total": release.total,
        "provenance": _provenance(release.provenance),
    }


def _release(content: dict[str, Any], flat: np.ndarray) -> NoisyStatistics:
    domain = _domain(content)
    model = ModelSpecification(
        domain=domain,
        cliques=tuple(tuple(domain.variables[v] for v in scope) for scope in content["cliques"]),
        impossible=tuple(
            tuple((domain.variables[v], domain.states[v][code]) for v, code in assignment)
            for assignment in content["impossible"]
        ),
        cliques_declared=content["cliques_declared"],
    )
    guarantee = content["guarantee"]
    return NoisyStatistics(
        specification=model,
        tables=model.tables(flat),
        noise=tuple(noise_from_dict(law) for law in content["noise"]),
        guarantee=None if guarantee is None else PrivacyGuarantee.from_dict(guarantee),
        total=content["total"],
        provenance=Provenance(**content["provenance"]),
    )


def _encode(label: Any) -> Any:
    """Label as JSON: text, numbers and booleans as they are, tuples tagged, anything else as its text."""
    if isinstance(label, tuple):
        return {"tuple": [_encode(item) for item in label]}
    if isinstance(label, bool | int | str) or (isinstance(label, float) and abs(label) != float("inf")):
        return label if type(label) in (bool, int, float, str) else str(label)
    return str(label)


def _decode(label: Any) -> Any:
    return tuple(_decode(item) for item in label["tuple"]) if isinstance(label, dict) else label


def _setting(value: Any) -> Any:
    """Setting of a mechanism as JSON; what JSON lacks is written as text."""
    if isinstance(value, dict):
        return {str(key): _setting(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_setting(item) for item in value]
    if value is None or type(value) in (bool, int, str):
        return value
    if isinstance(value, float) and np.isfinite(value):
        return float(value)
    return str(value)


def _umask() -> int:
    mask = os.umask(
        0o077
    )  # it can only be read by setting it: to what lets no other thread's file be open to all
    os.umask(mask)
    return mask
