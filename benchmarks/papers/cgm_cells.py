"""Experiments of Bernstein et al. 2017: estimators on simulated graphs, one graph's edges, and sequences."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from .cells import Cell, Row, generator_of
from .graphs import Graph, truth_of
from .panels import Panel

if TYPE_CHECKING:
    import pandas as pd

    from bayesprivmrf.inference.solution import Solution
    from bayesprivmrf.model import ModelSpecification
    from bayesprivmrf.release import NoisyStatistics

NON_PRIVATE, RANDOM, RAW = "non-private MLE", "random", "noisy tables"
FIXED = "naive MLE, ridge 0.001"
NO_PROJECTION, NO_PROJECTION_FIXED = (
    "naive MLE, no projection",
    "naive MLE, no projection, ridge 0.001",
)
CGM_PLAIN = "CGM, 50 EM steps"
COMPARED = ("naive MLE", FIXED, "CGM", CGM_PLAIN, "noise-aware")
PSGD, PSGD_FREE = "PSGD, search paid for", "PSGD, search free"

_HELD_OUT = 0.25


def with_ridge(name: str, ridge: float) -> str:
    """Return the name of naive or non-private MLE with a given ridge."""
    return f"{name}, ridge {ridge:g}"


def fitted(name: str, release: NoisyStatistics) -> Solution:
    """Fit a method of the figures, by its name, to a release or to exact tables."""
    from bayesprivmrf.inference import CGM, NaiveMLE, NoiseAwareMAP

    base, _, given = name.partition(", ridge ")
    ridge = float(given) if given else None
    if base == NON_PRIVATE and ridge is None:
        # a divergence from the estimate is infinite where the data have an empty cell
        ridge = 1 / release.estimated_total
    match base:
        case "CGM":
            return CGM().fit(release)
        case "CGM, 50 EM steps":
            return CGM(steps=50, stopping="none", acceleration=1.0).fit(release)
        case "noise-aware":
            return NoiseAwareMAP().fit(release)
        case "naive MLE, no projection":
            return NaiveMLE(ridge=ridge, projection="none").fit(release)
        case _:
            return NaiveMLE(ridge=ridge).fit(release)


def _random_estimate(model: ModelSpecification, rng: np.random.Generator) -> Solution:
    """Fit the paper's random estimator: random marginals, then maximum likelihood."""
    from bayesprivmrf.privacy import DiscreteLaplace
    from bayesprivmrf.release import NoisyStatistics

    tables = {
        clique: np.rint(1e6 * rng.dirichlet(np.ones(np.prod(shape)))).reshape(shape)
        for clique, shape in zip(model.cliques, model.shapes, strict=True)
    }
    release = NoisyStatistics.from_tables(model, tables, noise=DiscreteLaplace(1.0), total=10**6)
    return fitted(FIXED, release)


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphCell(Cell):
    """Methods on one simulated model, at one number of records and one budget.

    Trials are nested, as in the paper: so many data sets drawn from the model, so many draws of noise for each.

    Parameters
    ----------
    graph
        The model.
    total
        N.
    epsilon
        Budget, nats; neighbours differ by one record more or less.
    methods
        Names of methods. Those that read no release, such as `NON_PRIVATE`, have one row for each data set.
    populations, draws
        Data sets, and draws of noise for each.
    seed
        Seed of records and noise.
    panel
        Part of the figure that the rows belong to.
    """

    _experiment: ClassVar[str] = "simulated graphs"
    _written_as: ClassVar[Mapping[str, str]] = {"total": "records"}

    graph: Graph
    total: int
    epsilon: float
    methods: tuple[str, ...]
    populations: int
    draws: int
    seed: int
    panel: str

    def rows(self) -> list[Row]:
        """Return one row for each method and trial: Kullback-Leibler divergence, error of marginals, seconds."""
        with warnings.catch_warnings(action="ignore"):
            return list(self._trials(generator_of(self)))

    def _trials(self, rng: np.random.Generator) -> Iterator[Row]:
        from bayesprivmrf.mechanisms import ExactStatistics, LaplaceStatistics

        truth = truth_of(self.graph)
        model = truth.specification
        for population in range(self.populations):
            records = truth.sample(self.total, rng=rng)
            exact = ExactStatistics().release(model, records)
            for method in self.methods:
                if method == RANDOM:
                    yield self._row(method, population, None, _random_estimate(model, rng))
                elif method.startswith(NON_PRIVATE):
                    yield self._row(method, population, None, fitted(method, exact))
            for draw in range(self.draws):
                release = LaplaceStatistics(epsilon=self.epsilon).release(model, records, rng=rng)
                for method in self.methods:
                    if method == RAW:
                        found = release.tables.flat / self.total
                        yield self._row(method, population, draw, found)
                    elif not method.startswith((NON_PRIVATE, RANDOM)):
                        yield self._row(method, population, draw, fitted(method, release))

    def _row(
        self, method: str, population: int, draw: int | None, found: Solution | np.ndarray
    ) -> Row:
        """Describe an estimate; marginals alone have no divergence."""
        from bayesprivmrf.evaluation import kl_divergence

        truth = truth_of(self.graph)
        bare = isinstance(found, np.ndarray)
        if bare:
            marginals = found
        else:
            marginals = found.marginals.flat
        return {
            "panel": self.panel,
            **self.graph.described(),
            "records": self.total,
            "epsilon": None if draw is None else self.epsilon,
            "method": method,
            "population": population,
            "draw": draw,
            "kl": None if bare else kl_divergence(truth, found),
            "mse": float(np.mean((marginals - truth.marginals.flat) ** 2)),
            "seconds": None if bare else found.stats["seconds"],
            "status": None if bare else found.status.value,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeCell(Cell):
    """Every edge marginal of one simulated model, true and inferred by one method.

    Parameters
    ----------
    graph
        The model.
    total
        N.
    epsilon
        Budget, nats.
    method
        Name of the method.
    seed
        Seed of records and noise: the same for all methods, so that they read one release.
    """

    _experiment: ClassVar[str] = "edges"
    _written_as: ClassVar[Mapping[str, str]] = {"total": "records"}

    graph: Graph
    total: int
    epsilon: float
    method: str
    seed: int

    def rows(self) -> list[Row]:
        """Return one row for each cell of each edge's table."""
        from bayesprivmrf.evaluation import kl_divergence
        from bayesprivmrf.mechanisms import ExactStatistics, LaplaceStatistics

        truth = truth_of(self.graph)
        rng = np.random.default_rng([self.seed, self.total])
        model = truth.specification
        records = truth.sample(self.total, rng=rng)
        is_private = not self.method.startswith(NON_PRIVATE)
        if is_private:
            mechanism = LaplaceStatistics(epsilon=self.epsilon)
        else:
            mechanism = ExactStatistics()
        with warnings.catch_warnings(action="ignore"):
            solution = fitted(
                self.method, mechanism.release(model, records, rng=rng if is_private else None)
            )
        common = {
            **self.graph.described(),
            "records": self.total,
            "epsilon": self.epsilon if is_private else None,
            "method": self.method,
            "kl": kl_divergence(truth, solution),
            "seconds": solution.stats["seconds"],
        }
        edges = np.repeat(
            ["-".join(map(str, clique)) for clique in model.cliques], self.graph.states**2
        )
        cells = zip(edges, truth.marginals.flat, solution.marginals.flat, strict=True)
        return [
            common | {"edge": str(edge), "true": float(true), "inferred": float(inferred)}
            for edge, true, inferred in cells
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceCell(Cell):
    """A time-homogeneous chain with the first state's own potential, fitted to people and scored on others.

    Three quarters of the people are fitted, the rest are held out. What is released is the table of transitions,
    added up over the steps, and the table of the first state.

    Parameters
    ----------
    panel
        The people.
    epsilon
        Budget, nats; neighbours differ by one person more or less. None for `NON_PRIVATE`.
    repetitions
        Draws of noise.
    methods
        Names of methods that read a release.
    steps, clips
        The settings that the search of private stochastic gradient ascent tries; no steps leave it out.
    seed
        Seed of noise, and of who is held out.
    """

    _experiment: ClassVar[str] = "sequences"

    panel: Panel
    epsilon: float | None
    repetitions: int
    methods: tuple[str, ...]
    steps: tuple[int, ...]
    clips: tuple[float, ...]
    seed: int

    def rows(self) -> list[Row]:
        """Return one row for each method and draw of noise: held-out log-likelihood, nats a person."""
        with warnings.catch_warnings(action="ignore"):
            return list(self._trials(generator_of(self)))

    def _trials(self, rng: np.random.Generator) -> Iterator[Row]:
        from bayesprivmrf import queries
        from bayesprivmrf.mechanisms import ExactStatistics, LaplaceStatistics
        from bayesprivmrf.model import markov_chain

        states, people = self.panel.read()
        order = np.random.default_rng([self.seed, len(people)]).permutation(len(people))
        held = round(_HELD_OUT * len(people))
        known = people.iloc[order[held:]]
        others = people.iloc[order[:held]]
        times = list(people.columns)
        network = markov_chain(states, len(times), share="potentials", names=times)
        asked = [queries.pooled(list(pairwise(times))), queries.table(times[0])]
        if self.epsilon is None:
            exact = ExactStatistics(queries=asked).release(network, known)
            yield self._row(NON_PRIVATE, None, known, others, fitted(NON_PRIVATE, exact))
            return
        for draw in range(self.repetitions):
            mechanism = LaplaceStatistics(epsilon=self.epsilon, queries=asked)
            release = mechanism.release(network, known, rng=rng)
            for method in self.methods:
                yield self._row(method, draw, known, others, fitted(method, release))
            if self.steps:
                yield from self._searched(states, draw, known, others, rng)

    def _searched(
        self,
        states: list[str],
        draw: int,
        known: pd.DataFrame,
        others: pd.DataFrame,
        rng: np.random.Generator,
    ) -> Iterator[Row]:
        """Search by private gradient ascent, a table of potentials per step; return the best on held-out people."""
        from bayesprivmrf.evaluation import holdout_log_likelihood
        from bayesprivmrf.model import declare

        from .dpsgd_search import DPSGDSearch

        assert self.epsilon is not None
        times = list(known.columns)
        network = declare(dict.fromkeys(times, states), list(pairwise(times)))
        kinds: tuple[tuple[str, Literal["search", "trial"]], ...] = (
            (PSGD, "search"),
            (PSGD_FREE, "trial"),
        )
        for method, covers in kinds:
            begin = time.perf_counter()
            trials = DPSGDSearch(
                epsilon=self.epsilon,
                delta=1 / len(known),
                grid={"steps": self.steps, "clip": self.clips},
                covers=covers,
            ).release(network, known, rng=rng)
            best = trials.best(lambda trial: holdout_log_likelihood(trial, others))
            row = self._row(method, draw, known, others, best.solution)
            yield row | {
                "delta": trials.guarantee.delta,
                "spent": trials.guarantee.epsilon,
                "seconds": time.perf_counter() - begin,
            }

    def _row(
        self,
        method: str,
        draw: int | None,
        known: pd.DataFrame,
        others: pd.DataFrame,
        found: Solution,
    ) -> Row:
        from bayesprivmrf.evaluation import holdout_log_likelihood

        return {
            "data": self.panel.name,
            "people": len(known),
            "length": known.shape[1],
            "epsilon": self.epsilon,
            "delta": None if self.epsilon is None else 0.0,
            "spent": self.epsilon,
            "method": method,
            "draw": draw,
            "holdout_log_likelihood": holdout_log_likelihood(found, others),
            "seconds": found.stats.get("seconds"),
            "status": found.status.value,
        }
