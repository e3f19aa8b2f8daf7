"""The result of a sampler."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

type Sampler = Literal["nutpie", "pymc"]

STATISTICS = (
    "diverging",
    "tree_depth",
    "reached_max_treedepth",
    "n_steps",
    "energy",
    "lp",
    "acceptance_rate",
    "step_size",
)
"""Statistics that both samplers report, by ArviZ's names."""


class Mixing(NamedTuple):
    """How chains have mixed; NaN where nothing varies, or nothing is known.

    Worst R-hat, smallest effective sample sizes of the bulk and of the tails, and the worst chain's E-BFMI.
    """

    r_hat: float
    bulk: float
    tail: float
    bfmi: float = math.nan


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Sampled:
    """The draws of a sampler after tuning.

    Parameters
    ----------
    draws
        Stored variables, each of shape (chain, draw, ...).
    statistics
        The sampler's statistics, by ArviZ's names, each of shape (chain, draw); ``lp`` at least.
    is_interrupted
        Whether fewer draws are here than were asked for.
    stats
        Numbers and text on the way: sampler and version, seconds to compile and to sample.
    mixing
        Worst R-hat and effective sample sizes of the judged variables, where they were looked at while sampling; as
        `diagnostics.mixing_of` has them.
    is_late
        Whether a limit in seconds stopped chains that were to go on.
    work
        Operations of all chains (`effort`), those of tuning among them.
    """

    draws: Mapping[str, np.ndarray]
    statistics: Mapping[str, np.ndarray]
    is_interrupted: bool
    stats: Mapping[str, Any]
    mixing: Mixing | None = None
    is_late: bool = False
    work: float = 0.0
