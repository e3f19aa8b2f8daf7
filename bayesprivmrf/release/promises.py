"""Checks that a release does not contradict its own guarantee or number of records."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from bayesprivmrf.errors import ArgumentError, PrivacyError
from bayesprivmrf.noise.base import check_variance
from bayesprivmrf.privacy import Adjacency, NoiseLaw, PrivacyGuarantee

__all__ = ["check_promise", "whole_total"]


def check_promise(
    guarantee: PrivacyGuarantee | None, noise: Iterable[tuple[str, NoiseLaw]], total: int | None
) -> None:
    """Raise where noise has no finite variance, or a guarantee stands beside no noise or a total that it protects.

    Parameters
    ----------
    guarantee
        The promise; None where there is none.
    noise
        The name of what was measured, and the law of its noise.
    total
        The public number of records.
    """
    noise = list(noise)
    for _, law in noise:
        check_variance(law)
    if guarantee is None:
        return
    if not isinstance(guarantee, PrivacyGuarantee):
        raise ArgumentError(
            f"`guarantee` must be a PrivacyGuarantee or None, got {type(guarantee).__name__}."
        )
    for name, law in noise:
        if not law.hides:
            raise PrivacyError(
                f"`guarantee` must be None where a table has no noise, got one beside the exact {name}; "
                "state the noise that was added, or leave the guarantee out."
            )
    if total is not None and guarantee.adjacency is Adjacency.ADD_OR_REMOVE_ONE:
        raise PrivacyError(
            "`total` must be None beside an add-or-remove-one guarantee, which protects the number of records; "
            "leave it out, or state a replace-one guarantee if that is what was promised."
        )


def whole_total(total: Any) -> int:
    """Return a public number of records as an integer."""
    if (
        isinstance(total, bool)
        or not isinstance(total, int | float | np.integer | np.floating)
        or not 0 <= total < 2**63
        or total != int(total)
    ):
        raise ArgumentError(
            f"`total` must be a whole number of records, at least 0, or None, got {total!r}; give the public number."
        )
    return int(total)
