"""The released estimate of peer influence on one network, with all that is public about how it was made."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from scipy import sparse

from bayesprivmrf.checks import finite_pair, probability
from bayesprivmrf.errors import ArgumentError, PrivacyError
from bayesprivmrf.inference.interval_frame import Mark, RowStatus, Status, interval_frame
from bayesprivmrf.network.estimate_law import EstimateLaw, checked_law
from bayesprivmrf.network.ising import ExternalField, IsingNetwork
from bayesprivmrf.network.perturbed_score import PerturbedEstimator
from bayesprivmrf.privacy import PrivacyGuarantee
from bayesprivmrf.privacy.score_lattice import PerturbationConstants
from bayesprivmrf.release.base import Provenance, Released
from bayesprivmrf.release.codec import Fields, encoded, labels, numbers, upper_places
from bayesprivmrf.release.file import FIELD_VERSION

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

# Assumption of an estimate without an external field
_NO_FIELD = (
    "no external field: outcomes are equally likely positive and negative without neighbors' influence; "
    "where they are not, even the sign may be wrong: see ExternalField.from_share"
)
_PASSING = ("cache", "progress", "workers")  # settings of a simulation that do not change its law


class EstimateStatus(enum.StrEnum):
    """Position of a released estimate within its bounds."""

    INSIDE = "inside the bounds"
    """The estimate is the root of the perturbed score, to the nearest point of the grid."""
    LOWER = "at the lower bound"
    """The root is the lower bound or lies below it."""
    UPPER = "at the upper bound"
    """The root is the upper bound or lies above it."""


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class NetworkEstimate(Released):
    r"""One released number, the inverse temperature, beside public knowledge.

    Nothing in it but `inverse_temperature` depends on the outcomes. It is the root, on a public grid and held to the
    bounds, of

    .. math:: \sum_i m_i (s_i - \tanh(a m_i)) - \Delta a = N,

    with :math:`\Delta` and the law of N in `constants`, so its law at any beta can be simulated: see `estimator`.
    `ObjectivePerturbation` says how an external field of the network changes this equation.

    Parameters
    ----------
    inverse_temperature
        The private estimate of beta.
    network
        The public network.
    bounds
        Public bounds of beta; ``None`` where the only bound is 0 from below.
    constants
        Split of the budget, Delta, law of the noise, grid.
    guarantee
        The promise of the release.
    provenance
        How the release was made.

    Raises
    ------
    PrivacyError
        The guarantee promises less loss than the constants have.
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
        unbounded = self.constants.noise.kernel != "absolute" and not self.guarantee.delta > 0
        if epsilon is None or not spent <= epsilon * (1 + 1e-12) or unbounded:
            raise PrivacyError(
                "`guarantee` must cover the budget of `constants`, but promises less; state that of the mechanism."
            )

    @property
    def estimate(self) -> float:
        """The inverse temperature, by another name."""
        return self.inverse_temperature

    @property
    def status(self) -> EstimateStatus:
        """True if the estimate is the first or last point of the grid, so that the root may lie beyond."""
        low, high = (0.0, np.inf) if self.bounds is None else self.bounds
        if self.inverse_temperature - self.constants.grid < low:
            return EstimateStatus.LOWER
        is_last = self.inverse_temperature + self.constants.grid > high
        return EstimateStatus.UPPER if is_last else EstimateStatus.INSIDE

    @property
    def at_bound(self) -> bool:
        """True if the `status` is that of a bound."""
        return self.status is not EstimateStatus.INSIDE

    @property
    def problems(self) -> list[str]:
        """Problems of the estimate, one sentence each; empty where none is known."""
        if not self.at_bound:
            return []
        return [
            f"the estimate {self.inverse_temperature:.4g} is {self.status} of {self._range}: the root lies there or "
            "beyond, and this release cannot tell where. If beta may lie beyond, choose wider `bounds`, of both "
            "signs, before another release, which costs its own budget; wide bounds add no noise."
        ]

    @property
    def assumptions(self) -> list[str]:
        """Assumptions of the estimate, one sentence each."""
        field = self.network.field
        return [
            "each outcome depends only on those of its neighbors, in proportion to the public couplings",
            _NO_FIELD if field is None else field.sentence(),
        ]

    @property
    def _range(self) -> str:
        return "[0, inf)" if self.bounds is None else f"[{self.bounds[0]:g}, {self.bounds[1]:g}]"

    def estimator(self) -> PerturbedEstimator:
        """Return the estimator itself, to be applied to simulated outcomes and noise."""
        return PerturbedEstimator.of(self.network.coupling, self.constants, self.bounds, self.network.field)

    def law(self, rng: int | np.random.Generator | None = None, **settings: Any) -> EstimateLaw:
        """Return the simulated law of such an estimate at each beta of a grid, and keep it for the next call.

        Most of the work is drawing outcomes. With the default settings it takes about 6 seconds of one core on a
        network of 200 nodes with three neighbors each, and a minute on 700 nodes. A terminal or notebook shows a
        progress bar, and ``workers=-1`` shares the work among all cores. The distribution does not depend on the
        value of the estimate, so that one `EstimateLaw.of` serves many estimates of one network. Without settings,
        a distribution that was simulated before is returned, whatever its settings.

        Parameters
        ----------
        rng
            A seed, a generator, or None for whatever law is kept, or fresh randomness if none is. A law made from a
            generator is kept for None alone.
        settings
            Those of `EstimateLaw.simulate`, such as ``span``, ``configurations``, ``cache``.
        """
        lasting = {name: value for name, value in settings.items() if name not in _PASSING}
        seed = int(rng) if isinstance(rng, Integral) else None
        for known_seed, known, kept in self._laws:
            if (rng is None or (seed is not None and seed == known_seed)) and (
                not lasting or _same(lasting, known)
            ):
                return kept
        law = EstimateLaw.of(self, rng=rng, **settings)
        self._laws[:] = [(seed, lasting, law)]
        return law

    @cached_property
    def _laws(self) -> list[tuple[int | None, dict[str, Any], EstimateLaw]]:
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
        """Return an interval for beta that knows the outcomes' randomness and the noise; it spends no budget.

        The first call without a law simulates one, which takes as long as `law` says.

        Parameters
        ----------
        prob
            Coverage, in (0, 1).
        law
            Made by `EstimateLaw.of`; by default `law(rng, **settings)`.
        rng, settings
            Generator and settings of the simulation, used where `law` is None.
        method
            ``"inversion"`` of tests: see `bayesprivmrf.network.intervals`.

        Returns
        -------
        pandas.DataFrame
            One row, ``beta``, with the columns ``estimate``, ``lower``, ``upper``, ``status``, ``note``. Its status
            is ``"model"`` at best: the distribution is simulated from the Ising model, with the field of the network.
            It is ``"doubtful"`` where the estimate is a bound, or where a limit is the end of the simulated span, so
            that the interval may extend beyond. It is ``"not trusted"``, without limits, where no beta of the span
            makes this estimate likely.

        Raises
        ------
        ArgumentError
            An argument is out of range; there are no bounds and neither a law nor a ``span`` is given.
        """
        import pandas as pd

        from bayesprivmrf.network.intervals import interval

        if not (isinstance(method, str) and method == "inversion"):
            raise ArgumentError(
                f"`method` must be 'inversion', got {method!r}; the parametric bootstrap, which misses beta too "
                "often, is in benchmarks/network_intervals.py alone."
            )
        probability("prob", prob, zero=False, remedy="0.9 is for 90 %")
        law = self._own(law, rng, settings)
        found = interval(law, self.inverse_temperature, prob)
        # short notes: a table of one row shows its numbers on a screen of 80 columns
        told = "no" if self.network.field is None else "this"
        marks = [Mark(RowStatus.MODEL, f"Ising model, {told} field")]
        if self.at_bound:
            marks.append(Mark(RowStatus.DOUBTFUL, f"estimate {self.status}"))
        if found.is_empty:
            marks.append(
                Mark(RowStatus.NOT_TRUSTED, "no beta of the simulated span makes this estimate likely")
            )
        elif found.open_below or found.open_above:
            marks.append(Mark(RowStatus.DOUBTFUL, "limit at the end of the span"))
        return interval_frame(
            *(self.inverse_temperature, found.lower, found.upper),
            pd.Index(["beta"]),
            status=Status.CONVERGED,
            marks=marks,
            is_simulated=self.provenance.simulated,
        )

    def posterior(
        self,
        prior: Any = None,
        law: EstimateLaw | None = None,
        rng: int | np.random.Generator | None = None,
        *,
        chains: int = 4,
        draws: int = 1000,
        **settings: Any,
    ) -> xr.DataTree:
        """Return the posterior of beta given the estimate, as an ArviZ tree; it spends no budget.

        The first call without a law simulates one, which takes as long as `law` says.

        Parameters
        ----------
        prior
            None for a uniform one, a frozen SciPy distribution, or a log density.
        law
            Made by `EstimateLaw.of`; by default `law(rng, **settings)`.
        rng
            Generator of the draws, and of the simulation where `law` is None and no law is kept.
        chains, draws
            Shape of the independent draws.
        settings
            Settings of the simulation, used where `law` is None.

        Raises
        ------
        ArgumentError
            `interval` would raise the same; or the prior is not usable.
        """
        from bayesprivmrf.network.beta_posterior import posterior

        law = self._own(law, None if self._laws and not settings else rng, settings)
        tree = posterior(law, self.inverse_temperature, prior, chains=chains, draws=draws, rng=rng)
        public = {"noise_deviation": self.constants.noise_deviation, "curvature": self.constants.curvature}
        tree["constant_data"].dataset = tree["constant_data"].to_dataset().assign(public)
        tree.attrs |= {"privacy": self.privacy_statement(), "simulated": int(self.provenance.simulated)}
        return tree

    def _own(self, law: EstimateLaw | None, rng: Any, settings: dict[str, Any]) -> EstimateLaw:
        """Return the given law, after a check that it is this release's, or else the simulated one."""
        if law is None:
            return self.law(rng, **settings)
        if settings:
            raise ArgumentError(
                f"settings of a simulation ({', '.join(settings)}) must come without `law`, which is simulated "
                "already; leave out the one or the other."
            )
        checked_law(law).value_of(self)
        return law

    def _promise(self, guarantee: PrivacyGuarantee) -> str:
        return guarantee.sentence() + " The network itself is public."

    def _facts(self) -> list[tuple[str, str]]:
        constants, n = self.constants, len(self.network)
        edge = f", {self.status}: the root may lie beyond" if self.at_bound else ""
        return [
            ("inverse temperature", f"{self.inverse_temperature:.6g}{edge}"),
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
        return self.format_version if self.network.field is None else FIELD_VERSION

    def _content(self) -> dict[str, Any]:
        field = self.network.field
        told = {} if field is None else {"field": {"strength": field.strength, "center": field.center}}
        return told | {
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
        nodes, bounds, constants = labels(content["nodes"]), content["bounds"], Fields(content["constants"])
        *places, values = numbers(array, (3, -1))
        rows, columns = upper_places(places, len(nodes))
        upper = sparse.coo_array((values, (rows, columns)), shape=(len(nodes), len(nodes)))
        told = Fields(content["field"]) if "field" in content else None
        field = None if told is None else ExternalField(told.number("strength"), told.number("center"))
        return cls(
            inverse_temperature=content.number("inverse_temperature"),
            network=IsingNetwork.from_matrix(upper + upper.T, nodes, field),
            bounds=None if bounds is None else finite_pair("bounds", bounds),
            constants=PerturbationConstants(
                calibration=constants.text("calibration", "tight", "paper"),
                noise=constants.law("noise"),
                pull=constants.whole("pull", 1),
                sensitivity=constants.whole("sensitivity", 1),
                **{n: constants.positive(n) for n in ("epsilon_noise", "epsilon_slope", "step", "grid")},
            ),
            **stamp,
        )


def _same(settings: dict[str, Any], known: dict[str, Any]) -> bool:
    """Return True if both simulations have the same settings; arrays are compared entry by entry."""
    try:
        return settings.keys() == known.keys() and all(np.array_equal(settings[k], known[k]) for k in known)
    except (TypeError, ValueError):  # what cannot be compared is no setting that was simulated
        return False
