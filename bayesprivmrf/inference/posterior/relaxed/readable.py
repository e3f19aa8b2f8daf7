"""Latent counts of a PyMC model as one table a clique, for a reader who would extend it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pymc as pm

from bayesprivmrf.inference.posterior.measured import dimension_names, state_labels, table_name
from bayesprivmrf.model import ModelSpecification


def declare_tables(model: ModelSpecification, flat: Any) -> None:
    """Add ``counts[a,b]`` for every clique to the model in whose context this is called.

    Parameters
    ----------
    model
        The declared model; its variables become dims, its states coords. A name that the PyMC model already has gets
        an underscore.
    flat
        Symbolic counts of all cliques' cells, shape (size,).
    """
    context: Any = pm.modelcontext(None)
    names: Sequence[str] = _free_names(dimension_names(model.domain), set(context.named_vars))
    for position, name in enumerate(names):
        context.add_coord(name, state_labels(model.domain, position))
    for clique, scope in enumerate(model.scopes):
        table = flat[model.offsets[clique] : model.offsets[clique + 1]].reshape(model.shapes[clique])
        pm.Deterministic(table_name("counts", names, scope), table, dims=tuple(names[v] for v in scope))


def _free_names(names: Sequence[str], taken: set[str]) -> list[str]:
    free = list(names)
    for position, name in enumerate(names):
        while name in taken or name in free[:position] or name in free[position + 1 :]:
            name += "_"
        free[position] = name
    return free
