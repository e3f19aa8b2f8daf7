"""Posterior of a Markov random field: draws of the model, and answers from them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from bayesprivmrf.cards import SIMULATED, fit_headline, stated
from bayesprivmrf.checks import generator, whole_number
from bayesprivmrf.errors import ModelError
from bayesprivmrf.inference.asked import Asked, coverage
from bayesprivmrf.inference.criticism.assumptions import (
    function_marks,
    variable_marks,
)
from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.inference.limits import ChainFunction, Limits
from bayesprivmrf.inference.posterior.formulation import Formulation, Source
from bayesprivmrf.inference.posterior.results import quantities
from bayesprivmrf.inference.posterior.results.draws import THINNED, Draws
from bayesprivmrf.inference.posterior.results.predictive import predictive_check
from bayesprivmrf.inference.posterior.results.quantities import PosteriorSummary, Quantity
from bayesprivmrf.inference.posterior.results.tree import FitRecord, save_posterior
from bayesprivmrf.inference.result import Result
from bayesprivmrf.inference.solution import Solution, Status
from bayesprivmrf.model import CliqueTables, ModelSpecification
from bayesprivmrf.model.domain import Condition, Given, Label, Variable
from bayesprivmrf.model.tables import FloatArray

if TYPE_CHECKING:
    import pandas as pd
    import pymc as pm
    import xarray as xr
    from pgmpy.models import DiscreteMarkovNetwork


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Posterior(Result):
    r"""Posterior of a Markov random field given its releases, as `LatentCounts.fit` returns it.

    Answers are about the *population* :math:`p(x; θ)` from which the records were drawn, unless ``of="records"`` is
    asked for. Their intervals account for sampling noise and for the mechanism's noise.

    Parameters
    ----------
    tree
        ArviZ DataTree with the groups `posterior` (``marginal[a,b]``, ``counts[a,b]``, ``potentials[a,b]`` in the
        zero-sum gauge, and `total` if it is private), `posterior_predictive`, `sample_stats`, `observed_data`,
        `constant_data`, `log_likelihood` and `log_prior` (for `arviz.psense`), and, if asked for, `prior` and
        `prior_predictive`. Dims are variables and coords are states, as text.
    status
        Status of the fit.
    stats
        Diagnostics, ``"problems"``, seconds, the seed, the number of records, and the settings of the formulation.

    Examples
    --------
    >>> posterior = bpm.LatentCounts().fit(release, rng=1)  # doctest: +SKIP
    >>> posterior.interval(["smokes", "ill"], given={"age": "<30"})  # doctest: +SKIP
    """

    tree: xr.DataTree
    status: Status
    stats: Mapping[str, Any] = field(default_factory=dict)
    _formulation: Formulation
    _draws: Draws
    _source: Source

    method = "posterior"
    references = ("cgm", "posterior", "pymc")
    inference: Literal["exact"] = "exact"

    def __getstate__(self) -> dict[str, object]:
        """Return what is pickled: everything but the PyMC model, whose classes `pickle` cannot name."""
        return {name: value for name, value in vars(self).items() if name != "pymc_model"}

    @property
    def _evidence(self) -> Evidence:
        return self._draws.evidence

    @property
    def specification(self) -> ModelSpecification:
        """Fitted model: the declared one, or that which was given to `fit`."""
        return self._evidence.specification.believed

    @property
    def is_simulated(self) -> bool:
        """True if the noise of some release was drawn from a seed, and so protects nobody."""
        return self._evidence.is_simulated

    @property
    def problems(self) -> tuple[str, ...]:
        """Problems of the fit, one sentence each; empty if none is known."""
        return tuple(self.stats.get("problems", ()))

    @property
    def fitted_numbers(self) -> FloatArray:
        """Released numbers behind the fit, as they were published, shape (numbers,)."""
        return self._evidence.published.copy()

    @property
    def _assumed(self) -> tuple[str, ...]:
        return self._evidence.of_records

    @cached_property
    def pymc_model(self) -> pm.Model:
        """PyMC model of this release, to read, to extend, and to sample with other tools.

        The same object is returned each time, so a potential that is added to it stays; a pickled copy of the
        posterior builds a new one. Its log density is the one that `fit` samples. Under Laplace noise nutpie follows
        a smoothed gradient of it.
        """
        return self._formulation.model()

    @cached_property
    def solution(self) -> Solution:
        """Model with the posterior means as clique marginals; by maximum likelihood if it is not decomposable."""
        return self._draws.mean_solution(self.stats, self.problems)

    @property
    def network(self) -> DiscreteMarkovNetwork:
        """Pgmpy network of `solution`, the posterior mean."""
        return self.solution.network

    def network_at(self, chain: int, draw: int) -> DiscreteMarkovNetwork:
        """Return the pgmpy network of one draw."""
        return self.solution_at(chain, draw).network

    def solution_at(self, chain: int, draw: int) -> Solution:
        """Return one draw of the model."""
        for name, value, size in zip(
            ("chain", "draw"), (chain, draw), self._draws.shape, strict=True
        ):
            whole_number(name, value, 0, size - 1)
        return self._draws.solution(chain, draw)

    @cached_property
    def marginals(self) -> CliqueTables:
        """Posterior means of the probability tables of the cliques."""
        mean = self._draws.finished.marginals.mean(axis=(0, 1))
        return self.specification.tables(self._evidence.specification.on_interactions(mean))

    def _marginal_table(self, query: Sequence[int], given: Condition) -> FloatArray:
        return self._draws.joint(query, given).mean(axis=(0, 1))

    def _limits(self, asked: Asked) -> Limits:
        """Return quantiles of the draws; rows are marked if a stronger prior would move them by about a deviation."""
        has_sums_alone = self.specification.is_restricted and self._formulation.name == "log-linear"
        if asked.of == "records" and has_sums_alone:
            raise ModelError(
                "`of='records'` needs the counts of each table, and with tied potentials this posterior has only "
                "sums of tables; ask for of='population', or fit LatentCounts(formulation='exact')."
            )
        return quantities.limits_of(self._draws, asked.on(self._evidence.specification))

    def _chain_limits(self, asked: ChainFunction, prob: float) -> Limits:
        return quantities.chain_limits(self._draws, asked, prob)

    def probability(
        self, states: Mapping[Variable, Label], prob: float = 0.9, *, given: Given | None = None
    ) -> Quantity:
        """Return draws and an interval of the probability that some variables have given states.

        If no clique contains all variables, the probability is computed in about 1,000 draws.

        Parameters
        ----------
        states
            States of one or more variables, ``{variable: state}``.
        prob
            Posterior probability of the interval, between 0 and 1.
        given
            States of other variables, on which the probability is conditional, as `interval` takes them.

        Raises
        ------
        ModelError
            `states` is empty, a variable or a state is not declared, or the given states are impossible.
        """
        return quantities.probability_of(self._draws, states, coverage(prob), given)

    def quantity(
        self,
        function: Callable[[Solution], Any],
        prob: float = 0.9,
        *,
        draws: int = THINNED,
        variables: Variable | Sequence[Variable] | None = None,
    ) -> Quantity:
        """Return draws and intervals of any function of the model.

        Parameters
        ----------
        function
            Function of one draw, which is a `Solution` with `marginal`, `marginals`, `potentials` and `network`. It
            returns a number, an array or a DataArray, with the same shape in every draw.
        prob, draws
            Posterior probability of the interval, and number of draws, in all chains together, that are used.
        variables
            Variables on which the function depends; by default all. The draws that it gets have no others, and their
            only clique is the joint table of these.

        Returns
        -------
        Quantity
            Draws and intervals; `frame` has the columns of `interval`, and one row for each number. Rows have the
            status ``"model"`` unless a table measured the `variables` together, as for `interval`.

        Examples
        --------
        An odds ratio inside one measured table::

            def odds_ratio(draw):
                table = draw.marginal(["smokes", "ill"]).values
                return table[0, 0] * table[1, 1] / (table[0, 1] * table[1, 0])

            posterior.quantity(odds_ratio, variables=["smokes", "ill"])
        """
        prob = coverage(prob)
        marks = function_marks(self._evidence)
        if variables is not None:
            names, positions = self.specification.positions_of(variables)
            marks = variable_marks(self._evidence, positions)
            function = quantities.of_margin(self.specification.domain, names, function)
        return quantities.quantity_of(
            self._draws, quantities.draws_of(self._draws, function, draws), prob, marks
        )

    def summary(self, prob: float = 0.9) -> PosteriorSummary:
        """Return a summary of the posterior that fits on one screen.

        Parameters
        ----------
        prob
            Posterior probability of the intervals, between 0 and 1.

        Returns
        -------
        dict
            Status and problems, number of records N (with an interval if it is private), formulation and settings,
            scalar parameters of the prior, and diagnostics. It is displayed as a card.
        """
        parameters = self.tree["posterior"].to_dataset()
        name = self._formulation.name
        return quantities.summary_of(self._draws, parameters, self.stats, name, coverage(prob))

    def edge_presence(self, threshold: float, prob: float = 0.9) -> pd.DataFrame:
        r"""Return the edges of the graph, ordered by the probability that they are stronger than a threshold.

        The strength of the edge {a, b} is :math:`\max_{S ⊇ \{a, b\}} \max_x |e_S(x)|`, the largest entry of all
        zero-sum effects that contain both variables, nats. It is 0 if and only if a and b are independent given the
        others. For two-state variables that share no larger clique it is a quarter of the log odds ratio.

        The effects of nearly empty cells can be arbitrarily large. Dirichlet rows do not shrink them: if states are
        rare, nearly all edges get a probability of 1.0, and a `PriorWarning` says so. Normal effects, the default
        prior, are shrunk to 0 without support. Where the default is rows, such as for a panel, ask for edges with
        ``LatentCounts(formulation="log-linear")``.

        Parameters
        ----------
        threshold, prob
            Smallest strength of interest, nats, at least 0; and posterior probability of the intervals.

        Returns
        -------
        pandas.DataFrame
            Columns `estimate`, `lower` and `upper` of the strength, and `probability` that it is above the threshold.
            The index has the two variables; the most probable edge comes first. Entries are NaN for variables with
            structural zeros, whose effects are not defined.
        """
        return quantities.edge_presence(self._draws, threshold, prob)

    def predictive_check(self, *, rng: int | np.random.Generator = 0) -> pd.DataFrame:
        r"""Compare each released table with its latent counts, and with the prediction of the model.

        A p-value near 0 means that noise does not explain the distance of a table from its latent counts, or that
        sampling and noise do not explain its distance from the prediction (`bayesprivmrf.inference.criticism`). With
        little noise, latent counts fit the release under any model. The columns that begin with ``model_`` test the
        model, and ``stats["misfit_tail"]`` is a more powerful test of a restricted model.

        Returns
        -------
        pandas.DataFrame
            A row for each table with noise: `discrepancy`, its mean for the release (`realised`) and for replicates
            (`replicated`), and the share of replicates at least as far away (`p_value`); the same three with
            ``model_`` for the prediction. Margins that several tables share are tested without draws, by
            ``stats["margin_tail"]``.
        """
        return predictive_check(self._evidence, self._draws, generator(rng))

    def synthetic(
        self, number: int = 50, size: int | None = None, *, rng: int | np.random.Generator
    ) -> list[pd.DataFrame]:
        """Draw synthetic data sets, each from its own draw of the posterior.

        Analyze each separately and pass the estimates to `combine_estimates`; one alone understates the uncertainty.

        Parameters
        ----------
        number, size
            Number of data sets, at most one per draw, and of records in each (by default the posterior median of N).
            With fewer than fifty data sets, the width of a combined interval varies a lot from seed to seed.
        rng
            Seed or generator.

        Raises
        ------
        ArgumentError
            `number` is outside its range, or `size` is needed because the number of records may be 0.
        """
        number = whole_number("number", number, 1, int(np.prod(self._draws.shape)))
        return list(self._draws.synthetic(number, size, generator(rng)))

    def _codes(self, size: int, generator: np.random.Generator, is_balanced: bool) -> np.ndarray:
        return self.solution._codes(size, generator, is_balanced)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the posterior and its releases to one netCDF file, replacing an existing file.

        `bayesprivmrf.load_posterior` reads the file as a posterior; ``arviz.from_netcdf`` reads the tree alone. An
        existing file is replaced once the new one is complete, so a full disk or a killed process leaves it.

        Raises
        ------
        ArgumentError
            The file cannot be written.
        ReleaseFileError
            A release cannot be saved.
        """
        record = FitRecord(
            fitted=self._evidence.specification,
            source=self._source,
            formulation=self._formulation.name.lower(),
            status=self.status.value,
            stats=self.stats,
        )
        save_posterior(path, self.tree, self._draws.finished, record)

    def _facts(self) -> list[tuple[str, str]]:
        if "problems" in self.stats:
            problems = {"problems": "; ".join(self.problems) or "none"}
        else:
            problems = {}
        facts = [("status", self.status.value), ("model", repr(self.specification))]
        return facts + stated({**self.stats, **problems})

    def _headline(self) -> list[tuple[str, str]]:
        promises = " ".join(
            dict.fromkeys(release.privacy_statement() for release in self._source.releases)
        )
        return [*fit_headline(self._facts(), self.stats), ("privacy", promises)]

    def _folded(self) -> dict[str, list[tuple[str, str]]]:
        numbers = {name: value for name, value in self.stats.items() if name != "problems"}
        return {"Numbers of the fit": stated(numbers)}

    @property
    def _mark(self) -> str:
        return SIMULATED if self.is_simulated else ""
