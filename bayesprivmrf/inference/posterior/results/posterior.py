"""Posterior of a Markov random field: draws of the model, and answers from them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from bayesprivmrf.cards import SIMULATED, Card, fit_headline, marked, stated
from bayesprivmrf.checks import generator, whole_number
from bayesprivmrf.inference.asked import asked_of, coverage
from bayesprivmrf.inference.criticism.assumptions import function_marks, model_assumptions
from bayesprivmrf.inference.criticism.predictive_check import predictive_check
from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.inference.posterior.formulation import Formulation
from bayesprivmrf.inference.posterior.results.draws import Draws
from bayesprivmrf.inference.posterior.results.quantities import (
    THINNED,
    PosteriorIntervals,
    Quantity,
    draws_of,
    refuse_sums_alone,
)
from bayesprivmrf.inference.posterior.results.summary import PosteriorSummary, edge_presence, summary_of
from bayesprivmrf.inference.posterior.results.synthetic import records_of
from bayesprivmrf.inference.posterior.results.tree import save_posterior
from bayesprivmrf.inference.posterior.source import Source
from bayesprivmrf.inference.solution import Solution, Status
from bayesprivmrf.inference.transitions.bounds import Bounds, ChainFunction
from bayesprivmrf.model import CliqueTables, ModelSpecification
from bayesprivmrf.model.conditions import Given, conditions
from bayesprivmrf.model.domain import Label, Variable
from bayesprivmrf.model.tables import labelled
from bayesprivmrf.queries import Query

if TYPE_CHECKING:
    import pandas as pd
    import pymc as pm
    import xarray as xr
    from pgmpy.models import DiscreteMarkovNetwork


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Posterior(Card):
    r"""The posterior of a Markov random field given its releases.

    Everything speaks of the *population* :math:`p(x; θ)` from which the records were drawn, unless ``of="records"``
    is asked: intervals hold sampling noise as well as the mechanism's.

    Parameters
    ----------
    tree
        ArviZ DataTree: groups `posterior` (``marginal[a,b]``, ``counts[a,b]``, ``potentials[a,b]`` in the zero-sum
        gauge, `total` if private), `posterior_predictive`, `sample_stats`, `observed_data`, `constant_data`,
        `log_likelihood`, `log_prior` (`arviz.psense` scales them by powers), and `prior` and `prior_predictive` if
        asked for. Dims are variables and coords are states, as text.
    status
        How the sampling ended.
    stats
        Diagnostics, ``"problems"`` (what the warning said, a text each), seconds, the seed (``"generator"`` where
        one was given), the number of records, and the formulation's settings.
    """

    tree: xr.DataTree
    status: Status
    stats: Mapping[str, Any] = field(default_factory=dict)
    _evidence: Evidence
    _formulation: Formulation
    _draws: Draws
    _source: Source

    method = "posterior"
    references = ("cgm", "posterior", "pymc")
    inference: Literal["exact"] = "exact"

    @property
    def specification(self) -> ModelSpecification:
        """The declared model."""
        return self._evidence.specification

    @property
    def is_simulated(self) -> bool:
        """Whether a release behind it had seeded noise, and so protects nobody."""
        return self._evidence.is_simulated

    @property
    def problems(self) -> tuple[str, ...]:
        """Problems of the fit, one sentence each; empty where none is known."""
        return tuple(self.stats.get("problems", ()))

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Assumptions that answers rest on whatever was measured, one sentence each, in a fixed order."""
        return model_assumptions(self.specification, self._evidence.of_records)

    @cached_property
    def pymc_model(self) -> pm.Model:
        """The PyMC model of this release, to read, to extend and to sample with other tools.

        The same object is returned each time, so that a potential added to it stays. Its log density is the one that
        `fit` samples. Under Laplace noise its derivative jumps at every noisy count; nutpie follows a smoothed
        gradient there and weights its draws by the exact density.
        """
        return self._formulation.model()

    @cached_property
    def solution(self) -> Solution:
        """The model whose clique marginals are the posterior means of the marginals.

        In a decomposable model that is exact; in any other the mean is matched by maximum likelihood.
        """
        potentials, status = self._draws.mean_potentials()
        return Solution(
            specification=self.specification,
            potentials=self.specification.tables(potentials),
            method="posterior mean",
            status=status if self.status is Status.CONVERGED else self.status,
            stats=self.stats,
            is_simulated=self.is_simulated,
            problems=self.problems,
            of_records=self._evidence.of_records,
        )

    @property
    def network(self) -> DiscreteMarkovNetwork:
        """Pgmpy network of `solution`: the mean of the marginals."""
        return self.solution.network

    def network_at(self, chain: int, draw: int) -> DiscreteMarkovNetwork:
        """Pgmpy network of one draw."""
        return self.solution_at(chain, draw).network

    def solution_at(self, chain: int, draw: int) -> Solution:
        """One draw of the model."""
        for name, value, size in zip(("chain", "draw"), (chain, draw), self._draws.shape, strict=True):
            whole_number(name, value, 0, size - 1)
        return self._draws.solution(chain, draw)

    @cached_property
    def marginals(self) -> CliqueTables:
        """Posterior means of the cliques' probability tables."""
        return self.specification.tables(self._draws.finished.marginals.mean(axis=(0, 1)))

    def marginal(
        self, variables: Variable | Sequence[Variable], *, given: Given | None = None
    ) -> xr.DataArray:
        """Posterior mean of the joint marginal of any variables, or of the conditional given states of others.

        Where no clique holds all of them it takes inference in each draw, and is the mean over about 1000 of them.
        `given` maps other variables to a state or a set of states, as `interval` takes them.

        Raises
        ------
        ModelError
            A variable is unknown, or repeated; or what is given cannot occur.
        """
        names, query = self.specification.positions_of(variables)
        condition = conditions(self.specification.domain, given, query)
        mean = self._draws.joint(query, THINNED, condition).mean(axis=(0, 1))
        return marked(labelled(self.specification.domain, names, mean, "probability"), self.is_simulated)

    def interval(
        self,
        variables: Variable | Sequence[Variable] | Query,
        prob: float = 0.9,
        *,
        of: Literal["population", "records"] = "population",
        given: Given | None = None,
    ) -> pd.DataFrame:
        """Return credible intervals of a joint marginal, of a conditional, or of a query's answers.

        Tails are equal, except near 0 and 1, where limits move to the end (`bayesprivmrf.inference.limits`).

        Parameters
        ----------
        variables
            One or more declared variables; or a query (`bayesprivmrf.queries`), measured or not, such as
            ``queries.pooled([("x1", "x2"), ("x2", "x3")])``.
        prob
            Posterior probability of each interval.
        of
            ``"population"``: the probability of each joint state. ``"records"``: how many of the records were in
            it, in records; the bounds are whole numbers, the estimate is a mean and need not be; only for
            variables that share a clique. For a query: its answers on the records, or what one record of the
            population adds to them on average.
        given
            A state or a set of states of each of some other variables, ``{"a": "yes", "b": {"low", "middle"}}``. A
            set means that the variable is in one of these states. For the population, the probability of each joint
            state is conditional on them. For the records, it is the share among the records that had those states.
            A query takes none.

        Returns
        -------
        pandas.DataFrame
            `estimate` (posterior mean), `lower`, `upper`, `status` and `note`; a row for each joint state, in C order
            of the variables as given, or for each answer of a query, by its label. The status is a `RowStatus`:
            ``"model"`` in rows that no measurement determines, whose note names the assumption they rest on, and
            ``"prior"`` in rows whose estimate a stronger prior would move by a standard deviation.

        Raises
        ------
        ModelError
            A variable is unknown, or repeated; what is given cannot occur; or, for records, no clique holds the
            variables together, or a draw has no record with what is given.
        ArgumentError
            A query was asked for given some states.
        """
        beside = ", and `quantity` any function of a draw"
        asked = asked_of(self._evidence, variables, prob, of, given, beside=beside)
        refuse_sums_alone(self._draws, of, self._formulation.name)
        return self._intervals.of(asked)

    def _chain_bounds(self, asked: ChainFunction, prob: float) -> Bounds:
        """Return a function of a chain with its bounds, by quantiles of the draws."""
        return self._intervals.of_chain(asked, prob)

    @property
    def _intervals(self) -> PosteriorIntervals:
        return PosteriorIntervals(evidence=self._evidence, draws=self._draws)

    def probability(
        self,
        states: Mapping[Variable, Label],
        prob: float = 0.9,
        *,
        given: Given | None = None,
    ) -> Quantity:
        """Draws and interval of the probability that some variables take the states named.

        Where no clique holds all variables it takes inference in each of about 1000 draws.

        Parameters
        ----------
        states
            ``{variable: state}``, as many variables as one likes.
        prob
            Posterior probability of the interval.
        given
            States of other variables, on which the probability is conditional, as `interval` takes them.

        Returns
        -------
        Quantity
            Its `status` and `note` have the meaning of those of a row of `interval`.

        Raises
        ------
        ModelError
            `states` names no variable, a variable or a state is not declared, or what is given cannot occur.
        """
        return self._intervals.of_event(states, coverage(prob), given)

    def quantity(
        self, function: Callable[[Solution], Any], prob: float = 0.9, *, draws: int = THINNED
    ) -> Quantity:
        """Draws and interval of any function of the model.

        Parameters
        ----------
        function
            Takes one draw as a `Solution`, with `marginal`, `marginals`, `potentials` and `network`; gives a number,
            an array or a DataArray, of one shape in every draw.
        prob
            Probability of the interval.
        draws
            Number of draws, over all chains, at which the function is computed.

        Returns
        -------
        Quantity
            Its `frame` has the columns of `interval`, one row for each number. Rows are ``"model"`` unless all
            variables were measured in one table, because the function may depend on any of them.

        Examples
        --------
        An odds ratio::

            def odds_ratio(draw):
                table = draw.marginal(["smokes", "ill"]).values
                return table[0, 0] * table[1, 1] / (table[0, 1] * table[1, 0])

            posterior.quantity(odds_ratio)
        """
        prob, marks = coverage(prob), function_marks(self._evidence)
        return self._intervals.of_draws(draws_of(self._draws, function, draws), prob, marks)

    def summary(self, prob: float = 0.9) -> PosteriorSummary:
        """Return a summary of the posterior in one screen.

        Parameters
        ----------
        prob
            Probability of the intervals.

        Returns
        -------
        dict
            Shown as a card. `status`; `problems`, each with its remedy; `prob`; `records`, the number N, with
            `estimate`, `lower` and `upper` where it is private; `formulation` and its settings; scalar parameters of
            the prior; `draws` and `chains`; the worst `r_hat`, `ess_bulk` and `ess_tail`; `seconds`.
        """
        told = {"status": self.status.value, "formulation": self._formulation.name, "stats": self.stats}
        sampled = self.tree["posterior"].to_dataset()
        return summary_of(
            sampled, self._draws.finished, coverage(prob), is_simulated=self.is_simulated, **told
        )

    def edge_presence(self, threshold: float, prob: float = 0.9) -> pd.DataFrame:
        r"""Edges by the probability that they are stronger than a threshold.

        The strength of the edge {a, b} is :math:`\max_{S ⊇ \{a, b\}} \max_x |e_S(x)|`, the largest entry of all
        zero-sum effects that hold both, nats. It is 0 exactly where a and b are independent given the others.
        Between two-state variables that meet in no larger clique it is a quarter of the log odds ratio.

        Returns
        -------
        pandas.DataFrame
            Index: the two variables. `estimate`, `lower`, `upper` of the strength, and `probability` that it is
            above the threshold, which orders the rows, the largest first. NaN beside structural zeros, where effects
            are not defined.
        """
        return edge_presence(self._evidence, self._draws.finished, threshold, prob)

    def predictive_check(self, *, rng: int | np.random.Generator = 0) -> pd.DataFrame:
        r"""Compare each released table with its latent counts, and with the prediction of the model.

        A p-value near 0 means that noise does not explain the distance of a table from its latent counts, or that
        sampling and noise do not explain its distance from the prediction (`bayesprivmrf.inference.criticism`).
        Latent counts follow the release under any model where noise is small; the columns that begin with ``model_``
        test the model, and ``stats["misfit_tail"]`` is the more powerful test of a restricted one.

        Returns
        -------
        pandas.DataFrame
            A row for each table with noise: `discrepancy`, its mean for the release (`realised`) and for the
            replicates (`replicated`), and how often a replicate is at least as far (`p_value`); for the prediction
            `model_realised`, `model_replicated` and `model_p_value`. A row ``margin[a,b]`` is for a margin that
            several tables contain; a p-value near 0 means that they do not describe the same records.
        """
        return predictive_check(self._evidence, self._draws, generator(rng))

    def synthetic(
        self, number: int = 20, size: int | None = None, *, rng: int | np.random.Generator
    ) -> list[pd.DataFrame]:
        """Synthetic data sets, each from its own draw of the posterior.

        Analyse each by itself and give the estimates to `combine_estimates`: one data set alone understates what the
        release leaves uncertain.

        Parameters
        ----------
        number
            Number of data sets; at most one a draw.
        size
            Records in each; by default the posterior median of N.
        rng
            Seed or generator.

        Raises
        ------
        ArgumentError
            `number` is outside its range; or `size` is needed, because the number of records may be zero.
        """
        number = whole_number("number", number, 1, int(np.prod(self._draws.shape)))
        records = records_of(self._evidence, self._draws.finished.total) if size is None else size
        return list(self._draws.synthetic(number, records, generator(rng)))

    def sample(
        self,
        size: int,
        *,
        rng: int | np.random.Generator,
        method: Literal["independent", "balanced"] = "independent",
    ) -> pd.DataFrame:
        """Draw records from `solution`, the mean; `synthetic` draws data sets from which intervals can be made."""
        return self.solution.sample(size, rng=rng, method=method)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the posterior and its releases to one netCDF file, replacing an existing file.

        `bayesprivmrf.load_posterior` reads the file back as a posterior, ``arviz.from_netcdf`` as a tree.

        Raises
        ------
        ArgumentError
            The file cannot be written.
        ReleaseFileError
            A release behind it cannot be saved.
        """
        told = {
            "formulation": self._formulation.name.lower(),
            "status": self.status.value,
            "stats": self.stats,
        }
        save_posterior(self.tree, self._draws.finished, self._source, path, **told)

    def _facts(self) -> list[tuple[str, str]]:
        told = {"problems": "; ".join(self.stats["problems"]) or "none"} if "problems" in self.stats else {}
        facts = [("status", self.status.value), ("model", repr(self.specification))]
        return facts + stated({**self.stats, **told})

    def _headline(self) -> list[tuple[str, str]]:
        promises = dict.fromkeys(release.privacy_statement() for release in self._source.releases)
        return [*fit_headline(self._facts(), self.stats), ("privacy", " ".join(promises))]

    def _folded(self) -> dict[str, list[tuple[str, str]]]:
        numbers = {name: value for name, value in self.stats.items() if name != "problems"}
        return {"Numbers of the fit": stated(numbers)}

    @property
    def _mark(self) -> str:
        return SIMULATED if self.is_simulated else ""
