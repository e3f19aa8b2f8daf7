"""The released estimate of peer influence on one network, with all that is public about how it was made."""

from __future__ import annotations

import html
import os
from dataclasses import dataclass

from bayesprivmrf.errors import PrivacyError
from bayesprivmrf.network.ising import IsingNetwork
from bayesprivmrf.network.perturbed_score import PerturbedEstimator
from bayesprivmrf.privacy import PrivacyGuarantee
from bayesprivmrf.privacy.score_lattice import PerturbationConstants
from bayesprivmrf.release import Provenance

__all__ = ["NetworkEstimate"]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class NetworkEstimate:
    r"""One released number, the inverse temperature, beside public knowledge.

    Nothing in it but `inverse_temperature` depends on the outcomes. It is the root, on a public grid and held to the
    bounds, of

    .. math:: \sum_i m_i (s_i - \tanh(a m_i)) - \Delta a = N,

    with :math:`\Delta` and the law of N in `constants`, so its law at any beta can be simulated: see `estimator`.

    Parameters
    ----------
    inverse_temperature
        The private estimate of beta.
    network
        The public network.
    bounds
        Of beta, public; ``None`` where there are none but 0 from below.
    constants
        Split of the budget, Delta, law of the noise, grid.
    guarantee
        What is promised.
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

    def __post_init__(self) -> None:
        spent = self.constants.epsilon_noise + self.constants.epsilon_slope
        epsilon = self.guarantee.epsilon
        if epsilon is None or not spent <= epsilon * (1 + 1e-12):
            raise PrivacyError(
                "`guarantee` must cover the budget of `constants`, but promises less; state that of the mechanism."
            )

    @property
    def estimate(self) -> float:
        """The inverse temperature, by another name."""
        return self.inverse_temperature

    @property
    def is_exact(self) -> bool:
        """False: there is noise in every such estimate."""
        return False

    @property
    def at_bound(self) -> bool:
        """Whether the estimate is the first or last point of the grid: the root may lie beyond."""
        low = 0.0 if self.bounds is None else self.bounds[0]
        at_low = self.inverse_temperature - self.constants.grid < low
        return at_low or (
            self.bounds is not None and self.inverse_temperature + self.constants.grid > self.bounds[1]
        )

    def estimator(self) -> PerturbedEstimator:
        """Return the estimator itself, to be applied to simulated outcomes and noise."""
        return PerturbedEstimator.of(self.network.coupling, self.constants, self.bounds)

    def privacy_statement(self) -> str:
        """Sentence about privacy that can be pasted into a paper."""
        if self.provenance.simulated:
            return (
                "The noise of this release was drawn from a seeded generator for a simulation: "
                "it protects nobody and must not be published as a private release."
            )
        return self.guarantee.sentence() + " The network itself is public."

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the estimate and its public network to one file; `bayesprivmrf.load_release` reads it.

        Raises
        ------
        ReleaseFileError
            The path cannot be written, or holds another release and `overwrite` is False.
        """
        from bayesprivmrf.release_file import write_release

        write_release(self, path, overwrite=overwrite)

    def _facts(self) -> list[tuple[str, str]]:
        constants, n = self.constants, len(self.network)
        edge = ", at the edge of its range" if self.at_bound else ""
        bounds = "[0, inf)" if self.bounds is None else f"[{self.bounds[0]:g}, {self.bounds[1]:g}]"
        return [
            ("inverse temperature", f"{self.inverse_temperature:.6g}{edge}"),
            ("bounds", f"{bounds} on a grid of {constants.grid:.3g}"),
            ("network", f"{n:,} nodes, {self.network.coupling.nnz // 2:,} edges (public)"),
            ("mechanism", f"{self.provenance.mechanism}, {constants.calibration} calibration"),
            (
                "budget",
                f"epsilon {constants.epsilon_noise:.4g} for the noise, {constants.epsilon_slope:.4g} for the slope",
            ),
            ("score noise", f"{constants.noise.name}; sd {constants.noise_deviation:.4g}"),
            ("Delta", f"{constants.curvature:.4g}"),
            ("privacy", self.privacy_statement()),
        ]

    def __repr__(self) -> str:
        mark = " (SIMULATED: protects nobody)" if self.provenance.simulated else ""
        return "\n".join(
            [f"NetworkEstimate{mark}", *(f"  {name:<20} {value}" for name, value in self._facts())]
        )

    def _repr_html_(self) -> str:
        mark = " <strong>(simulated: protects nobody)</strong>" if self.provenance.simulated else ""
        rows = "".join(
            f"<tr><th style='text-align:left'>{html.escape(name)}</th>"
            f"<td style='text-align:left'>{html.escape(value)}</td></tr>"
            for name, value in self._facts()
        )
        return f"<div><strong>NetworkEstimate</strong>{mark}<table>{rows}</table></div>"
