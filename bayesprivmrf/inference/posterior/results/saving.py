"""Posteriors as netCDF files, which ArviZ reads as well.

The file has the groups of `Posterior.tree`, and one group that is specific to this package. That group holds the
releases, each as the bytes of its own file; the settings of the estimator; the draws that are not in the tree; and a
SHA-256 of every variable in the file. The checksum has no key: it detects accidents, not forgery. Nothing is pickled,
and `loading` checks the content against the model of the releases.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesprivmrf.inference.posterior.results.tree import write_tree

if TYPE_CHECKING:
    import xarray as xr

    from bayesprivmrf.inference.posterior.results.posterior import Posterior

FORMAT, VERSION = "bayesprivmrf-posterior", 1
"""Name and version of the format; any change of its meaning needs a new version."""
GROUP = "bayesprivmrf"
"""Group of the file for the content that is not in `Posterior.tree`."""
ARRAYS = ("effects", "total", "scales", "acceptance", "unmoved", "prior_fit", "least")
BY_NAME = ("log_prior", "learned")
"""Draws in that group: numbers, and numbers by name."""


def save_posterior(posterior: Posterior, path: str | os.PathLike[str]) -> None:
    """Write a posterior to a file.

    Raises
    ------
    ArgumentError
        The file cannot be written.
    ReleaseFileError
        A release behind it cannot be saved.
    """
    import xarray as xr

    finished, source = posterior._draws.finished, posterior._source
    own: dict[str, Any] = {name: getattr(finished, name) for name in ARRAYS}
    own |= {f"{kind} of {name}": x for kind in BY_NAME for name, x in getattr(finished, kind).items()}
    own |= {f"release {k}": _bytes(r._as_file()) for k, r in enumerate(source.releases)}
    arrays = {name: np.asarray(value) for name, value in own.items() if value is not None}
    dataset = xr.Dataset(
        {name: ([f"{name}, axis {k}" for k in range(x.ndim)], x) for name, x in arrays.items()}
    )
    document = {
        "releases": len(source.releases),
        "population": source.population,
        "estimator": asdict(source.estimator),
        "formulation": posterior._formulation.name.lower(),
        "status": posterior.status.value,
        "stats": dict(posterior.stats),
    }
    tree = posterior.tree.copy()
    tree[GROUP] = xr.DataTree(dataset)
    tree[GROUP].attrs = {"document": json.dumps(document, default=_plain)}
    tree[GROUP].attrs["sha256"] = checksum_of(tree)
    tree.attrs |= {"format": FORMAT, "format_version": VERSION}
    write_tree(tree, path)


def checksum_of(tree: xr.DataTree) -> str:
    """Return the SHA-256 of every variable in a tree and of its JSON document."""
    digest = hashlib.sha256(tree[GROUP].attrs["document"].encode())
    for node in sorted(tree.subtree, key=lambda node: node.path):
        for name, variable in sorted(node.to_dataset(inherit=False).variables.items(), key=str):
            values = np.ascontiguousarray(variable.values)
            text = values.dtype.kind not in "biuf"
            digest.update(f"{node.path}/{name} {values.shape}\n".encode())
            digest.update("\n".join(map(str, values.ravel().tolist())).encode() if text else values.tobytes())
    return digest.hexdigest()


def _bytes(whole: bytes) -> np.ndarray:
    return np.frombuffer(whole, np.uint8)


def _plain(value: Any) -> Any:
    """Return a form of a NumPy number, or of any other value, that JSON can hold."""
    return value.item() if isinstance(value, np.generic) else str(value)
