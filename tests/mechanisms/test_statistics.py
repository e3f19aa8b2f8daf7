"""The mechanisms that release tables, each against the contract, and what is their own."""

from __future__ import annotations

import math
import pickle
import sys
import types
import warnings
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from silence import no_noise_warning

import bayesprivmrf as bpm
from bayesprivmrf import queries
from bayesprivmrf.errors import ArgumentError, DataError, ModelError, NoiseWarning, PrivacyError
from bayesprivmrf.mechanisms import (
    ExactStatistics,
    GaussianStatistics,
    LaplaceStatistics,
    Mechanism,
    ObjectivePerturbation,
    StatisticsMechanism,
    available_mechanisms,
    calibration,
    discrete_gaussian_laws,
    discrete_laplace_laws,
    promised_loss,
)
from bayesprivmrf.model import Domain, ModelSpecification
from bayesprivmrf.privacy import (
    Adjacency,
    DiscreteGaussian,
    DiscreteLaplace,
    Gaussian,
    Laplace,
    NoiseLaw,
    NoNoise,
    PrivacyGuarantee,
)

from . import contract
from .contract import MODEL, Account, Replay, TablesContract, frame, released, sample

WEIGHTS = {(0, "a"): 3.0, ("c", "a"): 1.0}
BAD_BUDGETS = [
    0,
    0.0,
    -1.0,
    math.nan,
    math.inf,
    -math.inf,
    True,
    np.bool_(True),
    "1",
    None,
    1j,
    [1.0],
]


class TestLaplace(TablesContract):
    budget = 0.7

    def make(self, **more):
        return LaplaceStatistics(**{"epsilon": 0.7} | more)


class TestLaplaceWeighted(TablesContract):
    budget = 1 / 3

    def make(self, **more):
        return LaplaceStatistics(**{"epsilon": 1 / 3, "weights": WEIGHTS} | more)


class TestGaussian(TablesContract):
    budget = 0.3

    def make(self, **more):
        return GaussianStatistics(**{"rho": 0.3} | more)


class TestGaussianWeighted(TablesContract):
    budget = 0.1

    def make(self, **more):
        return GaussianStatistics(**{"rho": 0.1, "weights": WEIGHTS} | more)


@pytest.mark.filterwarnings("ignore::bayesprivmrf.errors.NoiseWarning")
@pytest.mark.parametrize(("adjacency", "factor"), [("add-or-remove-one", 1), ("replace-one", 2)])
def test_scales_are_the_stated_formulas(adjacency, factor):
    def laws_of(mechanism):
        return mechanism.release(MODEL, sample(5)).noise

    laws = laws_of(LaplaceStatistics(epsilon=0.5, adjacency=adjacency))
    assert [law.scale for law in laws] == pytest.approx([2 * factor / 0.5] * 2, rel=1e-14)
    laws = laws_of(LaplaceStatistics(epsilon=0.5, weights=WEIGHTS, adjacency=adjacency))
    assert [law.scale for law in laws] == pytest.approx([factor / 0.375, factor / 0.125], rel=1e-14)
    laws = laws_of(GaussianStatistics(rho=0.5, adjacency=adjacency))
    assert [law.scale**2 for law in laws] == pytest.approx([2 * factor / 1.0] * 2, rel=1e-14)
    laws = laws_of(GaussianStatistics(rho=0.5, weights=WEIGHTS, adjacency=adjacency))
    assert [law.scale**2 for law in laws] == pytest.approx(
        [factor / 0.75, factor / 0.25], rel=1e-14
    )


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.floats(0.01, 100), min_size=1, max_size=5),
    st.floats(1e-6, 50),
    st.sampled_from([1, 2]),
)
def test_the_promise_never_exceeds_the_budget_by_one_unit_in_the_last_place(
    weights, budget, sensitivity
):
    shares = [weight / sum(weights) for weight in weights]
    assert promised_loss(discrete_laplace_laws(shares, budget, sensitivity), sensitivity) <= budget
    root = math.nextafter(math.sqrt(sensitivity), math.inf) if sensitivity > 1 else 1.0
    assert promised_loss(discrete_gaussian_laws(shares, budget, root), root) <= budget


@pytest.mark.parametrize("value", BAD_BUDGETS)
def test_a_bad_budget_is_refused_by_name(value):
    with pytest.raises(ArgumentError, match="`epsilon` must be positive and finite"):
        LaplaceStatistics(epsilon=value)
    with pytest.raises(ArgumentError, match="`rho` must be positive and finite"):
        GaussianStatistics(rho=value)


def test_a_budget_too_small_for_whole_number_noise_is_refused_before_the_data_is_read():
    with pytest.raises(ArgumentError, match="larger budget"):
        LaplaceStatistics(epsilon=1e-300).release(MODEL, "not even a frame")


@pytest.mark.parametrize(
    ("weights", "match"),
    [
        ({("a", 0): 1.0}, "have each measured table once"),
        ({("a", 0): 1.0, ("a", "c"): 1.0, (0, "a"): 1.0}, r"\(0, 'a'\)\]"),
        ({("a", 0): 1.0, ("a", "c"): 1.0, ("a",): 1.0}, r"the measured tables are \('a', 0\)"),
    ],
)
def test_weights_that_do_not_fit_the_tables_are_refused(weights, match):
    with pytest.raises(ArgumentError, match=match):
        LaplaceStatistics(epsilon=1.0, weights=weights).preview(MODEL)


@pytest.mark.parametrize("laws", [discrete_laplace_laws, discrete_gaussian_laws])
@pytest.mark.parametrize(
    "shares", [[0.6, 0.6], [1.0 + 1e-9], [0.5, 0.0], [-0.5, 0.5], [math.nan], [math.inf]]
)
def test_shares_that_are_no_division_of_one_budget_are_refused(laws, shares):
    requirement = (
        "must add up" if sum(shares) > 1 and math.isfinite(sum(shares)) else "must be positive"
    )
    with pytest.raises(ArgumentError, match=f"shares.*{requirement}"):
        laws(shares, 1.0, 1)


@pytest.mark.parametrize("make", [lambda w: LaplaceStatistics(epsilon=1.0, weights=w),
                                  lambda w: GaussianStatistics(rho=1.0, weights=w)])  # fmt: skip
@pytest.mark.parametrize("pair", [(1e-300, 1e300), (1e308, 1e308)])
def test_weights_that_no_float_can_divide_are_refused_by_name(make, pair):
    with pytest.raises(ArgumentError, match="`weights` must leave"):
        make(dict(zip([("a", 0), ("c", "a")], pair, strict=True))).preview(MODEL)


@pytest.mark.parametrize("budget", [1e-320, 1e-308, 1e4, 1e300, 1e308, sys.float_info.max])
def test_a_budget_beyond_any_use_is_refused_before_the_data_is_read(budget):
    for mechanism in (LaplaceStatistics(epsilon=budget), GaussianStatistics(rho=budget)):
        with pytest.raises((ArgumentError, PrivacyError), match="budget"):
            mechanism.release(MODEL, "not even a frame")


def test_scales_that_opendp_never_accepts_end_in_an_error():
    class Costly(DiscreteLaplace):
        def measurement(self):
            return self

        def map(self, distance):
            return 2.0 * distance

    with pytest.raises(ArgumentError, match="must keep to it"):
        calibration._rounded_up(Costly, [1.0], "epsilon", 1.0, 1)


@pytest.mark.parametrize("weight", [0, -1.0, math.nan, math.inf, True])
def test_a_weight_that_is_not_positive_is_refused(weight):
    with pytest.raises(ArgumentError, match="weights"):
        GaussianStatistics(rho=1.0, weights={("a", 0): weight})
    with pytest.raises(ArgumentError, match="mapping"):
        GaussianStatistics(rho=1.0, weights=[1.0, 2.0])


@pytest.mark.parametrize("rng", [True, -1, 1.5, "seed", np.random.RandomState(0)])
def test_a_seed_of_another_kind_is_refused(rng):
    with pytest.raises(ArgumentError, match="`rng` must be"):
        LaplaceStatistics(epsilon=1.0).release(MODEL, sample(5), rng=rng)


class Unread:
    """Data that nobody may look at."""

    def __getattribute__(self, name):
        raise AssertionError("the data was looked at")


@pytest.mark.parametrize(
    "ledger",
    [object(), Account, types.SimpleNamespace(spend=3)],
    ids=["object", "class", "no method"],
)
def test_what_cannot_be_charged_is_refused_as_a_ledger_before_the_data_is_read(ledger):
    with pytest.raises(ArgumentError, match="`ledger` must be an object with a method `spend`"):
        LaplaceStatistics(epsilon=1.0).release(MODEL, Unread(), ledger=ledger)


def test_a_simulated_release_is_not_charged_to_a_ledger():
    account = Account()
    with pytest.raises(ArgumentError, match="must be None where `rng` is given"):
        LaplaceStatistics(epsilon=1.0).release(MODEL, Unread(), rng=1, ledger=account)
    assert account.spent == []


def test_variables_alone_are_refused_with_the_remedy():
    singles = tuple((v,) for v in MODEL.domain.variables)
    alone = ModelSpecification(domain=MODEL.domain, cliques=singles, cliques_declared=False)
    with pytest.raises(ModelError, match="cliques"):
        LaplaceStatistics(epsilon=1.0).preview(alone)


def test_a_pgmpy_network_and_its_specification_give_the_same_release():
    from bayesprivmrf.model import declare

    network = declare({"a": ["u", "v"], "b": [2, 1]}, [("a", "b")])
    model = ModelSpecification.from_pgmpy(network)
    data = pd.DataFrame({"a": ["u"] * 30 + ["v"] * 70, "b": [1] * 50 + [2] * 50})
    mechanism = LaplaceStatistics(epsilon=5.0)
    assert mechanism.release(network, data, rng=1) == mechanism.release(model, data, rng=1)


@pytest.mark.filterwarnings("ignore::bayesprivmrf.errors.NoiseWarning")
def test_impossible_cells_are_public_zeros_and_the_other_cells_keep_their_noise():
    model = ModelSpecification(
        domain=MODEL.domain, cliques=MODEL.cliques, impossible=((("a", "u"), (0, 7)),)
    )
    data = frame([("v", 7, True)] * 50 + [("u", 5, False)] * 50)
    for seed in range(20):
        release = LaplaceStatistics(epsilon=0.05).release(model, data, rng=seed)
        assert release.tables["a", 0][0, 0] == 0
        assert release.tables["a", 0].any()
    with pytest.raises(DataError, match="declared impossible"):
        LaplaceStatistics(epsilon=1.0).release(model, frame([("u", 7, True)]))


@pytest.mark.filterwarnings("ignore::bayesprivmrf.errors.NoiseWarning")
def test_noise_has_the_stated_law_in_every_table():
    # chi-square of standardised residuals, level 1e-4 by a normal bound on the mean of squares
    sizes = {"a": 40, "b": 50, "c": 30}
    model = ModelSpecification(
        domain=Domain.from_states({name: range(size) for name, size in sizes.items()}),
        cliques=(("a", "b"), ("c", "a")),
    )
    mechanism = LaplaceStatistics(epsilon=1.0, weights={("a", "b"): 3, ("c", "a"): 1})
    rng = np.random.default_rng(11)
    data = pd.DataFrame({name: rng.integers(0, size, 2000) for name, size in sizes.items()})
    exact = ExactStatistics().release(model, data).tables.flat
    releases = [mechanism.release(model, data, rng=rng) for _ in range(20)]
    residuals = np.array([release.tables.flat - exact for release in releases])
    for position, law in enumerate(releases[0].noise):
        part = residuals[:, model.offsets[position] : model.offsets[position + 1]]
        squares = part.astype(float) ** 2
        error = squares.std() / math.sqrt(squares.size)
        assert abs(squares.mean() - law.variance) < 4 * error
        assert abs(part.mean()) < 4 * math.sqrt(law.variance / part.size)


def test_exact_statistics_promise_nothing_and_say_so(tmp_path):
    data = sample(40)
    release = ExactStatistics().release(MODEL, data)
    assert release.guarantee is None
    assert release.tables["a", 0].sum() == 40
    assert "No privacy guarantee" in repr(release)
    with pytest.raises(PrivacyError, match="allow_unprotected"):
        release.save(tmp_path / "x.release")
    with pytest.raises(PrivacyError, match="promises nothing"):
        ExactStatistics().release(MODEL, data, ledger=Account())


# preview and warnings


def test_preview_states_noise_and_the_records_needed_without_data():
    table = LaplaceStatistics(epsilon=0.5).preview(MODEL)
    assert list(table.columns) == ["clique", "cells", "noise_sd", "records_needed"]
    law = LaplaceStatistics(epsilon=0.5).release(MODEL, sample(2000)).noise[0]
    assert table["noise_sd"][0] == law.standard_deviation
    assert list(table["cells"]) == [6, 4]
    # at that N the noise is a tenth of an even cell
    assert law.standard_deviation == pytest.approx(0.1 * table["records_needed"][0] / 6, rel=1e-2)


def test_the_laws_told_beforehand_are_those_of_the_release():
    asked = {"queries": [queries.table("a"), queries.table("a", 0)], "weights": [1.0, 3.0]}
    for mechanism in (LaplaceStatistics(epsilon=0.5), GaussianStatistics(rho=0.1, **asked)):
        assert mechanism.noise_laws(MODEL) == mechanism.release(MODEL, sample(50), rng=1).noise


def test_preview_counts_possible_cells_only():
    model = ModelSpecification(
        domain=MODEL.domain, cliques=MODEL.cliques, impossible=((("a", "u"), (0, 7)),)
    )
    assert list(GaussianStatistics(rho=0.5).preview(model)["cells"]) == [5, 4]


def test_preview_compares_with_a_guessed_total_and_warns_where_noise_drowns():
    mechanism = LaplaceStatistics(epsilon=0.5)
    table = mechanism.preview(MODEL, total=6000)
    assert table["even_cell"][0] == 1000
    assert table["relative_noise"][0] == pytest.approx(table["noise_sd"][0] / 1000)
    with pytest.warns(NoiseWarning, match="2 of 2 tables"):
        mechanism.preview(MODEL, total=5)
    for total in (-1, math.nan, math.inf, True, "many"):
        with pytest.raises(ArgumentError, match="`total`"):
            mechanism.preview(MODEL, total=total)


def test_a_drowned_release_warns_and_a_clear_one_does_not():
    with pytest.warns(
        NoiseWarning, match=r"larger than an even cell .*, or take more records\.$"
    ) as caught:
        LaplaceStatistics(epsilon=0.001).release(MODEL, sample(2000), rng=0)
    assert caught[0].filename == __file__
    with no_noise_warning():
        LaplaceStatistics(epsilon=1.0).release(MODEL, sample(2000), rng=0)


@pytest.mark.parametrize("action", ["error", "always", "ignore"])
def test_no_warning_filter_loses_a_release_that_was_paid_for(action):
    account = Account()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter(action)
        release = released(
            LaplaceStatistics(epsilon=0.001), MODEL, sample(2000), Replay(), ledger=account
        )
    assert account.spent == [(release.guarantee, release.provenance)]
    assert [warning.category for warning in caught] == [NoiseWarning] * (action != "ignore")
    assert all(
        warning.filename == contract.__file__ for warning in caught
    )  # where `release` is called


def test_a_preview_warns_as_an_error_where_warnings_are_errors():
    with pytest.raises(NoiseWarning):
        LaplaceStatistics(epsilon=0.5).preview(MODEL, total=5)


# plugins


def test_entry_points_bring_the_mechanisms():
    found = available_mechanisms()
    assert found["laplace"] is LaplaceStatistics
    assert found["gaussian"] is GaussianStatistics
    assert found["objective-perturbation"] is ObjectivePerturbation
    assert all(issubclass(mechanism, Mechanism) for mechanism in found.values())


@pytest.mark.filterwarnings("ignore::bayesprivmrf.errors.NoiseWarning")
def test_settings_survive_pickling_and_travel_as_text_in_the_provenance():
    mechanism = LaplaceStatistics(epsilon=1.0, weights=WEIGHTS, adjacency=Adjacency.REPLACE_ONE)
    assert pickle.loads(pickle.dumps(mechanism)) == mechanism
    stored = mechanism.release(MODEL, sample(50)).provenance.settings
    assert stored["epsilon"] == 1.0
    assert stored["adjacency"] == "replace-one"
    assert stored["weights"] == {"(0, 'a')": 3.0, "('c', 'a')": 1.0}


def test_a_wrong_number_of_noise_laws_is_the_plugins_error():
    @dataclass(frozen=True, kw_only=True)
    class Forgetful(ExactStatistics):
        def _noise(self, specification):
            return ()

    with pytest.raises(ArgumentError, match="one for each of 2, got 0"):
        Forgetful().release(MODEL, sample(5))


@dataclass(frozen=True, kw_only=True)
class Bare(StatisticsMechanism):
    """Promises what its noise does not keep."""

    laws: tuple = ()

    def _noise(self, specification):
        return self.laws

    def _promise(self, specification):
        return PrivacyGuarantee(epsilon=1.0, adjacency=self.adjacency)


@pytest.mark.parametrize(
    "second", [NoNoise(), DiscreteLaplace(1e-4), DiscreteGaussian(1e-3)], ids=str
)
def test_a_promise_over_a_table_without_noise_is_refused_before_the_data_is_read(second):
    account = Account()
    with pytest.raises(PrivacyError, match="must add noise to every table"):
        Bare(laws=(DiscreteLaplace(1.0), second)).release(MODEL, "never looked at", ledger=account)
    assert account.spent == []


@dataclass(frozen=True)
class Plain(NoiseLaw):
    """Noise of whole numbers with an exact draw, as plain as can be."""

    name: ClassVar[str] = "plain"
    is_discrete: ClassVar[bool] = True
    variance: ClassVar[float] = 1.0
    detail: Any = 1

    def log_density(self, residual):
        return np.where(np.abs(residual) == 1, -np.log(2), -np.inf)

    score = log_density

    def draw(self, size, rng):
        return rng.choice([-1, 1], size)

    def add_exactly(self, counts, words):
        return (
            counts
            - 1
            + 2 * (words(counts.size) % np.uint64(2)).astype(np.int64).reshape(counts.shape)
        )


@dataclass(frozen=True, eq=False)
class Unequal(Plain):
    name: ClassVar[str] = "unequal"
    __hash__ = object.__hash__

    def __eq__(self, other):
        return False


@dataclass(frozen=True)
class Nameless(Plain):
    """It would be read again as its parent."""


@dataclass(frozen=True)
class Inexact(Plain):
    name: ClassVar[str] = "inexact"
    add_exactly = NoiseLaw.add_exactly


@pytest.mark.parametrize(
    ("law", "error", "words"),
    [
        (Gaussian(2.0), PrivacyError, "'gaussian', which is continuous"),
        (Laplace(2.0), PrivacyError, "'laplace', which is continuous"),
        (Inexact(), PrivacyError, "'inexact', which has no exact draw"),
        (Unequal(), ArgumentError, "must equal the one that is read back"),
        (Nameless(), ArgumentError, "a `name` of its own"),
        (
            Plain(detail=(1, 2)),
            ArgumentError,
            "`detail` .* must be a finite number or text, .* got tuple",
        ),
        (Plain(detail="\ud800"), ArgumentError, "that JSON in UTF-8 can hold"),
        (Plain(detail=10**5000), ArgumentError, "that JSON in UTF-8 can hold"),
        (Plain(detail=math.nan), ArgumentError, "`detail` .* must be a finite number"),
        ("laplace", ArgumentError, "must be a NoiseDistribution, got a str"),
    ],
)
def test_noise_that_cannot_be_drawn_or_written_down_is_refused_before_anything_is_spent(
    law, error, words
):
    account = Account()
    with pytest.raises(error, match=words):
        Bare(laws=(Plain(), law)).release(MODEL, "never looked at", ledger=account)
    assert account.spent == []


def test_a_model_without_variables_is_refused():
    empty = ModelSpecification(domain=Domain.from_states({}), cliques=())
    with pytest.raises(ModelError, match="at least one variable"):
        LaplaceStatistics(epsilon=1.0).preview(empty)


def test_a_model_too_wide_for_exact_inference_is_warned_of_before_anything_is_spent():
    from itertools import combinations

    from bayesprivmrf.errors import DeclarationWarning

    names = [f"v{i}" for i in range(32)]
    wide = ModelSpecification(
        domain=Domain.from_states({name: [0, 1] for name in names}),
        cliques=tuple(combinations(names, 2)),
    )
    data = pd.DataFrame({name: [0, 1] for name in names})
    with pytest.warns(DeclarationWarning, match="inference='loopy' only"):
        ExactStatistics().release(wide, data)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(DeclarationWarning):
            LaplaceStatistics(epsilon=1.0).release(wide, data, ledger=Refusing())


class Refusing:
    def spend(self, guarantee, provenance):
        raise AssertionError("nothing may be spent")


@pytest.mark.parametrize("argument", ["missing", "other"])
def test_a_state_of_missing_answers_among_scores_is_refused(argument):
    """The state would have a score."""
    states = {"pain": [1, 2, 3, "none"], "sex": ["f", "m"]}
    people = pd.DataFrame({"pain": [1, 2, 3] * 40, "sex": ["f", "m", "f"] * 40})
    settings: Any = {argument: {"pain": "none"}}
    scored = bpm.declare(states=states, cliques=[("pain", "sex")], ordinal=["pain"])
    message = f"`{argument}` must not name .*`ordinal`.*fill or drop such values"
    with pytest.raises(ArgumentError, match=message):
        LaplaceStatistics(epsilon=1.0, **settings).release(scored, people, rng=1)
    free = bpm.declare(states=states, cliques=[("pain", "sex")])
    assert LaplaceStatistics(epsilon=1.0, **settings).release(free, people, rng=1)
