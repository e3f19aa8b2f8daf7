"""Modes of long sticky chains, in which a search with wide scales may lose a state."""

import numpy as np
import pytest

import bayesprivmrf as bpm
from bayesprivmrf.noise import DiscreteLaplace

STATES = 16
STEPS = 10
PEOPLE = 5000
STAY = 0.9


def sticky_release(seed):
    """Tables of the steps of people who mostly stay, and their exact counts."""
    rng = np.random.default_rng([seed, STATES, STEPS])
    at = rng.choice(STATES, PEOPLE, p=rng.dirichlet(np.full(STATES, 5.0)))
    steps = [at]
    for _ in range(STEPS - 1):
        moved = (at + rng.integers(1, STATES, PEOPLE)) % STATES
        at = np.where(rng.random(PEOPLE) < STAY, at, moved)
        steps.append(at)
    noise = DiscreteLaplace(STEPS - 1.0)
    exact = {}
    for k in range(STEPS - 1):
        cell = np.ravel_multi_index((steps[k], steps[k + 1]), (STATES, STATES))
        counts = np.bincount(cell, minlength=STATES**2).reshape(STATES, STATES)
        exact[f"t{k}", f"t{k + 1}"] = counts
    network = bpm.declare({f"t{k}": list(range(STATES)) for k in range(STEPS)}, list(exact))
    noisy = {scope: counts + noise.draw(counts.shape, rng) for scope, counts in exact.items()}
    return bpm.NoisyStatistics.from_tables(network, noisy, noise=noise), exact


@pytest.mark.slow
def test_no_state_is_lost_in_a_long_sticky_chain():
    release, exact = sticky_release(0)
    fit = bpm.NoiseAwareMAP().fit(release)
    assert fit.status is bpm.Status.CONVERGED
    for scope, counts in exact.items():
        stayers = np.diag(PEOPLE * fit.marginal(list(scope)).to_numpy())
        assert (stayers > np.diag(counts) / 2).all()
