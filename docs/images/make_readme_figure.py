"""Draw the picture of the README: one table of Fair's survey, as released and as inferred.

Run ``python docs/images/make_readme_figure.py`` from the root of a clone to draw ``readme.png`` again. The noise is
seeded for this reason only. The survey is public, so the picture may also show the answers without protection.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import bayesprivmrf as bpm
from bayesprivmrf.mechanisms import LaplaceStatistics
from bayesprivmrf.survey import fair_survey_records

EPSILON, SEED = 0.1, 6
TABLE = ["rate_marriage", "affairs"]
PLACE = Path(__file__).with_name("readme.png")


def main() -> None:
    """Release, fit and draw."""
    network = bpm.declare(
        states={
            "religious": ["not", "mildly", "fairly", "strongly"],
            "rate_marriage": ["very poor", "poor", "fair", "good", "very good"],
            "affairs": ["none", "some"],
        },
        cliques=[("religious", "affairs"), ("rate_marriage", "affairs")],
    )
    answers = fair_survey_records()
    release = LaplaceStatistics(epsilon=EPSILON).release(network, answers, rng=SEED)
    posterior = bpm.LatentCounts().fit(release, rng=1, progress_bar=False)

    noisy = release.tables[tuple(TABLE)]
    counts = posterior.interval(TABLE, prob=0.9, of="records")
    exact = answers.value_counts(TABLE).reindex(counts.index, fill_value=0)
    ratings = network.states["rate_marriage"]
    rows = [
        posterior.interval(["affairs"], given={"rate_marriage": one}).loc["some"] for one in ratings
    ]

    plt.rcParams.update({"font.size": 11, "axes.spines.top": False, "axes.spines.right": False})
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(9, 4.4), width_ratios=(1.15, 1), layout="constrained"
    )
    labels = [f"{rating}, {affair}" for rating, affair in counts.index]
    compare(left, labels, noisy.ravel(), counts, exact.to_numpy())
    left.set(xlabel="women (square-root scale)", title="Released table: marriage, affairs")
    left.set_xscale(
        "function",
        functions=(lambda x: np.sign(x) * np.sqrt(np.abs(x)), lambda x: np.sign(x) * x**2),
    )
    left.set_xticks([-100, 0, 100, 500, 1000, 2000])

    shares = exact.to_numpy().reshape(noisy.shape)
    limits = {
        name: np.array([row[name] for row in rows]) for name in ("estimate", "lower", "upper")
    }
    compare(
        right, ratings, noisy[:, 1] / noisy.sum(axis=1), limits, shares[:, 1] / shares.sum(axis=1)
    )
    right.axvline(1, color="0.8", linewidth=0.8, zorder=0)
    right.set(xlabel="share with an affair", title="Share with an affair, by marriage")
    figure.legend(
        *left.get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False
    )
    figure.savefig(PLACE, dpi=100, metadata={"Software": None})


def compare(panel, labels, noisy, limits, exact) -> None:
    """Draw noisy numbers, intervals and exact numbers, one row a label from the top down."""
    rows = np.arange(len(labels))[::-1]
    estimate, lower, upper = (np.asarray(limits[name]) for name in ("estimate", "lower", "upper"))
    panel.axvline(0, color="0.8", linewidth=0.8, zorder=0)
    panel.errorbar(
        estimate,
        rows - 0.14,
        xerr=(estimate - lower, upper - estimate),
        fmt="o",
        color="#0072B2",
        markersize=5,
        capsize=3,
        linewidth=2,
        label="estimate and 90 % interval",
    )
    panel.plot(
        noisy,
        rows + 0.14,
        "x",
        color="#D55E00",
        markersize=7,
        markeredgewidth=2,
        label="noisy number, as released",
    )
    panel.plot(
        exact,
        rows,
        "|",
        color="black",
        markersize=17,
        markeredgewidth=1.5,
        label="exact number, without privacy",
    )
    panel.set_yticks(rows, labels)


if __name__ == "__main__":
    main()
