"""The strength of peer influence on one network, by perturbing the pseudo-likelihood's score."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np

from bayesprivmrf.checks import finite_pair, one_of, positive_finite, probability, truth
from bayesprivmrf.errors import ArgumentError, ConsistencyWarning, ModelError
from bayesprivmrf.mechanisms.base import Mechanism, Stamp
from bayesprivmrf.mechanisms.noise_warning import warn_without_raising
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
UNIT = "node's outcome"
_TAIL_FIELD = 4.0  # in norms of J; the theory asks that fields beyond some constant hardly matter
_TAIL_SHARE = 0.5  # of the score's slope at 0: from here on the truncated tail is not small beside it


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class PerturbationPlan:
    """Everything public about a release: the network and the estimator on it."""

    network: IsingNetwork
    estimator: PerturbedEstimator


@final
@dataclass(frozen=True, kw_only=True)
class ObjectivePerturbation(Mechanism["IsingNetwork", PerturbationPlan, "PerturbedScore", "NetworkEstimate"]):
    r"""Release the inverse temperature of an Ising model on a public network; one node's outcome is the unit.

    The estimate is the root of :math:`\sum_i m_i (s_i - \tanh(a m_i)) - \Delta a = N` with local fields
    :math:`m_i = \sum_j J_{ij} s_j` and noise N, on a public grid. A root below the bounds gives the lower bound, one
    above gives the upper bound, and the release says so. The network, J and the network's external field, if it has
    one, are public; the promise is for the outcomes, whatever distribution they follow. With a field,
    :math:`a m_i + h` stands for :math:`a m_i`, and :math:`\sum_j J_{ij} (s_j - c)` for :math:`m_i`.

    Every node has an outcome: a missing one is refused, because who lacks one is part of the data. Where it is
    public, release on `IsingNetwork.subnetwork`, whose docstring says why the proof holds there and what is
    estimated.

    Parameters
    ----------
    epsilon
        Budget, nats, positive.
    delta
        0 for Laplace noise and a pure promise; positive for Gaussian noise, which is the worse of the two at almost
        any budget, because there is one number to release. At most 1/n unless `allow_large_delta`.
    calibration
        ``"tight"``: the smallest constants that are proved, at most :math:`|S - S'| \le (4 + 2u^*) \max_j D_j` with
        :math:`u^* \tanh u^* = 1`, and the budget shared by `split_budget`. ``"paper"``: Algorithm 1 to the letter,
        8 in place of 6.399, :math:`\Delta = (24/\epsilon) \max_j \sum_i |J_{ij}| D_i`, halves of the budget.
    bounds
        Public bounds of beta, by default (-5, 5). Negative values stand for neighbors who push each other apart.
        The noise does not depend on the bounds, so wide bounds cost no budget. ``None`` means [0, inf).
    positive, negative
        The two states of an outcome, by default the numbers 1 and -1; which is which does not change the estimate
        unless the network has an external field.
    allow_large_delta
        Says that a delta above 1/n is meant: it allows a mechanism that shows somebody's outcome outright.

    Raises
    ------
    ArgumentError
        A setting is out of range; at release, delta is above 1/n, the bounds hold no two points of the grid or
        reach farther than it is exact, or the paper's calibration meets an external field.
    ModelError
        The network is no `IsingNetwork`, or its couplings are so small or so large that their squares
        are not accurate in double precision; raised at release.

    Warns
    -----
    ConsistencyWarning
        Much of the network's coupling lies in nodes whose local field can be far above the norm
        of J; warned at release. The theory then does not say that the estimate comes near beta, however large
        the network. Privacy does not depend on it. Also if the released estimate is a bound: the root may lie beyond.

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
        """Simulate what `release` would give at each beta of a grid, before any data is read or budget spent.

        The distribution shows what a budget buys, and later serves the release for intervals and posteriors.

        Parameters
        ----------
        network
            The public network.
        settings
            Those of `EstimateLaw.simulate`, such as ``span``, ``configurations``, ``rng``, ``cache``.

        Raises
        ------
        ArgumentError, ModelError
            A release would raise the same; or a setting of the simulation is out of range.
        """
        from bayesprivmrf.network.estimate_law import EstimateLaw

        plan = self._prepare(network)
        return EstimateLaw.simulate(plan.network, plan.estimator.constants, self.bounds, **settings)

    def preview(self, network: IsingNetwork, total: float | None = None) -> pd.DataFrame:
        r"""Tell the noise and the slope of a release, before any data is read or budget spent.

        Parameters
        ----------
        network
            The public network.
        total
            Ignored: there is one outcome a node.

        Returns
        -------
        DataFrame
            Two rows, ``noise`` and ``slope``. ``epsilon``: the two parts of the budget. ``size``: the standard
            deviation of the noise on the score, and Delta, in units of the score and of score over beta. ``on_beta``:
            what they do near beta = 0, where the score's own slope is about :math:`\|J\|_F^2`; the standard deviation
            that the noise gives the estimate, and the share of beta that Delta takes away. `law` tells it at other
            values of beta, by simulation.

        Raises
        ------
        ArgumentError, ModelError
            `release` would raise the same before it reads anything.
        """
        import pandas as pd

        plan = self._prepare(network)
        known, own = plan.estimator.constants, float(plan.network.coupling.power(2).sum())
        size = [known.noise_deviation, known.curvature]
        return pd.DataFrame(
            {
                "step": ["noise", "slope"],
                "epsilon": [known.epsilon_noise, known.epsilon_slope],
                "size": size,
                "on_beta": [each / (own + known.curvature) for each in size],
            }
        )

    def _prepare(self, network: IsingNetwork) -> PerturbationPlan:
        from bayesprivmrf.network import PerturbedEstimator
        from bayesprivmrf.network.ising import IsingNetwork

        if not isinstance(network, IsingNetwork):
            raise ModelError(
                f"`network` must be an IsingNetwork, got {type(network).__name__}; make one with "
                "IsingNetwork.from_graph, which takes graphs of networkx and pgmpy, edge tables and matrices."
            )
        nodes = len(network)
        if self.delta * nodes > 1 and not self.allow_large_delta:
            raise ArgumentError(
                f"`delta` must be at most 1/n = {1 / nodes:.3g} for {nodes} nodes, got {self.delta!r}: above it, "
                "showing one outcome outright would be allowed; choose 0, or say `allow_large_delta=True`."
            )
        constants = perturbation_constants(
            network.coupling, self.epsilon, self.delta, self.calibration, network.field
        )
        _warn_of_heavy_tails(network.coupling)
        return PerturbationPlan(
            network=network,
            estimator=PerturbedEstimator.of(network.coupling, constants, self.bounds, network.field),
        )

    def _guarantee(self, plan: PerturbationPlan) -> PrivacyGuarantee:
        return PrivacyGuarantee(
            epsilon=self.epsilon, delta=self.delta, adjacency=Adjacency.REPLACE_ONE, unit=UNIT
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

    The condition is :math:`E \sum_i |m_i| 1\{|m_i| > K\} = o(a_n)` for large K. Nobody knows the distribution of the
    fields, but :math:`|m_i| \le D_i`, and at beta = 0 :math:`a_n` is of the size of :math:`\|J\|_F^2`; with J in
    units of its norm :math:`\lambda`, the bound :math:`\lambda \sum_i D_i 1\{D_i > 4 \lambda\} / \|J\|_F^2` is a
    function of J alone.
    """
    norms = CouplingNorms.of(coupling)
    row_norms = np.asarray(abs(coupling).sum(axis=1)).ravel()
    threshold = _TAIL_FIELD * norms.spectral
    tail = norms.spectral * float(row_norms[row_norms > threshold].sum()) / float(norms.row_squares.sum())
    if not math.isfinite(tail) or tail > _TAIL_SHARE:
        warnings.warn(
            f"the largest row sum of |J|, {norms.row_norm:.3g}, is far above its norm, {norms.spectral:.3g}, and "
            "such nodes are much of the network: the theory does not promise that the estimate comes near beta. Drop "
            "the hubs, or normalize the couplings by degree; privacy holds all the same.",
            ConsistencyWarning,
            stacklevel=4,
        )
