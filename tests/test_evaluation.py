import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from inference.conftest import AWKWARD, joint_states, log_joint, probabilities, specification
from inference.posterior.drawn import drawn_posterior, release_of
from inference.test_solution import solution_of
from notebook import html_of

import bayesprivmrf as bpm
from bayesprivmrf import sequences
from bayesprivmrf.errors import ArgumentError, DataError, DeclarationWarning, ModelError
from bayesprivmrf.mechanisms import LaplaceStatistics, reference


def test_kl_divergence_matches_enumeration(awkward_pair):
    p, q = awkward_pair
    log_p = log_joint(p.specification, p.potentials.flat)
    log_q = log_joint(q.specification, q.potentials.flat)
    log_p, log_q = log_p - np.logaddexp.reduce(log_p), log_q - np.logaddexp.reduce(log_q)
    assert bpm.kl_divergence(p, q) == pytest.approx(
        float(np.exp(log_p) @ (log_p - log_q)), abs=1e-10
    )
    assert bpm.kl_divergence(p, p) == pytest.approx(0, abs=1e-12)


@pytest.fixture(params=["same cliques", "other cliques"])
def awkward_pair(request):
    states = {"a": [0, 1], "b": ["x", "y", "z"], "c": [1, 0]}
    first = specification(states, [("a", "b"), ("c", "b")])
    second = (
        first if request.param == "same cliques" else specification(states, [("c", "a"), ("b",)])
    )
    return solution_of(first, 1), solution_of(second, 2)


def test_kl_divergence_aligns_variables_and_labels_declared_in_another_order():
    one = specification({"a": [0, 1], "b": ["x", "y", "z"]}, [("a", "b")])
    two = specification({"b": ["z", "x", "y"], "a": [1, 0]}, [("b", "a")])
    p = solution_of(one, 1)
    table = p.marginal(["b", "a"]).sel(b=["z", "x", "y"], a=[1, 0]).to_numpy()
    same = bpm.Solution(
        specification=two,
        potentials=two.tables(np.log(table).ravel()),
        method="test",
        status=bpm.Status.CONVERGED,
    )
    assert bpm.kl_divergence(p, same) == pytest.approx(0, abs=1e-12)
    assert bpm.kl_divergence(p.network, same.network) == pytest.approx(0, abs=1e-12)


def test_kl_divergence_is_infinite_where_the_estimate_excludes_the_truth():
    states = {"a": [0, 1], "b": [0, 1]}
    truth = solution_of(specification(states, [("a", "b")]), 1)
    narrow = solution_of(specification(states, [("a", "b")], [(("a", 0), ("b", 0))]), 2)
    assert bpm.kl_divergence(truth, narrow) == math.inf
    assert bpm.kl_divergence(narrow, truth) < math.inf


def test_kl_divergence_refuses_other_variables_or_states():
    p = solution_of(specification({"a": [0, 1]}, [("a",)]))
    with pytest.raises(ModelError, match="same variables"):
        bpm.kl_divergence(p, solution_of(specification({"b": [0, 1]}, [("b",)])))
    with pytest.raises(ModelError, match="same states"):
        bpm.kl_divergence(p, solution_of(specification({"a": [0, 1, 2]}, [("a",)])))


def test_holdout_log_likelihood_is_the_mean_log_probability_of_the_records():
    model = specification({"a": ["n", "y"], "b": [2, 0, 1]}, [("a", "b")])
    solution = solution_of(model, 4)
    records = pd.DataFrame({"b": [0, 1, 1, 2], "a": ["n", "y", "n", "n"], "unused": 1})
    p = dict(
        zip(
            map(tuple, joint_states(model)),
            probabilities(model, solution.potentials.flat),
            strict=True,
        )
    )
    codes = [
        (model.domain.code("a", a), model.domain.code("b", b))
        for a, b in zip(records.a, records.b, strict=True)
    ]
    expected = np.mean([math.log(p[code]) for code in codes])
    assert bpm.holdout_log_likelihood(solution, records) == pytest.approx(expected, abs=1e-12)
    assert bpm.holdout_log_likelihood(solution.network, records) == pytest.approx(
        expected, abs=1e-12
    )


def test_a_frequency_table_is_held_out_as_its_repeated_rows():
    model = specification({"a": ["n", "y"], "b": [2, 0, 1]}, [("a", "b")])
    solution, posterior = solution_of(model, 4), drawn_posterior(release_of(model))
    table = pd.DataFrame({"a": ["n", "y", "n"], "b": [2, 0, 1], "Freq": [3, 0, 40]})
    rows = table.loc[table.index.repeat(table.Freq), ["a", "b"]]
    for estimate in (solution, posterior):
        expected = bpm.holdout_log_likelihood(estimate, rows)
        assert bpm.holdout_log_likelihood(estimate, table, count="Freq") == pytest.approx(
            expected, abs=1e-12
        )
    scored = bpm.compare({"it": solution}, holdout=table, count="Freq")
    expected = bpm.holdout_log_likelihood(solution, rows)
    assert scored["holdout_log_likelihood"].item() == pytest.approx(expected, abs=1e-12)
    with pytest.warns(DeclarationWarning, match="as `count=` here") as said:
        bpm.holdout_log_likelihood(posterior, table)
    assert len(said) == 1
    with pytest.raises(ArgumentError, match="`count` must be the name of a column, got a list"):
        bpm.holdout_log_likelihood(solution, table, count=["Freq"])


def test_holdout_needs_records_in_the_declared_states():
    solution = solution_of(specification({"a": ["n", "y"]}, [("a",)]))
    with pytest.raises(ArgumentError, match="at least one record"):
        bpm.holdout_log_likelihood(solution, pd.DataFrame({"a": pd.Series([], dtype=object)}))
    with pytest.raises(DataError):
        bpm.holdout_log_likelihood(solution, pd.DataFrame({"a": ["n", "maybe"]}))


def test_compare_has_one_row_a_method_in_the_order_given():
    model = specification({"a": [0, 1], "b": [0, 1]}, [("a", "b")])
    truth, other = solution_of(model, 1), solution_of(model, 2)
    records = truth.sample(200, rng=1)
    table = bpm.compare(
        {"other": other, "truth": truth, "uniform": bpm.uniform_solution(model)},
        truth=truth.network,
        holdout=records,
    )
    assert table.index.tolist() == ["other", "truth", "uniform"]
    assert table.loc["truth", "kl_divergence"] == pytest.approx(0, abs=1e-12)
    assert table.loc["uniform", "holdout_log_likelihood"] == pytest.approx(-math.log(4))
    assert table["status"].tolist() == ["converged"] * 3
    without = bpm.compare({"other": other})
    assert without["kl_divergence"].isna().all()
    assert without["holdout_log_likelihood"].isna().all()
    with pytest.raises(ArgumentError, match="mapping from name to solution"):
        bpm.compare([other])


def test_loopy_solutions_are_scored_by_the_exact_log_partition():
    cycle = specification(
        {v: [0, 1] for v in "abcd"}, [("a", "b"), ("b", "c"), ("c", "d"), ("d", "a")]
    )
    exact, loopy = (
        solution_of(cycle, 3, scale=2.0),
        solution_of(cycle, 3, scale=2.0, inference="loopy"),
    )
    assert abs(loopy.log_partition - exact.log_partition) > 1e-4  # Bethe's is another number
    assert bpm.kl_divergence(exact, loopy) == pytest.approx(0, abs=1e-12)
    records = exact.sample(50, rng=1)
    assert bpm.holdout_log_likelihood(loopy, records) == pytest.approx(
        bpm.holdout_log_likelihood(exact, records), abs=1e-12
    )


def test_comparison_passes_on_the_states_for_missing_and_other_values():
    model = specification({"a": ["n", "y", "gone", "else"]}, [("a",)])
    solution = solution_of(model, 4)
    raw = pd.DataFrame({"a": ["n", None, "what", "y"]})
    clean = pd.DataFrame({"a": ["n", "gone", "else", "y"]})
    row = bpm.compare({"it": solution}, holdout=raw, missing="gone", other="else").iloc[0]
    assert row["holdout_log_likelihood"] == pytest.approx(
        bpm.holdout_log_likelihood(solution, clean)
    )
    with pytest.raises(ArgumentError, match="got a DataFrame for 'it'"):
        bpm.compare({"it": clean})
    with pytest.raises(ArgumentError, match="the order is"):
        bpm.holdout_log_likelihood(clean, solution)


@pytest.fixture(scope="module")
def posterior():
    return drawn_posterior(release_of(specification(*AWKWARD["tree"])), 200)


def test_a_posterior_is_scored_by_its_predictive(posterior):
    """Enumeration: the mean over the draws of each record's probability, and only then the logarithm."""
    model = posterior.specification
    states = joint_states(model)
    draws = range(200)
    joint = np.mean(
        [probabilities(model, posterior.solution_at(0, d).potentials.flat) for d in draws], axis=0
    )
    generator = np.random.default_rng(2)
    chosen = generator.integers(len(states), size=300)
    labels = [model.domain.states_of(v) for v in model.domain.variables]
    records = pd.DataFrame(
        {
            v: [labels[i][code] for code in states[chosen, i]]
            for i, v in enumerate(model.domain.variables)
        }
    )
    found = bpm.holdout_log_likelihood(posterior, records)
    assert found == pytest.approx(float(np.log(joint[chosen]).mean()), abs=1e-10)
    of_the_mean = bpm.holdout_log_likelihood(posterior.solution, records)
    assert found != pytest.approx(of_the_mean, abs=1e-4)
    import polars as pl

    assert bpm.holdout_log_likelihood(
        posterior, pl.DataFrame(records.to_dict("list")).lazy()
    ) == pytest.approx(found)


def test_divergence_from_a_posterior_is_that_from_its_mean(posterior):
    truth = solution_of(posterior.specification, 1)
    assert bpm.kl_divergence(truth, posterior) == bpm.kl_divergence(truth, posterior.solution)
    assert bpm.kl_divergence(posterior, posterior.solution) == pytest.approx(0, abs=1e-12)


def test_posteriors_and_solutions_are_compared_side_by_side(posterior):
    truth = solution_of(posterior.specification, 1)
    records = truth.sample(50, rng=1)
    table = bpm.compare(
        {"mean": posterior.solution, "posterior": posterior}, truth=truth, holdout=records
    )
    assert list(table.index) == ["mean", "posterior"]
    assert table.loc["mean", "kl_divergence"] == table.loc["posterior", "kl_divergence"]
    assert table.loc["posterior", "status"] == "converged"
    assert np.isfinite(table[["holdout_log_likelihood", "seconds"]].to_numpy()).all()


def test_records_that_a_posterior_cannot_have_seen_are_refused_as_for_a_solution(posterior):
    records = pd.DataFrame({"a": [0, 5], "b": ["x", "y"], "c": [0, 1]})
    with pytest.raises(DataError):
        bpm.holdout_log_likelihood(posterior, records)
    assert math.isfinite(bpm.holdout_log_likelihood(posterior, records, other={"a": 1}))


def test_what_involves_a_reference_is_marked_as_unprotected():
    chain = bpm.markov_chain([0, 1], 3)
    records = bpm.uniform_solution(chain).sample(200, rng=1)
    exact, mark = reference(chain, records), "exact, unprotected"
    network, fit = (
        exact.network,
        bpm.NaiveMLE().fit(LaplaceStatistics(epsilon=1.0).release(chain, records)),
    )
    assert network.graph["privacy"] == exact.marginal("x1").attrs["privacy"] == mark
    assert "privacy" not in fit.network.graph
    frame = sequences.transition_matrix(exact, step=1)
    assert frame["note"].str.startswith("unprotected;").all()
    for text in (repr(frame), frame.to_string(), html_of(frame)):
        assert text.count("unprotected;") == len(frame)
    table = bpm.compare({"fit": fit, "data": exact})
    assert table["note"].tolist() == ["", mark]
    for text in (repr(table), table.to_string(), html_of(table), table.to_csv()):
        assert mark in text
    against = bpm.compare({"fit": fit}, truth=exact)
    assert against["note"].tolist() == [f"against {mark} data"]
    assert table.attrs["privacy"] == against.attrs["privacy"] == mark
    assert bpm.compare({"fit": fit}, holdout=records).attrs["privacy"] == mark
    plain = bpm.compare({"fit": fit}, truth=bpm.uniform_solution(chain))
    assert list(plain.columns) == ["holdout_log_likelihood", "kl_divergence", "seconds", "status"]
    assert not plain.attrs


def test_the_text_of_an_interval_frame_shows_that_noise_was_simulated():
    release = release_of(specification(*AWKWARD["tree"]))
    simulated = replace(release, provenance=replace(release.provenance, simulated=True))
    for fit in (bpm.NoiseAwareMAP().fit(simulated), drawn_posterior(simulated, 20)):
        frame = fit.interval(["a", "b"])
        for text in (repr(frame), frame.to_string(), html_of(frame), frame.to_csv()):
            assert text.count("simulated;") == len(frame)
