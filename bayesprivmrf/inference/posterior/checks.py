"""Tables that criticise or summarise a posterior: edges by probability, and the noise-aware predictive check."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import chdtrc

from bayesprivmrf.checks import at_least, probability
from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.inference.posterior.formulation import Finished
from bayesprivmrf.inference.posterior.measured import (
    drawn_noise,
    has_zeros,
    is_noisy,
    noisy_table,
    possible_cells,
    table_labels,
    whole_counts,
)
from bayesprivmrf.inference.posterior.names import dimension_names, table_name
from bayesprivmrf.inference.posterior.quantities import equal_tailed
from bayesprivmrf.model.effects import Effects
from bayesprivmrf.model.tables import FloatArray

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["SharedMargin", "edge_presence", "effect_cells", "predictive_check", "shared_margins"]

_HELD = 10_000_000
"""Numbers of effect tables held at once."""


def edge_presence(evidence: Evidence, finished: Finished, threshold: float, prob: float) -> pd.DataFrame:
    """Edges of the model by the posterior probability that they are stronger than a threshold."""
    import pandas as pd

    threshold = at_least("threshold", threshold, 0)
    prob = probability("prob", prob, zero=False, remedy="0.9 is for 90 %")
    model = evidence.specification
    effects = Effects.of(model.cardinalities, model.scopes)
    largest = _largest_entries(effects, finished.effects)
    rows, index = [], []
    for pair in [subset for subset in effects.subsets if len(subset) == 2]:
        held = [place for place, subset in enumerate(effects.subsets) if set(pair) <= set(subset)]
        strength: FloatArray = largest[..., held].max(axis=-1)
        is_known = not has_zeros(evidence, pair)
        estimate, lower, upper = equal_tailed(strength, prob) if is_known else (np.nan,) * 3
        rows.append(
            {
                "estimate": float(estimate),
                "lower": float(lower),
                "upper": float(upper),
                "probability": float((strength > threshold).mean()) if is_known else np.nan,
            }
        )
        index.append(tuple(model.domain.variables[v] for v in pair))
    frame = pd.DataFrame(
        rows,
        columns=pd.Index(["estimate", "lower", "upper", "probability"]),
        index=pd.MultiIndex.from_tuples(index, names=["first", "second"]) if index else None,
    )
    return frame.sort_values("probability", ascending=False, kind="stable")


def effect_cells(effects: Effects) -> list[int]:
    """Cells of each effect's table; over a clique they add up to many times its own."""
    return [math.prod(effects.cardinalities[v] for v in subset) for subset in effects.subsets]


def predictive_check(evidence: Evidence, finished: Finished, rng: np.random.Generator) -> pd.DataFrame:
    """Distance of each released table from its latent counts, against what the noise alone makes."""
    import pandas as pd

    rows, labels = [], []
    for position, latent in enumerate(evidence.answers(finished.counts)):
        if not is_noisy(evidence, position):
            continue
        labels.append(table_labels(evidence)[position])
        law, mask = evidence.noise[position], possible_cells(evidence, position)
        residual = (noisy_table(evidence, position) - whole_counts(evidence, position, latent))[..., mask]
        noise = drawn_noise(law, residual.shape, rng)
        is_laplace = law.kernel == "absolute"
        realised, replicated = (_distance(values / law.scale, is_laplace) for values in (residual, noise))
        rows.append(
            {
                "discrepancy": "sum |y - n| / b" if is_laplace else "sum (y - n)^2 / s^2",
                "realised": float(realised.mean()),
                "replicated": float(replicated.mean()),
                "p_value": float((replicated >= realised).mean()),
            }
        )
    margins = shared_margins(evidence)
    for margin in margins:
        drawn = [_noise_of(evidence, position, finished.total.size, rng) for position in margin.positions]
        noises = [margin_of(noise, scope, margin.variables) for noise, scope in drawn]
        realised, replicated = margin.discrepancy(margin.noisy), margin.discrepancy(np.stack(noises))
        rows.append(
            {
                "discrepancy": "sum (y - mean y)^2 / s^2",
                "realised": float(realised),
                "replicated": float(replicated.mean()),
                "p_value": float((replicated >= realised).mean()),
            }
        )
    labels += [margin.label for margin in margins]
    columns = pd.Index(["discrepancy", "realised", "replicated", "p_value"])
    return pd.DataFrame(rows, columns=columns, index=pd.Index(labels, name="table"))


@dataclass(frozen=True, kw_only=True, eq=False)
class SharedMargin:
    r"""A margin that several released tables hold, each with noise of its own.

    With precisions p_i of the tables, :math:`h_i = 1 - p_i / \sum_j p_j` and κ_i the excess kurtoses of the margins'
    noise, the squared distance Q has in each cell the mean :math:`\sum_i h_i`, the freedom, and the variance twice
    that plus :math:`\sum_i κ_i h_i^2`; a sum of m Laplace variables has κ = 3/m.

    Parameters
    ----------
    label
        ``margin[a,b]``.
    variables
        Positions of its variables.
    positions
        The tables.
    noisy
        The margin of each table, shape (tables, ...).
    variances
        Their noise variances, records squared; infinite where no cell may occur.
    kurtoses
        Their excess kurtoses.
    """

    label: str
    variables: tuple[int, ...]
    positions: tuple[int, ...]
    noisy: FloatArray
    variances: FloatArray
    kurtoses: FloatArray

    @property
    def freedom(self) -> int:
        """Degrees of freedom."""
        return int(np.isfinite(self.variances[0]).sum()) * (len(self.positions) - 1)

    def tail(self, margins: FloatArray) -> FloatArray:
        """About the probability of as large a discrepancy: that of a scaled χ² with Q's mean and variance."""
        precision = 1 / self.variances
        share = 1 - precision / np.maximum(precision.sum(axis=0), 1e-300)
        extra = np.where(np.isfinite(self.variances), self.kurtoses * share**2, 0.0).sum()
        scale = 1 + 0.5 * extra / max(self.freedom, 1)
        return chdtrc(self.freedom / scale, self.discrepancy(margins) / scale)

    def discrepancy(self, margins: FloatArray) -> FloatArray:
        """Squared distance of margins, shape (tables, ..., cells), from their mean, weighted by precision."""
        extra = margins.ndim - self.variances.ndim
        precision = 1 / np.expand_dims(self.variances, tuple(range(1, 1 + extra)))
        mean = (precision * margins).sum(axis=0) / np.maximum(precision.sum(axis=0), 1e-300)
        axes = (0, *range(-(margins.ndim - 1 - extra), 0))
        return (precision * (margins - mean) ** 2).sum(axis=axes)


def shared_margins(evidence: Evidence) -> list[SharedMargin]:
    """Every margin in which two released tables overlap, with all the tables that hold it."""
    sets = {
        p: frozenset(scope)
        for p, scope in enumerate(evidence.measured_scopes)
        if scope is not None and is_noisy(evidence, p)
    }
    shared = {one & other: None for one, other in combinations(sets.values(), 2) if one & other}
    names = dimension_names(evidence.specification.domain)
    found = []
    for overlap in shared:
        variables = tuple(sorted(overlap))
        positions = tuple(p for p, scope in sets.items() if overlap <= scope)
        noisy, variances, kurtoses = [], [], []
        for p in positions:
            mask, scope = possible_cells(evidence, p), _scope(evidence, p)
            noisy.append(margin_of(noisy_table(evidence, p) * mask, scope, variables))
            cells = margin_of(mask.astype(float), scope, variables)
            law = evidence.noise[p]
            variances.append(np.where(cells > 0, law.variance * cells, np.inf))
            kurtoses.append((3.0 if law.kernel == "absolute" else 0.0) / np.maximum(cells, 1.0))
        found.append(
            SharedMargin(
                label=table_name("margin", names, variables),
                variables=variables,
                positions=positions,
                noisy=np.stack(noisy),
                variances=np.stack(variances),
                kurtoses=np.stack(kurtoses),
            )
        )
    return found


def margin_of(table: FloatArray, scope: tuple[int, ...], variables: tuple[int, ...]) -> FloatArray:
    """Sum of tables, shape (..., K_v for v in scope), over all variables but these."""
    dropped = tuple(k - len(scope) for k, v in enumerate(scope) if v not in variables)
    kept = [v for v in scope if v in variables]
    places = [kept.index(v) - len(kept) for v in variables]
    return np.moveaxis(table.sum(axis=dropped), places, range(-len(kept), 0))


def _noise_of(
    evidence: Evidence, position: int, size: int, rng: np.random.Generator
) -> tuple[FloatArray, tuple[int, ...]]:
    """Draws of one table's noise, and its scope."""
    mask = possible_cells(evidence, position)
    return drawn_noise(evidence.noise[position], (size, *mask.shape), rng) * mask, _scope(evidence, position)


def _scope(evidence: Evidence, position: int) -> tuple[int, ...]:
    """Scope of a measurement that is a table."""
    scope = evidence.measured_scopes[position]
    assert scope is not None
    return scope


def _largest_entries(effects: Effects, coordinates: FloatArray) -> FloatArray:
    """Largest absolute entry of each effect's table, shape (chain, draw, effects); some draws at a time."""
    flat = coordinates.reshape(-1, effects.size)
    result = np.empty((len(flat), len(effects.subsets)))
    step = max(1, _HELD // max(1, sum(effect_cells(effects))))
    for start in range(0, len(flat), step):
        for place, table in enumerate(effects.tables(flat[start : start + step])):
            result[start : start + step, place] = np.abs(table).max(axis=tuple(range(1, table.ndim)))
    return result.reshape(*coordinates.shape[:-1], -1)


def _distance(scaled: FloatArray, is_laplace: bool) -> FloatArray:
    return np.abs(scaled).sum(axis=-1) if is_laplace else (scaled**2).sum(axis=-1)
