"""Released estimate of peer influence on one network, with the public facts about how it was made."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from pickle import PicklingError
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Self

import numpy as np
from scipy import sparse

from bayesprivmrf.checks import finite_pair, probability, require
from bayesprivmrf.errors import ArgumentError, PrivacyError
from bayesprivmrf.files import Json
from bayesprivmrf.inference.interval_frame import Mark, RowStatus, Status, interval_frame
from bayesprivmrf.network.estimate_law import EstimateLaw
from bayesprivmrf.network.ising import ExternalField, IsingNetwork
from bayesprivmrf.network.perturbed_score import PerturbedEstimator
from bayesprivmrf.noise.kernels import LAPLACE
from bayesprivmrf.privacy import PrivacyGuarantee
from bayesprivmrf.privacy.score_lattice import PerturbationConstants
from bayesprivmrf.release.base import Provenance, Released
from bayesprivmrf.release.codec import Fields, encoded, labels, numbers, upper_places
from bayesprivmrf.release.file import FIELD_VERSION

if TYPE_CHECKING:
    import pandas as pd


# relative rounding error of a sum of two budgets
_ROUNDING = 1e-12


class EstimateStatus(enum.StrEnum):
    """Position of a released estimate within its bounds."""

    INSIDE = "inside the bounds"
    """The root of the perturbed score lies inside the bounds; the estimate is the nearest point of the grid."""
    LOWER = "at the lower bound"
    """The root lies at or below the lower bound."""
    UPPER = "at the upper bound"
    """The root lies at or above the upper bound."""


def _digest(settings: Mapping[str, Any]) -> str | None:
    """Return a digest of settings; None for a value such as a function, which `EstimateLaw.of` refuses."""
    import joblib

    try:
        return joblib.hash(settings)
    except (PicklingError, TypeError, AttributeError):
        return None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class NetworkEstimate(Released):
    r"""Private estimate of the inverse temperature beta of one network, with the public facts about its release.

    `inverse_temperature` is the only field that depends on the outcomes. It is the root, rounded to a public grid and
    clipped to the bounds, of

    .. math:: \sum_i m_i (s_i - \tanh(a m_i)) - \Delta a = N.

    `constants` has :math:`\Delta` and the distribution of the noise N, so the distribution of the estimate at any
    beta can be simulated: see `law`. `interval` uses this distribution. `ObjectivePerturbation` describes how an
    external field changes the equation.

    Parameters
    ----------
    inverse_temperature
        The private estimate of beta.
    network
        The public network.
    bounds
        Public bounds of beta, or ``None`` for the range from 0 to infinity.
    constants
        Split of the budget, Delta, distribution of the noise, and spacing of the grid.
    guarantee
        Privacy guarantee of the release.
    provenance
        How the release was made.

    Raises
    ------
    PrivacyError
        The guarantee promises less privacy loss than the constants imply.

    Examples
    --------
    >>> from bayesprivmrf.mechanisms import ObjectivePerturbation
    >>> pairs = IsingNetwork.from_graph([(2 * k, 2 * k + 1) for k in range(50)])
    >>> estimate = ObjectivePerturbation(epsilon=5.0).release(pairs, [1, 1] * 30 + [1, -1] * 20, rng=1)
    >>> estimate.status
    <EstimateStatus.INSIDE: 'inside the bounds'>
    """

    inverse_temperature: float
    network: IsingNetwork
    bounds: tuple[float, float] | None
    constants: PerturbationConstants
    guarantee: PrivacyGuarantee
    provenance: Provenance

    kind = "network-estimate"
    _without_tables = "it is an estimate of one number, with an `interval()`"
    format_version = 2

    def __post_init__(self) -> None:
        spent = self.constants.epsilon_noise + self.constants.epsilon_slope
        epsilon = self.guarantee.epsilon
        unbounded = self.constants.noise.smooth is not LAPLACE and not self.guarantee.delta > 0
        covered = epsilon is not None and spent <= epsilon * (1 + _ROUNDING) and not unbounded
        must = "cover the budget of `constants`"
        require(
            covered,
            "guarantee",
            must,
            "less",
            "state the mechanism's guarantee",
            error=PrivacyError,
        )

    @property
    def estimate(self) -> float:
        """The estimate of beta: the same number as `inverse_temperature`."""
        return self.inverse_temperature

    @property
    def status(self) -> EstimateStatus:
        """Position of the estimate within the bounds.

        The estimate is at a bound if it is the first or last point of the grid. The root may then lie beyond it.
        """
        if self.bounds is None:
            low = 0.0
            high = np.inf
        else:
            low, high = self.bounds
        if self.inverse_temperature - self.constants.grid < low:
            return EstimateStatus.LOWER
        is_last = self.inverse_temperature + self.constants.grid > high
        if is_last:
            return EstimateStatus.UPPER
        return EstimateStatus.INSIDE

    @property
    def at_bound(self) -> bool:
        """True if the estimate is at one of the bounds."""
        return self.status is not EstimateStatus.INSIDE

    @property
    def problems(self) -> list[str]:
        """Problems of the estimate, one sentence each; empty where none is known."""
        if not self.at_bound:
            return []
        return [
            f"the estimate {self.inverse_temperature:.4g} is {self.status} of {self._range}, so the root lies "
            "there or beyond. If beta may lie beyond, choose wider `bounds` with both signs for another release, "
            "which spends its own budget; wide bounds add no noise."
        ]

    @property
    def assumptions(self) -> list[str]:
        """Assumptions of the estimate, one sentence each."""
        field = self.network.field
        without = (
            "no external field: outcomes are equally likely positive and negative without neighbors' influence; "
            "where they are not, even the sign may be wrong: see ExternalField.from_share"
        )
        return [
            "each outcome depends only on those of its neighbors, in proportion to the public couplings",
            without if field is None else field.sentence(),
        ]

    @property
    def _range(self) -> str:
        if self.bounds is None:
            return "[0, inf)"
        return f"[{self.bounds[0]:g}, {self.bounds[1]:g}]"

    def estimator(self) -> PerturbedEstimator:
        """Return the estimator, which can be applied to simulated outcomes and noise."""
        return PerturbedEstimator.of(
            self.network.coupling, self.constants, self.bounds, self.network.field
        )

    def law(self, rng: int | np.random.Generator | None = None, **settings: Any) -> EstimateLaw:
        """Return the simulated sampling distribution of the estimate at each beta of a grid.

        Most of the time goes into drawing outcomes: about a minute of one core for a network of 700 nodes with
        three neighbors each, with the default settings. A terminal or notebook shows a progress bar, and
        ``workers=-1`` uses all cores. The distribution does not depend on the value of the estimate, so one
        `EstimateLaw` serves many estimates of one network. It is kept for the next call; a call without settings
        returns it, whatever settings it was simulated with.

        Parameters
        ----------
        rng
            A seed or a generator. With None, the kept distribution is returned; if there is none, it is simulated
            with fresh randomness. A distribution simulated with a generator is returned again only for None.
        settings
            Settings of `EstimateLaw.simulate`, such as ``span``, ``configurations`` or ``cache``.
        """
        # these settings do not change the distribution
        passing = ("cache", "progress", "workers")
        deciding = {name: value for name, value in settings.items() if name not in passing}
        if isinstance(rng, Integral):
            seed = int(rng)
        else:
            seed = None
        for known_seed, known, kept in self._laws:
            has_seed = rng is None or (seed is not None and seed == known_seed)
            if has_seed and (not deciding or _digest(deciding) == known):
                return kept
        law = EstimateLaw.of(self, rng=rng, **settings)
        self._laws[:] = [(seed, _digest(deciding), law)]
        return law

    @cached_property
    def _laws(self) -> list[tuple[int | None, str | None, EstimateLaw]]:
        """The kept distribution, if any, with its seed and a digest of its settings."""
        return []

    def interval(
        self,
        prob: float = 0.9,
        law: EstimateLaw | None = None,
        rng: int | np.random.Generator | None = None,
        *,
        method: Literal["inversion"] = "inversion",
        **settings: Any,
    ) -> pd.DataFrame:
        """Return an interval for beta that accounts for the randomness of the outcomes and for the noise.

        It spends no budget. The first call without `law` simulates the distribution of the estimate; see the method
        `law` for the time that this takes.

        Parameters
        ----------
        prob
            Coverage, in (0, 1).
        law
            Simulated distribution of the estimate, from `EstimateLaw.of`. By default that of ``law(rng,
            **settings)``.
        rng, settings
            Generator and settings of the simulation, used if `law` is None.
        method
            ``"inversion"`` of tests: see `bayesprivmrf.network.intervals`.

        Returns
        -------
        pandas.DataFrame
            One row, ``beta``, with the columns ``estimate``, ``lower``, ``upper``, ``status``, ``note``. The status
            is ``"model"`` at best, because the distribution is simulated from the Ising model with the network's
            field. It is ``"doubtful"`` if the estimate is at a bound, if a limit is an end of the simulated span
            and the interval may extend beyond it, or if the simulation has not mixed at a beta of the interval. It
            is ``"not trusted"``, without limits, if no beta of the span makes this estimate likely.

        Raises
        ------
        ArgumentError
            An argument is out of range; or there are no bounds, and neither `law` nor ``span`` is given.
        """
        import pandas as pd

        from bayesprivmrf.network.intervals import interval

        if not (isinstance(method, str) and method == "inversion"):
            raise ArgumentError(
                f"`method` must be 'inversion', got {method!r}; leave it out. The parametric bootstrap, which covers "
                "beta too rarely, is only in benchmarks/network_intervals.py."
            )
        probability("prob", prob, zero=False, remedy="0.9 is for 90 %")
        if law is None:
            law = self.law(rng, **settings)
        else:
            must = "stand alone: settings must not be given together with `law`, which is simulated already"
            require(not settings, "law", must, ", ".join(settings), "leave out one of them")
            EstimateLaw.checked(law).value_of(self)
        found = interval(law, self.inverse_temperature, prob)
        # notes are short, so that the table fits a screen of 80 columns
        if self.network.field is None:
            which = "no"
        else:
            which = "this"
        marks = [Mark(RowStatus.MODEL, f"Ising model, {which} field")]
        if self.at_bound:
            marks.append(Mark(RowStatus.DOUBTFUL, f"estimate {self.status}"))
        if found.is_empty:
            marks.append(
                Mark(
                    RowStatus.NOT_TRUSTED,
                    "no beta of the simulated span makes this estimate likely",
                )
            )
        else:
            if found.open_below or found.open_above:
                marks.append(Mark(RowStatus.DOUBTFUL, "limit at the end of the span"))
            if not law.has_mixed(found.lower, found.upper):
                marks.append(Mark(RowStatus.DOUBTFUL, "simulation not mixed here"))
        return interval_frame(
            *(self.inverse_temperature, found.lower, found.upper),
            pd.Index(["beta"]),
            status=Status.CONVERGED,
            marks=marks,
            is_simulated=self.provenance.simulated,
        )

    @property
    def posterior(self) -> NoReturn:
        """Refuse: an estimate has an interval, and no posterior any more."""
        raise AttributeError("NetworkEstimate.posterior was removed; use `interval(prob=...)`.")

    def _promise(self, guarantee: PrivacyGuarantee) -> str:
        return guarantee.sentence() + " The network itself is public."

    def _facts(self) -> list[tuple[str, str]]:
        constants = self.constants
        n = len(self.network)
        if self.at_bound:
            bound = f", {self.status}: the root may lie beyond"
        else:
            bound = ""
        return [
            ("inverse temperature", f"{self.inverse_temperature:.6g}{bound}"),
            ("bounds", f"{self._range} on a grid of {constants.grid:.3g}"),
            ("network", f"{n:,} nodes, {self.network.coupling.nnz // 2:,} edges (public)"),
            ("rests on", "; ".join(self.assumptions)),
            ("mechanism", f"{self.provenance.mechanism}, {constants.calibration} calibration"),
            (
                "budget",
                f"epsilon {constants.epsilon_noise:.4g} for the noise, {constants.epsilon_slope:.4g} for the slope",
            ),
            ("score noise", f"{constants.noise.name}; sd {constants.noise_deviation:.4g}"),
            ("Delta", f"{constants.curvature:.4g}"),
            ("privacy", self.privacy_statement()),
        ]

    @property
    def _version(self) -> int:
        if self.network.field is None:
            return self.format_version
        return FIELD_VERSION

    def _content(self) -> dict[str, Json]:
        field = self.network.field
        entry: dict[str, Json] = {}
        if field is not None:
            entry["field"] = {"strength": field.strength, "center": field.center}
        return entry | {
            "inverse_temperature": self.inverse_temperature,
            "bounds": None if self.bounds is None else list(self.bounds),
            "constants": self.constants.as_dict(),
            "nodes": [encoded(node) for node in self.network.nodes],
        }

    def _array(self) -> np.ndarray:
        """Return the couplings above the diagonal, shape (3, edges): row, column, value."""
        upper = sparse.coo_array(sparse.triu(self.network.coupling, k=1))
        return np.stack([upper.coords[0].astype(float), upper.coords[1].astype(float), upper.data])

    @classmethod
    def _restored(cls, content: Fields, array: np.ndarray, **stamp: Any) -> Self:
        nodes = labels(content["nodes"])
        bounds = content["bounds"]
        constants = Fields(content["constants"])
        *places, values = numbers(array, (3, -1))
        rows, columns = upper_places(places, len(nodes))
        upper = sparse.coo_array((values, (rows, columns)), shape=(len(nodes), len(nodes)))
        field = None
        if "field" in content:
            stored = Fields(content["field"])
            field = ExternalField(stored.number("strength"), stored.number("center"))
        return cls(
            inverse_temperature=content.number("inverse_temperature"),
            network=IsingNetwork.from_matrix(upper + upper.T, nodes, field),
            bounds=None if bounds is None else finite_pair("bounds", bounds),
            constants=PerturbationConstants(
                calibration=constants.text("calibration", "tight", "paper"),
                noise=constants.law("noise"),
                pull=constants.whole("pull", 1),
                sensitivity=constants.whole("sensitivity", 1),
                **{
                    n: constants.positive(n)
                    for n in ("epsilon_noise", "epsilon_slope", "step", "grid")
                },
            ),
            **stamp,
        )
