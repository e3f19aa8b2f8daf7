"""ParityQueries: what it releases, spends and refuses; and models fitted to it."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from silence import no_noise_warning

import bayesprivmrf as bpm
from bayesprivmrf.audit import Choices, Sums
from bayesprivmrf.errors import (
    ArgumentError,
    DataError,
    ModelError,
    ModelTooLargeError,
    NoiseWarning,
    ReleaseFileError,
    UndeclaredStateError,
)
from bayesprivmrf.learning import LearnedMonomials, ReleasedParities, calibrated, parities
from bayesprivmrf.marginals import marginal_engine
from bayesprivmrf.mechanisms import ParityQueries, promised_loss
from bayesprivmrf.mechanisms.parities.mechanism import MOST_ROUNDS
from bayesprivmrf.model import Monomials
from bayesprivmrf.privacy import selection_rho

METHODS = ["gaussian", "pmw", "auto"]
NAMES = ("z", 0, "a", 7)  # neither sorted nor all text


def frame(records: int, seed: int = 0) -> pd.DataFrame:
    """Records of four variables: the product of the first three is mostly +1, the last is alone."""
    rng = np.random.default_rng(seed)
    spins = rng.choice([-1, 1], (records, 4))
    spins[:, 2] = np.where(rng.random(records) < 0.85, 1, -1) * spins[:, 0] * spins[:, 1]
    return pd.DataFrame({name: np.where(spins[:, v] > 0, "b", "c") for v, name in enumerate(NAMES)})


def network(cliques=None):
    return bpm.declare(states={name: ["c", "b"] for name in NAMES}, cliques=cliques)  # "c" is -1


def truth(data: pd.DataFrame, names: tuple) -> float:
    return float(np.prod([np.where(data[name] == "b", 1, -1) for name in names], axis=0).mean())


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("adjacency", ["add-or-remove-one", "replace-one"])
def test_values_are_near_the_expectations_and_keyed_by_variables(method, adjacency):
    data = frame(20_000)
    rounds = 6 if method == "pmw" else None
    mechanism = ParityQueries(rho=1.0, order=3, method=method, rounds=rounds, adjacency=adjacency)
    release = mechanism.release(network(), data, rng=2)
    assert list(release.values.index) == [
        t for k in (1, 2, 3) for t in itertools.combinations(NAMES, k)
    ]
    for names, value in release.values.items():
        assert abs(value - truth(data, names)) < 0.03
    assert release.values["z", 0, "a"] > 0.5
    assert release.total == pytest.approx(20_000, abs=80)
    assert release.total == 20_000 or adjacency != "replace-one"
    assert release.guarantee.rho == 1.0
    assert "protects nobody" in repr(release)
    assert math.isnan(release.standard_deviation) == (method == "pmw")


def test_a_gaussian_release_has_integer_sums_and_the_stated_spread():
    data = frame(3_000)
    mechanism = ParityQueries(rho=0.5, order=2, method="gaussian")
    releases = [mechanism.release(network(), data, rng=seed) for seed in range(40)]
    assert (releases[0].sums == np.rint(releases[0].sums)).all()
    law = releases[0].law
    assert law is not None
    assert law.scale == pytest.approx(math.sqrt(11 / (2 * 0.5)), rel=1e-9)  # 11 sums, one apiece
    exact = [3_000.0] + [3_000 * truth(data, names) for names in releases[0].values.index]
    errors = np.array([release.sums - exact for release in releases])
    assert (errors[:, 0] != 0).sum() > 20  # the number of records is noisy as well
    assert errors.std() == pytest.approx(law.standard_deviation, rel=4 / math.sqrt(2 * errors.size))
    assert releases[0].standard_deviation == pytest.approx(
        law.standard_deviation / releases[0].total
    )


def test_declared_cliques_hold_the_parities_and_save_noise():
    narrow = ParityQueries(rho=1.0, order=3, method="gaussian").release(
        network([("z", 0), (0, "a"), (7,)]), frame(500), rng=1
    )
    assert set(narrow.values.index) == {("z",), (0,), ("a",), (7,), ("z", 0), (0, "a")}
    wide = ParityQueries(rho=1.0, order=3, method="gaussian").release(network(), frame(500), rng=1)
    assert narrow.standard_deviation < wide.standard_deviation


@pytest.mark.parametrize("adjacency", ["add-or-remove-one", "replace-one"])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("rho", [1e-3, 0.1, 30.0])
def test_what_is_spent_adds_up_to_no_more_than_the_budget(method, adjacency, rho):
    moved = 1.0 if adjacency == "add-or-remove-one" else 2.0
    for rounds in (1, 7, MOST_ROUNDS) if method == "pmw" else (None,):
        mechanism = ParityQueries(
            rho=rho, order=2, method=method, adjacency=adjacency, rounds=rounds
        )
        for total in (5.0, 1e9):  # so that "auto" takes either method
            *bought, step = mechanism.outlays(network(), total)
            assert len(bought) == (adjacency == "add-or-remove-one" and method != "gaussian")
            spent = sum((promised_loss([one.draws[0].law], 1.0) for one in bought), Fraction(0))
            choices = [draw for draw in step.draws if isinstance(draw, Choices)]
            laws = [draw.law for draw in step.draws if isinstance(draw, Sums)]
            if not choices:  # Gaussian noise on all sums at once
                squared = (
                    24 if adjacency == "replace-one" else 11 - len(bought)
                )  # 4 * 6: one of four flipped
                spent += Fraction(squared) / (2 * Fraction(laws[0].scale) ** 2)
                assert 0.999 * rho < spent <= Fraction(rho) * (1 + Fraction(2) ** -50)
                continue
            made = step.count
            assert rounds in (None, made)
            spent += Fraction(selection_rho(2 * moved, choices[0].scale, made))
            assert len(laws) == 1
            spent += sum((promised_loss([law] * made, moved) for law in laws), Fraction(0))
            assert 0.999 * rho < spent <= Fraction(rho)


@pytest.mark.filterwarnings("ignore::bayesprivmrf.errors.NoiseWarning")
def test_auto_takes_gaussian_noise_where_it_is_small():
    small, large = frame(200), frame(50_000)
    mechanism = ParityQueries(rho=0.01, order=3)
    assert mechanism.release(network(), small, rng=1).details["method"] == "pmw"
    assert mechanism.release(network(), large, rng=1).details["method"] == "gaussian"


def test_noise_is_secure_unless_seeded_and_a_seed_repeats_it():
    data = frame(300)
    for method in METHODS:
        mechanism = ParityQueries(rho=1.0, order=1, method=method)
        assert not mechanism.release(network(), data).provenance.simulated
        first, second = (mechanism.release(network(), data, rng=3) for _ in range(2))
        assert first.sums.tolist() == second.sums.tolist()


@pytest.mark.filterwarnings("ignore::bayesprivmrf.errors.NoiseWarning")
@pytest.mark.parametrize("method", METHODS)
def test_no_records_are_protected_under_add_or_remove_and_refused_under_replace_one(method):
    release = ParityQueries(rho=1.0, order=2, method=method).release(network(), frame(0), rng=1)
    assert release.total >= 1
    assert np.isfinite(release.values).all()
    with pytest.raises(DataError, match="at least one record"):
        ParityQueries(rho=1.0, order=2, method=method, adjacency="replace-one").release(
            network(), frame(0)
        )


def test_the_model_fitted_to_exact_means_is_the_one_that_made_them():
    family = Monomials.complete(4, 3)
    rng = np.random.default_rng(5)
    h = rng.normal(0, 0.4, len(family)) * (family.orders > 0)
    spins = np.array(list(itertools.product((-1, 1), repeat=4)))
    products = np.array([spins[:, list(members)].prod(axis=1) for members in family])
    weights = np.exp(h @ products)
    means = products @ weights / weights.sum()
    fitted, details = parities.fit_parities(family, means, np.zeros(len(family)))
    assert details["status"] == "converged"
    assert np.abs(fitted - h).max() < 1e-5


def test_a_fit_recovers_the_triple_and_its_network_has_the_released_expectations():
    release = ParityQueries(rho=1.0, order=3, method="gaussian").release(
        network(), frame(20_000), rng=1
    )
    model = release.fit()
    assert isinstance(model, LearnedMonomials)
    assert model.details["status"] == "converged"
    assert model.monomials["z", 0, "a"] == pytest.approx(math.atanh(0.7), abs=0.04)
    assert model.monomials.drop([("z", 0, "a")]).abs().max() < 0.04
    assert set(model.graph(0.3).edges) == {("z", 0), ("z", "a"), (0, "a")}
    assert model.width == pytest.approx(
        model.monomials[[t for t in model.monomials.index if "z" in t]].abs().sum(), rel=0.2
    )
    from pgmpy.inference import VariableElimination

    factor = VariableElimination(model.network).query(["z", 0, "a"], show_progress=False)
    signs = [
        [-1 if state == "c" else 1 for state in factor.state_names[v]] for v in factor.variables
    ]
    expectation = np.einsum("ijk,i,j,k", factor.values / factor.values.sum(), *signs)
    assert expectation == pytest.approx(release.values["z", 0, "a"], abs=0.01)


def test_potentials_are_those_of_the_coefficients():
    family = Monomials.complete(3, 3)
    rng = np.random.default_rng(6)
    h = rng.normal(size=len(family)) * (rng.random(len(family)) < 0.6)
    domain = bpm.Domain.from_states({name: ["c", "b"] for name in ("z", 0, "a")})
    release = ParityQueries(rho=1.0, order=1).release(network(), frame(50), rng=1)
    model = LearnedMonomials(
        domain=domain,
        sets=family,
        coefficients=h,
        guarantee=release.guarantee,
        provenance=release.provenance,
    )
    engine = marginal_engine([2] * 3, [*model.specification.scopes, (0, 1, 2)])
    _, marginals = engine.marginals(np.append(model.potentials.flat, np.zeros(8)))
    spins = np.array(list(itertools.product((-1, 1), repeat=3)))
    weights = np.exp(
        sum(c * spins[:, list(members)].prod(axis=1) for members, c in zip(family, h, strict=True))
    )
    assert np.abs(marginals[-8:] - weights / weights.sum()).max() < 1e-12


def test_a_lower_order_fit_is_pairwise_and_multiplicative_weights_are_fitted_exactly():
    release = ParityQueries(rho=1.0, order=3, method="pmw", rounds=4).release(
        network(), frame(5_000), rng=1
    )
    assert release.fit(2).order == 2
    model = release.fit()
    assert model.details["status"] == "converged"
    _, marginals = marginal_engine([2] * 4, model.specification.scopes).marginals(
        model.potentials.flat
    )
    table = model.specification.tables(marginals)["z", 0, "a"]
    spins = np.array([-1, 1])
    expectation = np.einsum("ijk,i,j,k", table, spins, spins, spins)
    assert expectation == pytest.approx(release.values["z", 0, "a"], abs=1e-5)


@pytest.mark.parametrize(
    ("method", "cliques"), [("gaussian", [("z", 0), (0, "a"), (7,)]), ("pmw", None)]
)
def test_a_release_and_its_fit_come_back_from_their_files(tmp_path, cliques, method):
    release = ParityQueries(rho=1.0, order=2, method=method).release(
        network(cliques), frame(500), rng=1
    )
    release.save(tmp_path / "parities.release")
    loaded = bpm.load_release(tmp_path / "parities.release")
    assert isinstance(loaded, ReleasedParities)
    assert loaded.values.equals(release.values)
    assert loaded.sets == release.sets
    assert (loaded.law, loaded.total_law, loaded.guarantee) == (
        release.law,
        release.total_law,
        release.guarantee,
    )
    assert loaded.provenance.simulated
    assert loaded.details == release.details
    model = release.fit()
    model.save(tmp_path / "model.release")
    again = bpm.load_release(tmp_path / "model.release")
    assert isinstance(again, LearnedMonomials)
    assert again.monomials.equals(model.monomials)
    assert again.details == model.details
    assert again.total_noise == model.total_noise
    if method == "gaussian":
        assert again.couplings_interval(rng=1, replicates=2).equals(
            model.couplings_interval(rng=1, replicates=2)
        )
    assert again.domain == model.domain
    with pytest.raises(ReleaseFileError, match="another release"):
        release.save(tmp_path / "model.release")


@pytest.mark.slow
def test_an_interval_of_a_fit_is_as_wide_as_noise_and_sampling_make_it():
    mechanism = ParityQueries(rho=0.1, order=3, method="gaussian")
    models = [
        mechanism.release(network(), frame(4_000, seed), rng=seed).fit(ridge=0.0)
        for seed in range(24)
    ]
    model = models[0]
    found = model.couplings_interval(prob=0.9, rng=2, replicates=20)
    assert list(found.index) == [t for t in model.monomials.index if len(t) > 1]
    spread = np.std([each.monomials[found.index] for each in models], axis=0)
    again = calibrated.replicates_of(model, 40, np.random.default_rng(2))
    simulated = np.std([each.monomials[found.index] for each in again], axis=0)
    assert np.median(simulated / spread) == pytest.approx(1.0, abs=0.25)
    width = found["upper"] - found["lower"]
    assert (
        0.9 < np.median(width / (2 * 1.645 * spread)) < 1.6
    )  # not knowing the other coefficients widens it
    fields = model.couplings_interval(prob=0.9, rng=2, replicates=10, of="fields")
    assert list(fields.index) == [(v,) for v in NAMES]
    learned = (
        ParityQueries(rho=0.1, order=2, method="pmw").release(network(), frame(400), rng=1).fit()
    )
    with pytest.raises(ModelError, match="does not know"):
        learned.couplings_interval(rng=1)


@pytest.mark.filterwarnings("ignore::bayesprivmrf.errors.NoiseWarning")
def test_a_fit_of_drowned_parities_is_near_zero():
    release = ParityQueries(rho=1e-4, order=3, method="gaussian").release(
        network(), frame(300), rng=1
    )
    assert release.values.abs().max() > 1
    model = release.fit()
    assert model.details["status"] == "not trusted"
    assert model.monomials.abs().max() < 0.5


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"rho": 0.0}, "rho"),
        ({"rho": math.nan}, "rho"),
        ({"method": "laplace"}, "method"),
        ({"method": "sepfem"}, "`method` must be 'gaussian', 'pmw' or 'auto'"),
        ({"rounds": 0, "method": "pmw"}, "rounds"),
        ({"rounds": True, "method": "pmw"}, "rounds"),
        ({"rounds": 5}, r"rounds.*must be None"),
        ({"adjacency": "both"}, "adjacency"),
    ],
)
def test_settings_out_of_range_are_refused(settings, match):
    with pytest.raises(ArgumentError, match=match):
        ParityQueries(**{"rho": 1.0, "order": 2, **settings})


def test_what_does_not_fit_is_refused_before_the_records_are_read():
    class Never:
        def __getattr__(self, name: str) -> None:
            raise AssertionError("the records must not be looked at")

    for order in (0, 5, -1, 2.5):
        with pytest.raises(ArgumentError, match="order"):
            ParityQueries(rho=1.0, order=order).release(network(), Never())  # type: ignore[arg-type]
    three = bpm.declare(states={"a": [0, 1], "b": [0, 1, 2]})
    with pytest.raises(ModelError, match="two states"):
        ParityQueries(rho=1.0, order=2).release(three, Never())
    many = bpm.declare(states={v: [0, 1] for v in range(40)})
    with pytest.raises(ModelTooLargeError, match="multiplicative weights over 40"):
        ParityQueries(rho=1.0, order=2, method="pmw").release(many, Never())
    with pytest.raises(ModelTooLargeError, match="smaller order"):
        ParityQueries(rho=1.0, order=12).release(many, Never())
    with pytest.raises(ModelError, match="at least two variables"):
        ParityQueries(rho=1.0, order=1).release(bpm.declare(states={"a": [0, 1]}), Never())
    with pytest.raises(UndeclaredStateError):
        ParityQueries(rho=1.0, order=1).release(network(), frame(5).replace("b", "x"))


def test_a_release_refuses_what_does_not_fit_it():
    release = ParityQueries(rho=1.0, order=2, method="gaussian").release(
        network(), frame(50), rng=1
    )
    assert isinstance(release, ReleasedParities)
    for order in (0, 3, True):
        with pytest.raises(ArgumentError, match="order"):
            release.fit(order)
    for ridge in (-1.0, math.nan, math.inf):
        with pytest.raises(ArgumentError, match="ridge"):
            release.fit(ridge=ridge)


def test_noise_that_drowns_all_is_told_before_and_after():
    model = bpm.declare(states={v: [0, 1] for v in "abcdef"})
    data = pd.DataFrame(np.random.default_rng(0).integers(0, 2, (5000, 6)), columns=list("abcdef"))
    for method in METHODS:
        poor = ParityQueries(rho=1e-6, order=2, method=method)
        with pytest.warns(NoiseWarning, match="the noise hides interactions"):
            poor.preview(model, total=5000)
        with pytest.warns(NoiseWarning, match="the noise hides interactions"):
            release = poor.release(model, data, rng=1)
        if release.law is None:
            with pytest.raises(ModelError, match="method='gaussian'"):
                release.fit().couplings_interval(rng=1)
        with no_noise_warning():
            rich = ParityQueries(rho=1.0, order=2, method=method)
            rich.release(model, data, rng=1)
            table = rich.preview(model, total=5000)
        assert table["rho"].sum() == pytest.approx(1.0)


@pytest.mark.parametrize("adjacency", ["replace-one", "add-or-remove-one"])
def test_a_preview_has_the_noise_of_the_release(adjacency):
    model = bpm.declare(states={v: [0, 1] for v in "abcd"})
    data = pd.DataFrame(np.random.default_rng(0).integers(0, 2, (500, 4)), columns=list("abcd"))
    mechanism = ParityQueries(rho=0.5, order=3, method="gaussian", adjacency=adjacency)
    (row,) = mechanism.preview(model, total=500).to_dict(orient="records")
    release = mechanism.release(model, data, rng=1)
    assert row["noise_sd"] == pytest.approx(release.law.standard_deviation)
    assert row["count"] == 14 + (
        adjacency == "add-or-remove-one"
    )  # 4 + 6 + 4, and the number of records
    assert row["rho"] == pytest.approx(0.5)
