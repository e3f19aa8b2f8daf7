r"""Posterior predictive check of released tables, which allows for their noise. It asks two questions of each table.

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

from typing import TYPE_CHECKING

import numpy as np

from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.inference.posterior.noisy_tables import (
    answers_before_noise,
    is_noisy,
    possible_cells,
    published_table,
    table_labels,
)
from bayesprivmrf.inference.posterior.results.draws import Draws
from bayesprivmrf.marginals.arrays import draw_tables
from bayesprivmrf.noise.kernels import LAPLACE
from bayesprivmrf.noise.likelihood import LEAST_VARIANCE

if TYPE_CHECKING:
    import pandas as pd


# Largest number of draws that are compared: the standard error of a p-value is then at most 0.025
_PAIRS = 400


def predictive_check(evidence: Evidence, draws: Draws, rng: np.random.Generator) -> pd.DataFrame:
    r"""Compare each released table with its latent counts, and with the prediction of the model.

    The prediction is compared by Pearson's :math:`\sum_i (y_i - m_i)^2 / v_i`: m = N A μ is the mean of a draw of
    the parameters, and v the variance of the noise and of a count of that mean. Its replicates are sums over *new*
    people, drawn from the same parameters, with new noise.
    """
    import pandas as pd

    model = evidence.specification
    finished = draws.finished
    positions = [place for place in range(len(evidence.noise)) if is_noisy(evidence, place)]
    is_absolute = [evidence.noise[place].smooth is LAPLACE for place in positions]
    found = []
    pairs = list(draws.pairs(_PAIRS))
    for chain, draw in pairs:
        total = round(float(finished.total[chain, draw]))
        latent = evidence.answers(finished.counts[chain, draw])
        mean = evidence.answers(total * finished.marginals[chain, draw])
        potentials = draws.potentials(chain, draw)
        counts = draw_tables(model.cardinalities, model.scopes, potentials, total, rng)
        new = evidence.answers(counts.astype(float))
        for position, is_laplace in zip(positions, is_absolute, strict=True):
            law = evidence.noise[position]
            mask = possible_cells(evidence, position)
            released = published_table(evidence, position)[mask]
            center = mean[position][mask]
            held, people = (
                answers_before_noise(evidence, position, each[position])[mask]
                for each in (latent, new)
            )
            # numbers that the same counts, and those of new people, would have given
            repeated = law.draw_given(held, rng)
            again = law.estimate(law.draw_given(people, rng))
            sampling = np.maximum(center * (1 - center / max(total, 1)), 0.0)
            variance = law.error_variance(center) + sampling
            power = 1 if is_laplace else 2
            width = np.sqrt(np.maximum(law.variance_given(held), LEAST_VARIANCE))
            if law.is_additive:
                width = law.widths(held)
            found += [
                (np.abs((each - law.mean_given(held)) / width) ** power).sum()
                for each in (released, repeated)
            ]
            found += [
                ((each - center) ** 2 / variance).sum() for each in (law.estimate(released), again)
            ]
    # by table, draw, question, and whether it is of the release or of a replicate
    distances = np.array(found).reshape(len(pairs), len(positions), 2, 2).swapaxes(0, 1)
    p_values = (distances[..., 1] >= distances[..., 0]).mean(axis=1)
    labels = table_labels(evidence)
    frame = pd.DataFrame(index=pd.Index([labels[position] for position in positions], name="table"))
    frame["discrepancy"] = [
        "sum |y - n| / b" if is_laplace else "sum (y - n)^2 / s^2" for is_laplace in is_absolute
    ]
    for question, prefix in enumerate(("", "model_")):
        frame[f"{prefix}realised"] = distances[:, :, question, 0].mean(axis=1)
        frame[f"{prefix}replicated"] = distances[:, :, question, 1].mean(axis=1)
        frame[f"{prefix}p_value"] = p_values[:, question]
    return frame
