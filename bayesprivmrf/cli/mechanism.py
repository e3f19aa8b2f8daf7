"""Mechanism that the options ask for."""

from __future__ import annotations

import argparse
import inspect
from typing import Any

from bayesprivmrf.errors import ArgumentError

__all__ = ["chosen_mechanism"]


def chosen_mechanism(options: argparse.Namespace) -> Any:
    """Mechanism of ``--mechanism``, ``--epsilon`` or ``--rho``, and ``--adjacency``; settings are checked by it."""
    from bayesprivmrf.mechanisms import StatisticsMechanism, available_mechanisms
    from bayesprivmrf.privacy import Adjacency

    name = options.mechanism or ("laplace" if options.rho is None else "gaussian")
    available = available_mechanisms()
    tables = sorted(key for key, kind in available.items() if issubclass(kind, StatisticsMechanism))
    if name not in available:
        raise ArgumentError(
            f"`--mechanism` must be one of {', '.join(tables)}, got {name!r}; another package's mechanism "
            "is found once that package is installed beside this one."
        )
    kind: Any = available[name]
    if name not in tables:
        # what another one releases may have no file format: that must not turn out after the budget is spent
        raise ArgumentError(
            f"`--mechanism` must be one of {', '.join(tables)}, which release the declared tables, got {name!r}; "
            "call it from Python."
        )
    known = set(inspect.signature(kind).parameters)
    budget = "epsilon" if options.rho is None else "rho"
    if budget not in known:
        other = "rho" if budget == "epsilon" else "epsilon"
        raise ArgumentError(f"the mechanism {name!r} takes no `--{budget}`; give it `--{other}` instead.")
    settings: dict[str, Any] = {budget: getattr(options, budget)}
    if "adjacency" in known:
        settings["adjacency"] = Adjacency(options.adjacency)
    elif options.adjacency != Adjacency.ADD_OR_REMOVE_ONE.value:
        raise ArgumentError(f"the mechanism {name!r} has no choice of `--adjacency`.")
    return kind(**settings)
