r"""A log-linear model's junction forest, whose bags are those of its triangulation, and the arrays of its moves.

Given the potentials, :math:`p_β` is a product along the forest of the bags: each bag's table is cut into rows, one
for each state of its separator, and :math:`p_β(x) = \prod_B p_β(x_B \mid x_S)`. So records of any model are moved as
those of a decomposable one are (`moves`), with rows that are given and not integrated out.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from bayesprivmrf.inference.evidence import Evidence, supported_cells
from bayesprivmrf.inference.posterior.forest import JunctionForest, junction_forest
from bayesprivmrf.inference.posterior.measured_cells import MeasuredCells
from bayesprivmrf.inference.posterior.preliminary import Preliminary, Whitening
from bayesprivmrf.inference.posterior.records.tape import grouped
from bayesprivmrf.marginals import Layout, array_engine
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.tables import Clique, FloatArray, IntArray

_PRESENT = 0.5
"""Least share of the information of whole records that noisy tables have where records alone are moved."""


class EffectTape(NamedTuple):
    """The arrays that the compiled moves of the effects take beside a `RecordTape` and a plan's tape."""

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
    """The same noisy tables with the bags of a triangulation for cliques.

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
    """The variables of a scope that have several states."""
    return tuple(v for v in scope if model.cardinalities[model.domain.index(v)] > 1)


def bag_forest(bagged: Evidence) -> JunctionForest:
    """The junction forest of the bags."""
    model = bagged.specification
    forest = junction_forest(model.cardinalities, model.scopes, bagged.supported)
    assert forest is not None
    return forest


def effect_tape(
    evidence: Evidence, bagged: Evidence, forest: JunctionForest, rough: Preliminary
) -> EffectTape:
    """The arrays of one evidence."""
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
    """Coordinates in which the posterior of the potentials is nearly standard normal.

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
