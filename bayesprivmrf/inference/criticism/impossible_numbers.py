"""Test of the released numbers that count no possible record: cells declared impossible, and queries without weight.

Such a number is 0 plus noise, whatever the records are, so that no estimate fits it, and no other test sees it. The
p-values of these numbers (`bayesprivmrf.noise.tails`) are independent, and are combined as those of contrasts are
(`bayesprivmrf.inference.criticism.verdict`). A release refuses such numbers where its own model declares the cells
(`bayesprivmrf.release.impossible`); here the model may be one that was given to `fit`.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.noise.tails import SMALLEST_IMPOSSIBLE_TAIL, combined, log_tails_of_zeros


def impossible_contradictions(evidence: Evidence) -> tuple[tuple[str, ...], dict[str, float]]:
    """Describe how numbers that count no possible record contradict that, and return the test result.

    Parameters
    ----------
    evidence
        The releases.

    Returns
    -------
    problems, stats
        At most one sentence; and ``impossible_tail``, the p-value, where there are such numbers.
    """
    is_empty = ~evidence.possible
    if evidence.is_weighed or not is_empty.any():  # noise of weighted rows is stated in other units
        return (), {}
    logs = np.zeros(is_empty.size)
    for law, (start, stop) in zip(evidence.noise, pairwise(evidence.offsets), strict=True):
        places = start + np.flatnonzero(is_empty[start:stop])
        if places.size:
            logs[places] = log_tails_of_zeros(law, evidence.published[places])
    tail = min(1.0, float(combined(logs[is_empty])))
    stats = {"impossible_tail": tail}
    if tail >= SMALLEST_IMPOSSIBLE_TAIL:
        return (), stats
    worst = int(np.searchsorted(evidence.offsets, int(np.argmin(logs)), side="right")) - 1
    told = (
        "numbers that count no possible record are farther from 0 than their noise explains (tail probability "
        f"{tail:.1g}), most of all in {evidence.name_of(worst)}; declare fewer `impossible` cells, or check the "
        "labels of its table and the weights of its query"
    )
    return (told,), stats
