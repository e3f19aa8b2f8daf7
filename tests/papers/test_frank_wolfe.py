"""Algorithms 2 and 3 of Zhang et al. 2020 with the paper's constants: their cost, what is refused."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from golden.reading import FILES
from learning.test_frank_wolfe_pairwise import pairwise_sample, source
from mechanisms.test_frank_wolfe import NAMES, frame, network

import bayesprivmrf as bpm
from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.learning.frank_wolfe import RESIDUAL_UNIT
from bayesprivmrf.mechanisms import PrivateFrankWolfe
from bayesprivmrf.privacy import Adjacency
from benchmarks.papers.frank_wolfe import PaperFrankWolfe, PaperIsing, PaperPairs

REPLACE = Adjacency.REPLACE_ONE


def noisy_max_law(difference: int, others: int, scale: float) -> float:
    """Probability that a score with discrete Laplace noise is above others, all lower by a difference."""
    reach = int(40 * scale)
    k = np.arange(-reach, reach + 1)
    pmf = np.exp(-np.abs(k) / scale)
    pmf /= pmf.sum()
    below = pmf.cumsum()[np.clip(k + difference + reach, 0, 2 * reach)]
    return float((pmf * below**others).sum())


def laplace_rho(regressions: int, scale: float, bound: int, steps: int) -> float:
    """Cost of choosing the largest of scores with discrete Laplace noise: 4 B / b is lost at each step."""
    return regressions * steps * (4 * bound / scale) ** 2 / 2


def test_a_step_of_the_paper_costs_more_than_it_says_and_no_more_than_we_say():
    # one score of B and fifty of -B, or the reverse, at a coarse unit so that the law can be summed
    bound, budget = 40, 1.0
    scale = 2 * bound * math.sqrt(1 / budget)  # L_1 R sqrt(T / rho), R sigma(R) = B, T = 1
    up, down = noisy_max_law(2 * bound, 50, scale), noisy_max_law(-2 * bound, 50, scale)
    loss = math.log(up / down)
    assert loss > 1.5 * math.sqrt(budget)
    assert loss <= 4 * bound / scale
    assert laplace_rho(1, scale, bound, 1) == pytest.approx(2 * budget)


def test_the_paper_guarantee_is_what_its_noise_costs():
    settings = {"eligible": ~np.eye(3, dtype=bool), "rho": 0.7, "adjacency": REPLACE}
    ising = PaperIsing(cardinalities=(2, 2, 2), width=0.9, **settings)
    bound = math.ceil(RESIDUAL_UNIT / (1 + math.exp(-1.8)))
    assert ising.cost == pytest.approx(2 * (1 / (1 + math.exp(-1.8))) ** 2 * 0.7, rel=1e-3)
    for steps in (2, 30, 30_000):
        assert laplace_rho(3, ising.noise(steps).scale, bound, steps - 1) <= ising.cost * (1 + 1e-3)
    assert laplace_rho(3, ising.noise(2).scale, bound - 1, 1) <= ising.cost
    for states in ((3, 3, 3), (4, 2, 3), (5, 5, 5)):
        pairwise = PaperPairs(cardinalities=states, width=0.9, **settings)
        assert pairwise.cost <= 0.7
        assert pairwise.replaced == sum(states)


def test_the_paper_steps_are_public_and_its_own():
    ising = PaperIsing(
        cardinalities=(2,) * 10,
        eligible=np.zeros((10, 10), bool),
        width=1.0,
        rho=1.0,
        adjacency=REPLACE,
    )
    assert ising.steps_for(1e4) == 342  # (2 n sqrt(rho / p))^(2/3)
    assert ising.noise(342).scale == pytest.approx(2 * RESIDUAL_UNIT * math.sqrt(342 * 10))


@pytest.mark.slow
def test_the_paper_form_is_recovered_at_a_large_budget():
    W, _, codes, counts = pairwise_sample(13, (3, 2), 0.6, 10**6)
    fitted = PaperPairs(
        cardinalities=(3, 2),
        eligible=~np.eye(2, dtype=bool),
        width=0.6,
        rho=1e6,
        adjacency=REPLACE,
        steps=400,
    )
    found, _ = fitted.learn(codes, counts, 1e6, source(14))
    np.testing.assert_allclose(found, W, atol=0.03)


def test_the_paper_calibration_says_what_it_costs():
    paper = PaperFrankWolfe(rho=1.0, width=0.7, steps=30)
    learned = paper.release(network(), frame(20_000), rng=10)
    assert learned.guarantee.rho == pytest.approx(2 / (1 + math.exp(-1.4)) ** 2, rel=1e-3)
    assert learned.guarantee.rho > 1.0  # the paper says 1
    assert learned.coupling_matrix[0, 1] > 0.1


def test_the_paper_calibration_of_larger_alphabets_costs_less_than_it_says():
    data = frame(2000).assign(k="u")
    variables = bpm.declare(states={name: ["c", "b"] for name in NAMES} | {"k": ["u", "v", "w"]})
    learned = PaperFrankWolfe(rho=1.0, width=0.7, steps=5).release(variables, data, rng=11)
    assert learned.guarantee.rho < 1.0


@pytest.mark.slow
def test_tight_noise_and_steps_err_half_as_much_as_the_paper_at_the_same_setting():
    # a chain of twenty with one coupling, sampled from left to right; five releases each
    rng = np.random.default_rng(15)
    steps = np.where(rng.random((20_000, 20)) < 1 / (1 + math.exp(-0.8)), 1, -1)
    data = pd.DataFrame(np.cumprod(steps, axis=1), columns=[f"v{i}" for i in range(20)])
    variables = bpm.declare(states={name: [-1, 1] for name in data})
    truth = 0.4 * (np.eye(20, k=1) + np.eye(20, k=-1))
    errors = {
        kind: [
            np.abs(
                kind(rho=1.0, width=0.8, adjacency="replace-one")
                .release(variables, data, rng=seed)
                .coupling_matrix
                - truth
            ).max()
            for seed in range(5)
        ]
        for kind in (PrivateFrankWolfe, PaperFrankWolfe)
    }
    assert max(errors[PrivateFrankWolfe]) < 0.6 * min(errors[PaperFrankWolfe])
    assert np.mean(errors[PrivateFrankWolfe]) < 0.06


@pytest.mark.parametrize(
    "settings",
    [
        {"adjacency": "add-or-remove-one"},
        {"single_share": 0.1},
        {"method": "softmax"},
        {"order": 3},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_settings_that_the_paper_lacks_are_refused(settings):
    with pytest.raises(ArgumentError, match=f"`{next(iter(settings))}` must be"):
        PaperFrankWolfe(rho=1.0, width=1.0, **settings)


def test_the_package_alone_reads_a_release_of_the_paper_without_its_map():
    code = (
        "import sys, bayesprivmrf as b\nlearned = b.load_release(sys.argv[1])\nprint(learned.map)\n"
        "try:\n    learned.couplings_interval()\nexcept b.errors.ModelError as error:\n    print(error)"
    )
    path = FILES / "v3" / "ising-frank-wolfe-paper.golden"
    found = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True)
    read, refusal = found.stdout.splitlines()
    assert (read, found.stderr) == ("None", "")
    assert "the paper's constants" in refusal
