r"""Coordinates in which the log-linear posterior is close to a standard normal at every scale of the prior.

Let x stack the coordinates θ' of the latent tables and, where N is private, its position on a logistic scale, all
less their values at a preliminary mode; F the information of the noise about x there, and p(τ) the prior precision
of each entry of x. With :math:`\hat p = p(\hat τ)` and the eigenvectors

.. math:: \hat P^{-1/2} F \hat P^{-1/2} = U Λ U'

the map from z to x is

.. math:: x = \hat P^{-1/2} U \Bigl[(Λ + r)^{-1} (Λ + 1)\, \hat u + (Λ + r)^{-1/2} z\Bigr],
          \qquad r_k(τ) = \exp \sum_i U_{ik}^2 \log \frac{p_i(τ)}{\hat p_i},

:math:`\hat u` being the mode in those coordinates. Were the noise's log-density quadratic, z would be standard
normal given τ for every τ that moves all precisions by one factor, and nearly so otherwise: where the tables say
nothing the map is non-centred, where they say much it is centred, direction by direction. The map is a change of
variables, whose Jacobian is taken into account, so it affects how fast the sampler is and not what it draws.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bayesprivmrf.model.tables import FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Whitening:
    r"""The numbers of the map.

    Parameters
    ----------
    basis
        :math:`\hat P^{-1/2} U`, shape (D, D); the diagonal alone, shape (D, 1), for a diagonal F.
    information
        Λ, shape (D,).
    shares
        Share of each group of entries (orders; the total last) in each direction, shape (D, groups).
    mode
        :math:`\hat u`, shape (D,).
    """

    basis: FloatArray
    information: FloatArray
    shares: FloatArray
    mode: FloatArray

    @classmethod
    def of(
        cls, information: FloatArray, precision: FloatArray, mode: FloatArray, groups: np.ndarray, count: int
    ) -> Whitening:
        """The map at a preliminary mode.

        Parameters
        ----------
        information
            F, shape (D, D), or its diagonal.
        precision
            Prior precision of each entry at the preliminary scales, shape (D,).
        mode
            The mode's x, shape (D,).
        groups
            Group of each entry, shape (D,), below `count`.
        count
            Number of groups.
        """
        root = np.sqrt(precision)
        member = np.eye(count)[groups]
        if information.ndim == 1:
            return cls(
                basis=1 / root[:, np.newaxis],
                information=information / precision,
                shares=member,
                mode=root * mode,
            )
        scaled = information / np.outer(root, root)
        values, vectors = np.linalg.eigh(0.5 * (scaled + scaled.T))
        return cls(
            basis=vectors / root[:, np.newaxis],
            information=np.maximum(values, 0.0),
            shares=(vectors**2).T @ member,
            mode=vectors.T @ (root * mode),
        )
