"""Measured tables of an evidence: their names, their densities, replicates, and the cells that they sum.

Trees and PyMC models name a dimension for each variable and a variable for each table; all names are different texts.
`MeasuredCells` lists the cells of the model's cliques that each measured number sums, and `rough_counts` estimates
the counts of these cells.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from bayesprivmrf.escapes import printable
from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.inference.noise_aware.objective import EffectsPrior
from bayesprivmrf.inference.posterior.forest import JunctionForest
from bayesprivmrf.inference.projection import least_squares
from bayesprivmrf.model import Domain
from bayesprivmrf.model.tables import FloatArray, IntArray
from bayesprivmrf.noise.likelihood import Likelihood


def dimension_names(domain: Domain, *, is_escaped: bool = True) -> tuple[str, ...]:
    """Return the name of each variable's dimension: ``str(variable)``, changed only if that would not work.

    Commas, slashes and brackets are replaced, and control characters escaped. A name that is empty or in use gets an
    underscore. Files of earlier versions have control characters in their names: read them with ``is_escaped=False``.

    Examples
    --------
    >>> dimension_names(Domain.from_states({"smokes": [0, 1], 7: [0, 1], "draw": [0, 1], "a/b": [0, 1]}))
    ('smokes', '7', 'draw_', 'a|b')
    """
    # names that trees and PyMC models use for something else
    taken = {
        "chain",
        "draw",
        "sample",
        "cell",
        "noisy_cell",
        "effect",
        "order",
        "table",
        "total",
        "scale",
    }
    # names such as ``marginal[a,b]`` consist of these characters, and names in files cannot contain a slash
    replaced = str.maketrans({",": ";", "/": "|", "[": "(", "]": ")"})
    declared = {str(variable) for variable in domain.variables}
    names: list[str] = []
    for own in map(str, domain.variables):
        name = own.translate(replaced)
        name = printable(name) if is_escaped else name
        while not name or name in taken or name in names or (name != own and name in declared):
            name += "_"
        names.append(name)
    return tuple(names)


def state_labels(domain: Domain, position: int) -> np.ndarray:
    """Return the states of a variable as text, in declared order."""
    return np.array([printable(str(state)) for state in domain.states[position]], dtype=object)


def table_name(kind: str, names: Sequence[str], scope: Sequence[int]) -> str:
    """Return the name of a table in a tree.

    Examples
    --------
    >>> table_name("marginal", ("a", "b", "c"), (2, 0))
    'marginal[c,a]'
    """
    return f"{kind}[{','.join(names[v] for v in scope)}]"


def scaled_effects(prior: EffectsPrior, names: Sequence[str]) -> list[str]:
    """Return different labels for the learned scales: an effect such as ``a,b``, a part of one, or an order."""
    found: list[str] = []
    for order, scope in zip(prior.orders, prior.scopes, strict=True):
        _, _, part = str(order).partition(", ")
        effect = ",".join(names[v] for v in scope)
        if scope:
            label = effect + (f" ({part})" if part else "")
        else:
            label = f"order {order}"
        while label in found:
            label += "_"
        found.append(label)
    return found


def table_labels(evidence: Evidence, kind: str = "noisy_counts") -> list[str]:
    """Return the name of each measured table or query; repeated measurements are numbered from the second on."""
    names = dimension_names(evidence.specification.domain)
    labels: list[str] = []
    seen: dict[object, int] = {}
    for position, scope in enumerate(evidence.measured_scopes):
        if evidence.queries is not None:
            query = repr(evidence.queries[position].query)
        else:
            query = ""
        if scope is None:
            key = query
        else:
            key = frozenset(scope)
        if scope is None:
            name = f"{kind}[{query.replace('/', '|')}]"
        else:
            name = table_name(kind, names, scope)
        count = seen[key] = seen.get(key, 0) + 1
        labels.append(name + (f" {count}" if count > 1 else ""))
    return labels


def replicated_tables(
    evidence: Evidence, counts: FloatArray, rng: np.random.Generator
) -> list[FloatArray]:
    """Return replicated tables: numbers that the same likelihoods draw, given the counts.

    Under integer noise the counts are rounded first. Impossible cells are 0.
    """
    replicated = []
    for position, table in enumerate(evidence.answers(counts)):
        counts = whole_counts(evidence, position, table)
        noisy = drawn_numbers(evidence.noise[position], counts, rng)
        replicated.append(np.where(possible_cells(evidence, position), noisy, 0.0))
    return replicated


def log_likelihoods(evidence: Evidence, counts: FloatArray) -> dict[str, FloatArray]:
    """Return the log density of each noisy table given its latent counts, nats, shape (chain, draw).

    Under integer noise the counts are rounded first.
    """
    found = {}
    tables = zip(table_labels(evidence), evidence.answers(counts), strict=True)
    for position, (label, table) in enumerate(tables):
        mask = possible_cells(evidence, position)
        counts = whole_counts(evidence, position, table)[..., mask]
        numbers = published_table(evidence, position)[mask]
        density = evidence.noise[position].log_probability(numbers, counts)
        found[label] = density.sum(axis=-1)
    return found


def whole_counts(evidence: Evidence, position: int, counts: FloatArray) -> FloatArray:
    """Return the answers to which noise is added: rounded under integer noise, and unchanged otherwise."""
    if not evidence.noise[position].is_discrete:
        return counts
    if evidence.measured_scopes[position] is None:
        least = -np.inf
    else:
        least = 0.0
    return np.maximum(np.rint(counts), least)


def drawn_numbers(
    likelihood: Likelihood, counts: FloatArray, rng: np.random.Generator
) -> np.ndarray:
    """Draw published numbers given counts, one entry of the first axis at a time, which limits the memory."""
    drawn = np.empty(counts.shape)
    for first in range(len(counts)):
        drawn[first] = likelihood.draw_given(counts[first], rng)
    return drawn


def possible_cells(evidence: Evidence, position: int) -> np.ndarray:
    """Return the mask of the possible cells of a measured table, in the shape of the table."""
    start, stop = evidence.offsets[position : position + 2]
    return evidence.possible[start:stop].reshape(evidence.shapes[position])


def is_noisy(evidence: Evidence, position: int) -> bool:
    """Return True if a measurement has noise with mean 0, and is neither exact nor known within bounds."""
    likelihood = evidence.noise[position]
    return not (likelihood.is_exact or likelihood.is_bounded)


def published_table(evidence: Evidence, position: int) -> FloatArray:
    """Return one measured table with its published values."""
    start, stop = evidence.offsets[position : position + 2]
    return evidence.published[start:stop].reshape(evidence.shapes[position])


def has_zeros(evidence: Evidence, variables: Collection[int]) -> bool:
    """Return True if some clique that contains these variables has structural zeros.

    The distribution then determines only the possible cells, and not the zero-sum effects.
    """
    model = evidence.specification
    supported = evidence.supported
    if supported is None:
        return False
    return any(
        set(variables) <= set(scope) and not supported[start:stop].all()
        for scope, start, stop in zip(model.scopes, model.offsets, model.offsets[1:], strict=False)
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MeasuredCells:
    """Possible cells of the model and of the measured tables.

    Parameters
    ----------
    cells
        Flat positions of the model's possible cells, ascending.
    targets
        Positions of the possible measured cells in the flat view of the noisy tables.
    sources, sums, entries
        Possible cell ``sources[k]`` of the model counts ``entries[k]`` times in measured number ``sums[k]``. Cells
        and numbers are numbered as in `cells` and `targets`; entries are ordered by `sums`.
    """

    cells: IntArray
    targets: IntArray
    sources: IntArray
    sums: IntArray
    entries: FloatArray

    @classmethod
    def of(cls, evidence: Evidence) -> MeasuredCells:
        """Return the cells of one evidence; each measured table is summed in the first clique that contains it."""
        from scipy.sparse import eye_array

        cells = np.flatnonzero(evidence.supported_cells)
        rows = evidence.possible_rows()
        if rows is None:
            rows = eye_array(cells.size, format="csr")
        else:
            rows = rows[:, cells]
        entries = rows.tocoo()
        sums, sources = (np.asarray(place, dtype=int) for place in entries.coords)
        targets = np.flatnonzero(evidence.possible)
        return cls(cells=cells, targets=targets, sources=sources, sums=sums, entries=entries.data)

    def answers(self, counts: IntArray | FloatArray) -> FloatArray:
        """Return the exact values of the measured numbers, given the counts of the possible cells.

        Shape (..., cells) to (..., measured numbers).
        """
        from scipy.sparse import csr_array

        shape = self.targets.size, self.cells.size
        matrix = csr_array((self.entries, (self.sums, self.sources)), shape)
        flat = np.reshape(counts, (-1, self.cells.size))
        return (matrix @ flat.T).T.reshape(*np.shape(counts)[:-1], self.targets.size)

    @property
    def rows(self) -> tuple[IntArray, IntArray, FloatArray]:
        """Sums as a sparse matrix by rows: the start of each measured number, the model's cells, and the entries."""
        starts = np.searchsorted(self.sums, np.arange(self.targets.size + 1))
        return starts, self.sources, self.entries


def rough_counts(
    evidence: Evidence, forest: JunctionForest, total: float
) -> tuple[FloatArray, FloatArray]:
    """Return the mean noisy count of each cell, and its precision, in the order of ``forest.cells``.

    Only tables of whole cliques are used. In cliques without one the total is spread evenly, with precision 0. If
    queries were measured, the counts are the least-squares solution of their answers.
    """
    if evidence.queries is not None:
        found = least_squares(evidence)
        counts = found.counts
        variance = np.where(found.undetermined, np.inf, found.variances)
        return forest.with_inner(counts), 1 / forest.with_inner(variance)
    precision, weighted = np.zeros((2, forest.offsets[-1]))
    for position, scope in enumerate(evidence.scopes):
        home = evidence.specification.parent(scope)
        if len(scope) == len(forest.scopes[home]):
            noisy = evidence.offsets[position] + forest.separator_states(home, scope)
            own = slice(*forest.offsets[home : home + 2])
            information = 1 / evidence.noise_scale[noisy] ** 2
            precision[own] += information
            weighted[own] += information * evidence.noisy_counts[noisy]
    sizes = np.diff(forest.offsets)
    even = np.repeat(total / np.maximum(sizes, 1), sizes)
    counts = np.divide(weighted, precision, out=even, where=precision > 0)
    variance = np.divide(1, precision, out=np.full_like(precision, np.inf), where=precision > 0)
    # variances of cells add up in the inner cells
    return forest.with_inner(counts), 1 / forest.with_inner(variance)
