"""The measured tables of an evidence: names, densities, and replicates under the same noise.

Names are those of variables and tables in trees and PyMC models: text, one dimension a variable, no two alike.

Cells of the model's cliques that each measured number is a sum of, and rough counts of these cells.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.inference.least_squares import least_squares
from bayesprivmrf.inference.noise_aware.objective import EffectsPrior
from bayesprivmrf.inference.posterior.forest import JunctionForest
from bayesprivmrf.model import Domain
from bayesprivmrf.model.tables import FloatArray, IntArray
from bayesprivmrf.privacy import NoiseLaw

# names that trees and PyMC models use for something else
_TAKEN = frozenset(
    {"chain", "draw", "sample", "cell", "noisy_cell", "effect", "order", "table", "total", "scale"}
)
# names such as ``marginal[a,b]`` are made of these characters, and files cannot hold a slash
_REPLACED = str.maketrans({",": ";", "/": "|", "[": "(", "]": ")"})


def dimension_names(domain: Domain) -> tuple[str, ...]:
    """Return the name of each variable's dimension: ``str(variable)``, changed only where that would not work.

    Commas, slashes and brackets are replaced. A name that is empty or in use gets an underscore.

    Examples
    --------
    >>> dimension_names(Domain.from_states({"smokes": [0, 1], 7: [0, 1], "draw": [0, 1], "a/b": [0, 1]}))
    ('smokes', '7', 'draw_', 'a|b')
    """
    declared = {str(variable) for variable in domain.variables}
    names: list[str] = []
    for own in map(str, domain.variables):
        name = own.translate(_REPLACED)
        while not name or name in _TAKEN or name in names or (name != own and name in declared):
            name += "_"
        names.append(name)
    return tuple(names)


def state_labels(domain: Domain, position: int) -> np.ndarray:
    """Return the states of a variable as text, in declared order."""
    return np.array([str(state) for state in domain.states[position]], dtype=object)


def table_name(kind: str, names: Sequence[str], scope: Sequence[int]) -> str:
    """Return the name of a table in a tree.

    Examples
    --------
    >>> table_name("marginal", ("a", "b", "c"), (2, 0))
    'marginal[c,a]'
    """
    return f"{kind}[{','.join(names[v] for v in scope)}]"


def scaled_effects(prior: EffectsPrior, names: Sequence[str]) -> list[str]:
    """Return labels of the learned scales, no two alike: an effect such as ``a,b``, a part of one, or an order."""
    found: list[str] = []
    for order, scope in zip(prior.orders, prior.scopes, strict=True):
        _, _, part = str(order).partition(", ")
        effect = ",".join(names[v] for v in scope)
        label = (effect + (f" ({part})" if part else "")) if scope else f"order {order}"
        while label in found:
            label += "_"
        found.append(label)
    return found


def table_labels(evidence: Evidence, kind: str = "noisy_counts") -> list[str]:
    """Return the name of each measured table or query, with a number from its second measurement on."""
    names = dimension_names(evidence.specification.domain)
    labels: list[str] = []
    seen: dict[object, int] = {}
    for position, scope in enumerate(evidence.measured_scopes):
        query = repr(evidence.queries[position].query) if evidence.queries is not None else ""
        key = query if scope is None else frozenset(scope)
        name = f"{kind}[{query.replace('/', '|')}]" if scope is None else table_name(kind, names, scope)
        count = seen[key] = seen.get(key, 0) + 1
        labels.append(name + (f" {count}" if count > 1 else ""))
    return labels


def replicated_tables(evidence: Evidence, counts: FloatArray, rng: np.random.Generator) -> list[FloatArray]:
    """Return noisy tables that the same mechanisms might have released instead; cells that cannot occur are 0.

    Under an integer law the counts are rounded first, and the noise is of whole numbers.
    """
    replicated = []
    for position, table in enumerate(evidence.answers(counts)):
        law = evidence.noise[position]
        noisy = whole_counts(evidence, position, table) + drawn_noise(law, table.shape, rng)
        replicated.append(np.where(possible_cells(evidence, position), noisy, 0.0))
    return replicated


def log_likelihoods(evidence: Evidence, counts: FloatArray) -> dict[str, FloatArray]:
    """Return the log density of each noisy table given its latent counts, nats, shape (chain, draw).

    Under an integer law the counts are rounded first.
    """
    densities = []
    for position, table in enumerate(evidence.answers(counts)):
        law, mask = evidence.noise[position], possible_cells(evidence, position)
        residuals = (noisy_table(evidence, position) - whole_counts(evidence, position, table))[..., mask]
        densities.append(law.log_density(residuals).sum(axis=-1))
    return dict(zip(table_labels(evidence), densities, strict=True))


def whole_counts(evidence: Evidence, position: int, counts: FloatArray) -> FloatArray:
    """Return the answers to which noise was added: whole numbers under an integer law, else as they are."""
    if not evidence.noise[position].is_discrete:
        return counts
    least = -np.inf if evidence.measured_scopes[position] is None else 0.0
    return np.maximum(np.rint(counts), least)


def drawn_noise(law: NoiseLaw, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Draw noise of a shape, one entry of the first axis after the other: a law may need several arrays for one."""
    drawn = np.empty(shape)
    for first in range(shape[0]):
        drawn[first] = law.draw(shape[1:], rng)
    return drawn


def possible_cells(evidence: Evidence, position: int) -> np.ndarray:
    """Return the mask of a measured table's cells that may occur, in its own shape."""
    start, stop = evidence.offsets[position : position + 2]
    return evidence.possible[start:stop].reshape(evidence.shapes[position])


def is_noisy(evidence: Evidence, position: int) -> bool:
    """Return True if a measurement has noise of mean zero, and is neither exact nor known within bounds."""
    law = evidence.noise[position]
    return law.variance > 0 and law.kernel != "within"


def noisy_table(evidence: Evidence, position: int) -> FloatArray:
    """Return one measured table as it was released."""
    start, stop = evidence.offsets[position : position + 2]
    return evidence.noisy_counts[start:stop].reshape(evidence.shapes[position])


def has_zeros(evidence: Evidence, variables: Collection[int]) -> bool:
    """Return True if some clique that holds these variables has cells that cannot occur.

    The zero-sum effects are then not determined by the distribution: only the possible cells are.
    """
    model, supported = evidence.specification, evidence.supported
    if supported is None:
        return False
    return any(
        set(variables) <= set(scope) and not supported[start:stop].all()
        for scope, start, stop in zip(model.scopes, model.offsets, model.offsets[1:], strict=False)
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MeasuredCells:
    """Cells that may occur, of the model and of the measured tables.

    Parameters
    ----------
    cells
        Flat positions of the model's possible cells, ascending.
    targets
        Positions of the possible measured cells in the flat view of the noisy tables.
    sources, sums, entries
        Possible cell ``sources[k]`` of the model counts ``entries[k]`` times in measured number ``sums[k]``; both as
        numbered above, by rows.
    """

    cells: IntArray
    targets: IntArray
    sources: IntArray
    sums: IntArray
    entries: FloatArray

    @classmethod
    def of(cls, evidence: Evidence) -> MeasuredCells:
        """Return the cells of one evidence; each measured table is summed from the first clique that holds it."""
        from scipy.sparse import eye_array

        cells, targets = evidence.supported, np.flatnonzero(evidence.possible)
        cells = np.arange(evidence.specification.size) if cells is None else np.flatnonzero(cells)
        rows = evidence.possible_rows()
        rows = eye_array(cells.size, format="csr") if rows is None else rows[:, cells]
        entries = rows.tocoo()
        sums, sources = (np.asarray(place, dtype=int) for place in entries.coords)
        return cls(cells=cells, targets=targets, sources=sources, sums=sums, entries=entries.data)

    def answers(self, counts: IntArray | FloatArray) -> FloatArray:
        """Return the measured numbers of the possible cells' counts, shape (..., measured numbers)."""
        from scipy.sparse import csr_array

        shape = self.targets.size, self.cells.size
        matrix = csr_array((self.entries, (self.sums, self.sources)), shape)
        flat = np.reshape(counts, (-1, self.cells.size))
        return (matrix @ flat.T).T.reshape(*np.shape(counts)[:-1], self.targets.size)

    @property
    def rows(self) -> tuple[IntArray, IntArray, FloatArray]:
        """The sums as a sparse matrix by rows: where each measured number begins, the model's cells, and entries."""
        starts = np.searchsorted(self.sums, np.arange(self.targets.size + 1))
        return starts, self.sources, self.entries


def rough_counts(evidence: Evidence, forest: JunctionForest, total: float) -> tuple[FloatArray, FloatArray]:
    """Return the mean noisy count of each cell and its precision, in the order of ``forest.cells``.

    Only tables of whole cliques are used. Where there is none, the total is spread evenly, with precision 0. Answers
    to other queries are replaced by the tables that fit them best.
    """
    if evidence.queries is not None:
        found = least_squares(evidence)
        known = np.divide(1, found.variances, out=np.zeros_like(found.counts), where=~found.undetermined)
        return _of_cells(forest, found.counts, known)
    precision, weighted = np.zeros((2, forest.offsets[-1]))
    for position, scope in enumerate(evidence.scopes):
        home = evidence.specification.parent(scope)
        if len(scope) == len(forest.scopes[home]):
            noisy = evidence.offsets[position] + forest.separator_states(home, scope)
            own = slice(*forest.offsets[home : home + 2])
            information = 1 / evidence.noise[position].scale ** 2
            precision[own] += information
            weighted[own] += information * evidence.noisy_counts[noisy]
    sizes = np.diff(forest.offsets)
    even = np.repeat(total / np.maximum(sizes, 1), sizes)
    counts = np.divide(weighted, precision, out=even, where=precision > 0)
    return _of_cells(forest, counts, precision)


def _of_cells(
    forest: JunctionForest, counts: FloatArray, precision: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return counts and precisions of the forest's cells, from those of the model's cells; variances add up."""
    variance = np.divide(1, precision, out=np.full_like(precision, np.inf), where=precision > 0)
    return forest.with_inner(counts), 1 / forest.with_inner(variance)
