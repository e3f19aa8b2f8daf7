"""Records needed to learn: hard instances against their exact laws, bounds against mechanisms, laws against data."""

from __future__ import annotations

import importlib.util
import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom

from bayesprivmrf import planning
from bayesprivmrf.cli import main
from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.learning.sample_size import LAWS, rho_within
from bayesprivmrf.mechanisms import LaplaceStatistics
from bayesprivmrf.privacy import Adjacency, PrivacyGuarantee
from benchmarks.papers import zhang_learners
from benchmarks.papers.hard_instances import (
    Grouped,
    fingerprinting_error,
    packing,
    random_means,
    random_member,
)
from benchmarks.papers.lower_bounds import (
    Task,
    divergences,
    fano_nats,
    fingerprinting_records,
    for_replacing,
    log_members,
    packing_records,
    variation,
)
from benchmarks.papers.table_1 import TABLE_1
from benchmarks.papers.theorems import UPPER_BOUNDS

REPLACE = Adjacency.REPLACE_ONE
SMALL = [(4, 2, 2), (5, 2, 2), (5, 2, 3), (6, 2, 3), (4, 3, 2), (4, 4, 2)]  # p, k, s
RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


def promise(**numbers):
    return PrivacyGuarantee(adjacency=REPLACE, **numbers)


@pytest.mark.parametrize(("variables", "states", "order"), SMALL)
def test_packing_has_as_many_different_members_as_counted(variables, states, order):
    for groups in range(1, variables // order + 1):
        if states == 4 and groups > 1:
            continue  # 2^8 tables a matching
        members = list(packing(variables, 0.7, groups, order=order, states=states))
        signs = (states // 2) ** order
        counted = math.exp(log_members(variables, order, groups, signs))
        assert len(members) == 1 + round(counted)
        laws = {tuple(member.joint().round(12).ravel()) for member in members}
        assert len(laws) == len(members)


@pytest.mark.parametrize(("variables", "states", "order"), SMALL)
def test_closeness_of_a_record_is_as_the_bounds_take_it(variables, states, order):
    size, generator = 0.8, np.random.default_rng(3)
    forward, backward = divergences(size, states, order)
    uniform = np.full((states,) * variables, float(states) ** -variables)
    for groups in range(1, variables // order + 1):
        member = random_member(variables, size, groups, generator, order=order, states=states)
        law = member.joint()
        assert law.sum() == pytest.approx(1)
        assert (law * np.log(law / uniform)).sum() == pytest.approx(groups * forward)
        assert (uniform * np.log(uniform / law)).sum() == pytest.approx(groups * backward)
        assert abs(law - uniform).sum() / 2 <= variation(groups * min(forward, backward)) + 1e-12


@pytest.mark.parametrize("states", [2, 3, 4, 5])
def test_members_differ_by_the_size_in_what_no_choice_of_fields_changes(states):
    """All tables add to zero along both axes: they are the couplings themselves, and lie `size` apart at least."""
    tables = [np.zeros((states, states))]
    tables += [one.tables[0] for one in packing(2, 0.5, 1, states=states) if one.groups]
    for table in tables:
        assert np.abs(table.sum(axis=0)).max() == pytest.approx(0)
        assert np.abs(table.sum(axis=1)).max() == pytest.approx(0)
    for first, second in itertools.combinations(tables, 2):
        assert np.abs(first - second).max() >= 0.5 - 1e-12


def test_matrices_of_theorem_7_4_are_not_as_many_models_as_it_counts():
    """Symmetric matrices of 0 and eta for k = 2: eight of them, six distributions, and five couplings."""
    laws, couplings = set(), set()
    for a, b, c in itertools.product([0.0, 0.5], repeat=3):
        table = np.array([[a, b], [b, c]])
        laws.add(tuple((np.exp(table) / np.exp(table).sum()).round(12).ravel()))
        couplings.add(round((a + c - 2 * b) / 4, 12))
    assert len(laws) < 8
    assert len(couplings) < len(laws)


def test_samples_follow_the_law_of_a_member():
    member = random_member(5, 0.9, 1, np.random.default_rng(1), order=3)
    codes = member.codes(40_000, np.random.default_rng(2))
    cells = np.bincount(np.ravel_multi_index(codes.T, (2,) * 5), minlength=32)
    expected = 40_000 * member.joint().ravel()
    assert ((cells - expected) ** 2 / expected).sum() < 70  # chi-squared of 31 degrees: 1e-4 is 68


def test_groups_that_share_a_variable_are_refused():
    with pytest.raises(ArgumentError, match="each in one group"):
        Grouped(variables=3, states=2, groups=((0, 1), (1, 2)), tables=(np.zeros((2, 2)),) * 2)


@pytest.mark.parametrize("models", [2, 7, 1000])
def test_guessing_takes_no_information_and_certainty_takes_all(models):
    assert fano_nats(math.log(models - 1), 1 / models) == pytest.approx(0, abs=1e-9)
    assert fano_nats(math.log(models - 1), 1 - 1e-9) == pytest.approx(math.log(models), abs=1e-6)


def test_inequality_behind_fingerprinting_holds_for_any_estimate_of_a_few_records():
    """Sum of E T_r is at least a^2/3 less the mean squared error: integrated exactly, three records, random f."""
    generator, width = np.random.default_rng(5), 0.9
    largest = math.tanh(width)
    nodes, weights = np.polynomial.legendre.leggauss(40)
    records = np.array(list(itertools.product([-1, 1], repeat=3)))
    for estimate in generator.uniform(-largest, largest, (20, len(records))):
        total, error = 0.0, 0.0
        for mean, weight in zip(largest * nodes, weights / 2, strict=True):
            law = np.prod((1 + records * mean) / 2, axis=1)
            w = (largest**2 - mean**2) / (1 - mean**2)
            total += weight * law @ (w * (estimate - mean) * (records - mean).sum(axis=1))
            error += weight * law @ (estimate - mean) ** 2
        assert total >= largest**2 / 3 - error - 1e-12


@pytest.mark.parametrize("delta", [0.0, 0.05])
@pytest.mark.parametrize("epsilon", [0.1, 0.5, 2.0])
def test_privacy_bounds_what_an_answer_has_of_its_records(epsilon, delta):
    """E T_r of two records, exactly, for random exponential mechanisms that sometimes show everything."""
    generator, width = np.random.default_rng(6), 0.9
    largest = math.tanh(width)
    nodes, weights = np.polynomial.legendre.leggauss(30)
    records = np.array(list(itertools.product([-1, 1], repeat=2)))
    tightest = 0.0
    aligned = records.mean(axis=1, keepdims=True) * [
        0.5,
        0.0,
        -0.5,
    ]  # of sensitivity 1/2, and the rest at most 1
    for scores in (aligned, *generator.uniform(0, 1, (20, len(records), 3))):
        answers = np.exp(epsilon / 2 * scores)
        answers = (1 - delta) * answers / answers.sum(axis=1, keepdims=True)
        kernel = np.hstack([answers, delta * np.eye(len(records))])
        estimates = np.concatenate(
            [largest * np.array([0.5, 0.0, -0.5]), largest * records.mean(axis=1)]
        )
        total, error = 0.0, 0.0
        for mean, weight in zip(largest * nodes, weights / 2, strict=True):
            law = np.prod((1 + records * mean) / 2, axis=1)[:, None] * kernel
            w = (largest**2 - mean**2) / (1 - mean**2)
            score = (records - mean).sum(axis=1)[:, None]
            total += weight * (law * w * (estimates - mean) * score).sum()
            error += weight * (law * (estimates - mean) ** 2).sum()
        reach = math.sinh(epsilon) if delta else 2 * math.sinh(epsilon / 2)
        most = 2 * (reach * largest**2 * math.sqrt(error) + 8 * delta * largest**3)
        assert largest**2 / 3 - error - 1e-12 <= total <= most
        tightest = max(tightest, total / most)
    assert tightest > 0.02  # the two sides are of one size


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_randomised_response_on_one_record_does_not_beat_fingerprinting(epsilon):
    """The best private use of one record is known: its error, exactly, is above the bound."""
    width = 1.2
    largest = math.tanh(width)
    kept = math.tanh(epsilon / 2)  # correlation of the answer with the record
    variance = largest**2 / 3
    best = (
        variance - (kept * variance) ** 2
    )  # of the best linear use of the answer, which is the best of two values
    assert math.sqrt(best) >= fingerprinting_error(2, width, 1, promise(epsilon=epsilon))


@pytest.mark.parametrize(
    "numbers", [{"rho": 0.1}, {"epsilon": 0.5}, {"epsilon": 0.5, "delta": 1e-7}]
)
def test_error_and_records_of_fingerprinting_are_inverse(numbers):
    error = fingerprinting_error(60, 1.0, 400, promise(**numbers))
    assert fingerprinting_records(
        Task(variables=60, size=error), promise(**numbers)
    ) == pytest.approx(400)


def spread(estimates, truth):
    """Root mean square error over pairs and populations, and four standard errors below and above."""
    squares = np.mean((np.array(estimates) - np.array(truth)) ** 2, axis=1)
    off = 4 * squares.std(ddof=1) / math.sqrt(len(squares))
    return math.sqrt(max(squares.mean() - off, 0)), math.sqrt(squares.mean() + off)


P, WIDTH, RECORDS, RHO, DRAWS = 32, 1.0, 900, 1e-4, 8


@pytest.mark.parametrize(
    "method",
    [
        zhang_learners.EXACT,
        zhang_learners.TOLD,
        "ParityQueries",
        "PrivateFrankWolfe",
        "SelectMeasure",
    ],
)
def test_no_mechanism_beats_fingerprinting_but_what_is_not_private_does(method):
    bound = fingerprinting_error(P, WIDTH, RECORDS, promise(rho=RHO))
    found, truth = [], []
    pairs = np.arange(0, P, 2), np.arange(1, P, 2)
    for seed in range(DRAWS):
        rng = np.random.default_rng([7, seed])
        model = random_means(P, WIDTH, rng)
        learned = zhang_learners.learned_couplings(
            method, model, model.codes(RECORDS, rng), WIDTH, 1.0, RHO, rng
        )
        found.append(np.clip(learned, -WIDTH, WIDTH)[pairs])
        truth.append(model.coupling_matrix()[pairs])
    low, high = spread(found, truth)
    if method == zhang_learners.EXACT:
        assert high < bound
    else:
        assert low > bound


@pytest.mark.parametrize("epsilon", [0.05, 0.2])
def test_laplace_noise_on_the_true_pairs_does_not_beat_the_bound_of_pure_privacy(epsilon):
    rng = np.random.default_rng(4)
    mechanism = LaplaceStatistics(epsilon=epsilon, adjacency=REPLACE)
    largest = math.tanh(WIDTH)
    found, truth = [], []
    pairs = np.arange(0, P, 2), np.arange(1, P, 2)
    for _ in range(12):
        model = random_means(P, WIDTH, rng)
        means = zhang_learners.means_of_pairs(mechanism, model, model.codes(RECORDS, rng), rng)
        found.append(np.arctanh(means.clip(-largest, largest)[pairs]))
        truth.append(model.coupling_matrix()[pairs])
    low, _ = spread(found, truth)
    assert low > fingerprinting_error(P, WIDTH, RECORDS, promise(epsilon=epsilon))


@pytest.mark.parametrize("is_private", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_no_private_learner_finds_the_members_of_a_packing_below_the_bound(is_private):
    """Of some size of packing at least, the success rate is not above 2/3 at a level of 1e-4."""
    p, size, rho, trials = 6, 0.9, 1e-4, 25
    task = Task(variables=p, size=size, goal="structure")
    records = math.floor(packing_records(task, promise(rho=rho)))
    rates = []
    for groups in (1, 2, 3):
        hits = 0
        for seed in range(trials):
            rng = np.random.default_rng([11, groups, seed])
            member = random_member(p, size, groups, rng, with_signs=False)
            codes = member.codes(records, rng)
            method = "SelectMeasure" if is_private else zhang_learners.EXACT
            found = zhang_learners.learned_couplings(
                method, member, codes, size, 2 * groups / p, rho, rng
            )
            edges = {(int(i), int(j)) for i, j in np.argwhere(np.triu(np.abs(found), 1) > size / 2)}
            hits += edges == set(member.groups)
        rates.append(hits)
    least = binom.isf(1e-4, trials, 2 / 3)
    assert (min(rates) > least) != is_private


def test_bounds_grow_with_variables_as_table_1_says():
    """Logarithm without privacy, root of p log p under rho, p log p under epsilon."""
    small, large = (Task(variables=p, size=0.3, goal="structure") for p in (200, 20_000))
    ratio = packing_records(large) / packing_records(small)
    assert 1.5 < ratio < 2.1  # log(20000) / log(200) = 1.87; less a constant above and below
    ratio = packing_records(large, promise(rho=1e-3)) / packing_records(small, promise(rho=1e-3))
    assert 10 < ratio < 14.4  # 10 times the root of log(20000 / e) / log(200 / e)
    ratio = packing_records(large, promise(epsilon=1e-3)) / packing_records(
        small, promise(epsilon=1e-3)
    )
    assert 100 < ratio < 207  # log(20000 / e) / log(200 / e) = 2.07
    assert {(one.privacy, one.goal) for one in TABLE_1} == set(
        itertools.product(
            ("none", "approximate", "zero-concentrated", "pure"), ("structure", "parameters")
        )
    )


def test_packing_of_pure_privacy_is_above_the_papers_count():
    """Theorem 7.1 with its own 2^(p/2) models and all constants, (p/2) log 2 / epsilon, is below ours."""
    for p in (10, 100, 1000):
        ours = packing_records(Task(variables=p, size=0.5, goal="structure"), promise(epsilon=1.0))
        assert ours > p / 2 * math.log(2)


def test_add_or_remove_one_is_taken_as_two_steps():
    one = PrivacyGuarantee(epsilon=0.5, delta=1e-6, adjacency=Adjacency.ADD_OR_REMOVE_ONE)
    assert for_replacing(one) == promise(epsilon=1.0, delta=(1 + math.exp(0.5)) * 1e-6)
    assert for_replacing(
        PrivacyGuarantee(rho=0.1, adjacency=Adjacency.ADD_OR_REMOVE_ONE)
    ) == promise(rho=0.4)
    assert for_replacing(promise(rho=0.1)) == promise(rho=0.1)


def test_rho_that_an_approximate_promise_leaves_implies_it():
    rho = rho_within(promise(epsilon=1.0, delta=1e-6))
    assert rho is not None
    kept, broken = (promise(rho=factor * rho).to_approximate(1e-6).epsilon for factor in (1, 1.01))
    assert kept is not None
    assert broken is not None
    assert kept <= 1.0 < broken
    assert rho_within(promise(epsilon=1.0)) is None


@pytest.mark.parametrize("bound", UPPER_BOUNDS, ids=lambda bound: bound.source)
def test_slopes_stated_are_those_of_the_formula(bound):
    """Far out in one direction one term is left."""
    if bound.private is None:
        return
    order = 3 if bound.covers(Task(variables=10, size=0.1, order=3)) else 2

    def log(p, error, rho):
        return math.log(bound.needed(Task(variables=p, size=error, order=order), rho))

    tiny = 1e-100
    assert log(100, 0.1, tiny / 100) - log(100, 0.1, tiny) == pytest.approx(
        -bound.private.rho * math.log(100)
    )
    gain = log(100, 0.01, tiny) - log(100, 0.1, tiny)
    assert gain == pytest.approx(bound.private.inverse_error * math.log(10))
    gain = (
        log(10**12, 0.1, tiny) - log(10**6, 0.1, tiny) - bound.private.variables * math.log(10**6)
    )
    assert math.log(2) - 1e-9 < gain < 2 * math.log(2) + 1e-9  # one or two powers of the logarithm
    gain = log(100, 0.01, 1e60) - log(100, 0.1, 1e60)
    assert gain == pytest.approx(bound.sampling.inverse_error * math.log(10))


def test_laws_are_those_that_the_benchmark_fits():
    spec = importlib.util.spec_from_file_location(
        "learning_law", RESULTS.parent / "learning_law.py"
    )
    assert spec is not None
    assert spec.loader is not None
    learning_law = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(learning_law)
    errors = pd.read_csv(RESULTS / "learning.csv")
    for law, name in zip(LAWS, learning_law.METHODS, strict=True):
        fitted = learning_law.fitted(errors, name)
        for field in ("sampling", "private", "variables_power", "total_power", "spread", "single"):
            assert getattr(law, field) == pytest.approx(fitted[field], rel=5e-3), field
        assert law.error(50, 1.0, law.records_for(50, 1.0, 0.05)) == pytest.approx(0.05)
        single: Any = errors[(errors["method"] == name) & errors["rho"].notna()]
        settings = single[["variables", "rho", "records"]].itertuples(index=False)
        stated = np.array([law.error(*setting) for setting in settings])
        is_enough = stated <= law.largest_error("structure", 0.3)
        assert (single.loc[is_enough, "error"] < 0.15).mean() > 0.95


@pytest.mark.parametrize("goal", ["parameters", "structure"])
@pytest.mark.parametrize("guarantee", [promise(rho=0.1), promise(epsilon=1.0, delta=1e-6)])
def test_what_was_measured_is_above_every_lower_bound(goal, guarantee):
    size = 0.1 if goal == "parameters" else 0.3
    task = Task(variables=50, size=size, goal=goal)
    lower = max(
        packing_records(task),
        packing_records(task, guarantee),
        fingerprinting_records(task, guarantee),
    )
    assert lower > 1
    measured = planning.records_needed(50, size, guarantee, goal=goal)
    assert min(measured["low"]) > lower
    assert set(measured["kind"]) == {"measured"}


@pytest.mark.parametrize(
    "other", [{}, {"guarantee": promise(epsilon=1.0)}, {"states": 3}, {"order": 3}]
)
def test_a_question_that_no_measurement_answers_has_no_number(other):
    table = planning.records_needed(**({"variables": 50, "size": 0.1, "guarantee": None} | other))
    assert np.isnan(table["records"].to_numpy()).all()
    assert all(said.startswith("only") for said in table["says"])


def test_laws_are_not_carried_far_beyond_what_was_measured():
    near = planning.records_needed(50, 0.05, promise(rho=0.1))
    beyond = planning.records_needed(400, 0.05, promise(rho=1.0))
    far = planning.records_needed(5000, 0.05, promise(rho=0.1))
    assert set(near["constant"]) == {"fitted"}
    assert set(beyond["constant"]) == {"extrapolated"}
    assert np.isnan(far["records"].to_numpy()).all()
    assert all("too far" in said for said in far["says"])


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"variables": 1}, "variables"),
        ({"size": 0.0}, "size"),
        ({"goal": "both"}, "goal"),
        ({"order": 3, "states": 3}, "order"),
        ({"width": math.nan}, "width"),
        ({"states": 1}, "states"),
        ({"guarantee": 0.1}, "guarantee"),
    ],
)
def test_a_question_that_makes_no_sense_is_refused(wrong, says):
    with pytest.raises(ArgumentError, match=f"`{says}` must be"):
        planning.records_needed(**({"variables": 10, "size": 0.1} | wrong))


def test_command_line_plans_learning(capsys, tmp_path):
    asked = ["plan", "--learn", "parameters", "--error", ".05", "--rho", ".1"]
    assert main([*asked, "--variables", "50"]) == 0
    text = capsys.readouterr().out
    assert "SelectMeasure" in text
    assert "fitted" in text
    file = tmp_path / "m.toml"
    file.write_text("[variables]\n" + "".join(f"v{i} = {{states = [0, 1]}}\n" for i in range(50)))
    assert main([*asked, "--model", str(file), "--json"]) == 0
    answers = json.loads(capsys.readouterr().out)["answers"]
    assert {one["kind"] for one in answers} == {"measured"}
    assert (
        main(["plan", "--learn", "structure", *asked[3:], "--variables", "50", "--width", "2"]) == 0
    )


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ("", "required: --model"),
        ("--variables 5", "must be given together with --learn"),
        ("--learn parameters --variables 5", "must be given together with --error"),
        ("--learn parameters --error .1", "either --variables or --model"),
        (
            "--learn parameters --error .1 --variables 5 --delta 1e-6",
            "must be given together with --epsilon",
        ),
        (
            "--learn parameters --error .1 --variables 5 --total 9",
            "must be given without --mechanism",
        ),
    ],
)
def test_command_line_refuses_half_a_question(wrong, says, capsys):
    with pytest.raises(SystemExit):
        main(["plan", "--rho", "1", *wrong.split()])
    assert says in capsys.readouterr().err
