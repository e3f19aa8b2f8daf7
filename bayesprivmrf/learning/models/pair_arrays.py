"""Zero-sum coordinates of a model of pairs as the arrays of `LearnedIsing` and of `LearnedPairwise`."""

from __future__ import annotations

import numpy as np

from bayesprivmrf.model.effects import Effects
from bayesprivmrf.model.tables import FloatArray

__all__ = ["ising_arrays", "pair_arrays", "pairwise_arrays"]


def pair_arrays(effects: Effects, coordinates: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return couplings and fields in an Ising model's form where all variables have two states, else in tables'.

    Parameters
    ----------
    effects
        Of pairs and of single variables.
    coordinates
        β, shape (d,), nats.
    """
    is_binary = all(states == 2 for states in effects.cardinalities)
    return (ising_arrays if is_binary else pairwise_arrays)(effects, coordinates)


def ising_arrays(effects: Effects, coordinates: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Couplings A and fields h: contrasts of two states are spins over the root of two."""
    p = len(effects.cardinalities)
    A, h = np.zeros((p, p)), np.zeros(p)
    for subset, beta in zip(effects.subsets, coordinates.tolist(), strict=True):
        if len(subset) == 1:
            h[subset] = beta / np.sqrt(2)
        else:
            A[subset] = A[subset[::-1]] = beta / 2
    return A, h


def pairwise_arrays(effects: Effects, coordinates: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Centred tables of all pairs in one matrix, and centred fields."""
    first = np.cumsum([0, *effects.cardinalities])
    W, theta = np.zeros((first[-1], first[-1])), np.zeros(first[-1])
    for subset, table in zip(effects.subsets, effects.tables(coordinates), strict=True):
        place = [slice(first[v], first[v + 1]) for v in subset]
        if len(subset) == 1:
            theta[place[0]] = table
        else:
            W[place[0], place[1]] = table
            W[place[1], place[0]] = table.T
    return W, theta
