"""Base class of all results over variables, with the public methods that they share.

`interval`, `marginal`, `sample` and `assumptions` are defined here once. A result implements three small hooks:
`_limits` for the limits of one question, `_marginal_table` for one table of probabilities, and `_codes` for records.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from bayesprivmrf.cards import Card, escaped, marked
from bayesprivmrf.checks import generator, one_of, require, require_memory, whole_number
from bayesprivmrf.errors import NoIntervalError
from bayesprivmrf.inference.asked import (
    Asked,
    GivenOrEach,
    Whose,
    asked_of,
    conditions_in_turn,
    coverage,
)
from bayesprivmrf.inference.effect_table import EffectCoding, EffectTable
from bayesprivmrf.inference.interval_frame import (
    Mark,
    RowStatus,
    interval_frame,
    joined_frames,
    with_level,
)
from bayesprivmrf.inference.joint_estimate import (
    DrawnTables,
    HasDraws,
    JointEstimate,
    drawn_estimate,
)
from bayesprivmrf.inference.limits import Limits
from bayesprivmrf.marginals import DEFAULT_MEMORY_LIMIT, forecast
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.domain import Condition, Domain, Given, ImpossibleGivenError, Variable
from bayesprivmrf.model.tables import FloatArray, labelled, plain_array
from bayesprivmrf.queries import Query

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

# A probability of intervals that a question must have, where none is asked for
_ANY_PROB = 0.9
# Arrays of the size of a covariance that are in memory at once
_COVARIANCES = 6


class Result(Card):
    """Abstract base of results over variables: fits by any estimator, posteriors and learned models.

    A subclass has `specification`, `status`, `problems` and `is_simulated`, as fields or properties, and supplies

    - ``_marginal_table(query, given)``: the probabilities of some variables, by position, given states of others;
    - ``_codes(size, generator, is_balanced)``: records as codes of states, shape (size, p);
    - ``_limits(asked)``: the `Limits` of one question, if the estimate has a measure of its error.
    """

    # fields of some results and properties of others; a type checker accepts both only as `Any`
    specification: Any  # a ModelSpecification
    status: Any  # a Status
    is_simulated: Any  # a bool
    problems: Any  # a tuple of sentences

    _origin: ClassVar[str] = "Declared"  # of the cliques, in `assumptions`
    _remedy_without_interval: ClassVar[str] = (
        "fit the same release by NoiseAwareMAP() for quick intervals, or by LatentCounts() for those of the posterior"
    )

    def interval(
        self,
        variables: Variable | Sequence[Variable] | Query,
        prob: float = 0.9,
        *,
        of: Whose = "population",
        given: GivenOrEach | None = None,
    ) -> pd.DataFrame:
        """Return intervals for the probabilities of joint states, or for the answers to a query.

        Limits hold for each row separately, not simultaneously. `NoiseAwareMAP`, models learned by `SelectMeasure`
        and chains with one transition matrix have approximate, normal intervals; `LatentCounts` has credible
        intervals from the draws of the posterior, with equal tails except near 0 and 1
        (`bayesprivmrf.inference.limits`).

        Parameters
        ----------
        variables
            One or more declared variables, each once; or a query (`bayesprivmrf.queries`), measured or not, such as
            ``queries.pooled([("x1", "x2"), ("x2", "x3")])``. The variables may share no clique: their joint
            distribution then follows from the model. Models learned in rounds do not support queries.
        prob
            Probability that each interval should cover its true value, between 0 and 1.
        of
            ``"population"``, from which the records are a sample: probabilities, or the mean of what one record adds
            to a query's answers. ``"records"``: the number of records of this sample in each joint state, or the
            query's answers on them; limits are whole numbers.
        given
            A state or a set of states of each of some other variables, ``{"a": "yes", "b": {"low", "middle"}}``: the
            probabilities are conditional on them. A set means that the variable is in one of these states. Or a list
            of variables, ``["a", "b"]``: the answer has a block of rows for each of their joint states, a whole
            conditional table; rows of joint states that cannot occur are NaN, and their note says so. Only a
            posterior takes `given` with ``of="records"``; numbers then become shares of the records with the given
            states, and the note says in how many draws no record has them. A query cannot be combined with `given`.

        Returns
        -------
        pandas.DataFrame
            Columns ``estimate``, ``lower``, ``upper``, ``status``, ``note``; one row for each joint state in C order,
            or for each answer of a query. With a list in `given`, the given states are the first levels of the index.
            The status is a `RowStatus`. It is ``"model"`` where a row rests on declared independences, ties or scores
            that no measurement checks; the note names them. All rows about variables that share no clique have it or
            a worse one, and so have rows of the population where rows of one person count as independent. It is
            ``"prior"`` where the prior decides, and ``"doubtful"`` where the fit was cut short or its limits are
            known to be too narrow. A variable with the name of a column gets an underscore, so that ``reset_index``
            and files keep
            both. In CSV files pandas leaves out the name of an index that is 0, unless ``reset_index`` has made it a
            column.

        Raises
        ------
        NoIntervalError
            The estimate has no measure of its error.
        ModelError
            A variable is unknown or repeated; the given states cannot occur; or the joint distribution of variables
            that share no clique is asked for under loopy inference, or as counts of records in a posterior.
        ModelTooLargeError
            The joint table of variables that share no clique does not fit into memory.
        ArgumentError
            An argument is out of range, or `given` comes with a query or, without a posterior, with ``of="records"``.

        Notes
        -----
        Derivations: `bayesprivmrf.inference.noise_aware.interval`,
        `bayesprivmrf.learning.select_measure.rounds_solution`,
        `bayesprivmrf.inference.posterior.results.quantities`. Measured coverage:
        `benchmarks/results/noise-aware-intervals.csv` and the benchmark pages.
        """
        questions = asked_of(self.specification, variables, prob, of, given)
        if not questions.in_turn:
            (asked,) = questions.each
            return with_level(self._framed(asked, self._limits(asked)), asked.prob)
        frames = [self._framed(asked, self._limits_or_none(asked)) for asked in questions.each]
        return with_level(joined_frames(frames, questions.index), questions.each[0].prob)

    def _limits_or_none(self, asked: Asked) -> Limits:
        """Return the limits of one question of several; NaN where its given states cannot occur together."""
        try:
            return self._limits(asked)
        except ImpossibleGivenError:
            unknown = np.full(len(asked.index), np.nan)
            mark = Mark(RowStatus.NOT_TRUSTED, f"cannot occur: {asked.given_states}")
            return Limits(unknown, unknown, unknown, (mark,))

    def _framed(self, asked: Asked, limits: Limits) -> pd.DataFrame:
        """Return the frame of the limits of one question."""
        return interval_frame(
            limits.estimates,
            limits.lower,
            limits.upper,
            asked.index,
            status=limits.status or self.status,
            marks=limits.marks,
            is_simulated=self.is_simulated,
        )

    def joint_estimate(
        self, variables: Variable | Sequence[Variable], *, given: Given | None = None
    ) -> JointEstimate:
        """Return the joint table of some variables with its uncertainty, for intervals of functions of it.

        `bayesprivmrf.analysis` has the usual functions: odds ratios, standardized risks, regressions.

        Parameters
        ----------
        variables
            One or more declared variables, each once.
        given
            A state or a set of states of each of some other variables, as `interval` takes them.

        Returns
        -------
        JointEstimate
            Its method `interval` takes any function of the table.

        Raises
        ------
        NoIntervalError
            The estimate has no measure of its error.
        ModelError
            A variable is unknown or repeated, or the given states cannot occur.
        ModelTooLargeError
            The covariance of the table's cells does not fit into memory.

        Examples
        --------
        >>> solution.joint_estimate(["smokes", "ill"]).shape  # doctest: +SKIP
        (2, 2)
        """
        remedy = "to take states in turn, add their variables to the table"
        require(
            given is None or isinstance(given, Mapping),
            "given",
            "map variables to states",
            given,
            remedy,
        )
        (asked,) = asked_of(self.specification, variables, _ANY_PROB, given=given).each
        cells = math.prod(self.specification.cardinalities[v] for v in asked.variables)
        require_memory(
            f"covariances of {cells:,} cells",
            _COVARIANCES * 8.0 * cells**2,
            "ask for fewer variables at a time, or condition on states of some of them with `given`",
            DEFAULT_MEMORY_LIMIT,
        )
        if isinstance(self, HasDraws):
            return drawn_estimate(self, asked)
        return self._joint_estimate(asked)

    def _joint_estimate(self, asked: Asked) -> JointEstimate:
        """Return the joint table of one question with its uncertainty.

        Raises
        ------
        NoIntervalError
            The estimate has no measure of its error; the message names results that have one.
        """
        self._limits(asked)  # raises, if it has no measure of its error
        raise NoIntervalError(
            f"an estimate by {self._source_of_estimate} has intervals of probabilities alone, because the errors of "
            "different cells are not known together; fit its measurements by NoiseAwareMAP()."
        )

    def effects(self, prob: float = 0.9, *, coding: EffectCoding = "zero-sum") -> pd.DataFrame:
        """Return the main effects and interactions of the log-linear model with intervals.

        Parameters
        ----------
        prob
            Probability of each interval, between 0 and 1.
        coding
            ``"zero-sum"``: the entries of each effect sum to zero over the states of each variable. ``"reference"``:
            differences from the first state of each variable, at the first states of all others. For two variables
            of two states that share no larger clique, the reference interaction is the log odds ratio, and the
            zero-sum interaction a quarter of it (`bayesprivmrf.inference.effect_table`).

        Returns
        -------
        pandas.DataFrame
            Columns ``estimate``, ``lower``, ``upper``, ``status``, ``note``, in nats. The index has the effect, such
            as ``"smokes:ill"``, and its states. Effects of variables in a clique with structural zeros are NaN.

        Raises
        ------
        NoIntervalError
            The estimate has no measure of its error, or is of a chain with one transition matrix.
        ModelTooLargeError
            The model has too many coordinates for the covariance of an estimate; draws have no such limit.

        Examples
        --------
        >>> solution.effects(coding="reference")  # doctest: +SKIP
        """
        one_of("coding", coding, ("zero-sum", "reference"))
        prob = coverage(prob)
        if isinstance(self, HasDraws):
            draws = self._draws
            evidence = draws.evidence
            table = EffectTable.of(evidence.family.effects.full, self.specification, coding)
            beta = np.nan_to_num(draws.finished.effects)
            drawn = DrawnTables(
                draws=beta, log_prior=draws.log_prior(beta.shape[1]), ending=draws.ending
            )
            limits = table.limits_of_draws(drawn, evidence, prob)
        else:
            table, limits = self._effect_limits(prob, coding)
        frame = interval_frame(
            limits.estimates,
            limits.lower,
            limits.upper,
            table.index,
            status=limits.status or self.status,
            marks=limits.marks,
            is_simulated=self.is_simulated,
        )
        return with_level(frame, prob)

    def _effect_limits(self, prob: float, coding: EffectCoding) -> tuple[EffectTable, Limits]:
        """Return the effects of the model with their limits.

        Raises
        ------
        NoIntervalError
            The effects have no measure of their error; the message names results that have one.
        """
        raise NoIntervalError(
            f"an estimate by {self._source_of_estimate} has no intervals of effects; {self._remedy_without_interval}."
        )

    def _limits(self, asked: Asked) -> Limits:
        """Return the limits of one question.

        Raises
        ------
        NoIntervalError
            The estimate has no measure of its error; the message names results that have one.
        """
        raise NoIntervalError(
            f"an estimate by {self._source_of_estimate} has no `interval`, because it has no measure of its error; "
            f"{self._remedy_without_interval}."
        )

    @property
    def fitted_numbers(self) -> FloatArray | None:
        """Released numbers behind the fit, as they were published, shape (numbers,); None if it keeps none."""
        return None

    @property
    def _source_of_estimate(self) -> str:
        """Name of the method, for a message."""
        return getattr(self, "method", type(self).__name__)

    def marginal(
        self, variables: Variable | Sequence[Variable], *, given: GivenOrEach | None = None
    ) -> xr.DataArray:
        """Return the probabilities of the joint states of any variables, in one clique or not.

        Those of a posterior are its means. If no clique contains all variables, inference in each draw is needed, and
        the mean is over about 1,000 draws.

        Parameters
        ----------
        variables
            One or more declared variables, each once.
        given
            A state or a set of states of each of some other variables, ``{"a": "yes", "b": {"low", "middle"}}``:
            the probabilities are conditional on them. A set means that the variable is in one of these states. Or a
            list of variables, ``["a", "b"]``: each of their joint states is given in turn.

        Returns
        -------
        xarray.DataArray
            Probabilities that sum to one, over the asked variables for each of the states taken in turn; NaN for
            joint states among those that cannot occur. Dims are the
            variables taken in turn and then those asked for, in the given order, coords their declared states.
            ``attrs`` marks a release with seeded noise, as do those of `sample` and the attributes of `network`.

        Raises
        ------
        ModelError
            A variable is unknown or repeated, the given states cannot occur, or inference is loopy and no clique
            contains all variables, those in `given` included.
        ModelTooLargeError
            The joint table of variables that share no clique does not fit into memory.

        Examples
        --------
        >>> from bayesprivmrf import declare, uniform_solution
        >>> states = {"age": ["<30", "30-60", ">60"], "ill": ["no", "yes"]}
        >>> solution = uniform_solution(declare(states=states, cliques=[("age", "ill")]))
        >>> solution.marginal("ill", given={"age": {"<30", "30-60"}}).values
        array([0.5, 0.5])
        >>> solution.marginal("ill", given=["age"]).shape
        (3, 2)
        """
        model: ModelSpecification = self.specification
        domain = model.domain
        names, query = model.positions_of(variables)
        in_turn, conditions = conditions_in_turn(domain, given, query)
        if in_turn:
            tables = [self._table_or_none(query, condition) for condition in conditions]
        else:
            tables = [self._marginal_table(query, condition) for condition in conditions]
        shape = [domain.cardinalities[v] for v in (*in_turn, *query)]
        every = [*(domain.variables[v] for v in in_turn), *names]
        whole = labelled(domain, every, np.reshape(tables, shape), "probability")
        return marked(whole, self.is_simulated)

    def _table_or_none(self, query: Sequence[int], given: Condition) -> FloatArray:
        """Return the probabilities given one condition of several; NaN where it cannot occur."""
        try:
            return self._marginal_table(query, given)
        except ImpossibleGivenError:
            cards = self.specification.cardinalities
            return np.full([cards[v] for v in query], np.nan)

    def _marginal_table(self, query: Sequence[int], given: Condition) -> FloatArray:
        """Return the probabilities of variables by position, axes as asked, given states of others."""
        raise NotImplementedError

    def sample(
        self,
        size: int,
        *,
        rng: int | np.random.Generator,
        method: Literal["independent", "balanced"] = "independent",
    ) -> pd.DataFrame:
        """Draw records from the fitted distribution.

        Draws are exact; a learned model that is too wide for exact draws makes them by Gibbs sampling. Those of a
        posterior are from its `solution`, the posterior mean; for intervals draw data sets with `synthetic` instead.

        Parameters
        ----------
        size
            Number of records, at least 0.
        rng
            Seed or generator. Equal seeds give equal records.
        method
            ``"independent"``: a simple random sample. ``"balanced"``: records with little sampling noise. Down the
            elimination tree, the records that share a separator's state are divided among the states of the next
            variable by its conditional probabilities, rounded to whole records without bias. Each record follows the
            distribution, but the records are not independent, so their spread does not measure sampling error.

        Returns
        -------
        pandas.DataFrame
            One column for each variable, in declared order, with declared labels.

        Raises
        ------
        ModelError
            Inference is loopy.
        ModelTooLargeError
            Exact sampling does not fit into memory.

        Examples
        --------
        >>> from bayesprivmrf import declare, uniform_solution
        >>> solution = uniform_solution(declare(states={"ill": ["no", "yes"]}, cliques=[("ill",)]))
        >>> solution.sample(4, rng=1, method="balanced")["ill"].value_counts().sort_index().to_dict()
        {'no': 2, 'yes': 2}
        """
        import pandas as pd

        domain: Domain = self.specification.domain
        size = whole_number("size", size, 0)
        is_balanced = one_of("method", method, ("independent", "balanced")) == "balanced"
        codes = self._codes(size, generator(rng), is_balanced)
        columns: dict[Variable, np.ndarray] = {}
        for position, variable in enumerate(domain.variables):
            columns[variable] = plain_array(domain.states_of(variable))[codes[:, position]]
        frame = pd.DataFrame(columns, columns=pd.Index(list(domain.variables), dtype=object))
        texts = itertools.chain(domain.variables, *domain.states)
        return marked(escaped(frame, texts), self.is_simulated)

    def _codes(self, size: int, generator: np.random.Generator, is_balanced: bool) -> np.ndarray:
        """Draw records as codes of states, shape (size, p)."""
        raise NotImplementedError

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Assumptions behind all answers, one sentence each, in a fixed order."""
        from bayesprivmrf.inference.criticism.assumptions import model_assumptions

        return model_assumptions(self.specification, self._assumed, self._origin)

    @property
    def _assumed(self) -> tuple[str, ...]:
        """Assumptions of the fit itself, one sentence each, which come first in `assumptions`."""
        return ()


def require_joint_tables(model: ModelSpecification, apart: Sequence[Sequence[int]]) -> None:
    """Raise if the joint tables of variables that share no clique would not fit into memory beside the model.

    Parameters
    ----------
    model
        The fitted model, which fits into memory by itself.
    apart
        Variables of each table, by position.

    Raises
    ------
    ModelTooLargeError
        Exact inference with these tables as cliques takes more memory than allowed; the message has the remedy.
    """
    if not apart:
        return
    cost = forecast(model.cardinalities, (*model.scopes, *apart))
    names = [tuple(model.domain.variables[v] for v in scope) for scope in apart]
    listed = ", ".join(map(repr, names))
    remedy = (
        "ask for fewer variables at a time, or condition on states of some of them with `given`"
    )
    require_memory(
        f"joint tables of {listed}, whose variables share no clique,",
        cost.memory_bytes,
        remedy,
        DEFAULT_MEMORY_LIMIT,
    )
