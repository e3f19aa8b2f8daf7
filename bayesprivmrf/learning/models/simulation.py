"""Records drawn from a learnt model."""

from __future__ import annotations

import warnings
from numbers import Integral
from typing import TYPE_CHECKING

import numpy as np

from bayesprivmrf.chains.gibbs import gibbs_draws
from bayesprivmrf.errors import ArgumentError, ModelTooLargeError, SamplingWarning
from bayesprivmrf.marginals import sample as exact_draws
from bayesprivmrf.model.tables import label_array

if TYPE_CHECKING:
    import pandas as pd

    from bayesprivmrf.learning.models.base import LearnedNetwork

__all__ = ["sample", "simulated_codes", "warn_of_chains"]

_MEMORY = 1 << 26  # bytes of conditional tables up to which draws are exact


def simulated_codes(
    learned: LearnedNetwork, size: int, generator: np.random.Generator
) -> tuple[np.ndarray, bool]:
    """Return records as states' codes, shape (size, p), and whether they can be trusted.

    Draws are independent and exact where the tables of exact sampling take at most 64 MiB, else those of chains.
    """
    model = learned.specification
    cards, scopes, flat = model.cardinalities, model.scopes, learned.potentials.flat
    try:
        return exact_draws(cards, scopes, flat, size, generator, memory_limit=_MEMORY), True
    except ModelTooLargeError:
        draws = gibbs_draws(cards, scopes, flat, size, generator)
        return draws.codes, draws.mixing.trusted


def sample(learned: LearnedNetwork, size: int, rng: int | np.random.Generator | None) -> pd.DataFrame:
    """Return records with declared labels: see `LearnedNetwork.sample`."""
    import pandas as pd

    if isinstance(size, bool) or not isinstance(size, Integral) or size < 0:
        raise ArgumentError(f"`size` must be a whole number of records, at least 0, got {size!r}.")
    codes, is_trusted = simulated_codes(learned, int(size), np.random.default_rng(rng))
    if not is_trusted:
        warn_of_chains()
    domain = learned.domain
    columns = {v: label_array(domain, v)[codes[:, place]] for place, v in enumerate(domain.variables)}
    return pd.DataFrame(columns, columns=pd.Index(list(domain.variables), dtype=object))


def warn_of_chains() -> None:
    """Warn the caller's caller that records are not to be trusted."""
    warnings.warn(
        "the chains of the Gibbs sampler have not mixed: those that started at random and at one end still "
        "differ; distrust these records, as the learnt couplings are too strong for this sampler.",
        SamplingWarning,
        stacklevel=4,
    )
