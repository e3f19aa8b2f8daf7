"""Noisy linear measurements as mbi (Private-PGM) holds them, and OpenDP's contingency tables, made of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesprivmrf.checks import bare_array, instance_of, require
from bayesprivmrf.errors import ArgumentError, DataError, ModelError
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.domain import Label, Variable, label_key, listed
from bayesprivmrf.noise import NoiseLaw
from bayesprivmrf.privacy import PrivacyGuarantee
from bayesprivmrf.queries import table, weighted
from bayesprivmrf.readers.columns import query_of, released
from bayesprivmrf.readers.laws import deviation_of, family, law_of_deviation
from bayesprivmrf.release import Measurement, NoisyStatistics
from bayesprivmrf.release.given import by_law

if TYPE_CHECKING:
    from pgmpy.models import DiscreteMarkovNetwork

# Cells up to which a query's matrix is found by asking it for each cell; the matrix then takes at most 200 MB
_PROBED = 5000


def from_mbi(
    network: DiscreteMarkovNetwork | ModelSpecification,
    measurements: Iterable[Any],
    *,
    noise: type[NoiseLaw] | str = "gaussian",
    guarantee: PrivacyGuarantee | None = None,
    total: int | None = None,
) -> NoisyStatistics:
    """Release of a list of mbi's `LinearMeasurement`.

    Parameters
    ----------
    network
        The declared model, with mbi's attributes as variables, each with as many states as the attribute has
        values, in their order. Each measured clique lies inside one of its cliques.
    measurements
        Objects with `noisy_measurement`, `clique`, `stddev` and `query`, as mbi's are; or tuples
        ``(matrix, values, standard deviation, clique)``, as those of older versions, the matrix None for the
        identity.
    noise
        The family of the noise's law, of which a measurement tells the standard deviation alone.
    guarantee
        The publisher's promise, if there is one. This library cannot vouch for it.
    total
        The number of records, where it is public.

    Raises
    ------
    ArgumentError
        Something other than measurements is given.
    DataError
        A measurement's numbers are not those of its query.
    ModelError
        A clique or query does not fit the model.

    Notes
    -----
    Where the cliques were chosen by looking at the data, as AIM and MST do, intervals are conditional on that choice.
    """
    model = ModelSpecification.from_pgmpy(network)
    kind = family(noise)
    found: list[Measurement] = []
    for each in _listed(measurements):
        one = _fields(each)
        law = law_of_deviation(kind, one.stddev)
        found += _measured(model, one, law, [np.arange(len(s)) for s in _states(model, one.clique)])
    return released(model, found, guarantee=guarantee, total=total)


def from_opendp(
    network: DiscreteMarkovNetwork | ModelSpecification,
    contingency_table: Any,
    *,
    noise: type[NoiseLaw] | str,
    missing: Label | None = None,
    guarantee: PrivacyGuarantee | None = None,
    total: int | None = None,
) -> NoisyStatistics:
    """Release of OpenDP's contingency table (`opendp.extras.mbi.ContingencyTable`).

    Parameters
    ----------
    network
        The declared model. The states of each column are its keys, in any order.
    contingency_table
        What a query's `contingency_table` released: an object with `keys` and `marginals`. Its own model is not read.
    noise
        ``"discrete-laplace"`` under pure or approximate differential privacy, ``"discrete-gaussian"`` under
        zero-concentrated: the table does not tell, and its standard deviations are those of continuous noise of
        the scale that was drawn.
    missing
        The declared state that stands for OpenDP's key of missing and unknown values.
    guarantee
        The promise that was made. This library cannot vouch for it.
    total
        The number of records, where it is public.

    Raises
    ------
    ArgumentError
        Something other than a contingency table is given.
    ModelError
        The keys are not the declared states, or a clique does not fit the model.
    """
    model = ModelSpecification.from_pgmpy(network)
    kind = family(noise)
    keys, marginals = (getattr(contingency_table, name, None) for name in ("keys", "marginals"))
    if marginals is None or not isinstance(keys, Mapping):
        raise ArgumentError(
            "`contingency_table` must have `keys` and `marginals`, as OpenDP's has, got a "
            f"{type(contingency_table).__name__}; give it the released ContingencyTable."
        )
    found: list[Measurement] = []
    for each in _flat(marginals):
        one = _fields(each)
        if kind.kernel is None:
            law = law_of_deviation(kind, one.stddev)
        else:  # OpenDP calls its noise's scale the standard deviation, or that over the root of two
            root = math.sqrt(2) if kind.kernel == "absolute" else 1.0
            law = kind(deviation_of(one.stddev) / root)  # type: ignore[call-arg]
        order = [_key_codes(model, v, keys, missing) for v in one.clique]
        found += _measured(model, one, law, order)
    return released(model, found, guarantee=guarantee, total=total)


def _listed(measurements: Any) -> list[Any]:
    is_list = isinstance(measurements, Iterable) and not isinstance(measurements, Mapping)
    kind = f"a {type(measurements).__name__}"
    require(is_list, "measurements", "be a list of mbi's LinearMeasurement", kind)
    return listed("`measurements`", measurements)


def _flat(marginals: Any) -> list[Any]:
    """Return OpenDP's measurements: a collection that flattens itself, or a mapping from cliques."""
    if hasattr(marginals, "flatten"):
        return list(marginals.flatten())
    instance_of("marginals", marginals, Mapping, "be those of OpenDP's ContingencyTable")
    return [one for held in marginals.values() for one in (held if isinstance(held, list) else [held])]


def _fields(each: Any) -> Any:
    """Return clique, numbers, standard deviation, and matrix or query of one measurement."""
    if isinstance(each, tuple) and len(each) == 4:
        query, values, deviation, clique = each
    else:
        names = ("query", "noisy_measurement", "stddev", "clique")
        query, values, deviation, clique = (getattr(each, name, None) for name in names)
    if values is None or deviation is None or clique is None:
        raise ArgumentError(
            "a measurement must have `noisy_measurement`, `clique` and `stddev`, as mbi's LinearMeasurement has, "
            f"got a {type(each).__name__} without."
        )
    is_matrix = hasattr(query, "shape") and not isinstance(query, type)
    one = SimpleNamespace(
        stddev=deviation, query=None if is_matrix else query, matrix=query if is_matrix else None
    )
    is_one = isinstance(clique, str) or not isinstance(clique, Iterable)
    one.clique = (clique,) if is_one else tuple(listed("`clique` of a measurement", clique))
    one.values = bare_array("noisy_measurement", values, float)
    return one


def _states(model: ModelSpecification, clique: Sequence[Variable]) -> list[tuple[Label, ...]]:
    return [model.domain.states_of(variable) for variable in clique]


def _measured(
    model: ModelSpecification, one: Any, law: NoiseLaw, codes: Sequence[np.ndarray]
) -> list[Measurement]:
    """Return one measurement, whose axes have the given codes of states in their order, on the declared states."""
    shape = [len(code) for code in codes]
    cells = math.prod(shape)
    # where each of the file's cells lies among the declared ones
    declared = np.ravel_multi_index(np.ix_(*codes), shape).ravel() if shape else np.zeros(1, dtype=int)
    matrix = _matrix(one, shape)
    if one.values.ndim > 1 and (matrix is not None or one.values.shape != tuple(shape)):
        raise DataError(
            f"the measurement of {one.clique!r} must be a vector, or have shape {tuple(shape)} as its table, got "
            f"shape {one.values.shape}."
        )
    one.values = one.values.ravel()
    if (len(one.values) != cells) if matrix is None else (matrix.shape != (len(one.values), cells)):
        raise DataError(
            f"the measurement of {one.clique!r} must have {cells if matrix is None else matrix.shape[0]} numbers, as "
            f"its query has on the declared states, got {len(one.values)}; declare as many states as each attribute "
            "has values."
        )
    if matrix is None:
        values = np.empty(cells)
        values[declared] = one.values
        query = table(*one.clique) if one.clique else query_of(model, (), {})
        return [Measurement(query, values, law)]
    moved = np.empty_like(matrix)
    moved[:, declared] = matrix
    return _weighted(model, one, moved, law)


def _weighted(model: ModelSpecification, one: Any, matrix: np.ndarray, law: NoiseLaw) -> list[Measurement]:
    """Return the measurement of a matrix, whose rows are scaled to whole numbers where one factor does that."""
    if not one.clique:
        raise ModelError(
            "a measurement of no attribute must be the number of records itself; leave others out."
        )
    sizes = np.max(np.abs(matrix), axis=1)
    sizes[sizes == 0] = 1.0
    is_whole = (matrix == np.rint(matrix)).all(axis=1)
    factors = np.where(is_whole, 1.0, sizes)
    rows = matrix / factors[:, np.newaxis]
    if not np.allclose(rows, np.rint(rows), atol=1e-6):
        raise ModelError(
            f"the query of {one.clique!r} must weigh cells by whole numbers, or each row's cells alike, got other "
            "weights; multiply the measurement and its standard deviation until they are."
        )
    query = weighted(*one.clique, matrix=np.rint(rows).astype(np.int64))
    if (factors == 1).all():
        return [Measurement(query, one.values, law)]
    laws = {f: type(law).of_variance(law.variance / f**2) for f in set(factors.tolist())}
    return by_law(model, query, one.values / factors, [laws[f] for f in factors.tolist()])


def _matrix(one: Any, shape: Sequence[int]) -> np.ndarray | None:
    """Return a query's matrix on the cells in the file's order; None for the identity."""
    cells = math.prod(shape)
    if one.matrix is not None:
        try:
            dense = one.matrix @ np.eye(cells) if hasattr(one.matrix, "__matmul__") else one.matrix
            dense = bare_array("query", dense, float)
        except Exception:  # the product is another library's, and so is how it fails
            dense = np.empty(0)
        if dense.ndim != 2:
            raise DataError(
                f"the matrix of the measurement of {one.clique!r} must be of numbers, with a column for each of "
                f"{cells} cells."
            )
        return None if dense.shape == (cells, cells) and np.array_equal(dense, np.eye(cells)) else dense
    if one.query is None:
        return None
    # whole numbers below 2^20 are exact in single precision too; a map with whole weights that is not the
    # identity keeps a vector of such random numbers with probability below 2^-20
    probe = np.random.default_rng(0).integers(1, 2**20, cells).astype(np.float32)
    answer = _asked(one, probe, shape)
    if np.array_equal(answer, probe):
        return None
    if cells > _PROBED:
        raise ModelError(
            f"the query of {one.clique!r} must be the identity on a table of more than {_PROBED:,} cells, got "
            "another; give its matrix, as a tuple (matrix, values, standard deviation, clique)."
        )
    return np.stack([_asked(one, unit, shape) for unit in np.eye(cells, dtype=np.float32)], axis=1)


def _asked(one: Any, values: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    try:
        return np.asarray(one.query(_Factor(values.reshape(shape))), dtype=float).ravel()
    except Exception as error:
        raise ModelError(
            f"the query of {one.clique!r} must read a factor's `datavector()` or `values`, but failed with "
            f"{type(error).__name__}; give its matrix, as a tuple (matrix, values, standard deviation, clique)."
        ) from None


class _Factor:
    """A table as mbi's queries read one."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    def datavector(self, flatten: bool = True) -> np.ndarray:
        return self.values.ravel() if flatten else self.values


def _is_missing(variable: Variable, key: Any) -> bool:
    """Whether a key stands for missing values; None, NaN and what pandas has for them."""
    try:
        hash(key)
    except TypeError:
        raise ModelError(
            f"the keys of {variable!r} must be labels, got a {type(key).__name__}; give one list."
        ) from None
    try:
        return key is None or bool(key != key)
    except TypeError:  # of pandas.NA
        return True


def _key_codes(
    model: ModelSpecification, variable: Variable, keys: Mapping[Any, Any], missing: Label | None
) -> np.ndarray:
    """Return the code of the declared state of each of a column's keys, in their order."""
    states = model.domain.states_of(variable)
    if variable not in keys:
        raise ModelError(f"`keys` must have the column {variable!r}, got none; rename the variable.")
    by_key = {label_key(label): code for code, label in enumerate(states)}
    by_text = {str(label): code for code, label in enumerate(states)}
    codes = []
    for key in listed(f"the keys of {variable!r}", keys[variable]):
        label = missing if _is_missing(variable, key) else key
        code = by_key.get(label_key(label), by_text.get(str(label))) if label is not None else None
        if code is None:
            remedy = (
                "name the declared state for it in `missing=`"
                if label is None
                else "declare the keys as its states"
            )
            raise ModelError(
                f"the keys of {variable!r} must be its declared states {states!r}, got "
                f"{'the key of missing values' if label is None else repr(label)}; {remedy}."
            )
        codes.append(code)
    if sorted(codes) != list(range(len(states))):
        raise ModelError(
            f"the keys of {variable!r} must be its declared states {states!r}, each once, got {len(codes)} keys."
        )
    return np.array(codes)
