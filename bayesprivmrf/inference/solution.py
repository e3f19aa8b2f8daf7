"""The result of an estimator: potentials, how they were found, and every question one can ask of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from bayesprivmrf.cards import SIMULATED, Card, fit_headline, marked, stated
from bayesprivmrf.checks import generator, one_of, whole_number
from bayesprivmrf.errors import ModelError, NoIntervalError
from bayesprivmrf.inference.interval_frame import Mark, Status, interval_frame
from bayesprivmrf.marginals import (
    MarginalEngine,
    clamped,
    marginal_engine,
    marginal_of,
    sample,
)
from bayesprivmrf.marginals.arrays import ImpossibleError
from bayesprivmrf.model import CliqueTables, ModelSpecification
from bayesprivmrf.model.conditions import coded_states, conditions, given_error, share_given
from bayesprivmrf.model.domain import Label, Variable
from bayesprivmrf.model.pgmpy_networks import network_potentials
from bayesprivmrf.model.tables import label_array, labelled, parent

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr
    from pgmpy.models import DiscreteMarkovNetwork

    from bayesprivmrf.inference.asked import Asked
    from bayesprivmrf.inference.evidence import Evidence
    from bayesprivmrf.inference.transitions.bounds import Bounds, ChainFunction

# Probability that a network's factors may miss a marginal by
_NETWORK_ERROR = 1e-9


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Solution(Card):
    r"""A fitted Markov random field :math:`p(x) = \exp(\sum_C θ_C(x_C) - A(θ))`.

    Parameters
    ----------
    specification
        The declared model.
    potentials
        θ, nats; minus infinity at structural zeros.
    method
        Name of the estimator.
    status
        How the fit ended.
    stats
        Numbers from the fit: iterations, evaluations, seconds, the total used, and the method's own.
    inference
        ``"exact"`` or ``"loopy"``: which marginals the estimator used.
    is_simulated
        Whether a release behind it had seeded noise, and so protects nobody.
    problems
        Problems of the fit, one sentence each; empty where none is known.
    of_records
        Assumptions of the fit on the records, one sentence each; they come first in `assumptions`.
    references
        What `citation` names for the method: keys of its own entries, or whole BibTeX entries.
    """

    specification: ModelSpecification
    potentials: CliqueTables
    method: str
    status: Status
    stats: Mapping[str, Any] = field(default_factory=dict)
    inference: Literal["exact", "loopy"] = "exact"
    is_simulated: bool = False
    problems: tuple[str, ...] = ()
    of_records: tuple[str, ...] = ()
    references: tuple[str, ...] = ()

    _remedy_without_interval: ClassVar[str] = (
        "fit the same release by NoiseAwareMAP() for quick intervals, or by LatentCounts() for those of the posterior"
    )

    @cached_property
    def _evaluated(self) -> tuple[float, np.ndarray]:
        return self._engine().marginals(self.potentials.flat)

    def _engine(self) -> MarginalEngine:
        model = self.specification
        return marginal_engine(model.cardinalities, model.scopes, kind=self.inference)

    @property
    def _evidence(self) -> Evidence | None:
        """Evidence of the fit: the measurements, where the fit keeps them."""
        return None

    def _framed(
        self, asked: Asked, estimates: Any, lower: Any, upper: Any, marks: Sequence[Mark] = ()
    ) -> pd.DataFrame:
        """Return the frame of an interval of this fit, with the marks of what was asked."""
        return interval_frame(
            estimates,
            lower,
            upper,
            asked.index,
            status=self.status,
            marks=[*marks, *asked.marks],
            is_simulated=self.is_simulated,
        )

    def _chain_bounds(self, asked: ChainFunction, prob: float) -> Bounds:
        """Return a function of a chain with its bounds, none for a point estimate."""
        return asked.without_bounds(self.marginals.flat)

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Assumptions that answers rest on whatever was measured, one sentence each, in a fixed order."""
        from bayesprivmrf.inference.criticism.assumptions import model_assumptions

        return model_assumptions(self.specification, self.of_records)

    @property
    def log_partition(self) -> float:
        """A(θ), nats; the Bethe approximation under loopy inference."""
        return self._evaluated[0]

    @cached_property
    def marginals(self) -> CliqueTables:
        """Probability tables of the measured cliques."""
        return self.specification.tables(self._evaluated[1])

    @cached_property
    def network(self) -> DiscreteMarkovNetwork:
        """Pgmpy network with exactly this distribution, for VariableElimination and the like.

        Its factors multiply to probabilities (under loopy inference, up to the Bethe approximation of A).

        Raises
        ------
        ModelError
            Potentials that cancel are so large that a factor cannot hold their exponentials.
        """
        network = self.specification.to_pgmpy(self.potentials, log_partition=self.log_partition)
        written = network_potentials(self.specification, network).flat
        vanished = np.isneginf(written) & np.isfinite(self.potentials.flat)
        if vanished.any() and not self._distance_from(written) <= _NETWORK_ERROR:
            raise ModelError(
                "the potentials are too large for a network of factors: their exponentials vanish, and with "
                "them the distribution; ask `marginal` and `sample`, or fit with a larger ridge."
            )
        return marked(network, self.is_simulated)

    def _distance_from(self, potentials: np.ndarray) -> float:
        """Largest difference of a clique marginal from that of other potentials; infinite if those allow nothing."""
        try:
            return float(np.abs(self._engine().marginals(potentials)[1] - self.marginals.flat).max())
        except ModelError:
            return np.inf

    def marginal(
        self, variables: Variable | Sequence[Variable], *, given: Mapping[Variable, Label] | None = None
    ) -> xr.DataArray:
        """Probabilities of the joint states of any variables, in one clique or not.

        Parameters
        ----------
        variables
            One or more declared variables, each once.
        given
            States of other variables, ``{variable: state}``: the probabilities are conditional on them.

        Returns
        -------
        xarray.DataArray
            Dims are the variables in the order given, coords their states as declared; sums to one. Its ``attrs``
            mark a release with seeded noise, as do those of `sample` and the attributes of `network`.

        Raises
        ------
        ModelError
            A variable is unknown, or repeated; what is given cannot occur; or inference is loopy, and no clique
            holds the variables together with those that are given.
        """
        model = self.specification
        names, query = model.positions_of(variables)
        table = self._marginal_table(query, conditions(model.domain, given, query))
        return marked(labelled(model.domain, names, table, "probability"), self.is_simulated)

    def probability(
        self, states: Mapping[Variable, Label], *, given: Mapping[Variable, Label] | None = None
    ) -> float:
        """Probability that some variables, as many as one likes, take the states named.

        Parameters
        ----------
        states
            ``{variable: state}``.
        given
            States of other variables, on which the probability is conditional.

        Raises
        ------
        ModelError
            See `marginal`; or `states` names no variable.
        """
        model = self.specification
        event = coded_states(model.domain, "states", states)
        if not event:
            raise ModelError("`states` must name at least one variable, got none.")
        condition = conditions(model.domain, given, [*event])
        if self.inference != "exact":
            return float(self._marginal_table([*event], condition)[(*event.values(),)])
        whole = self._log_weight(condition) if condition else self.log_partition
        if whole == -np.inf:
            raise given_error(model.domain, condition)
        return min(1.0, float(np.exp(self._log_weight(event | condition) - whole)))

    if not TYPE_CHECKING:  # a method of the solutions that have intervals; `hasattr` tells which

        @property
        def interval(self) -> None:
            """Refuse: a point estimate does not know how far off it may be."""
            raise NoIntervalError(
                f"an estimate by {self.method} has no `interval`, for it does not know how far off it may be; "
                f"{self._remedy_without_interval}."
            )

    def _log_weight(self, states: Mapping[int, int]) -> float:
        """Log of the weight of all joint states with some variables in the states named; minus infinity if none."""
        model = self.specification
        potentials = clamped(model.cardinalities, model.scopes, self.potentials.flat, states)
        try:
            return self._engine().log_partition(potentials)
        except ImpossibleError:
            return -np.inf

    def _marginal_table(self, query: Sequence[int], given: Mapping[int, int]) -> np.ndarray:
        """Marginal of variable positions, axes as asked; from a clique's table where one holds them all."""
        model, is_exact = self.specification, self.inference == "exact"
        is_held = parent(model.scopes, [*query, *given]) is not None
        if not is_held and not is_exact:
            raise ModelError(
                "under loopy inference only variables of one clique have a joint marginal, those that are given "
                "among them; ask for those, or fit with inference='exact'."
            )
        if is_held and not (given and is_exact):  # given what is rare, clamping loses no digit
            table = share_given(model.project(self.marginals.flat, [*query, *given]), len(query), given)
            if table is None:
                raise given_error(model.domain, given)
            return table
        try:
            return marginal_of(model.cardinalities, model.scopes, self.potentials.flat, query, given=given)
        except ImpossibleError:
            raise given_error(model.domain, given) from None

    def sample(
        self,
        size: int,
        *,
        rng: int | np.random.Generator,
        method: Literal["independent", "balanced"] = "independent",
    ) -> pd.DataFrame:
        """Records drawn exactly from the fitted distribution.

        Parameters
        ----------
        size
            Number of records, at least 0.
        rng
            Seed or generator. Equal seeds give equal records.
        method
            ``"independent"``: a simple random sample. ``"balanced"``: little sampling noise. Down the elimination
            tree, the records that share a separator's state are dealt to the states of the next variable as its
            conditional probabilities say, rounded to whole records without bias. Each record by itself follows
            the distribution, together they are more even than a sample: the cells of a clique's table are off
            `size` times their probabilities by fewer records, added up, than the tree has cells from that clique
            to the root, however many are drawn. Their spread is no measure of error.

        Returns
        -------
        pandas.DataFrame
            One column a variable, in declared order; declared labels.
        """
        import pandas as pd

        model = self.specification
        size = whole_number("size", size, 0)
        is_balanced = one_of("method", method, ("independent", "balanced")) == "balanced"
        if self.inference != "exact":
            raise ModelError("sampling needs exact inference; fit with inference='exact'.")
        codes = self._codes(size, generator(rng), is_balanced)
        columns: dict[Variable, np.ndarray] = {}
        for position, variable in enumerate(model.domain.variables):
            columns[variable] = label_array(model.domain, variable)[codes[:, position]]
        frame = pd.DataFrame(columns, columns=pd.Index(list(model.domain.variables), dtype=object))
        return marked(frame, self.is_simulated)

    def _codes(self, size: int, generator: np.random.Generator, is_balanced: bool) -> np.ndarray:
        """States' codes of records, shape (size, p)."""
        model = self.specification
        return sample(
            model.cardinalities,
            model.scopes,
            self.potentials.flat,
            size,
            generator,
            is_balanced=is_balanced,
        )

    def _facts(self) -> list[tuple[str, str]]:
        facts = [("method", self.method), ("status", self.status.value), ("model", repr(self.specification))]
        told = (
            [("problems", "; ".join(self.problems))] if self.problems and "problems" not in self.stats else []
        )
        return facts + told + stated(self.stats)

    def _headline(self) -> list[tuple[str, str]]:
        return [*fit_headline(self._facts(), self.stats), ("privacy", self._promise)]

    def _folded(self) -> dict[str, list[tuple[str, str]]]:
        return {"Numbers of the fit": stated(self.stats)}

    @property
    def _promise(self) -> str:
        """Sentence about what protects the records behind the fit."""
        if self.is_simulated:
            return "none, because the noise of a release was simulated"
        return "the promise of the fitted releases, if any; a fit spends no further budget"

    @property
    def _mark(self) -> str:
        return SIMULATED if self.is_simulated else ""


def uniform_solution(network: DiscreteMarkovNetwork | ModelSpecification) -> Solution:
    """The uniform distribution over the possible states: what one knows before any release."""
    model = ModelSpecification.from_pgmpy(network)
    flat = np.zeros(model.size)
    if model.possible is not None:
        flat[~model.possible] = -np.inf
    return Solution(
        specification=model,
        potentials=model.tables(flat),
        method="uniform",
        status=Status.CONVERGED,
        stats={"seconds": 0.0},
    )
