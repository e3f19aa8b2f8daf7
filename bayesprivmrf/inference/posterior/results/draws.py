r"""Draws of a posterior as distributions: joint marginals, a solution for each draw, and predictive probabilities.

Potentials of a draw are written from its marginals where the model is decomposable, exactly,

.. math:: θ_C = \log μ_C - \log μ_{S(C)}, \qquad A = 0,

S(C) being what C shares with its parent in the junction forest; elsewhere from the zero-sum effects.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np

from bayesprivmrf.errors import ModelError
from bayesprivmrf.inference.posterior.forest import JunctionForest, junction_forest
from bayesprivmrf.inference.posterior.formulation import Finished
from bayesprivmrf.inference.solution import Solution, Status
from bayesprivmrf.marginals import marginal_engine, marginal_of
from bayesprivmrf.marginals.arrays import ImpossibleError
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.conditions import Condition, given_error, share_given
from bayesprivmrf.model.effects import Effects
from bayesprivmrf.model.tables import FloatArray, parent

if TYPE_CHECKING:
    import pandas as pd

# Probability below which a possible cell's logarithm is not taken: it would be minus infinity by underflow
_SMALLEST = 1e-300
# Largest number of log probabilities in memory at once: 32 MB; it changes no result
_HELD = 4_000_000


@dataclass(frozen=True, eq=False, kw_only=True)
class Draws:
    """Posterior draws of one model.

    Parameters
    ----------
    model
        The declared model.
    supported
        Mask of the cells that may occur; None where all may.
    finished
        The draws.
    is_simulated
        Whether the noise of a release behind them was seeded.
    status
        How their sampling ended; a solution of one draw can be no better.
    """

    model: ModelSpecification
    supported: np.ndarray | None
    finished: Finished
    is_simulated: bool = False
    status: Status = Status.CONVERGED

    @property
    def shape(self) -> tuple[int, int]:
        """Number of chains, and of draws of each."""
        chains, draws = self.finished.total.shape
        return chains, draws

    @cached_property
    def _forest(self) -> JunctionForest | None:
        return junction_forest(self.model.cardinalities, self.model.scopes, self.supported)

    def synthetic(self, number: int, size: int, rng: np.random.Generator) -> Iterator[pd.DataFrame]:
        """Data sets of `size` records, each from its own draw, the draws as far apart as they can be."""
        chains, draws = self.shape
        for place in np.linspace(0, chains * draws - 1, number).round().astype(int):
            yield self.solution(int(place // draws), int(place % draws)).sample(size, rng=rng)

    def mean_potentials(self) -> tuple[FloatArray, Status]:
        """Potentials of the model that has the mean of the marginals: exact, or of maximum likelihood."""
        from bayesprivmrf.inference.naive_mle import match_marginals

        mean = self.finished.marginals.mean(axis=(0, 1))
        if self._forest is not None:
            return self._product_form(mean), Status.CONVERGED
        model = self.model
        start = Effects.of(model.cardinalities, model.scopes).potentials(
            np.nan_to_num(self.finished.effects.mean(axis=(0, 1)))
        )
        potentials, status, _ = match_marginals(
            model.cardinalities, model.scopes, mean, possible=self.supported, start=start
        )
        return potentials, status

    def potentials(self, chain: int, draw: int) -> FloatArray:
        """Potentials of one draw, shape (cells,), nats."""
        if self._forest is not None:
            return self._product_form(self.finished.marginals[chain, draw])
        effects = Effects.of(self.model.cardinalities, self.model.scopes)
        flat = effects.potentials(np.nan_to_num(self.finished.effects[chain, draw]))
        if self.supported is not None:
            flat[~self.supported] = -np.inf
        return flat

    def solution(self, chain: int, draw: int) -> Solution:
        """The distribution of one draw."""
        return Solution(
            specification=self.model,
            potentials=self.model.tables(self.potentials(chain, draw)),
            method=f"posterior draw {draw} of chain {chain}",
            status=self.status,
            is_simulated=self.is_simulated,
        )

    def thinned(self, most: int) -> np.ndarray:
        """Indices of at most about `most` draws of each chain together, evenly spaced; the same in every chain."""
        chains, draws = self.shape
        each = min(draws, max(1, most // chains))
        return np.linspace(0, draws - 1, each).round().astype(int)

    def log_prior(self, kept: int) -> dict[str, FloatArray]:
        """Log density of each part of the prior, of all draws or of as many thinned ones of each chain."""
        places = np.linspace(0, self.shape[1] - 1, kept).round().astype(int)  # as `thinned` keeps them
        return {name: values[:, places] for name, values in self.finished.log_prior.items()}

    def pairs(self, most: int) -> Iterator[tuple[int, int]]:
        """Chain and draw of each thinned draw."""
        kept = self.thinned(most)
        for chain in range(self.shape[0]):
            for draw in kept:
                yield chain, int(draw)

    def table(self, query: Sequence[int], kind: Literal["marginals", "counts"]) -> FloatArray | None:
        """Draws of the table of variables that one clique holds, axes as asked; None where none does.

        Returns
        -------
        ndarray or None
            Shape (chain, draw, K_v for v in query).
        """
        model, flat = self.model, getattr(self.finished, kind)
        return None if parent(model.scopes, query) is None else model.project(flat, query)

    def joint(self, query: Sequence[int], most: int, given: Condition | None = None) -> FloatArray:
        """Draws of the joint marginal of any variables; thinned where it takes inference in each draw.

        Parameters
        ----------
        query
            Positions of the variables.
        most
            About how many draws there are at most where they are thinned.
        given
            States of other variables, on which the marginal is conditional.

        Returns
        -------
        ndarray
            Shape (chain, kept draws, K_v for v in query).
        """
        model, given = self.model, given or {}
        table = self.table([*query, *given], "marginals")
        if table is not None:
            shares = share_given(table, len(query), given)
            if shares is None:
                raise given_error(model.domain, given, "draws of this posterior")
            return shares
        cards, scopes = model.cardinalities, model.scopes
        try:
            tables = [
                marginal_of(cards, scopes, self.potentials(*at), query, given=given)
                for at in self.pairs(most)
            ]
        except ImpossibleError:
            raise given_error(model.domain, given, "draws of this posterior") from None
        return np.reshape(tables, (self.shape[0], -1, *tables[0].shape))

    def records(self, query: Sequence[int], given: Condition) -> FloatArray:
        """Draws of how many records were in each joint state, or of its share among those with the states given."""
        model = self.model
        table = self.table([*query, *given], "counts")
        if table is None:
            names = [model.domain.variables[v] for v in (*query, *given)]
            raise ModelError(
                f"the counts of {names!r} are in no table: no clique holds these variables together; "
                'ask of="population".'
            )
        shares = share_given(np.maximum(np.rint(table), 0.0), len(query), given)
        if shares is None:
            raise ModelError(
                "the share among the records with the states in `given` must exist, and in some draws no record "
                'has them; ask of="population", or for their number without `given`.'
            )
        return shares

    def _product_form(self, marginals: FloatArray) -> FloatArray:
        """Potentials of a decomposable model from its clique marginals; A is 0."""
        forest, model = self._forest, self.model
        assert forest is not None
        flat = np.log(np.maximum(marginals, _SMALLEST))
        for clique, separator in enumerate(forest.separators):
            if separator:
                start, stop = model.offsets[clique : clique + 2]
                states = forest.separator_states(clique, separator)
                sums = np.bincount(states, weights=marginals[start:stop])
                flat[start:stop] -= np.log(np.maximum(sums, _SMALLEST))[states]
        if self.supported is not None:
            flat[~self.supported] = -np.inf
        return flat


def log_predictive(draws: Draws, states: np.ndarray, most: int) -> FloatArray:
    r"""Return the log of the mean over the posterior of the probability of each joint state.

    .. math:: p(x \mid y) = E[\,p(x; θ) \mid y\,]
        \approx \frac{1}{D} \sum_d \exp\Bigl(\sum_C θ_{d,C}(x_C) - A(θ_d)\Bigr)

    Parameters
    ----------
    draws
        The posterior.
    states
        Joint states, as codes, shape (number, variables).
    most
        Approximate number of draws over which the mean is taken.

    Returns
    -------
    ndarray
        Shape (number,), nats.
    """
    model = draws.model
    engine = marginal_engine(model.cardinalities, model.scopes)
    potentials = [draws.potentials(chain, draw) for chain, draw in draws.pairs(most)]
    log_partition = np.array([engine.log_partition(each) for each in potentials])
    table = np.array(potentials)
    cells = [
        start + np.ravel_multi_index(tuple(states[:, v] for v in scope), shape)
        for start, scope, shape in zip(model.offsets, model.scopes, model.shapes, strict=False)
    ]
    result = np.empty(len(states))
    step = max(1, _HELD // len(table))
    for begin in range(0, len(states), step):
        part = slice(begin, begin + step)
        logs = np.zeros((len(table), len(result[part]))) - log_partition[:, np.newaxis]
        for own in cells:
            logs += table[:, own[part]]
        result[part] = np.logaddexp.reduce(logs, axis=0) - np.log(len(table))
    return result
