"""t-wise models by node-wise regressions: features, sensitivity, both algorithms, recovery."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from bayesprivmrf.learning import frank_wolfe
from bayesprivmrf.learning.frank_wolfe import monomials as regressions_module
from bayesprivmrf.model import Monomials
from bayesprivmrf.noise import SimulatedNoise
from bayesprivmrf.privacy import Adjacency, Exposure, NoNoise, step_rho, step_scale

ADD = Adjacency.ADD_OR_REMOVE_ONE


def source(seed: int) -> SimulatedNoise:
    return SimulatedNoise(np.random.default_rng(seed))


def states(p: int) -> np.ndarray:
    return np.array(list(itertools.product((0, 1), repeat=p)), dtype=np.uint8)


def population(family: Monomials, h: np.ndarray, total: int) -> tuple[np.ndarray, np.ndarray]:
    """Every record as often as the model says, rounded: next to no sampling error."""
    codes = states(family.variables)
    spins = 2 * codes.astype(int) - 1
    energy = sum(
        c * spins[:, list(members)].prod(axis=1) for members, c in zip(family, h, strict=True)
    )
    weights = np.exp(energy)
    counts = np.rint(total * weights / weights.sum()).astype(np.int64)
    return codes[counts > 0], counts[counts > 0]


def model(**settings) -> frank_wolfe.MonomialsByRegressions:
    return frank_wolfe.MonomialsByRegressions(
        **{"sets": Monomials.complete(4, 3), "width": 1.2, "rho": 1.0, "adjacency": ADD, **settings}
    )


def triple(family: Monomials) -> np.ndarray:
    h = np.zeros(len(family))
    h[family.positions[0, 1, 2]], h[family.positions[2, 3]], h[family.positions[1,]] = (
        0.5,
        -0.3,
        0.2,
    )
    return h


def test_places_join_each_feature_with_its_node():
    fitted = model()
    for i, place in itertools.product(range(4), range(len(fitted.features))):
        members = list(fitted.features)[place]
        joined = tuple(sorted({i, *members}))
        expected = fitted.sets.positions[joined] if i not in members else -1
        assert fitted.places[i, place] == expected
    inside = Monomials.inside(4, [(0, 1, 2), (2, 3)], 3)
    assert model(sets=inside).places[3, inside.positions[0, 1]] == -1
    assert (model(sets=inside).places >= 0).sum() == sum(len(members) for members in inside)


def test_features_are_the_parities_and_may_be_made_block_by_block():
    family = Monomials.complete(4, 3)
    codes, counts = population(family, triple(family), 100_000)
    features = model().features
    spins = 2 * codes.astype(int) - 1
    expected = np.array([spins[:, list(members)].prod(axis=1) > 0 for members in features]).T
    lazy = regressions_module.ParityCodes(codes, features)
    assert (lazy[:] == expected).all()
    assert (lazy[3:7] == expected[3:7]).all()
    one, other = (
        frank_wolfe.LogisticRegressions(
            frank_wolfe.Design(codes=columns, cardinalities=(2,) * len(features)),
            codes,
            counts,
            1.0,
            np.arange(4),
        )
        for columns in (lazy, lazy[:])
    )
    assert (one.sums() == other.sums()).all()


@pytest.mark.parametrize("steps", [0, 2, 25])
def test_no_record_moves_a_choice_beyond_the_bound_that_it_is_paid_by(steps):
    fitted = model(sets=Monomials.complete(3, 3))
    rng, rows = np.random.default_rng(2), states(3)
    atoms = [
        frank_wolfe.Atoms(
            groups=rng.integers(0, len(fitted.features), 3),
            signs=rng.choice(np.array([-1, 1], np.int8), (3, 1)),
        )
        for _ in range(steps)
    ]
    sums = []
    for record in rows:
        codes = regressions_module.ParityCodes(record[None], fitted.features)[:]
        design = frank_wolfe.Design(codes=codes, cardinalities=(2,) * len(fitted.features))
        one = frank_wolfe.LogisticRegressions(
            design, record[None], np.ones(1, np.int64), 2.4, np.arange(3)
        )
        for weight, atom in enumerate(atoms, start=1):
            one.sums()
            one.move(atom, weight)
        bounds = one.bounds
        sums.append(one.sums())
    scores = np.concatenate([sums, np.negative(sums)], axis=2)  # (records, nodes, signed atoms)
    change = scores[:, None] - scores[None]
    assert ((scores.max(axis=2) - scores.min(axis=2)).max(axis=0) <= 2 * bounds).all()
    assert ((change.max(axis=3) - change.min(axis=3)).max(axis=(0, 1)) <= 4 * bounds).all()
    assert (change.max(axis=3) - change.min(axis=3)).max() > 3 * bounds.min()


def test_the_steps_are_paid_for_by_one_regression_a_node():
    fitted = model(steps=7)
    assert fitted.steps_for(None) == 7
    assert step_rho(Exposure.of_logistic(4), fitted.multiple(7), 7, ADD) <= 1.0
    assert fitted.multiple(7) == step_scale(Exposure.of_logistic(4), 1.0, 7, ADD)


def test_order_two_is_the_map_of_an_ising_model():
    family = Monomials.complete(4, 2)
    rng = np.random.default_rng(3)
    h = rng.normal(0, 0.3, len(family)) * (family.orders > 0)
    codes, counts = population(family, h, 10**7)
    settings = {"width": 2.0, "rho": 100.0, "adjacency": ADD, "steps": 400}
    coefficients = model(sets=family, **settings).learn(codes, counts, None, source(4))[0]
    ising = frank_wolfe.PairwiseByPairs(
        cardinalities=(2,) * 4, eligible=~np.eye(4, dtype=bool), is_ising=True, **settings
    )
    A, fields = ising.learn(codes, counts, None, source(5))
    for i, j in itertools.combinations(range(4), 2):
        assert coefficients[family.positions[i, j]] == pytest.approx(A[i, j], abs=0.02)
        assert coefficients[family.positions[i, j]] == pytest.approx(
            h[family.positions[i, j]], abs=0.02
        )
    assert coefficients[family.positions[2,]] == pytest.approx(fields[2], abs=0.02)


@pytest.mark.parametrize(
    "law", [None, pytest.param(NoNoise(), marks=pytest.mark.slow)], ids=["l1", "linf"]
)
def test_coefficients_are_recovered(law):
    family = Monomials.complete(4, 3)
    h = triple(family)
    codes, counts = population(family, h, 10**7)
    found = model(rho=1000.0, steps=1000, parity_law=law).learn(codes, counts, 1e7, source(6))[0]
    assert found[0] == 0.0
    for maximal in ((0, 1, 2), (2, 3)):
        assert found[family.positions[maximal]] == pytest.approx(
            h[family.positions[maximal]], abs=0.02
        )
    if law is None:
        assert np.abs(found - h).max() < 0.02


def test_the_second_algorithm_gathers_what_was_spread_over_supersets():
    family = Monomials.complete(4, 3)
    fitted = model(parity_law=NoNoise())
    rng = np.random.default_rng(7)
    halves = rng.normal(size=(4, len(fitted.features))) * (fitted.places >= 0)
    spins = rng.choice([-1, 1], (500, 4))
    columns = np.array([spins[:, list(members)].prod(axis=1) for members in fitted.features])
    gathered = fitted._gathered(halves, columns.mean(axis=1))
    for i, place in itertools.product(range(4), range(len(fitted.features))):
        inner = set(list(fitted.features)[place])
        derivative = sum(  # the mean over records of the derivative of v_i by the variables of I
            halves[i, at] * spins[:, sorted(set(members) - inner)].prod(axis=1)
            for at, members in enumerate(fitted.features)
            if inner <= set(members)
        )
        assert gathered[i, place] == pytest.approx(float(np.mean(derivative)), abs=1e-12)
    assert family.order == 3


def test_steps_follow_the_total_unless_given():
    assert model(steps=12).steps_for(None) == 12
    assert model().steps_for(1e6) > model().steps_for(1e4) >= 10
