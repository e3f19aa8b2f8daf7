"""Paths that the documentation once named go on working for one version, and say where the name is now."""

from __future__ import annotations

import importlib

import pytest

MOVED = [
    ("bayesprivmrf.network.heat_bath", "Simulation", "bayesprivmrf.network"),
    ("bayesprivmrf.network.mixing", "Mixing", "bayesprivmrf.network"),
    ("bayesprivmrf.privacy.checks", "positive_finite", "bayesprivmrf.checks"),
    ("bayesprivmrf.mechanisms.randomness", "noise_source", "bayesprivmrf.noise"),
]


@pytest.mark.parametrize(("old", "name", "new"), MOVED)
def test_a_name_at_its_old_path_is_the_name_at_its_new_one_and_warns(old, name, new):
    module = importlib.import_module(old)
    with pytest.warns(DeprecationWarning, match=f"{old}.{name} is now {new}.{name}") as caught:
        found = getattr(module, name)
    assert found is getattr(importlib.import_module(new), name)
    assert caught[0].filename == __file__


@pytest.mark.parametrize("old", sorted({old for old, _, _ in MOVED}))
def test_an_old_path_has_no_other_names_and_no_other_dunders(old):
    module = importlib.import_module(old)
    for name in ("nothing", "__wrapped__"):
        assert not hasattr(module, name)
