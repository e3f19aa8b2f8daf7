"""ArviZ tree of a posterior, and its netCDF file.

In the tree, variables are dimensions and states are coordinates, both as text. The file, which ArviZ can read too,
has the groups of `Posterior.tree` and one group that is specific to this package. That group has the releases (each
as the bytes of its own file), the settings of the estimator, the draws that are not in the tree, and a SHA-256
checksum of all variables in the file. The checksum has no key: it detects accidents, not forgery. Nothing is pickled,
and `loading` checks the content against the model of the releases.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesprivmrf.checks import file_path
from bayesprivmrf.files import replaced_when_whole
from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.inference.loglinear_fit.scale_prior import EffectsPrior
from bayesprivmrf.inference.posterior.formulation import Finished, Sampled, Source
from bayesprivmrf.inference.posterior.noisy_tables import (
    dimension_names,
    has_zeros,
    log_likelihoods,
    published_table,
    replicated_tables,
    scaled_effects,
    state_labels,
    table_labels,
    table_name,
)
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.effects import Effects
from bayesprivmrf.model.tables import FloatArray
from bayesprivmrf.model.ties import coordinates_of
from bayesprivmrf.release.codec import domain_content, model_content

if TYPE_CHECKING:
    import xarray as xr

# Name of the format, and its newest version; any change of its meaning needs a new version
FORMAT, VERSION = "bayesprivmrf-posterior", 2
# Version of posteriors under the model that their releases declare; version 2 has another model
DECLARED_VERSION = 1
# Group of the file for the content that is not in `Posterior.tree`
GROUP = "bayesprivmrf"
# Fields of `Finished` in that group: arrays of draws
ARRAYS = ("effects", "total", "scales", "acceptance", "unmoved", "prior_fit", "least")
# Fields of `Finished` in that group: arrays of draws by name
BY_NAME = ("log_prior", "learned")
# Fields of `Finished` that stand in the tree, unless the model omits interactions of measured tables
TABLES = ("marginals", "counts")
# Leading dimensions of every array of draws
_DRAWN = ("chain", "draw")
# note on relaxed latent counts, an attribute of their group
_COUNTS_NOTE = (
    "counts are a continuous relaxation of whole numbers; where the noise is below one record they are spread "
    "over more than the exact posterior of the counts is, which the marginals are not"
)
# note on predicted counts under integer noise, an attribute of their group
_PREDICTIVE_NOTE = (
    "under integer noise the latent counts are rounded, and whole-number noise is added to them"
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TreeDraws:
    """Draws that a tree holds.

    Parameters
    ----------
    finished, sampled
        Draws of the posterior, and those of the sampler from which they follow.
    prior
        Draws of the prior, for the groups `prior` and `prior_predictive`; None leaves these out.
    """

    finished: Finished
    sampled: Sampled
    prior: Finished | None = None


def build_tree(
    evidence: Evidence,
    settings: Mapping[str, Any],
    draws: TreeDraws,
    *,
    rng: np.random.Generator,
    attributes: Mapping[str, Any],
) -> xr.DataTree:
    """Return the tree of a posterior, whose groups `Posterior` describes.

    The groups `log_likelihood` and `log_prior` have one number per draw for each noisy table and each part of the
    prior.

    Parameters
    ----------
    evidence
        Evidence of the releases.
    settings
        Settings of the prior, by name.
    draws
        Draws of the posterior, and of its prior if they were asked for.
    rng
        Random generator of the replicated noise.
    attributes
        Attributes of the root, text and numbers.
    """
    import xarray as xr

    finished = draws.finished
    prior = draws.prior

    def by_draw(values: Mapping[str, FloatArray]) -> xr.Dataset:
        return xr.Dataset({name: (_DRAWN, own) for name, own in values.items()})

    released = [published_table(evidence, position) for position in range(len(evidence.noise))]
    groups = {
        "posterior": _draws(evidence, finished),
        "posterior_predictive": _replicates(evidence, finished, rng),
        "sample_stats": by_draw(draws.sampled.statistics),
        "observed_data": _measured(evidence, released, ()),
        "constant_data": _constants(evidence, settings),
        "log_likelihood": by_draw(log_likelihoods(evidence, finished.counts)),
    }
    if finished.log_prior:
        groups["log_prior"] = by_draw(finished.log_prior)
    if prior is not None:
        groups["prior"] = _draws(evidence, prior)
        groups["prior_predictive"] = _replicates(evidence, prior, rng)
    for name in groups.keys() - {"observed_data", "constant_data"}:
        if prior is not None and name.startswith("prior"):
            source = prior
        else:
            source = finished
        numbers = {
            dim: np.arange(size) for dim, size in zip(_DRAWN, source.total.shape, strict=True)
        }
        groups[name] = groups[name].assign_coords(numbers).assign_attrs(sample_dims=list(_DRAWN))
    tree = xr.DataTree.from_dict({f"/{name}": dataset for name, dataset in groups.items()})
    tree.attrs.update(attributes)
    return tree


def _draws(evidence: Evidence, finished: Finished) -> xr.Dataset:
    """Return the data set of marginals and counts of each clique, potentials of each effect, and scalars."""
    given = evidence.specification
    model = given.believed
    names = dimension_names(model.domain)
    tables: dict[str, tuple[tuple[int, ...], FloatArray]] = {}
    for kind, values in (("marginal", finished.marginals), ("counts", finished.counts)):
        flat = given.on_interactions(values)
        for position, scope in enumerate(model.scopes):
            start, stop = model.offsets[position : position + 2]
            table = flat[..., start:stop].reshape(*flat.shape[:-1], *model.shapes[position])
            tables[table_name(kind, names, scope)] = (scope, table)
    effects = Effects.of(given.cardinalities, given.scopes)
    own = set(Effects.of(model.cardinalities, model.scopes).subsets)
    # potentials are left out if their tables have more than six times the cells of the cliques
    cells = sum(math.prod(model.cardinalities[v] for v in subset) for subset in own)
    attributes = {"counts": _COUNTS_NOTE}
    if cells > 6 * model.size:
        many = f"{len(own)} effects"
        attributes["potentials"] = f"left out: {many} have many times the cells of the tables"
    else:
        for subset, table in zip(effects.subsets, effects.tables(finished.effects), strict=True):
            if subset in own and not has_zeros(evidence, subset):
                tables[table_name("potentials", names, subset)] = (subset, table)
    dataset = _dataset(evidence, tables, _DRAWN)
    if evidence.total_standard_error > 0:
        dataset["total"] = (_DRAWN, finished.total, {"units": "records"})
    if finished.scales is not None:
        prior = EffectsPrior(effects=coordinates_of(given))
        labels = np.array(scaled_effects(prior, names), dtype=object)
        # ArviZ's summary refuses a second coordinate, which other variables do not have
        dataset = dataset.assign_coords(effect=("effect", labels))
        dataset["scale"] = ((*_DRAWN, "effect"), finished.scales)
    return dataset.assign_attrs(attributes)


def _replicates(evidence: Evidence, finished: Finished, rng: np.random.Generator) -> xr.Dataset:
    dataset = _measured(evidence, replicated_tables(evidence, finished.counts, rng), _DRAWN)
    return dataset.assign_attrs(noise=_PREDICTIVE_NOTE)


def _measured(
    evidence: Evidence, tables: Sequence[FloatArray], lead: tuple[str, ...]
) -> xr.Dataset:
    """Return the data set of the measured tables, and of the answers to measured queries."""
    labels = table_labels(evidence)
    scopes = evidence.measured_scopes
    named = zip(labels, scopes, tables, strict=True)
    own = {label: (scope, table) for label, scope, table in named if scope is not None}
    dataset = _dataset(evidence, own, lead)
    for position, query in enumerate(evidence.queries or ()):
        if scopes[position] is None:
            rows = f"row of {labels[position]}"
            dataset[labels[position]] = ((*lead, rows), tables[position])
            dataset = dataset.assign_coords({rows: np.array(query.labels, dtype=object)})
    return dataset


def _dataset(
    evidence: Evidence,
    tables: Mapping[str, tuple[tuple[int, ...], FloatArray]],
    lead: tuple[str, ...],
) -> xr.Dataset:
    """Return the data set of tables by name, each with its variables; variables are dims, and states coords."""
    import xarray as xr

    domain = evidence.specification.domain
    names = dimension_names(domain)
    used = sorted({v for scope, _ in tables.values() for v in scope})
    return xr.Dataset(
        {
            name: ((*lead, *(names[v] for v in scope)), table)
            for name, (scope, table) in tables.items()
        },
        coords={names[v]: (names[v], state_labels(domain, v)) for v in used},
    )


def _constants(evidence: Evidence, settings: Mapping[str, Any]) -> xr.Dataset:
    """Return the data set of the noise of each table, a public total, and the settings of the prior."""
    import xarray as xr

    # the scale of a rule differs from number to number, and sums of draws have none
    noise = evidence.noise
    scales = np.array([np.nan if law.is_tabled else law.scale for law in noise], dtype=float)
    laws = np.array([distribution.name for distribution in evidence.noise], dtype=object)
    dataset = xr.Dataset(
        {"noise_scale": ("table", scales, {"units": "records"}), "noise_law": ("table", laws)},
        coords={"table": np.array(table_labels(evidence, "table"), dtype=object)},
    )
    if evidence.total_standard_error == 0 and evidence.noise:
        dataset["total"] = evidence.estimated_total  # may be 0
    for name, value in settings.items():
        if isinstance(value, int | float):
            dataset[name] = float(value)
        else:
            if isinstance(value, str):
                dataset.attrs[name] = value
            else:
                dataset.attrs[name] = json.dumps(value)
    return dataset


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FitRecord:
    """Facts about a fit that a file of its posterior keeps.

    Parameters
    ----------
    source
        Estimator and releases.
    fitted
        The model that was fitted, with the measured tables.
    formulation
        Name of the formulation that was sampled, in lower case.
    status
        Status of the fit.
    stats
        Numbers of the fit.
    """

    source: Source
    fitted: ModelSpecification
    formulation: str
    status: str
    stats: Mapping[str, Any]


def save_posterior(
    path: str | os.PathLike[str], tree: xr.DataTree, finished: Finished, record: FitRecord
) -> None:
    """Write the groups of a posterior, its draws, its estimator and its releases to a netCDF file.

    Raises
    ------
    ArgumentError
        The file cannot be written.
    ReleaseFileError
        A release cannot be saved.
    """
    import xarray as xr

    source = record.source
    names = ARRAYS
    if record.fitted.interactions is not None:
        names = (*ARRAYS, *TABLES)
    own: dict[str, Any] = {name: getattr(finished, name) for name in names}
    own |= {
        f"{kind} of {name}": x for kind in BY_NAME for name, x in getattr(finished, kind).items()
    }
    own |= {
        f"release {k}": np.frombuffer(r._as_file(), np.uint8) for k, r in enumerate(source.releases)
    }
    arrays = {name: np.asarray(value) for name, value in own.items() if value is not None}
    dataset = xr.Dataset(
        {name: ([f"{name}, axis {k}" for k in range(x.ndim)], x) for name, x in arrays.items()}
    )
    document = {
        "releases": len(source.releases),
        "population": source.population,
        "estimator": asdict(source.estimator),
        "formulation": record.formulation,
        "status": record.status,
        "stats": dict(record.stats),
    }
    version = DECLARED_VERSION
    if source.model is not None:
        version = VERSION
        document["model"] = domain_content(source.model.domain) | model_content(source.model)
    tree = tree.copy()
    tree[GROUP] = xr.DataTree(dataset)
    tree[GROUP].attrs = {"document": json.dumps(document, default=_plain)}
    tree[GROUP].attrs["sha256"] = tree_checksum(tree)
    tree.attrs |= {"format": FORMAT, "format_version": version}
    # HDF5 writes to an open file, which hides a full disk from it: a failed write would end the process
    with replaced_when_whole(Path(os.path.realpath(file_path("path", path)))) as file:
        tree.to_netcdf(file, engine="h5netcdf")


def tree_checksum(tree: xr.DataTree) -> str:
    """Return the SHA-256 of every variable in a tree and of its JSON document."""
    digest = hashlib.sha256(tree[GROUP].attrs["document"].encode())
    for node in sorted(tree.subtree, key=lambda node: node.path):
        variables = node.to_dataset(inherit=False).variables
        # in the order of quoted names, which the checksums of stored files have
        for name, variable in sorted(variables.items(), key=lambda item: repr(item[0])):
            values = np.ascontiguousarray(variable.values)
            text = values.dtype.kind not in "biuf"
            digest.update(f"{node.path}/{name} {values.shape}\n".encode())
            digest.update(
                "\n".join(map(str, values.ravel().tolist())).encode() if text else values.tobytes()
            )
    return digest.hexdigest()


def _plain(value: Any) -> Any:
    """Return a form of a NumPy number, or of any other value, that JSON can hold."""
    if isinstance(value, np.generic):
        return value.item()
    return str(value)
