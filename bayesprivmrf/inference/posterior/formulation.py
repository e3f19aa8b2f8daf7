"""The interface of a way of writing the posterior, and how draws become marginals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from bayesprivmrf.inference.posterior.relaxed.density import Density
from bayesprivmrf.model.tables import FloatArray

if TYPE_CHECKING:
    import pymc as pm


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Finished:
    r"""Draws of everything a posterior speaks of, flat over the model's cliques (`evidence.specification`).

    Parameters
    ----------
    marginals
        μ, probabilities of the population, shape (chain, draw, cells); the cells of the model's cliques one
        clique after the other, each in C order.
    counts
        Latent true counts n of the same cells, records, shape (chain, draw, cells); a continuous relaxation of
        whole numbers.
    effects
        Potentials in the orthonormal zero-sum coordinates of `Effects`, shape (chain, draw, d).
    total
        N, records, shape (chain, draw); constant where it is public.
    scales
        Prior standard deviation of each effect, shape (chain, draw, scales); None for a prior
        without them.
    acceptance
        Acceptance probability of the steps that draw the population given the latent tables: their mean, or
        one for each draw; None where it is drawn exactly.
    unmoved
        Share of the draws in which none of those steps was accepted; None where it is not known.
    log_prior
        Log density of each part of the population's prior given its learned numbers, nats, shape (chain, draw):
        rows by their log-ratios, one part a clique, ``rows[a,b]``; or one part an effect, ``effects[a,b]``.
    learned
        Learned numbers of the prior, by name, shape (chain, draw), standardised: a priori of mean 0, variance 1.
    prior_fit
        Sum of all parts' log prior densities, standardised: given the learned numbers, of mean 0 and variance 1
        under the prior. Below 0 where the population is more uneven than the prior would have it.
    least
        Least value of each relaxed count, records, shape (cells,); None where whole numbers have their own shares.
    """

    marginals: FloatArray
    counts: FloatArray
    effects: FloatArray
    total: FloatArray
    scales: FloatArray | None = None
    acceptance: FloatArray | float | None = None
    unmoved: FloatArray | float | None = None
    log_prior: Mapping[str, FloatArray] = field(default_factory=dict)
    learned: Mapping[str, FloatArray] = field(default_factory=dict)
    prior_fit: FloatArray | None = None
    least: FloatArray | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of `LatentCounts`, which has their meaning, as the engines read them."""

    formulation: str
    concentration: float | None
    scale: float | None
    total_range: tuple[float, float]
    smoothing: float


class Formulation(Protocol):
    """The posterior of one evidence: its prior's settings, a PyMC model, and how its draws become marginals.

    Attributes
    ----------
    name
        ``"hyper-Dirichlet"``, ``"log-linear"`` or ``"exact"``.
    judged
        Variables on which convergence is judged: those that the sampler moves, in a form that the data
        identify, such as ``("counts", "total")``. Never the draws that `finish` adds, whose fresh independent
        noise looks better mixed than the chain is.
    hidden
        Latent numbers that `finish` needs besides, and nobody should read.
    settings
        The prior's settings, plain numbers and text, by name; they become `constant_data` and attributes.
    """

    @property
    def name(self) -> str:
        """Name of the formulation."""
        ...

    @property
    def judged(self) -> tuple[str, ...]:
        """Variables on which convergence is judged."""
        ...

    @property
    def hidden(self) -> tuple[str, ...]:
        """Variables that are stored for `finish` alone."""
        ...

    @property
    def settings(self) -> Mapping[str, Any]:
        """The prior's settings, by name."""
        ...

    @property
    def sparsity(self) -> float:
        """How far the formulation's approximation may be from its target; 0 where there is none worth the name."""
        ...

    def model(self) -> pm.Model:
        """A fresh PyMC model of this release, of the same density; noisy counts and scales are ``pm.Data``."""
        ...

    def finish(self, draws: Mapping[str, np.ndarray], rng: np.random.Generator) -> Finished:
        """Marginals, counts and effects of sampled draws.

        Parameters
        ----------
        draws
            The judged and hidden variables, each of shape (chain, draw, ...).
        rng
            Source of the draws that follow exactly from the sampled ones.
        """
        ...

    def prior_draws(self, size: int, rng: np.random.Generator) -> Finished:
        """Exact draws of the prior, shape (1, size, ...): μ, and the counts of a population of N records."""
        ...


class RelaxedFormulation(Formulation, Protocol):
    """A formulation with relaxed counts, which has a density that NUTS samples."""

    @property
    def acceptance(self) -> float:
        """Mean acceptance probability for which the sampler's step is tuned, unless the caller says otherwise."""
        ...

    @property
    def operations_a_gradient(self) -> float:
        """Operations of one evaluation of the density and its gradient (`effort`)."""
        ...

    @property
    def density(self) -> Density:
        """The compiled density, whose groups of latent numbers have the names of the variables."""
        ...
