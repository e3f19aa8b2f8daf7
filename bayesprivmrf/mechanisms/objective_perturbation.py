"""`ObjectivePerturbation`: the strength of peer influence on a network, from a perturbed pseudo-likelihood."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np

from bayesprivmrf.checks import (
    finite_pair,
    instance_of,
    one_of,
    positive_finite,
    probability,
    require,
    truth,
)
from bayesprivmrf.errors import ConsistencyWarning, ModelError, warn_caller
from bayesprivmrf.interruption import warn_without_raising
from bayesprivmrf.mechanisms.base import Mechanism, Stamp
from bayesprivmrf.noise import NoiseSource
from bayesprivmrf.privacy import Adjacency, CouplingNorms, PrivacyGuarantee, perturbation_constants
from bayesprivmrf.privacy.objective_perturbation import Calibration

if TYPE_CHECKING:
    import pandas as pd

    from bayesprivmrf.network import NetworkEstimate, PerturbedEstimator
    from bayesprivmrf.network.estimate_law import EstimateLaw
    from bayesprivmrf.network.ising import IsingNetwork
    from bayesprivmrf.network.perturbed_score import PerturbedScore

# unit of the guarantee
_UNIT = "node's outcome"


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class PerturbationPlan:
    """The public part of a release: the network and the estimator on it."""

    network: IsingNetwork
    estimator: PerturbedEstimator


@final
@dataclass(frozen=True, kw_only=True)
class ObjectivePerturbation(
    Mechanism["IsingNetwork", PerturbationPlan, "PerturbedScore", "NetworkEstimate"]
):
    r"""Release the inverse temperature of an Ising model on a public network; one node's outcome is the unit.

    The estimate is the root of :math:`\sum_i m_i (s_i - \tanh(a m_i)) - \Delta a = N` with local fields
    :math:`m_i = \sum_j J_{ij} s_j` and noise N, on a public grid. A root below the bounds gives the lower bound, and
    a root above gives the upper bound; the release states it. The network, J, and an external field of the network
    are public. The guarantee is for the outcomes, whatever distribution they follow. With a field, :math:`a m_i + h`
    replaces :math:`a m_i`, and :math:`\sum_j J_{ij} (s_j - c)` replaces :math:`m_i`.

    Every node must have an outcome. A missing outcome is refused, because the set of nodes without one is part of the
    data. If this set is public, release on `IsingNetwork.subnetwork`, whose docstring explains the proof and the
    estimate.

    Parameters
    ----------
    epsilon
        Budget, nats, positive.
    delta
        0 for Laplace noise and a pure guarantee; positive for Gaussian noise. Gaussian noise is worse at almost any
        budget, because only one number is released. At most 1/n unless `allow_large_delta`.
    calibration
        ``"tight"``: the smallest proved constants, at most :math:`|S - S'| \le (4 + 2u^*) \max_j D_j` with
        :math:`u^* \tanh u^* = 1`, and the budget divided by `split_budget`. ``"paper"``: exactly Algorithm 1, with 8
        in place of 6.399, :math:`\Delta = (24/\epsilon) \max_j \sum_i |J_{ij}| D_i`, and halves of the budget.
    bounds
        Public bounds of beta, by default (-5, 5). Negative values stand for neighbors who push each other apart.
        The noise does not depend on the bounds, so wide bounds cost no budget. ``None`` means [0, inf).
    positive, negative
        The two states of an outcome, by default the numbers 1 and -1; which is which does not change the estimate
        unless the network has an external field.
    allow_large_delta
        True to allow a delta above 1/n, under which a mechanism could disclose somebody's outcome outright.

    Raises
    ------
    ArgumentError
        A setting is out of range; at release, delta is above 1/n, the bounds contain fewer than two points of the
        grid or exceed its exact range, or the paper's calibration is given an external field.
    ModelError
        The network is not an `IsingNetwork`, or its couplings are so small or so large that their squares are not
        accurate in double precision; raised at release.

    Warns
    -----
    ConsistencyWarning
        Much of the network's coupling lies in nodes whose local field can be far above the norm of J; warned at
        release. The theory then gives no consistency of the estimate, however large the network; privacy does not
        depend on it. The warning also appears if the released estimate is a bound, because the root may lie beyond.

    References
    ----------
    Chakraborty, Chatterjee, Dalal 2024, Algorithm 1 and Theorem 3.1. Kifer, Smith, Thakurta 2012.

    Examples
    --------
    >>> import numpy as np
    >>> from bayesprivmrf.network import IsingNetwork
    >>> ring = IsingNetwork.from_graph([(i, (i + 1) % 500) for i in range(500)])
    >>> spins = np.repeat([1, -1, 1, -1], 125)
    >>> 1.0 < ObjectivePerturbation(epsilon=2.0).release(ring, spins, rng=1).inverse_temperature < 2.0
    True
    """

    epsilon: float
    delta: float = 0.0
    calibration: Calibration = "tight"
    bounds: tuple[float, float] | None = (-5.0, 5.0)
    positive: Any = None
    negative: Any = None
    allow_large_delta: bool = False

    def __post_init__(self) -> None:
        self._keep(
            epsilon=positive_finite("epsilon", self.epsilon),
            delta=probability("delta", self.delta, zero=True),
        )
        one_of("calibration", self.calibration, ("tight", "paper"), remedy="'tight' has less noise")
        truth("allow_large_delta", self.allow_large_delta)
        if self.bounds is not None:
            self._keep(bounds=finite_pair("bounds", self.bounds))

    def law(self, network: IsingNetwork, **settings: Any) -> EstimateLaw:
        """Simulate the estimate of `release` at each beta of a grid, before any data is read or budget spent.

        The resulting distribution shows the precision that a budget gives. A release can later use it for intervals.

        Parameters
        ----------
        network
            The public network.
        settings
            Settings of `EstimateLaw.simulate`, such as ``span``, ``configurations``, ``rng``, ``cache``.

        Raises
        ------
        ArgumentError, ModelError
            `release` would raise the same error, or a setting of the simulation is out of range.
        """
        from bayesprivmrf.network.estimate_law import EstimateLaw

        plan = self._prepare(network)
        return EstimateLaw.simulate(plan.network, plan.estimator.constants, self.bounds, **settings)

    def _preview(
        self, plan: PerturbationPlan, total: float | None
    ) -> tuple[pd.DataFrame, list[str]]:
        r"""Return the noise and the slope of a release, two rows.

        ``epsilon``: the two parts of the budget. ``size``: the standard deviation of the noise on the score, and
        Delta, in units of the score and of score over beta. ``on_beta``: their effects near beta = 0, where the slope
        of the score is about :math:`\|J\|_F^2`. These are the standard deviation of the estimate from the noise, and
        the share of beta by which Delta shrinks it. A number of records does not matter.
        """
        import pandas as pd

        known = plan.estimator.constants
        own = float(plan.network.coupling.power(2).sum())
        size = [known.noise_deviation, known.curvature]
        columns = {
            "step": ["noise", "slope"],
            "epsilon": [known.epsilon_noise, known.epsilon_slope],
            "size": size,
            "on_beta": [each / (own + known.curvature) for each in size],
        }
        return pd.DataFrame(columns), []

    def _prepare(self, network: IsingNetwork) -> PerturbationPlan:
        # `_randomise` needs NetworkEstimate after the charge, when an import that fails would lose the release
        from bayesprivmrf.network import NetworkEstimate, PerturbedEstimator  # noqa: F401
        from bayesprivmrf.network.ising import IsingNetwork

        remedy = "make one with IsingNetwork.from_graph, which takes graphs of networkx and pgmpy, and tables"
        instance_of(
            "network", network, IsingNetwork, "be an IsingNetwork", remedy, error=ModelError
        )
        # a larger delta would allow to disclose one outcome outright
        must = f"be at most 1/n = {1 / len(network):.3g} for {len(network)} nodes"
        is_small = self.delta * len(network) <= 1 or self.allow_large_delta
        require(is_small, "delta", must, self.delta, "choose 0, or set `allow_large_delta=True`")
        constants = perturbation_constants(
            network.coupling, self.epsilon, self.delta, self.calibration, network.field
        )
        _warn_of_heavy_tails(network.coupling)
        return PerturbationPlan(
            network=network,
            estimator=PerturbedEstimator.of(
                network.coupling, constants, self.bounds, network.field
            ),
        )

    def _guarantee(self, plan: PerturbationPlan) -> PrivacyGuarantee:
        return PrivacyGuarantee(
            epsilon=self.epsilon, delta=self.delta, adjacency=Adjacency.REPLACE_ONE, unit=_UNIT
        )

    def _read(self, plan: PerturbationPlan, data: Any) -> PerturbedScore:
        return plan.estimator.score(plan.network.spins(data, self.positive, self.negative))

    def _randomise(
        self, plan: PerturbationPlan, exact: PerturbedScore, source: NoiseSource, stamp: Stamp
    ) -> NetworkEstimate:
        from bayesprivmrf.network import NetworkEstimate

        constants = plan.estimator.constants
        noise = source.add(np.zeros(1, dtype=np.int64), constants.noise)
        made = NetworkEstimate(
            inverse_temperature=float(exact.estimates(noise)[0]),
            network=plan.network,
            bounds=self.bounds,
            constants=constants,
            **stamp.fields,
        )
        for problem in made.problems:  # a function of the released number: post-processing
            warn_without_raising(problem, ConsistencyWarning)
        return made


def _warn_of_heavy_tails(coupling: Any) -> None:
    r"""Warn where the truncated tail of Theorem B.1 (i) need not be small.

    The condition is :math:`E \sum_i |m_i| 1\{|m_i| > K\} = o(a_n)` for large K. The distribution of the
    fields is unknown, but :math:`|m_i| \le D_i`, and at beta = 0 :math:`a_n` is of the order of :math:`\|J\|_F^2`.
    With J in units of its norm :math:`\lambda`, the bound
    :math:`\lambda \sum_i D_i 1\{D_i > 4 \lambda\} / \|J\|_F^2` depends on J alone. The warning appears if this bound
    exceeds one half.
    """
    norms = CouplingNorms.of(coupling)
    row_norms = np.asarray(abs(coupling).sum(axis=1)).ravel()
    threshold = 4 * norms.spectral
    tail = (
        norms.spectral
        * float(row_norms[row_norms > threshold].sum())
        / float(norms.row_squares.sum())
    )
    if not math.isfinite(tail) or tail > 0.5:
        warn_caller(
            f"the largest row sum of |J|, {norms.row_norm:.3g}, is far above its norm, {norms.spectral:.3g}, and "
            "such nodes have much of the coupling: the theory does not promise that the estimate comes near beta. "
            "Remove the hubs, or normalize the couplings by degree; privacy does not depend on it.",
            ConsistencyWarning,
        )
