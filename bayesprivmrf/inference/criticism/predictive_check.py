r"""Posterior predictive check of released tables, which allows for their noise.

The check answers two questions about each table.

*Is the table as far from its latent counts as its noise explains?* The discrepancy is
:math:`\sum_i |y_i - n_i| / b` for Laplace noise and :math:`\sum_i (y_i - n_i)^2 / s^2` for normal noise, of
the released y and of replicates, which keep n and have new noise. Where noise is small the latent counts
follow the release under any model, so that this question does not test the model.

*Is the table as far from the model's prediction as sampling and noise explain?* The columns that begin with
``model_`` compare Pearson's :math:`\sum_i (y_i - N μ_i)^2 / v_i` of the release with that of replicates,
whose latent counts are drawn again from the parameters. A p-value near 0 means that the model does not fit;
for a chain with shared transitions, that its steps differ. The parameters were fitted to the same release,
so that these p-values are seldom near 0 by chance; ``stats["misfit_tail"]`` is the more powerful test of a
restricted model.

References
----------
Gelman, Meng, Stern (1996). Posterior predictive assessment of model fitness via realized discrepancies.
Statistica Sinica 6, 733-807.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from bayesprivmrf.inference.criticism.disagreement import shared_margins
from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.inference.posterior.measured import (
    drawn_noise,
    is_noisy,
    noisy_table,
    possible_cells,
    table_labels,
    whole_counts,
)
from bayesprivmrf.inference.posterior.results.draws import Draws
from bayesprivmrf.marginals.arrays import draw_tables
from bayesprivmrf.model.tables import FloatArray, project

if TYPE_CHECKING:
    import pandas as pd


def predictive_check(evidence: Evidence, draws: Draws, rng: np.random.Generator) -> pd.DataFrame:
    """Compare each released table with its latent counts, and with the prediction of the model."""
    import pandas as pd

    columns = ["discrepancy", "realised", "replicated", "p_value"]
    finished, rows, positions = draws.finished, {}, []
    labels = table_labels(evidence)
    for position, latent in enumerate(evidence.answers(finished.counts)):
        if not is_noisy(evidence, position):
            continue
        positions.append(position)
        law, mask = evidence.noise[position], possible_cells(evidence, position)
        residual = (noisy_table(evidence, position) - whole_counts(evidence, position, latent))[..., mask]
        noise = drawn_noise(law, residual.shape, rng)
        is_laplace = law.kernel == "absolute"
        realised, replicated = (_distance(values / law.scale, is_laplace) for values in (residual, noise))
        kind = "sum |y - n| / b" if is_laplace else "sum (y - n)^2 / s^2"
        rows[labels[position]] = [kind, *_compared(realised, replicated)]
    for margin in shared_margins(evidence):
        noises = [
            project(_noise_of(evidence, position, scope, finished.total.size, rng), scope, margin.variables)
            for position, scope in zip(margin.positions, margin.scopes, strict=True)
        ]
        found = _compared(margin.discrepancy(margin.noisy), margin.discrepancy(np.stack(noises)))
        rows[margin.label] = ["sum (y - mean y)^2 / s^2", *found]
    frame = pd.DataFrame.from_dict(rows, orient="index", columns=pd.Index(columns)).rename_axis("table")
    of_model = [f"model_{name}" for name in columns[1:]]
    frame[of_model] = np.nan
    if positions:
        compared = [_compared(*each) for each in _predicted(evidence, draws, positions, rng)]
        frame.loc[[labels[position] for position in positions], of_model] = compared
    return frame


def _compared(realised: FloatArray, replicated: FloatArray) -> tuple[float, float, float]:
    return float(np.mean(realised)), float(np.mean(replicated)), float((replicated >= realised).mean())


def _predicted(
    evidence: Evidence, draws: Draws, positions: Sequence[int], rng: np.random.Generator
) -> FloatArray:
    r"""Return Pearson's :math:`\sum_i (y_i - m_i)^2 / v_i` of each table, released and replicated.

    m = N A μ is the mean of a draw of the parameters, and v the variance of the noise and of a count of that mean.
    Replicates are sums over *new* people, drawn from the same parameters, with new noise.

    Returns
    -------
    ndarray
        Shape (tables, 2, draws).
    """
    model, found = evidence.specification, []
    # with 400 draws the standard error of a p-value is at most 0.025
    for chain, draw in draws.pairs(400):
        total = round(float(draws.finished.total[chain, draw]))
        mean = evidence.answers(total * draws.finished.marginals[chain, draw])
        potentials = draws.potentials(chain, draw)
        counts = draw_tables(model.cardinalities, model.scopes, potentials, total, rng)
        new = evidence.answers(counts.astype(float))
        own = []
        for position in positions:
            law, mask = evidence.noise[position], possible_cells(evidence, position)
            center = mean[position][mask]
            variance = law.variance + np.maximum(center * (1 - center / max(total, 1)), 0.0)
            replicate = whole_counts(evidence, position, new[position])[mask] + law.draw(center.shape, rng)
            released = noisy_table(evidence, position)[mask]
            own.append([((values - center) ** 2 / variance).sum() for values in (released, replicate)])
        found.append(own)
    return np.moveaxis(np.array(found), 0, -1)


def _noise_of(
    evidence: Evidence, position: int, scope: tuple[int, ...], size: int, rng: np.random.Generator
) -> FloatArray:
    """Return draws of one table's noise; after the first axis, each variable of the scope has an axis."""
    mask = possible_cells(evidence, position)
    noise = drawn_noise(evidence.noise[position], (size, *mask.shape), rng) * mask
    return noise.reshape(size, *(evidence.specification.cardinalities[v] for v in scope))


def _distance(scaled: FloatArray, is_laplace: bool) -> FloatArray:
    return np.abs(scaled).sum(axis=-1) if is_laplace else (scaled**2).sum(axis=-1)
