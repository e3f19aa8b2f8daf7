"""Posteriors read from files that `tree.save_posterior` wrote; the content is checked against the releases' model."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesprivmrf.checks import file_path, require
from bayesprivmrf.errors import (
    BayesPrivMRFError,
    ForeignFileError,
    NewerFormatError,
    ReleaseFileError,
)
from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.inference.given_releases import gather
from bayesprivmrf.inference.interval_frame import Status
from bayesprivmrf.inference.posterior.formulation import Finished, Source
from bayesprivmrf.inference.posterior.latent_counts import LatentCounts
from bayesprivmrf.inference.posterior.noisy_tables import dimension_names, table_name
from bayesprivmrf.inference.posterior.results.draws import Draws
from bayesprivmrf.inference.posterior.results.posterior import Posterior
from bayesprivmrf.inference.posterior.results.tree import (
    BY_NAME,
    FORMAT,
    GROUP,
    TABLES,
    VERSION,
    tree_checksum,
)
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.effects import Effects
from bayesprivmrf.model.tables import FloatArray
from bayesprivmrf.model.ties import coordinates_of
from bayesprivmrf.release.base import read_release
from bayesprivmrf.release.codec import Fields, restored_domain, restored_model

if TYPE_CHECKING:
    import xarray as xr


def load_posterior(path: str | os.PathLike[str], *, largest: int = 8 * 2**30) -> Posterior:
    """Read a posterior from a file that `Posterior.save` wrote, with the same draws.

    Parameters
    ----------
    path
        Path of the file.
    largest
        Largest size of the file's variables in memory, bytes; 8 GiB by default.

    Returns
    -------
    Posterior
        The posterior, marked as simulated if its noise was. Its `pymc_model` is built again.

    Raises
    ------
    ReleaseFileError
        The file is missing, damaged, altered or too large. The error is a `ForeignFileError` if the file is not a
        posterior, and a `NewerFormatError` if a newer version wrote it.

    Examples
    --------
    >>> import bayesprivmrf as bpm
    >>> posterior = bpm.load_posterior("survey.posterior")  # doctest: +SKIP
    >>> posterior.interval(["smokes", "ill"])  # doctest: +SKIP
    """
    import xarray as xr

    target = file_path("path", path)
    # also False for a name that is too long, for which Path.exists raises
    if not os.path.exists(target):
        raise ReleaseFileError(
            f"there is no posterior file at {str(target)!r}; give one that `save` wrote."
        )
    try:
        _refuse_links(target)
        with xr.open_datatree(target, engine="h5netcdf") as opened:
            _require_format(opened, target, largest)
            tree = opened.load()
        return _posterior(tree)
    except (ForeignFileError, NewerFormatError):
        raise
    except Exception as error:  # libraries raise many types of errors for a damaged file
        if isinstance(error, BayesPrivMRFError):
            reason = str(error).rstrip(".")
        else:
            reason = type(error).__name__
        raise ReleaseFileError(
            f"{str(target)!r} is not a posterior that can be read: {reason}."
        ) from error


def _refuse_links(target: Path) -> None:
    """Raise an error if a file is not HDF5, or if it refers to other files, which the user did not choose to read."""
    import h5py

    if target.is_file() and not h5py.is_hdf5(target):
        raise ForeignFileError(f"{str(target)!r} is not a posterior: it is not a netCDF file.")

    def look(group: Any, depth: int) -> None:
        for name in group:
            link = group.get(name, getlink=True)
            if not isinstance(link, h5py.HardLink) or depth > 2:
                raise ReleaseFileError(f"its part {name!r} is a link or nested too deep")
            part = group[name]
            if isinstance(part, h5py.Group):
                look(part, depth + 1)
            elif isinstance(part, h5py.Dataset) and (part.external or part.is_virtual):
                raise ReleaseFileError(f"its part {name!r} refers to another file")

    with h5py.File(target, "r") as file:
        look(file, 0)


def _require_format(tree: xr.DataTree, target: Path, largest: int) -> None:
    """Raise an error for another format, a newer version, or a size above the limit."""
    if tree.attrs.get("format") != FORMAT:
        raise ForeignFileError(
            f"{str(target)!r} is not a posterior of bayesprivmrf; `arviz.from_netcdf` reads other netCDF files."
        )
    version = tree.attrs["format_version"]
    newest = f"be at most {VERSION}, the newest that this bayesprivmrf reads"
    what = f"the format version of {str(target)!r}"
    require(version <= VERSION, what, newest, version, "upgrade it", error=NewerFormatError)
    size = sum(
        variable.nbytes for node in tree.subtree for variable in node.dataset.variables.values()
    )
    must = f"be at most {largest:,} bytes"
    remedy = "pass `largest=`"
    require(
        size <= largest,
        "the size of its variables",
        must,
        f"{size:,}",
        remedy,
        error=ReleaseFileError,
    )


def _posterior(tree: xr.DataTree) -> Posterior:
    """Return the posterior in a tree that is in memory."""
    own = tree[GROUP]
    if own.attrs["sha256"] != tree_checksum(tree):
        raise ReleaseFileError("its content was altered or damaged")
    fields = Fields(json.loads(own.attrs["document"]))
    numbers = {str(name): np.asarray(values) for name, values in own.dataset.data_vars.items()}
    releases = [
        read_release(numbers.pop(f"release {k}").astype(np.uint8).tobytes())
        for k in range(fields.whole("releases", 1, 10**6))
    ]
    given = fields.mapping("estimator")
    is_smoothed = given.pop("smoothing", 0.0) > 0  # a setting of earlier versions
    estimator = LatentCounts(**{**given, "total_range": tuple(given["total_range"])})
    model = None
    if "model" in fields:
        content = Fields(fields.mapping("model"))
        model = restored_model(content, restored_domain(content))
    source = Source(
        estimator=estimator,
        releases=tuple(releases),
        population=fields.text("population"),
        model=model,
    )
    evidence = gather(releases, takes_bounds=True, population=source.population, model=model)
    if bool(tree.attrs["simulated"]) != evidence.is_simulated:
        raise ReleaseFileError("its mark of simulated noise differs from that of its releases")
    asked = replace(estimator, formulation=fields.text("formulation"))
    finished = _finished(tree, evidence, numbers)
    status = Status(fields.text("status"))
    stats = {
        name: tuple(value) if isinstance(value, list) and name != "problems" else value
        for name, value in fields.mapping("stats").items()
    }
    if is_smoothed:
        old = "these draws have the smoothed likelihood of an earlier version, and `pymc_model` has the exact one"
        stats["problems"] = [*stats["problems"], old]
    draws = Draws(evidence=evidence, finished=finished, status=status)
    del tree[GROUP]
    chains, each = draws.shape
    formulation = asked._formulation(evidence, chains * each, chains=chains)
    if not formulation.settings.keys() <= stats.keys():
        old = "these draws have the prior of an earlier version, and `pymc_model` has today's; fit the release again"
        stats["problems"] = [*stats.get("problems", ()), old]
    return Posterior(
        tree=tree,
        status=draws.status,
        stats=stats,
        _formulation=formulation,
        _draws=draws,
        _source=source,
    )


def _finished(tree: xr.DataTree, evidence: Evidence, numbers: Mapping[str, np.ndarray]) -> Finished:
    """Return the draws, after a check of their shapes against the model."""
    model = evidence.specification
    lead = numbers["total"].shape
    numbers = dict(numbers)
    if model.interactions is not None:  # the tree has the tables of the interactions alone
        marginals, counts = (_whole(numbers.pop(name), (*lead, model.size)) for name in TABLES)
    else:
        marginals, counts = _tables_of(tree, model, lead)
    found: dict[str, Any] = {"log_prior": {}, "learned": {}}
    for name, values in numbers.items():
        kind, _, part = name.partition(" of ")
        if kind in BY_NAME:
            found[kind][part] = _checked(name, values, lead, 2)
        elif name == "least":
            found[name] = values
        elif values.ndim:
            found[name] = _checked(name, values, lead, 3 if name in ("effects", "scales") else 2)
        else:  # one number for all draws
            found[name] = float(values)
    sizes = Effects.of(model.cardinalities, model.scopes).size, coordinates_of(model).size
    if found["effects"].shape[-1] not in sizes:
        raise ReleaseFileError("its effects are not those of its model")
    return Finished(**found, marginals=marginals, counts=counts)


def _whole(values: np.ndarray, shape: tuple[int, ...]) -> FloatArray:
    """Return draws of all cells, after a check of their shape."""
    if values.shape != shape or values.dtype.kind not in "fiu" or not np.isfinite(values).all():
        raise ReleaseFileError("its draws are not tables of its model")
    return values.astype(float)


def _tables_of(
    tree: xr.DataTree, model: ModelSpecification, lead: tuple[int, ...]
) -> tuple[FloatArray, FloatArray]:
    """Return the draws of marginals and counts of the cliques, after a check of their shapes."""
    names = dimension_names(model.domain)
    if any(table_name("marginal", names, scope) not in tree["posterior"] for scope in model.scopes):
        names = dimension_names(model.domain, is_escaped=False)

    def drawn(kind: str) -> FloatArray:
        parts = [np.zeros((*lead, 0))]
        for scope, shape in zip(model.scopes, model.shapes, strict=True):
            table = np.asarray(tree["posterior"][table_name(kind, names, scope)], dtype=float)
            if table.shape != (*lead, *shape) or not np.isfinite(table).all():
                raise ReleaseFileError(f"its draws of {kind} are not tables of its model")
            parts.append(table.reshape(*lead, -1))
        return np.concatenate(parts, axis=-1)

    return drawn("marginal"), drawn("counts")


def _checked(name: str, values: np.ndarray, lead: tuple[int, ...], axes: int) -> FloatArray:
    """Return draws of numbers, after a check of their type and shape."""
    if (
        values.dtype.kind not in "fiu"
        or values.ndim != axes
        or values.shape[:2] != lead
        or not values.size
    ):
        seen = f"{values.dtype} {values.shape}"
        raise ReleaseFileError(f"`{name}` must be numbers, one for each draw, got {seen}")
    return values.astype(float)
