r"""Coordinates of the sampler in which a log-linear posterior with relaxed counts is nearly standard normal.

Let x stack the coordinates θ' of the latent tables and, if N is private, its position on a logistic scale, relative
to the preliminary estimate of N. Let F be the information about x in the noisy numbers at the preliminary mode
:math:`\hat x`, and p(τ) the prior precision of each entry of x. A block b is a run of entries with one scale, so all
its prior precisions change by one factor, :math:`r_b(τ) = p_b(τ) / p_b(\hat τ)`. With :math:`\hat p = p(\hat τ)`, let

.. math:: \hat P^{-1/2} F \hat P^{-1/2} + I = R'R

with R upper triangular, and let the blocks on the diagonal of this matrix be :math:`U_b (Λ_b + I) U_b'` by their
eigenvalues. With the block-diagonal matrices U and Λ, the map from z to x is

.. math:: x = \hat P^{-1/2} U \bigl[(Λ + r)^{-1} (Λ + 1)\, \hat u + (Λ + r)^{-1/2} K z\bigr],
          \qquad K = (Λ + 1)^{1/2} U' R^{-1} V, \qquad \hat u = U' \hat P^{1/2} \hat x.

V is block-diagonal and orthogonal, and makes the diagonal blocks of K symmetric. At r = 1 the covariance of x is
:math:`(F + \hat P)^{-1}`: if the log density of the noise were quadratic, z would be standard normal at the
preliminary scales. Each block is non-centered in directions about which the tables say nothing, and centered where
they say much. K is block-triangular. Effects far apart in a model are nearly independent; the blocks of K - I with a
norm below 0.2 are left out, which shortens the products and leaves z nearly as normal. The map is a change of
variables whose Jacobian is included in the density, so it changes the speed of the sampler and not its distribution.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from bayesprivmrf.compiled import INNER
from bayesprivmrf.model.tables import FloatArray, IntArray

# Frobenius norm from which a block of K - I is kept. On the survey at epsilon 0.1 to 10 a draw takes as many steps as
# with all eigenvectors, and 62 % of the entries are dropped at epsilon 1
_LEAST_NORM = 0.2
# the terms of a sum may be added in any order, so several at once
ANY_ORDER: Any = {"reassoc", "contract", "nsz"}


class Blocks(NamedTuple):
    """Matrix that is zero outside some rectangular blocks.

    Parameters
    ----------
    places
        First row, end of the rows, first column and end of the columns of each block, one block after the other.
    entries
        Entries of the blocks, row by row.
    """

    places: IntArray
    entries: FloatArray

    @classmethod
    def of(cls, matrix: FloatArray, places: Sequence[Sequence[int]]) -> Blocks:
        """Return the blocks of a matrix at given places."""
        parts = [matrix[top:bottom, left:right].ravel() for top, bottom, left, right in places]
        return cls(np.array(places, dtype=np.int64).ravel(), np.concatenate([np.zeros(0), *parts]))

    @classmethod
    def whole(cls, matrix: FloatArray) -> Blocks:
        """Return a matrix as one block."""
        return cls.of(matrix, [(0, matrix.shape[0], 0, matrix.shape[1])])


@njit(nogil=True, fastmath=ANY_ORDER, **INNER)
def add_product(matrix, vector, result):
    """Add the product of a matrix, two arrays as in `Blocks`, and a vector to the result."""
    places, entries = matrix
    at = 0
    for b in range(0, places.size, 4):
        top = places[b]
        bottom = places[b + 1]
        part = vector[places[b + 2] : places[b + 3]]
        width = part.size
        rest = (bottom - top) % 4
        # four rows at a time, so that the vector is read once for all four
        for i in range(top, bottom - rest, 4):
            one = entries[at : at + width]
            two = entries[at + width : at + 2 * width]
            three = entries[at + 2 * width : at + 3 * width]
            four = entries[at + 3 * width : at + 4 * width]
            first = second = third = fourth = 0.0
            for j in range(width):
                first += one[j] * part[j]
                second += two[j] * part[j]
                third += three[j] * part[j]
                fourth += four[j] * part[j]
            result[i] += first
            result[i + 1] += second
            result[i + 2] += third
            result[i + 3] += fourth
            at += 4 * width
        for i in range(bottom - rest, bottom):
            row = entries[at : at + width]
            total = 0.0
            for j in range(width):
                total += row[j] * part[j]
            result[i] += total
            at += width


@dataclass(frozen=True, slots=True, eq=False)
class BlockWhitening:
    r"""The map of this module at a preliminary mode.

    Parameters
    ----------
    basis, transposed_basis
        :math:`\hat P^{-1/2} U`, shape (D, D), and its transpose.
    mixing, transposed_mixing
        K - I, shape (D, D), and its transpose.
    information
        Λ, shape (D,).
    pulled
        :math:`(Λ + 1) \hat u`, shape (D,).
    """

    basis: Blocks
    transposed_basis: Blocks
    mixing: Blocks
    transposed_mixing: Blocks
    information: FloatArray
    pulled: FloatArray

    @classmethod
    def of(
        cls, information: FloatArray, precision: FloatArray, mode: FloatArray, groups: IntArray
    ) -> BlockWhitening:
        """Return the map.

        Parameters
        ----------
        information
            F, shape (D, D), or its diagonal.
        precision
            Prior precision of each entry at the preliminary scales, shape (D,).
        mode
            x at the mode, shape (D,).
        groups
            Scale of each entry, shape (D,).
        """
        root = np.sqrt(precision)
        size = precision.size
        if information.ndim == 1:
            places = [(k, k + 1, k, k + 1) for k in range(size)]
            basis = Blocks(np.array(places, dtype=np.int64).ravel(), 1 / root)
            none = Blocks(np.zeros(0, dtype=np.int64), np.zeros(0))
            known = information / precision
            pulled = (known + 1) * root * mode
            return cls(basis, basis, none, none, information=known, pulled=pulled)
        scaled = information / np.outer(root, root)
        values, vectors = np.linalg.eigh(0.5 * (scaled + scaled.T))
        # F has no negative eigenvalue, but its rounding errors may be larger than I
        factor = np.linalg.qr(
            np.sqrt(np.maximum(values, 0.0) + 1)[:, np.newaxis] * vectors.T, mode="r"
        )
        starts = np.flatnonzero(np.diff(groups, prepend=-1))
        bounds = [*starts.tolist(), size]
        inside, turn, strength = _diagonal_parts(factor, bounds)
        mixing = strength[:, np.newaxis] * (inside.T @ np.linalg.solve(factor, turn)) - np.eye(size)
        basis = inside / root[:, np.newaxis]
        diagonal = [(start, end, start, end) for start, end in pairwise(bounds)]
        return cls(
            Blocks.of(basis, diagonal),
            Blocks.of(basis.T, diagonal),
            Blocks.of(mixing, _strong_blocks(mixing, bounds)),
            Blocks.of(mixing.T, _strong_blocks(mixing.T, bounds)),
            information=np.maximum(strength**2 - 1, 0.0),
            pulled=strength**2 * (inside.T @ (root * mode)),
        )


def _diagonal_parts(
    factor: FloatArray, bounds: Sequence[int]
) -> tuple[FloatArray, FloatArray, FloatArray]:
    r"""Return U, V and :math:`(Λ + 1)^{1/2}`, given R and the ends of the blocks."""
    inside = np.zeros_like(factor)
    turn = np.zeros_like(factor)
    strength = np.ones(len(factor))
    for start, end in pairwise(bounds):
        own = slice(start, end)
        # R'R on the diagonal block, by the singular values of the columns of R
        _, strength[own], right = np.linalg.svd(factor[:end, own], full_matrices=False)
        inside[own, own] = right.T
        # V is the rotation in the polar decomposition that makes the diagonal block of K symmetric
        left, _, right = np.linalg.svd(
            (strength[own] * inside[own, own]).T @ np.linalg.inv(factor[own, own])
        )
        turn[own, own] = (left @ right).T
    return inside, turn, strength


def _strong_blocks(matrix: FloatArray, bounds: Sequence[int]) -> list[tuple[int, int, int, int]]:
    """Return the places of the blocks that are not negligible; neighbors in a row are joined."""
    starts = np.array(bounds[:-1], dtype=np.int64)
    squares = np.add.reduceat(np.add.reduceat(matrix**2, starts, axis=0), starts, axis=1)
    is_strong = squares > _LEAST_NORM**2
    places = []
    for row, marks in enumerate(is_strong):
        # where a run of strong blocks begins, and where it ends
        turns = np.flatnonzero(np.diff(marks, prepend=False, append=False))
        for first, last in turns.reshape(-1, 2).tolist():
            places.append((bounds[row], bounds[row + 1], bounds[first], bounds[last]))
    return places
