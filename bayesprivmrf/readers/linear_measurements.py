"""Readers of noisy linear measurements of mbi (Private-PGM), and of OpenDP's contingency tables."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesprivmrf.checks import bare_array, instance_of, refuse_axes, require
from bayesprivmrf.errors import DataError, ModelError
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.domain import Label, Variable, is_missing, listed, require_hashable
from bayesprivmrf.noise import NoiseDistribution
from bayesprivmrf.noise.kernels import KERNELS
from bayesprivmrf.privacy import PrivacyGuarantee
from bayesprivmrf.queries import table, weighted
from bayesprivmrf.readers.columns import code_finder, family, query_of, released, width_of
from bayesprivmrf.release import Measurement, NoisyStatistics
from bayesprivmrf.release.given import noise_of_variance

if TYPE_CHECKING:
    from pgmpy.models import DiscreteMarkovNetwork


def from_mbi(
    network: DiscreteMarkovNetwork | ModelSpecification,
    measurements: Iterable[Any],
    *,
    noise: type[NoiseDistribution] | str = "gaussian",
    guarantee: PrivacyGuarantee | None = None,
    total: int | None = None,
) -> NoisyStatistics:
    """Return the release of a list of mbi's `LinearMeasurement`.

    Parameters
    ----------
    network
        The declared model. Its variables are mbi's attributes; each has as many states as the attribute has values,
        in the same order. Each measured clique lies inside one of the model's cliques.
    measurements
        Objects with `noisy_measurement`, `clique`, `stddev` and `query`, as in mbi; or, as in its older versions,
        tuples ``(matrix, values, standard deviation, clique)``, with None in place of the identity matrix.
    noise
        The family of the noise distribution. A measurement states only the standard deviation.
    guarantee
        The publisher's privacy guarantee, if there is one. This library cannot vouch for it.
    total
        The number of records, if it is public.

    Returns
    -------
    NoisyStatistics
        The release, with one measurement for each linear measurement.

    Raises
    ------
    ArgumentError
        A list entry is not a measurement.
    DataError
        A measurement has another number of values than its query has rows.
    ModelError
        A clique or query does not fit the model.

    Notes
    -----
    AIM and MST choose the cliques from the data. Intervals are then conditional on that choice.

    Examples
    --------
    >>> import numpy as np
    >>> import bayesprivmrf as bpm
    >>> network = bpm.declare({"ill": ["no", "yes"]}, [("ill",)])
    >>> release = bpm.readers.from_mbi(network, [(None, np.array([81.0, 17.5]), 2.0, ("ill",))])
    >>> release.estimated_total, release.noise[0].name
    (98.5, 'gaussian')
    """
    model = ModelSpecification.from_pgmpy(network)
    kind = family(noise)
    is_list = isinstance(measurements, Iterable) and not isinstance(measurements, Mapping)
    seen = f"a {type(measurements).__name__}"
    require(is_list, "measurements", "be a list of mbi's LinearMeasurement", seen)
    found: list[Measurement] = []
    for each in listed("`measurements`", measurements):
        one = _fields(each)
        codes = [np.arange(len(model.domain.states_of(v))) for v in one.clique]
        found.append(_measured(model, one, noise_of_variance(kind, one.stddev * one.stddev), codes))
    return released(model, found, guarantee=guarantee, total=total)


def from_opendp(
    network: DiscreteMarkovNetwork | ModelSpecification,
    contingency_table: Any,
    *,
    noise: type[NoiseDistribution] | str,
    missing: Label | None = None,
    guarantee: PrivacyGuarantee | None = None,
    total: int | None = None,
) -> NoisyStatistics:
    """Return the release of an OpenDP contingency table (`opendp.extras.mbi.ContingencyTable`).

    Parameters
    ----------
    network
        The declared model. The keys of each column are its states, in any order.
    contingency_table
        The result of OpenDP's `contingency_table`: an object with `keys` and `marginals`. Its own model is not read.
    noise
        The family of the noise distribution, which the table does not state: ``"discrete-laplace"`` under pure or
        approximate differential privacy, ``"discrete-gaussian"`` under zero-concentrated privacy. The standard
        deviations in the table are those of continuous noise with the same scale.
    missing
        The declared state for OpenDP's key of missing and unknown values.
    guarantee
        The privacy guarantee of the table. This library cannot vouch for it.
    total
        The number of records, if it is public.

    Returns
    -------
    NoisyStatistics
        The release, with one measurement for each marginal.

    Raises
    ------
    ArgumentError
        `contingency_table` is not a contingency table.
    ModelError
        The keys are not the declared states, or a clique does not fit the model.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> import numpy as np
    >>> import bayesprivmrf as bpm
    >>> network = bpm.declare({"ill": ["no", "yes"]}, [("ill",)])
    >>> one = SimpleNamespace(clique=("ill",), noisy_measurement=np.array([17, 81]), stddev=2.0, query=None)
    >>> released = SimpleNamespace(keys={"ill": ["yes", "no"]}, marginals={("ill",): one})
    >>> bpm.readers.from_opendp(network, released, noise="discrete-gaussian").flat.tolist()
    [81.0, 17.0]
    """
    model = ModelSpecification.from_pgmpy(network)
    kind = family(noise)
    keys: Any = getattr(contingency_table, "keys", None)
    marginals: Any = getattr(contingency_table, "marginals", None)
    is_table = marginals is not None and isinstance(keys, Mapping)
    seen = f"a {type(contingency_table).__name__}"
    must = "have `keys` and `marginals`, as OpenDP's has"
    remedy = "give it the released ContingencyTable"
    require(is_table, "contingency_table", must, seen, remedy)
    found: list[Measurement] = []
    measured: Any = getattr(marginals, "flatten", list)()
    if not hasattr(marginals, "flatten"):
        held = instance_of(
            "marginals", marginals, Mapping, "be those of OpenDP's ContingencyTable"
        ).values()
        measured = chain.from_iterable(each if isinstance(each, list) else [each] for each in held)
    for each in measured:
        one = _fields(each)
        form = KERNELS.get(kind.kernel)
        if form is None:
            one_noise = noise_of_variance(kind, one.stddev * one.stddev)
        else:  # OpenDP states the deviation of continuous noise
            scale = one.stddev / math.sqrt(form.variance)
            one_noise = kind(scale)  # type: ignore[call-arg]
        order = [_key_codes(model, v, keys, missing) for v in one.clique]
        found.append(_measured(model, one, one_noise, order))
    return released(model, found, guarantee=guarantee, total=total)


def _fields(each: Any) -> Any:
    """Return the clique, the numbers, the standard deviation, and the matrix or query of one measurement."""
    if isinstance(each, tuple) and len(each) == 4:
        query, values, deviation, clique = each
    else:
        names = ("query", "noisy_measurement", "stddev", "clique")
        query, values, deviation, clique = (getattr(each, name, None) for name in names)
    is_whole = values is not None and deviation is not None and clique is not None
    must = "have `noisy_measurement`, `clique` and `stddev`, as mbi's LinearMeasurement has"
    require(is_whole, "a measurement", must, f"a {type(each).__name__} without them")
    refuse_axes("noisy_measurement", values)
    refuse_axes("the matrix of a measurement", query)
    is_matrix = hasattr(query, "shape") and not isinstance(query, type)
    is_one = isinstance(clique, str) or not isinstance(clique, Iterable)
    return SimpleNamespace(
        stddev=width_of("the standard deviation of a measurement", deviation),
        query=None if is_matrix else query,
        matrix=query if is_matrix else None,
        clique=(clique,) if is_one else tuple(listed("`clique` of a measurement", clique)),
        values=bare_array("noisy_measurement", values, float),
    )


def _measured(
    model: ModelSpecification, one: Any, noise: NoiseDistribution, codes: Sequence[np.ndarray]
) -> Measurement:
    """Return one measurement with its cells in declared order; `codes` are the states' codes in the given order."""
    shape = [len(code) for code in codes]
    cells = math.prod(shape)
    # the position of each given cell among the declared cells
    if shape:
        declared = np.ravel_multi_index(np.ix_(*codes), shape).ravel()
    else:
        declared = np.zeros(1, dtype=int)
    matrix = _matrix(one, shape)
    what = f"the measurement of {one.clique!r}"
    given = one.values.shape
    is_flat = one.values.ndim <= 1 or (matrix is None and given == tuple(shape))
    must = f"be a vector or have the shape of its table, {tuple(shape)}"
    require(is_flat, what, must, f"shape {given}", error=DataError)
    if matrix is None:
        rows = cells
    else:
        rows = matrix.shape[0]
    fits = one.values.size == rows and (matrix is None or matrix.shape[1] == cells)
    must = f"have {rows} numbers, because its query has as many on the declared states"
    remedy = "declare as many states as each attribute has values"
    require(fits, what, must, one.values.size, remedy, error=DataError)
    one.values = one.values.ravel()
    if matrix is None:
        values = np.empty(cells)
        values[declared] = one.values
        if one.clique:
            query = table(*one.clique)
        else:
            query = query_of(model, (), {})
        return Measurement(query, values, noise)
    moved = np.empty_like(matrix)
    moved[:, declared] = matrix
    must = "be the number of records"
    remedy = "leave out any other"
    require(
        one.clique, "a measurement without attributes", must, "a matrix", remedy, error=ModelError
    )
    must = "have whole weights"
    remedy = "multiply the matrix, the measurement and its standard deviation so that the weights are whole"
    whole = np.rint(moved)
    # a row of small weights would become a row of zeros
    is_whole = (
        np.allclose(moved, whole, rtol=0.0, atol=1e-6) and (whole.any(1) == moved.any(1)).all()
    )
    require(is_whole, f"the query of {one.clique!r}", must, "others", remedy, error=ModelError)
    return Measurement(weighted(*one.clique, matrix=whole.astype(np.int64)), one.values, noise)


def _matrix(one: Any, shape: Sequence[int]) -> np.ndarray | None:
    """Return the matrix of a query on the cells in the given order; None for the identity."""
    cells = math.prod(shape)
    if one.matrix is not None:
        try:
            if hasattr(one.matrix, "__matmul__"):
                dense = one.matrix @ np.eye(cells)
            else:
                dense = one.matrix
            dense = bare_array("query", dense, float)
        except Exception:  # the product of another library may fail in any way
            dense = np.empty(0)
        must = f"hold numbers, with a column for each of {cells} cells"
        what = f"the matrix of the measurement of {one.clique!r}"
        require(dense.ndim == 2, what, must, "something else", error=DataError)
        if dense.shape == (cells, cells) and np.array_equal(dense, np.eye(cells)):
            return None
        return dense
    if one.query is None:
        return None
    # Random whole numbers below 2^20 are exact in single precision too. A linear map with whole weights other than
    # the identity maps them to themselves with a probability below 2^-20.
    probe = np.random.default_rng(0).integers(1, 2**20, cells).astype(np.float32)
    answer = _answer(one, probe, shape)
    if np.array_equal(answer, probe):
        return None
    # the matrix is found by evaluating the query at each cell; at this size it takes 200 MB
    largest = 5000
    must = f"be the identity on a table of more than {largest:,} cells"
    require(
        cells <= largest, f"the query of {one.clique!r}", must, "another", _REMEDY, error=ModelError
    )
    return np.stack([_answer(one, unit, shape) for unit in np.eye(cells, dtype=np.float32)], axis=1)


def _answer(one: Any, values: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """Return the answer of a measurement's query on a table."""
    try:
        return np.asarray(one.query(_Factor(values.reshape(shape))), dtype=float).ravel()
    except Exception as error:
        must = f"read a factor's `datavector()` or `values`, but failed with {type(error).__name__}"
        raise ModelError(f"the query of {one.clique!r} must {must}; {_REMEDY}.") from None


# What to do about a query that cannot be evaluated
_REMEDY = "give its matrix, as a tuple (matrix, values, standard deviation, clique)"


class _Factor:
    """Table with the attributes of mbi's factors that its queries read."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    def datavector(self, flatten: bool = True) -> np.ndarray:
        if flatten:
            return self.values.ravel()
        return self.values


def _key_codes(
    model: ModelSpecification, variable: Variable, keys: Mapping[Any, Any], missing: Label | None
) -> np.ndarray:
    """Return the codes of the declared states for the keys of a column, in the order of the keys."""
    states = model.domain.states_of(variable)
    remedy = "rename the variable"
    require(
        variable in keys, "keys", f"have the column {variable!r}", "none", remedy, error=ModelError
    )
    code_of = code_finder(states)
    what = f"the keys of {variable!r}"
    must = f"be its declared states {states!r}"
    codes = []
    for key in listed(what, keys[variable]):
        require_hashable(what, key)
        label = missing if is_missing(key) else key
        code = None if label is None else code_of(label)
        seen = repr(label)
        remedy = "declare the keys as its states"
        if label is None:
            seen = "the key of missing values"
            remedy = "name the declared state for it in `missing=`"
        require(code is not None, what, must, seen, remedy, error=ModelError)
        codes.append(code)
    is_each = sorted(codes) == list(range(len(states)))
    require(is_each, what, f"{must}, each once", f"{len(codes)} keys", error=ModelError)
    return np.array(codes)
