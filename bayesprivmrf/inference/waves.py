r"""Waves of a survey as one population, whose model has one variable more.

**Waves of a survey** are releases of different people that share one model. Wave w holds :math:`N_w` people, drawn
from :math:`p_θ`, and says :math:`y_w = A_w n_w + η_w` of their tables alone.
The likelihood is the product over waves,

.. math:: \prod_w \sum_{n_w} p(n_w \mid θ, N_w)\, p(y_w \mid n_w).

**One population with a variable more.** Let w be a variable that every clique holds and that interacts with none:
:math:`p(w, x) = π_w\, p_θ(x)`. Of :math:`N = \sum_w N_w` records of that model, given how many are of each wave,
those of a wave are :math:`N_w` draws from :math:`p_θ`, apart from the others': the product above. The tables of the
cliques :math:`\{w\} ∪ C` are the waves' tables :math:`n_w` side by side, each release a query of them, and θ is
:math:`B β` without the effects of w beside its own. So every estimator that takes restricted potentials takes waves:

- the naive one matches :math:`\sum_w N_w \tilde μ_w / N` and the waves' shares :math:`N_w / N`, each wave's tables
  fitted by least squares;
- CGM has a dual :math:`g_w` of each wave and one M-step, in which the sums of the waves' expected tables are matched;
- the noise-aware mode has means :math:`N π_w μ(θ)`;
- the posterior moves records, each of them in one wave.

The shares π are parameters, of a normal prior whose scale is learned, so that given N no :math:`N_w` is preferred. A
public :math:`N_w` is an answer without noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bayesprivmrf.errors import ArgumentError, ModelError
from bayesprivmrf.inference.evidence import EvidenceParts
from bayesprivmrf.model import Domain, ModelSpecification
from bayesprivmrf.model.tables import FloatArray
from bayesprivmrf.queries import BoundQuery
from bayesprivmrf.queries.query import Query, one_per_column
from bayesprivmrf.release import NoisyStatistics

# Name of the variable; its states are 1, 2, ... in the order of the releases
WAVE = "wave"


@dataclass(frozen=True, slots=True)
class _OfWave(Query):
    """Query of one wave; without a query, the numbers of records of some waves."""

    query: Query | None
    waves: tuple[int, ...]

    def __repr__(self) -> str:
        return f"{self.query or 'number of records'} of wave {', '.join(map(str, self.waves))}"

    def _bind(self, model: ModelSpecification) -> BoundQuery:
        raise NotImplementedError("a wave's query is made on the model of all waves alone")

    def _labels(self, model: ModelSpecification) -> tuple[str, ...]:
        names = tuple(f"{WAVE}={wave}" for wave in self.waves)
        if self.query is None:
            return names
        return tuple(f"{names[0]}, {s}" for s in self.query._labels(model))

    def _total_weights(self, bound: BoundQuery) -> FloatArray | None:
        return None


def of_waves(model: ModelSpecification, releases: Sequence[NoisyStatistics]) -> EvidenceParts:
    """Return what `Evidence` holds of waves: queries of each wave's tables, and then the public numbers of records.

    The model is that of each wave. That of all waves has the wave, a variable, in every clique.

    Raises
    ------
    ArgumentError
        There is one release alone.
    ModelError
        A variable is called "wave", or the releases share potentials or transitions, or are not of one model.
    """
    if len(releases) < 2:
        raise ArgumentError(
            "`population='waves'` needs two releases or more, one a wave, got one; leave `population` out."
        )
    if WAVE in model.domain:
        raise ModelError(
            f"no variable may be called {WAVE!r} in a fit of waves, whose own it is; rename it."
        )
    if model.ties:
        raise ModelError(
            "waves share all potentials, and those of this model are tied besides, or its transitions shared; fit "
            "each wave apart, or declare the network without `tied`."
        )
    own = tuple(range(1, len(releases) + 1))
    domain = Domain(variables=(WAVE, *model.domain.variables), states=(own, *model.domain.states))
    cliques = tuple((WAVE, *clique) for clique in model.cliques) or ((WAVE,),)
    interactions = None
    if model.interactions is not None:
        interactions = tuple((WAVE, *own) for own in model.interactions)
    model = replace(model, domain=domain, cliques=cliques, waves=WAVE, interactions=interactions)
    queries: list[BoundQuery] = []
    tables: list[tuple[int, tuple[int, ...]] | None] = []
    for position, release in enumerate(releases):
        for bound in release.bound:
            queries.append(_of_wave(bound, model, position, len(releases)))
            if bound.is_table:
                scope = queries[-1].positions[0][1:]
            else:
                scope = ()
            tables.append((position + 1, scope) if scope else None)
    public = [position for position, release in enumerate(releases) if release.total is not None]
    if public:
        rows: Any = one_per_column(np.arange(len(releases)), len(releases))[public]
        query = _OfWave(None, tuple(position + 1 for position in public))
        queries.append(BoundQuery(query=query, model=model, scopes=((WAVE,),), matrix=rows))
        tables.append(None)
    estimates = tuple(release.estimated_total for release in releases)
    return {
        "specification": model,
        "scopes": (),
        "queries": tuple(queries),
        "estimated_total": sum(estimates),
        "total_standard_error": math.hypot(*(release.total_standard_error for release in releases)),
        "wave_totals": estimates,
        "wave_tables": tuple(tables),
    }


def _of_wave(bound: BoundQuery, model: ModelSpecification, position: int, count: int) -> BoundQuery:
    """Return a query of one wave's tables as one of the tables of all waves."""
    from scipy.sparse import csr_array, hstack

    blocks: list[Any] = []
    for block in bound.blocks:
        nothing = csr_array(block.shape, dtype=np.int64)
        blocks += [block if wave == position else nothing for wave in range(count)]
    return BoundQuery(
        query=_OfWave(bound.query, (position + 1,)),
        model=model,
        scopes=tuple((WAVE, *scope) for scope in bound.scopes),
        matrix=hstack(blocks, format="csr"),
        asked_of=bound.model,
    )
