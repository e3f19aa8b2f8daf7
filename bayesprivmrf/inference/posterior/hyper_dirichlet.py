r"""Collapsed hyper-Dirichlet latent counts: the posterior of a decomposable model.

The prior is of Dirichlet distributions along the model's own junction forest,

.. math:: p(x) = \prod_C p(x_{C \setminus S} \mid x_S), \qquad
          p(\cdot \mid x_S) \sim \operatorname{Dirichlet}(α, \dots, α),

the root's whole table being one row (Dawid and Lauritzen 1993, section 4). Where all cliques have one size this
is the same law whichever clique is the root; where they have not, it depends on the root, which a public rule
chooses (`junction_forest`). Cells that cannot occur have probability zero, and a row has fewer cells for them.

Given the clique tables n of N records the parameters are conjugate, so the sampler moves the tables alone, with
the parameters integrated out: rows of Dirichlet-multinomial counts, relaxed to real numbers by `row_counts`,
observed with the mechanism's noise. Afterwards the parameters follow exactly, each row from Dirichlet(α + n):
sampling noise is in the marginals in full. A private N is log-uniform on a range that does not look at the
tables.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesprivmrf.errors import ModelError
from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.inference.posterior.formulation import Finished
from bayesprivmrf.inference.posterior.junction_forest import JunctionForest, junction_forest
from bayesprivmrf.inference.posterior.noisy_tables import absolute_cells, noise_data, observe_noisy_counts
from bayesprivmrf.model.effects import Effects
from bayesprivmrf.model.tables import FloatArray, IntArray

if TYPE_CHECKING:
    import pymc as pm

__all__ = ["HyperDirichlet"]


@dataclass(frozen=True, kw_only=True, eq=False)
class HyperDirichlet:
    """The posterior of a decomposable model over its latent clique tables.

    Parameters
    ----------
    evidence
        The releases.
    concentration
        α > 0, prior counts a cell; 1 is uniform on each row's simplex.
    total
        The public number of records N; None where it is private.
    total_range
        Lower and upper end of the log-uniform prior of a private N, records.
    smoothing
        δ of a smoothed Laplace likelihood, in noise scales; 0 for the exact one.

    Raises
    ------
    ModelError
        The cliques are not the bags of a junction forest.
    """

    evidence: Evidence
    concentration: float = 1.0
    total: float | None = None
    total_range: tuple[float, float] = (1.0, 1e10)
    smoothing: float = 0.0

    def __post_init__(self) -> None:
        if self._forest is None:
            raise ModelError(
                "the hyper-Dirichlet formulation needs a decomposable model, whose cliques are the bags of a "
                "junction forest; use formulation='log-linear', which takes any cliques."
            )

    @property
    def name(self) -> str:
        """Name of the formulation."""
        return "hyper-Dirichlet"

    @property
    def judged(self) -> tuple[str, ...]:
        """``counts``: latent counts of the model's cliques, possible cells only; and ``total`` if private."""
        return ("counts",) if self.total is not None else ("counts", "total")

    @property
    def hidden(self) -> tuple[str, ...]:
        """Nothing: the counts are all that `finish` needs."""
        return ()

    @property
    def settings(self) -> Mapping[str, Any]:
        """The prior's settings, by name."""
        settings: dict[str, Any] = {"concentration": float(self.concentration)}
        if self.total is None:
            settings["total_range"] = tuple(float(end) for end in self.total_range)
        if self.smoothing > 0:
            settings["smoothing"] = float(self.smoothing)
        return settings

    @property
    def structure(self) -> Hashable:
        """Cliques, measured tables, possible cells, kinds of noise, and whether N is public."""
        model, evidence = self.evidence.specification, self.evidence
        return (
            self.name,
            model.cardinalities,
            model.scopes,
            evidence.scopes,
            self._supported.tobytes(),
            evidence.possible.tobytes(),
            absolute_cells(evidence).tobytes(),
            self.total is None,
            float(self.smoothing),
        )

    def data(self) -> Mapping[str, np.ndarray]:
        """Values of the ``pm.Data``, by name."""
        from bayesprivmrf.inference.posterior.row_weights import row_weights_data

        values = {
            "concentration": np.asarray(float(self.concentration)),
            **noise_data(self.evidence),
            **row_weights_data(self.forest, self.concentration, *self._rough_counts()),
        }
        if self.total is not None:
            return {**values, "records": np.asarray(float(self.total))}
        return {**values, **self._total_data()}

    def model(self) -> pm.Model:
        """A PyMC model of this release.

        Variables: ``row_positions`` (the rows' probabilities, see `row_weights`), ``total`` where N is private,
        ``counts`` (possible cells of the model's cliques, clique after clique), a ``counts[a,b]`` for each
        clique with the variables as dims and the states as coords, and the observed ``noisy_counts``.
        """
        import pymc as pm
        import pytensor.tensor as pt

        from bayesprivmrf.inference.posterior.row_counts import row_counts
        from bayesprivmrf.inference.posterior.row_weights import row_weights

        values, forest = self.data(), self.forest
        coords = {"cell": np.arange(self._cells.size), "noisy_cell": np.arange(self._targets.size)}
        with pm.Model(coords=coords) as model:
            alpha = pm.Data("concentration", values["concentration"])
            weights = row_weights(forest, alpha, values)
            total = pm.Data("records", values["records"]) if self.total is not None else self._total()
            rows = row_counts(forest, weights, total, alpha)
            counts = pm.Deterministic("counts", rows[np.argsort(forest.cells)], dims="cell")
            observe_noisy_counts(self.evidence, self._measured(counts), smoothing=self.smoothing)
            flat = pt.zeros(forest.offsets[-1])[self._cells].set(counts)
            self._readable(flat)
        return model

    def start(self) -> Mapping[str, np.ndarray] | None:
        """None: every variable starts at its centre, and a private N near its estimate."""
        return None

    def finish(self, draws: Mapping[str, np.ndarray], rng: np.random.Generator) -> Finished:
        """Marginals, counts and effects of sampled draws; the parameters are drawn from Dirichlet(α + n)."""
        sampled = np.asarray(draws["counts"], dtype=float)
        lead = sampled.shape[:-1]
        counts = np.zeros((*lead, self.forest.offsets[-1]))
        counts[..., self._cells] = sampled
        if self.total is not None:
            total = np.full(lead, float(self.total))
        else:
            total = np.asarray(draws["total"], dtype=float)
        shapes = counts.reshape(math.prod(lead), counts.shape[-1]).T[self.forest.cells] + self.concentration
        return self._finished(_log_dirichlet_rows(shapes, self.forest.row_starts, rng), counts, total)

    def prior_draws(self, size: int, rng: np.random.Generator) -> Finished:
        """Exact draws of the prior, shape (1, size, ...), with the integer tables of N records each."""
        forest = self.forest
        if self.total is not None:
            total = np.full(size, round(self.total))
        else:
            low, high = np.log(self.total_range)
            total = np.rint(np.exp(rng.uniform(low, high, size))).astype(np.int64)
        shapes = np.full((forest.cells.size, size), float(self.concentration))
        log_rows = _log_dirichlet_rows(shapes, forest.row_starts, rng)
        drawn = np.zeros((forest.cells.size, size), dtype=np.int64)
        for start, stop, sources in self._row_slices():
            margin = drawn[sources].sum(axis=0) if sources.size else total
            drawn[start:stop] = rng.multinomial(margin, _normalised(np.exp(log_rows[start:stop])).T).T
        counts = np.zeros((1, size, forest.offsets[-1]))
        counts[0][:, forest.cells] = drawn.T
        return self._finished(log_rows, counts, total[np.newaxis].astype(float))

    @property
    def forest(self) -> JunctionForest:
        """The model's junction forest."""
        assert self._forest is not None
        return self._forest

    @cached_property
    def _forest(self) -> JunctionForest | None:
        model = self.evidence.specification
        return junction_forest(model.cardinalities, model.scopes, self.evidence.supported)

    @property
    def _supported(self) -> np.ndarray:
        supported = self.evidence.supported
        return np.ones(self.evidence.specification.size, bool) if supported is None else supported

    @cached_property
    def _cells(self) -> IntArray:
        """Flat positions of the model's possible cells, ascending."""
        return np.flatnonzero(self._supported)

    @cached_property
    def _targets(self) -> IntArray:
        """Positions of the possible measured cells in the flat view of the noisy tables."""
        return np.flatnonzero(self.evidence.possible)

    @cached_property
    def _membership(self) -> tuple[IntArray, IntArray]:
        """Possible cells (as numbered in `counts`) and the measured cell (as numbered in `_targets`) of each."""
        evidence, forest = self.evidence, self.forest
        rank = np.full(evidence.offsets[-1], -1)
        rank[self._targets] = np.arange(self._targets.size)
        number = np.full(forest.offsets[-1], -1)
        number[self._cells] = np.arange(self._cells.size)
        sources, targets = [np.zeros(0, int)], [np.zeros(0, int)]
        for position, scope in enumerate(evidence.scopes):
            home = next(c for c, holder in enumerate(forest.scopes) if set(holder) >= set(scope))
            own = number[forest.offsets[home] : forest.offsets[home + 1]]
            cells = evidence.offsets[position] + forest.separator_states(home, scope)
            sources.append(own[own >= 0])
            targets.append(rank[cells[own >= 0]])
        return np.concatenate(sources), np.concatenate(targets)

    def _measured(self, counts: Any) -> Any:
        """Latent counts of the measured tables' possible cells: sums of their cliques' cells."""
        import pytensor.tensor as pt

        sources, targets = self._membership
        if np.array_equal(targets, np.arange(self._targets.size)):
            same = np.array_equal(sources, np.arange(self._cells.size))
            return counts if same else counts[sources]
        return pt.inc_subtensor(pt.zeros(self._targets.size)[targets], counts[sources])

    def _rough_counts(self) -> tuple[FloatArray, FloatArray]:
        """Mean noisy count of each possible cell, over the tables of its clique, and its precision."""
        evidence, forest = self.evidence, self.forest
        total = self.total if self.total is not None else evidence.total
        precision, weighted = np.zeros((2, forest.offsets[-1]))
        for position, scope in enumerate(evidence.scopes):
            home = next(c for c, holder in enumerate(forest.scopes) if set(holder) >= set(scope))
            if len(scope) == len(forest.scopes[home]):
                cells = evidence.offsets[position] + forest.separator_states(home, scope)
                own = slice(*forest.offsets[home : home + 2])
                information = 1 / evidence.noise[position].scale ** 2
                precision[own] += information
                weighted[own] += information * evidence.noisy_counts[cells]
        sizes = np.repeat(np.diff(forest.offsets), np.diff(forest.offsets))
        counts = np.where(precision > 0, weighted / np.maximum(precision, 1e-300), total / sizes)
        return counts[forest.cells], precision[forest.cells]

    def _total_data(self) -> dict[str, np.ndarray]:
        """Ends of log N, and centre and width of its position between them on the logit scale."""
        low, high = np.log(self.total_range)
        evidence = self.evidence
        error = max(evidence.total_standard_error, 1e-3) if evidence.has_total else evidence.total
        guess = (
            math.log(max(evidence.estimated_total, error, 1.0)) if evidence.has_total else 0.5 * (low + high)
        )
        inside = min(max((guess - low) / (high - low), 1e-3), 1 - 1e-3)
        width = min(error / math.exp(guess), 1.0) / (high - low) / (inside * (1 - inside))
        values = {"low": low, "high": high, "centre": math.log(inside / (1 - inside)), "width": width}
        return {f"log_total_{name}": np.asarray(float(value)) for name, value in values.items()}

    def _total(self) -> Any:
        """Declare a private N, log-uniform; sampled on a scale on which the release puts it near zero."""
        import pymc as pm
        import pytensor.tensor as pt

        given = {name: pm.Data(name, value) for name, value in self._total_data().items()}
        low, high, centre, width = given.values()
        position = pm.Logistic("total_position", -centre / width, 1 / width, initval=0.0)
        log_total = low + (high - low) * pt.sigmoid(centre + width * position)
        return pm.Deterministic("total", pt.exp(log_total))

    def _readable(self, flat: Any) -> None:
        """Declare the counts of each clique as a table."""
        import pymc as pm

        domain, forest = self.evidence.specification.domain, self.forest
        names = [str(variable) for variable in domain.variables]
        for v, variable in enumerate(domain.variables):
            if names[v] in (*pm.modelcontext(None).named_vars, "cell", "noisy_cell", *names[:v]):
                names[v] = f"{variable!r} (variable {v})"
            states = [str(state) for state in domain.states_of(variable)]
            pm.modelcontext(None).add_coord(names[v], states)
        for clique, scope in enumerate(forest.scopes):
            shape = tuple(forest.cardinalities[v] for v in scope)
            table = flat[forest.offsets[clique] : forest.offsets[clique + 1]].reshape(shape)
            label = ",".join(names[v] for v in scope)
            pm.Deterministic(f"counts[{label}]", table, dims=tuple(names[v] for v in scope))

    def _row_slices(self) -> list[tuple[int, int, IntArray]]:
        forest = self.forest
        return [
            (
                int(forest.row_starts[row]),
                int(forest.row_starts[row + 1]),
                forest.sources[forest.source_starts[row] : forest.source_starts[row + 1]],
            )
            for row in range(forest.row_starts.size - 1)
        ]

    def _finished(self, log_rows: FloatArray, counts: FloatArray, total: FloatArray) -> Finished:
        """Marginals as products along the forest, from log-probabilities of the rows, shape (cells, draws)."""
        forest, lead = self.forest, counts.shape[:-1]
        margins = np.empty_like(log_rows)
        for start, stop, sources in self._row_slices():
            above = np.log(np.exp(margins[sources]).sum(axis=0)) if sources.size else 0.0
            margins[start:stop] = log_rows[start:stop] + above
        marginals = np.zeros(counts.shape)
        marginals[..., forest.cells] = np.exp(margins).T.reshape(*lead, -1)
        return Finished(
            marginals=marginals,
            counts=counts,
            effects=self._effects(log_rows).reshape(*lead, -1),
            total=total,
        )

    def _effects(self, log_rows: FloatArray) -> FloatArray:
        """Zero-sum coordinates of each draw, shape (draws, d); NaN for effects on a clique with structural zeros."""
        forest = self.forest
        effects = Effects.of(forest.cardinalities, forest.scopes)
        flat = np.zeros((log_rows.shape[1], forest.offsets[-1]))
        flat[:, forest.cells] = log_rows.T
        result = np.array([effects.coordinates(row) for row in flat]).reshape(len(flat), effects.size)
        limited = [
            set(scope)
            for clique, scope in enumerate(forest.scopes)
            if not self._supported[forest.offsets[clique] : forest.offsets[clique + 1]].all()
        ]
        for position, subset in enumerate(effects.subsets):
            if any(set(subset) <= scope for scope in limited):
                result[:, effects.offsets[position] : effects.offsets[position + 1]] = np.nan
        return result


def _log_dirichlet_rows(shapes: FloatArray, row_starts: IntArray, rng: np.random.Generator) -> FloatArray:
    """Log of Dirichlet draws, one for each row of cells and each column; shape (cells, draws).

    A Gamma(a) variable is Gamma(a + 1) times U^(1/a), of which the logarithm is finite at any a > 0.
    """
    logs = np.log(rng.standard_gamma(shapes + 1.0)) - rng.standard_exponential(shapes.shape) / shapes
    for start, stop in pairwise(row_starts):
        part = logs[start:stop]
        part -= part.max(axis=0)
        part -= np.log(np.exp(part).sum(axis=0))
    return logs


def _normalised(table: FloatArray) -> FloatArray:
    return table / table.sum(axis=0)
