"""The privacy filter: exact sums, and no step beyond the total."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from bayesprivmrf.errors import PrivacyError
from bayesprivmrf.privacy import selection as filter


def test_no_sequence_of_charges_passes_the_total():
    for seed in range(20):
        rng = np.random.default_rng(seed)
        total = float(10 ** rng.uniform(-6, 2))
        held, charged = filter.PrivacyFilter(total), Fraction(0)
        for _ in range(50):
            step = float(rng.uniform(0, 0.4) * total)
            if Fraction(step) <= Fraction(total) - charged:
                held.charge(step)
                charged += Fraction(step)
            else:
                with pytest.raises(PrivacyError, match="remain"):
                    held.charge(step)
            assert held.spent == charged <= Fraction(total)
            assert Fraction(held.left) <= Fraction(total) - charged


def test_what_is_left_can_be_spent_to_the_last_bit_and_no_more():
    held = filter.PrivacyFilter(0.1)
    held.charge(0.03)
    held.charge(held.left)
    assert held.spent <= Fraction(0.1)
    assert held.left < 1e-15
    with pytest.raises(PrivacyError):
        held.charge(1e-3)


@pytest.mark.parametrize("step", [-1e-9, float("inf")])
def test_a_step_that_costs_less_than_nothing_is_refused(step):
    with pytest.raises((PrivacyError, OverflowError)):
        filter.PrivacyFilter(1.0).charge(step)
