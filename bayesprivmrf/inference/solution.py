"""Results of estimators: potentials, how they were found, and the questions that they answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from bayesprivmrf.cards import SIMULATED, fit_headline, marked, stated
from bayesprivmrf.checks import require
from bayesprivmrf.errors import ModelError, ModelTooLargeError
from bayesprivmrf.inference.interval_frame import POINT, Status
from bayesprivmrf.inference.limits import Limits
from bayesprivmrf.inference.result import Result, require_joint_tables
from bayesprivmrf.marginals import MarginalEngine, clamped, marginal_engine, marginal_of, sample
from bayesprivmrf.marginals.arrays import ImpossibleError
from bayesprivmrf.model import CliqueTables, ModelSpecification
from bayesprivmrf.model.domain import (
    Condition,
    Given,
    Label,
    Variable,
    coded_states,
    conditions,
    given_error,
    share_given,
)
from bayesprivmrf.model.pgmpy_networks import network_potentials
from bayesprivmrf.model.tables import FloatArray, parent

if TYPE_CHECKING:
    from pgmpy.models import DiscreteMarkovNetwork

    from bayesprivmrf.inference.evidence import Evidence
    from bayesprivmrf.inference.limits import ChainFunction


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Solution(Result):
    r"""A fitted Markov random field :math:`p(x) = \exp(\sum_C θ_C(x_C) - A(θ))`.

    Parameters
    ----------
    specification
        The model of the potentials: `ModelSpecification.believed`, without larger tables that were measured.
    potentials
        θ, nats; minus infinity at structural zeros.
    method
        Name of the estimator.
    status
        Status of the fit at its end.
    stats
        Numbers from the fit: iterations, evaluations, seconds, the total used, and those of the method.
    inference
        ``"exact"`` or ``"loopy"``: the marginals that the estimator used.
    is_simulated
        Whether a release behind the fit had seeded noise, and so protects nobody.
    problems
        Problems of the fit, one sentence each; empty where none is known.
    of_records
        Assumptions of the fit on the records, one sentence each; they come first in `assumptions`.
    references
        References of the method for `citation`: keys of its entries, or whole BibTeX entries.
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
    _evidence: Evidence | None = None  # the measurements of the fit, where it keeps them

    is_unprotected: ClassVar[bool] = False
    """True if the fit is of the data without noise, as that of `reference`."""

    @cached_property
    def _evaluated(self) -> tuple[float, np.ndarray]:
        return self._engine().marginals(self.potentials.flat)

    def _engine(self) -> MarginalEngine:
        model = self.specification
        return marginal_engine(model.cardinalities, model.scopes, kind=self.inference)

    def _chain_limits(self, asked: ChainFunction, prob: float) -> Limits:
        """Return a function of a chain with its limits, none for a point estimate."""
        values = asked.of_marginals(self.marginals.flat)
        nothing = np.full(values.shape, np.nan)
        return Limits(values, nothing, nothing, (POINT,))

    @property
    def _assumed(self) -> tuple[str, ...]:
        return self.of_records

    @property
    def fitted_numbers(self) -> FloatArray | None:
        """Released numbers behind the fit, as they were published, shape (numbers,); None if it keeps none."""
        if self._evidence is None:
            return None
        return self._evidence.published.copy()

    @property
    def log_partition(self) -> float:
        """A(θ), nats; the Bethe approximation under loopy inference."""
        return self._evaluated[0]

    @property
    def log_likelihood(self) -> float:
        """Log-likelihood of the fit given the released numbers, with sampling and noise, nats.

        The latent counts of the records are integrated out under a normal approximation
        (`bayesprivmrf.inference.log_likelihood`). Compare it among fits of the same release. Twice the difference of
        two nested models is roughly chi-square; for a p-value that counts the noise in, use
        `bayesprivmrf.analysis.goodness_of_fit`.

        Raises
        ------
        ModelError
            The fit keeps no released numbers, has counts within bounds, or has loopy marginals.
        ModelTooLargeError
            There are too many released numbers.

        Examples
        --------
        >>> solution.log_likelihood  # doctest: +SKIP
        -31.4
        """
        from bayesprivmrf.inference.log_likelihood import log_likelihood

        evidence = self._evidence
        what = "a fit with a likelihood"
        if evidence is None:
            raise ModelError(
                f"{what} must keep the released numbers, got one without; fit a release by NoiseAwareMAP()."
            )
        is_free = not evidence.is_bounded.any()
        require(is_free, what, "have no counts within bounds", "some", error=ModelError)
        is_exact = self.inference == "exact"
        again = "fit with inference='exact'"
        require(is_exact, what, "have exact marginals", "loopy ones", again, error=ModelError)
        return log_likelihood(evidence, evidence.family.on_cliques(self.potentials.flat))

    @cached_property
    def marginals(self) -> CliqueTables:
        """Probability tables of the model's cliques."""
        return self.specification.tables(self._evaluated[1])

    @cached_property
    def network(self) -> DiscreteMarkovNetwork:
        """Pgmpy network with exactly this distribution, for VariableElimination and the like.

        The product of its factors is the probability of a joint state. Under loopy inference it has the error of the
        Bethe approximation of A.

        Raises
        ------
        ModelError
            Some potentials are so large that the exponentials in a factor vanish.
        """
        network = self.specification.to_pgmpy(self.potentials, log_partition=self.log_partition)
        written = network_potentials(self.specification, network).flat
        vanished = np.isneginf(written) & np.isfinite(self.potentials.flat)
        missed = 0.0
        if vanished.any():
            try:
                missed = float(
                    np.abs(self._engine().marginals(written)[1] - self.marginals.flat).max()
                )
            except ModelError:
                missed = np.inf
        # the factors may miss a marginal by a probability of at most 1e-9
        if not missed <= 1e-9:
            raise ModelError(
                "the potentials must be small enough for a network of factors, but their exponentials vanish; use "
                "`marginal` and `sample`, or fit with a larger ridge."
            )
        return marked(network, self.is_simulated)

    def probability(self, states: Mapping[Variable, Label], *, given: Given | None = None) -> float:
        """Return the probability that some variables, however many, take given states.

        Parameters
        ----------
        states
            ``{variable: state}``, at least one.
        given
            States of other variables, on which the probability is conditional, as `marginal` takes them.

        Raises
        ------
        ModelError
            See `marginal`; or `states` names no variable.

        Examples
        --------
        >>> from bayesprivmrf import declare, uniform_solution
        >>> states = {"age": ["<30", "30-60", ">60"], "ill": ["no", "yes"]}
        >>> solution = uniform_solution(declare(states=states, cliques=[("age", "ill")]))
        >>> round(solution.probability({"age": "<30", "ill": "yes"}), 3)
        0.167
        """
        model = self.specification
        event = coded_states(model.domain, "states", states)
        if not event:
            raise ModelError("`states` must name at least one variable, got none.")
        condition = conditions(model.domain, given, [*event])
        if self.inference != "exact":
            return float(self._marginal_table([*event], condition)[(*event.values(),)])
        if condition:
            whole = self._log_weight(condition)
        else:
            whole = self.log_partition
        if whole == -np.inf:
            raise given_error(model.domain, condition)
        return min(1.0, float(np.exp(self._log_weight({**event, **condition}) - whole)))

    def _log_weight(self, states: Mapping[int, int | tuple[int, ...]]) -> float:
        """Return the log weight of the joint states that agree with some states; minus infinity if there are none."""
        model = self.specification
        potentials = clamped(model.cardinalities, model.scopes, self.potentials.flat, states)
        try:
            return self._engine().log_partition(potentials)
        except ImpossibleError:
            return -np.inf

    def _marginal_table(self, query: Sequence[int], given: Condition) -> np.ndarray:
        """Return the marginal of variable positions, axes as asked, from a clique's table if one contains them."""
        model = self.specification
        is_exact = self.inference == "exact"
        if not is_exact:
            clique_of(model, [*query, *given])
        is_held = parent(model.scopes, [*query, *given]) is not None
        if is_held and not (given and is_exact):  # given what is rare, clamping loses no digit
            table = share_given(
                model.project(self.marginals.flat, [*query, *given]), len(query), given
            )
            if table is None:
                raise given_error(model.domain, given)
            return table
        try:
            return marginal_of(
                model.cardinalities, model.scopes, self.potentials.flat, query, given=given
            )
        except ImpossibleError:
            raise given_error(model.domain, given) from None
        except ModelTooLargeError:
            # a model that fits by itself: the remedy is to ask for less
            self._engine()
            require_joint_tables(model, [tuple(query)])
            raise

    def _codes(self, size: int, generator: np.random.Generator, is_balanced: bool) -> np.ndarray:
        model = self.specification
        if self.inference != "exact":
            raise ModelError("sampling needs exact inference; fit with inference='exact'.")
        return sample(
            model.cardinalities,
            model.scopes,
            self.potentials.flat,
            size,
            generator,
            is_balanced=is_balanced,
        )

    def _facts(self) -> list[tuple[str, str]]:
        facts = [
            ("method", self.method),
            ("status", self.status.value),
            ("model", repr(self.specification)),
        ]
        is_listed = bool(self.problems) and "problems" not in self.stats
        if is_listed:
            listed = [("problems", "; ".join(self.problems))]
        else:
            listed = []
        return facts + listed + stated(self.stats)

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


def clique_of(model: ModelSpecification, variables: Sequence[int]) -> int:
    """Return the position of the first clique that holds some variables, for the tables of loopy inference.

    Raises
    ------
    ModelError
        No clique holds them together.
    """
    home = parent(model.scopes, variables)
    if home is None:
        raise ModelError(
            "under loopy inference only variables of one clique, those in `given` included, have a joint "
            "marginal; ask for such variables, or fit with inference='exact'."
        )
    return home


def uniform_solution(network: DiscreteMarkovNetwork | ModelSpecification) -> Solution:
    """Return the uniform distribution over the possible states, which is all that is known before any release."""
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
