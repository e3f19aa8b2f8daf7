r"""Arrays that moves of whole records read: the constant ones, and the state of one chain.

Records of any log-linear model are moved like those of a decomposable one. Its junction forest is that of the bags of
a triangulation. Given the potentials, :math:`p_β(x) = \prod_B p_β(x_B \mid x_S)`: each bag's table is cut into rows,
one for each state of its separator, and the rows are given instead of integrated out.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayesprivmrf.inference.evidence import Evidence, supported_cells
from bayesprivmrf.inference.posterior.forest import JunctionForest, junction_forest
from bayesprivmrf.inference.posterior.measured import MeasuredCells
from bayesprivmrf.inference.posterior.preliminary import Preliminary, Whitening
from bayesprivmrf.inference.posterior.records.bounds import half_widths, held_numbers
from bayesprivmrf.inference.posterior.records.held import HeldSums
from bayesprivmrf.marginals import Layout, array_engine
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.tables import Clique, FloatArray, IntArray, cells_within

# Bound of what one more record in a cell changes; its exponential and that of twice as many are finite
_MOST_NATS = 300.0
# Largest number of measured cells per cell for which the bound of each has no practical effect
_MOST_TABLES = 10
# Least share of the information of whole records that noisy tables have where records alone are moved
_PRESENT = 0.5
# Log factor of a cell whose set lacks a record, and the most that it may be for all sets of a cell together
_STRENGTH, _ALL = 30.0, 200.0


class RecordTape(NamedTuple):
    """The arrays that compiled moves read; cells are in the order of ``forest.cells``."""

    row_starts: IntArray
    clique_rows: IntArray  # first row of each of the forest's tables, and the number of rows last
    row_cliques: IntArray
    cell_rows: IntArray
    source_starts: IntArray
    sources: IntArray
    child_starts: IntArray  # of each cell, where its children's rows begin in `child_rows`
    child_rows: IntArray
    table_starts: IntArray  # of each cell, where its measured cells begin in `table_cells`
    table_cells: IntArray
    table_weights: IntArray  # how often it counts there
    member_starts: IntArray  # of each measured cell, where its cells begin in `members`
    members: IntArray
    member_weights: IntArray
    noisy: FloatArray
    widths: FloatArray
    absolute: NDArray[np.bool_]
    halves: FloatArray  # half the distance of the bounds after a number's noise, or -1
    gain: float  # weight that a record adds to its cell: 1 where rows are integrated out, 0 where given
    most_nats: float  # bound of the log ratio of a measured cell, or of a cell: exponentials are finite
    is_direct: bool  # whether each number counts records of one clique, and a cell is in few of them


class ChainState(NamedTuple):
    """Tables of one chain and what follows from them; the arrays change in place."""

    shapes: FloatArray  # α of each cell
    counts: IntArray  # n of each cell
    sums: IntArray  # and of each measured cell
    boosts: FloatArray  # of each measured cell, the ratio of the noise's densities at one more record
    weights: FloatArray
    wholes: FloatArray  # n + α of each row
    values: FloatArray  # work space for sweeps
    totals: FloatArray
    messages: FloatArray
    block: IntArray  # tables of a block of records, then of the others
    block_sums: IntArray
    block_boosts: FloatArray
    stale: FloatArray  # weights and wholes of the tables without the block
    stale_wholes: FloatArray
    proposal: IntArray
    current: IntArray
    moved: IntArray  # work space for what a record adds to each measured cell
    inside: IntArray  # records in each set of cells whose sum is exact or bounded

    @classmethod
    def empty(cls, tape: RecordTape, shapes: FloatArray, sets: int = 0) -> ChainState:
        """Return the state of a chain without records."""
        cells, rows, cliques = shapes.size, len(tape.row_cliques), len(tape.clique_rows) - 1
        return cls(
            shapes=shapes,
            counts=np.zeros(cells, np.int64),
            sums=np.zeros(tape.noisy.size, np.int64),
            boosts=np.zeros(tape.noisy.size),
            weights=np.zeros(cells),
            wholes=np.zeros(rows),
            values=np.zeros(cells),
            totals=np.zeros(rows),
            messages=np.zeros(rows),
            block=np.zeros(cells, np.int64),
            block_sums=np.zeros(tape.noisy.size, np.int64),
            block_boosts=np.zeros(tape.noisy.size),
            stale=np.zeros(cells),
            stale_wholes=np.zeros(rows),
            proposal=np.zeros(cliques, np.int64),
            current=np.zeros(cliques, np.int64),
            moved=np.zeros(tape.noisy.size, np.int64),
            inside=np.zeros(sets, np.int64),
        )


def record_tape(evidence: Evidence, forest: JunctionForest, *, gain: float = 1.0) -> RecordTape:
    """Return the arrays of one evidence, whose model's cliques are the tables of the forest."""
    measured = MeasuredCells.of(evidence)
    place, row_starts = forest.places, forest.row_starts
    clique_rows = np.searchsorted(row_starts, [0, *(table.stop for table in forest.tables)])
    row_cliques = np.repeat(np.arange(len(forest.tables)), np.diff(clique_rows))
    cell_rows = np.repeat(np.arange(row_cliques.size), forest.row_sizes)
    rows = np.repeat(np.arange(row_cliques.size), np.diff(forest.source_starts))
    child_starts, child_rows = grouped(forest.sources, rows, forest.cells.size)
    own = place[measured.sources]
    weights = np.rint(measured.entries).astype(np.int64)
    table_starts, table_cells = grouped(own, measured.sums, forest.cells.size)
    member_starts, members = grouped(measured.sums, own, measured.targets.size)
    most = int(np.diff(table_starts).max(initial=0))
    is_direct = most <= _MOST_TABLES and not _is_pooled(measured.sums, row_cliques[cell_rows[own]])
    is_direct &= bool((weights == 1).all())
    return RecordTape(
        row_starts=row_starts,
        clique_rows=clique_rows,
        row_cliques=row_cliques,
        cell_rows=cell_rows,
        source_starts=forest.source_starts,
        sources=forest.sources,
        child_starts=child_starts,
        child_rows=child_rows,
        table_starts=table_starts,
        table_cells=table_cells,
        table_weights=grouped(own, weights, forest.cells.size)[1],
        member_starts=member_starts,
        members=members,
        member_weights=grouped(measured.sums, weights, measured.targets.size)[1],
        noisy=evidence.noisy_counts[measured.targets],
        widths=evidence.spread([law.scale for law in evidence.noise])[measured.targets],
        absolute=evidence.spread([law.base_law.kernel == "absolute" for law in evidence.noise])[
            measured.targets
        ]
        > 0,
        halves=half_widths(evidence)[measured.targets],
        gain=gain,
        most_nats=_MOST_NATS / max(1, most) if is_direct else _MOST_NATS,
        is_direct=is_direct,
    )


def _is_pooled(sums: IntArray, cliques: IntArray) -> bool:
    """Return whether a measured number reads cells of several cliques."""
    read = np.unique(np.stack([sums, cliques]), axis=1)
    return bool(np.bincount(read[0], minlength=1).max() > 1)


def grouped(keys: IntArray, values: IntArray, size: int) -> tuple[IntArray, IntArray]:
    """Return where the values of each key begin, and the values sorted by key."""
    order = np.argsort(keys, kind="stable")
    starts = np.searchsorted(keys[order], np.arange(size + 1))
    return starts.astype(np.int64), np.asarray(values, np.int64)[order]


class EffectTape(NamedTuple):
    """The arrays that compiled moves of the effects read beside a `RecordTape` and the tape of a plan."""

    part_starts: IntArray  # of each bag cell, where the cells of the model's cliques in it begin in `parts`
    parts: IntArray  # flat over the model's cliques, each clique in the first bag that holds it
    levels: IntArray  # which scale is each coordinate's
    expected: FloatArray  # prior mean and precision of log τ
    hyper: FloatArray  # no rows where τ is fixed
    root: FloatArray  # of the curvature at a preliminary mode, whose diagonal is `own`
    own: FloatArray
    information: FloatArray  # of one record about each coordinate there
    basis: FloatArray  # of a `Whitening` of the posterior, and its inverse; no rows where records say enough
    inverse: FloatArray
    known: FloatArray
    shares: FloatArray
    centre: FloatArray
    scale: FloatArray  # preliminary log τ


def bag_evidence(evidence: Evidence) -> Evidence:
    """Return the same evidence, whose model has the bags of a triangulation for cliques.

    Variables of one state are no part of the bags, nor of the tables, whose cells lie in the same order without
    them; each is a bag of its own.
    """
    model = evidence.specification
    cards, names = model.cardinalities, model.domain.variables
    tree = array_engine(Layout.build(cards, model.scopes)).tree
    bags = [tuple(names[v] for v in bucket.scope) for bucket in tree.buckets]
    alone = [(names[v],) for v, states in enumerate(cards) if states == 1]
    bagged = ModelSpecification(domain=model.domain, cliques=(*bags, *alone))
    if evidence.supported is not None:
        several = [
            tuple(pair for pair in given if cards[model.domain.index(pair[0])] > 1)
            for given in model.impossible
        ]
        bagged = replace(bagged, impossible=tuple(several))
    queries = evidence.queries
    if queries is not None:
        queries = tuple(
            replace(query, model=bagged, scopes=tuple(_several(model, scope) for scope in query.scopes))
            for query in queries
        )
    return replace(
        evidence,
        specification=bagged,
        queries=queries,
        scopes=tuple(tuple(v for v in scope if cards[v] > 1) for scope in evidence.scopes),
        supported=supported_cells(bagged),
    )


def _several(model: ModelSpecification, scope: Clique) -> Clique:
    """Return the variables of a scope that have several states."""
    return tuple(v for v in scope if model.cardinalities[model.domain.index(v)] > 1)


def bag_forest(bagged: Evidence) -> JunctionForest:
    """Return the junction forest of the bags."""
    model = bagged.specification
    forest = junction_forest(model.cardinalities, model.scopes, bagged.supported)
    assert forest is not None
    return forest


def effect_tape(
    evidence: Evidence, bagged: Evidence, forest: JunctionForest, rough: Preliminary
) -> EffectTape:
    """Return the arrays that moves of the effects read."""
    model, prior = evidence.specification, rough.latent.effects_prior
    cards = model.cardinalities
    own_tables = replace(
        bagged,
        queries=None,
        scopes=tuple(tuple(v for v in scope if cards[v] > 1) for scope in model.scopes),
        possible=np.ones(model.size, bool) if evidence.supported is None else evidence.supported,
    )
    cells = MeasuredCells.of(own_tables)
    place = np.argsort(forest.cells)
    part_starts, parts = grouped(place[cells.sources], cells.targets[cells.sums], forest.cells.size)
    curvature, precision = rough.curvature(), prior.precision(rough.mode.log_scales)
    own, root = curvature, np.zeros((0, 0))
    if curvature.ndim == 2:
        own = np.diag(curvature).copy()
        root = np.ascontiguousarray(np.linalg.inv(np.linalg.cholesky(curvature)).T)
    hyper = np.zeros((0, 0)) if rough.scale is not None else np.linalg.inv(prior.scale_covariance)
    return EffectTape(
        part_starts=part_starts,
        parts=parts,
        levels=prior.levels.astype(np.int64),
        expected=prior.expected_log_scales,
        hyper=np.ascontiguousarray(hyper),
        root=root,
        own=own,
        information=np.maximum(own - precision, 0.0) / np.exp(rough.mode.log_total),
        **_whitened(rough, curvature, precision),
        scale=rough.mode.log_scales,
    )


def _whitened(rough: Preliminary, curvature: FloatArray, precision: FloatArray) -> dict[str, FloatArray]:
    """Return coordinates in which the posterior of the potentials is nearly standard normal.

    They have no rows where the noisy tables hold most of the information of whole records, in every direction:
    potentials and records then move each other fast (Dempster, Laird and Rubin 1977, on missing information).
    """
    count, size = rough.latent.effects_prior.count, len(precision)
    nothing = np.zeros((0, 0))
    fields = {"basis": nothing, "inverse": nothing, "known": np.zeros(0), "centre": np.zeros(0)}
    if curvature.ndim == 1 or not size:
        return {**fields, "shares": nothing}
    records = curvature - np.diag(precision)
    noise = rough.mode.noise_information()[:size, :size]
    observed = noise - noise @ np.linalg.solve(noise + records + 1e-9 * np.diag(curvature.diagonal()), noise)
    present = np.linalg.eigvals(np.linalg.solve(curvature, observed + np.diag(precision))).real.min()
    if present > _PRESENT:
        return {**fields, "shares": nothing}
    levels = rough.latent.effects_prior.levels
    map_ = Whitening.of(observed, precision, rough.mode.coordinates, levels, count)
    fields = {"basis": map_.basis, "inverse": np.linalg.inv(map_.basis), "known": map_.information}
    fields |= {"shares": map_.shares, "centre": map_.mode}
    return {name: np.ascontiguousarray(values) for name, values in fields.items()}


class HeldTape(NamedTuple):
    """The arrays of exact sums beside a `RecordTape`, which never change."""

    set_starts: IntArray  # of each cell, where the sets that hold it begin in `sets`
    sets: IntArray
    member_starts: IntArray  # of each set, where its cells begin in `members`
    members: IntArray
    lowest: IntArray  # the bounds of each set
    highest: IntArray
    strength: float  # L, the log factor of a cell whose set lacks a record
    codes: IntArray  # of each group and cell of its home, the cell of the group; -1 elsewhere
    sides: IntArray  # of each exchange and cell, the part of `flat` that is of the variables exchanged
    shared: IntArray  # of each exchange and cell of its home, the state of the separator
    homes: IntArray  # of each exchange, the clique with the separator
    flat: IntArray  # of each cell, its place in the model
    places: IntArray  # of each place in the model, its cell, or -1


def noisy_tape(held: HeldSums, gain: float) -> RecordTape:
    """Return the arrays of the numbers that have noise, also of those known within bounds after it."""
    return record_tape(_noisy(held.evidence), held.forest, gain=gain)


def held_tape(held: HeldSums) -> HeldTape:
    """Return the arrays of the sums that have no noise."""
    forest, groups = held.forest, held.groups
    cards = forest.cardinalities
    homes = np.searchsorted(forest.offsets, forest.cells, side="right") - 1
    local = forest.cells - np.array(forest.offsets)[homes]
    size, count = forest.cells.size, len(groups)
    codes = np.full((count, size), -1)
    for position, group in enumerate(groups):
        own = homes == group.home
        codes[position, own] = cells_within(cards, group.scope, forest.scopes[group.home])[local[own]]
    cells, sets, bounds = _sets(held, codes)
    set_starts, own_sets = grouped(cells, sets, size)
    member_starts, members = grouped(sets, cells, len(bounds))
    most = int(np.diff(set_starts).max(initial=0))
    sides, shared, at = _exchanges(held, homes, local)
    places = np.full(forest.offsets[-1], -1)
    places[forest.cells] = np.arange(size)
    return HeldTape(
        set_starts=set_starts,
        sets=own_sets,
        member_starts=member_starts,
        members=members,
        lowest=bounds[:, 0].copy(),
        highest=bounds[:, 1].copy(),
        strength=min(_STRENGTH, _ALL / max(most, 1)),
        codes=codes,
        sides=sides,
        shared=shared,
        homes=at,
        flat=forest.cells.astype(np.int64),
        places=places,
    )


def _noisy(evidence: Evidence) -> Evidence:
    """Return the same evidence without the numbers that have no noise."""
    return replace(evidence, possible=evidence.possible & ~held_numbers(evidence))


def _sets(held: HeldSums, codes: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """Return pairs of a cell and a set that contains it, and the bounds of each set."""
    cells, sets, bounds = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], np.zeros((0, 2), np.int64)
    for own, group, family in zip(codes, held.groups, held.families, strict=True):
        for each in family:
            is_inside = np.zeros(group.possible.size, bool)
            is_inside[each.cells] = True
            is_all = is_inside[group.possible].all()
            if is_all and held.total is not None and each.lowest == each.highest == held.total:
                continue  # all records
            found = np.flatnonzero((own >= 0) & is_inside[own])
            cells.append(found)
            sets.append(np.full(found.size, len(bounds)))
            bounds = np.vstack([bounds, [each.lowest, each.highest]])
    return np.concatenate(cells), np.concatenate(sets), bounds


def _exchanges(held: HeldSums, homes: IntArray, local: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """Return for each exchange the exchanged parts of the cells, the states to agree on, and the clique of these."""
    forest, groups = held.forest, held.groups
    cards, moves = forest.cardinalities, list(held.sides())
    sides, shared = np.zeros((2, len(moves), homes.size), np.int64)
    rank = np.argsort(forest.order)
    for turn, (variables, group, separator) in enumerate(moves):
        for clique, scope in enumerate(forest.scopes):
            own = homes == clique
            digits = np.unravel_index(local[own], [cards[v] for v in scope])
            stride = 1
            for variable, digit in zip(scope[::-1], digits[::-1], strict=True):
                if variable in variables:
                    sides[turn, own] += stride * digit
                stride *= cards[variable]
        own = homes == groups[group].home
        place = cells_within(cards, separator, forest.scopes[groups[group].home])
        shared[turn, own] = place[local[own]]
    return sides, shared, rank[[groups[group].home for _, group, _ in moves]].astype(np.int64)
