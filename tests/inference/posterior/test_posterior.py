import re
import warnings

import arviz as az
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from inference.conftest import AWKWARD, probabilities, specification, tables_of
from inference.posterior.drawn import drawn_posterior, finished_of, release_of, with_changes
from notebook import html_of

from bayesprivmrf import queries as q
from bayesprivmrf.errors import (
    ArgumentError,
    ConsistencyWarning,
    ModelError,
    PriorWarning,
    SamplingWarning,
)
from bayesprivmrf.inference import LatentCounts, Posterior, gather, limits_of_draws
from bayesprivmrf.inference.posterior.noisy_tables import dimension_names
from bayesprivmrf.model import Domain
from bayesprivmrf.privacy import DiscreteLaplace, Laplace
from bayesprivmrf.release import NoisyStatistics

DECOMPOSABLE = ["tree", "disconnected", "one state", "single"]
ZEROS = (
    {"a": [0, 1], "b": ["x", "y", "z"], "c": [1, 0]},
    [("a", "b"), ("c", "b")],
    [(("a", 1), ("b", "x"))],
)

NUMBERS = ["estimate", "lower", "upper"]


@pytest.fixture(params=[*DECOMPOSABLE, "zeros"])
def posterior(request):
    model = specification(*(ZEROS if request.param == "zeros" else AWKWARD[request.param]))
    return drawn_posterior(release_of(model), 50)


def test_every_draw_is_the_distribution_whose_marginals_the_tree_holds(posterior):
    model = posterior.specification
    names = dimension_names(model.domain)
    for draw in (0, 17):
        solution = posterior.solution_at(0, draw)
        exact = tables_of(model, probabilities(model, solution.potentials.flat))
        assert solution.log_partition == pytest.approx(0, abs=1e-9)
        for position, scope in enumerate(model.scopes):
            name = f"marginal[{','.join(names[v] for v in scope)}]"
            start, stop = model.offsets[position : position + 2]
            found = posterior.tree["posterior"][name].values[0, draw]
            assert found.ravel() == pytest.approx(exact[start:stop], abs=1e-12)
            assert found.shape == model.shapes[position]


def test_the_mean_solution_has_the_mean_of_the_marginals(posterior):
    model = posterior.specification
    assert posterior.solution.marginals.flat == pytest.approx(posterior.marginals.flat, abs=1e-12)
    exact = tables_of(model, probabilities(model, posterior.solution.potentials.flat))
    assert exact == pytest.approx(posterior.marginals.flat, abs=1e-12)


def test_joint_marginals_of_variables_apart_are_means_of_the_draws_own_not_of_the_mean_model():
    posterior = drawn_posterior(release_of(specification(*AWKWARD["tree"])), 40, concentration=1.0)
    each = [posterior.solution_at(0, d).marginal(["c", "a"]).values for d in range(40)]
    found = posterior.marginal(["c", "a"])
    assert found.values == pytest.approx(np.mean(each, axis=0), abs=1e-12)
    assert found.dims == ("c", "a")
    assert list(found.coords["c"].values) == [1, 0]
    assert not np.allclose(found, posterior.solution.marginal(["c", "a"]), atol=1e-3)


def test_intervals_are_the_limits_of_the_draws_in_the_order_asked_for():
    release = release_of(specification(*AWKWARD["tree"]))
    posterior = drawn_posterior(release, 400, formulation="hyper-dirichlet")
    frame = posterior.interval(["b", "a"], prob=0.8)
    drawn = posterior.tree["posterior"]["marginal[a,b]"].values[0]
    assert list(frame.columns) == [*NUMBERS, "status", "note"]
    assert frame.index.names == ["b", "a"]
    assert list(frame.index[:3]) == [("x", 0), ("x", 1), ("y", 0)]
    assert frame.loc[("z", 1), "estimate"] == pytest.approx(drawn[:, 1, 2].mean())
    assert frame.loc[("z", 1), "lower"] == pytest.approx(
        limits_of_draws(drawn[np.newaxis, :, 1, 2], 0.8, (0, 1))[0]
    )
    assert frame.loc[("y", 0), "upper"] == pytest.approx(
        limits_of_draws(drawn[np.newaxis, :, 0, 1], 0.8, (0, 1))[1]
    )
    one = posterior.interval("b")
    assert not isinstance(one.index, pd.MultiIndex)
    assert one["estimate"].sum() == pytest.approx(1)


POOLED = ({"a": [0, 1], "b": [0, 1], "c": [0, 1]}, [("a", "b"), ("c", "b")])


@pytest.mark.parametrize(
    "query", [q.pooled([("a", "b"), ("b", "c")]), q.table("b"), q.parities(2)], ids=repr
)
def test_intervals_of_a_query_are_the_limits_of_its_answers(query):
    """Of sums of tables drawn together, measured or not: no sum of the tables' own limits."""
    posterior = drawn_posterior(release_of(specification(*POOLED), total=200), 300)
    bound = query.bind(posterior.specification)
    drawn = posterior.tree["posterior"]
    for of, kind in (("records", "counts"), ("population", "marginal")):
        flat = np.concatenate(
            [drawn[f"{kind}[{pair}]"].values[0].reshape(300, -1) for pair in ("a,b", "c,b")], axis=1
        )
        answers = bound.answers(flat)
        if of == "records":
            answers = np.rint(answers)
        frame = posterior.interval(query, 0.8, of=of)
        ends = bound.ends if of == "population" else (200 * bound.ends[0], 200 * bound.ends[1])
        lower, upper = limits_of_draws(answers[np.newaxis], 0.8, ends, is_whole=of == "records")
        assert tuple(frame.index) == bound.labels
        assert frame["estimate"].to_numpy() == pytest.approx(answers.mean(axis=0), abs=1e-9)
        assert frame["lower"].to_numpy() == pytest.approx(lower, abs=1e-9)
        assert frame["upper"].to_numpy() == pytest.approx(upper, abs=1e-9)
        assert not frame["note"].str.contains("declared").any()
    with pytest.raises(ArgumentError, match="given"):
        posterior.interval(query, given={"a": 0})
    with pytest.raises(ModelError, match="declared"):
        posterior.interval(q.table("nobody"))
    with pytest.raises(
        ModelError, match="counts of the records exist only for variables that share a"
    ):
        posterior.interval(q.table("a", "c"), of="records")
    with pytest.raises(ModelError, match="takes queries"):
        posterior.solution.marginal(query)


def test_answers_on_relaxed_counts_are_whole_and_none_that_only_adds_is_below_zero():
    """Counts of an engine are real, and may lie a little below zero; sums of them are rounded, and not the counts."""
    posterior = drawn_posterior(release_of(specification(*POOLED), total=200), 300)
    relaxed = np.tile([-0.7, 0.4, 0.4, 0.4] * 2, (1, 300, 1))
    moved = with_changes(posterior, counts=relaxed)
    table = moved.interval(q.table("a", "b"), of="records")
    assert (
        table["lower"].tolist()
        == table["upper"].tolist()
        == table["estimate"].tolist()
        == [0.0] * 4
    )
    margin = moved.interval(q.table("b"), of="records")["estimate"]
    assert margin.tolist() == [0.0, 1.0]  # -0.7 + 0.4, and 0.4 + 0.4
    signed = moved.interval(
        q.weighted("a", "b", matrix=[[1, 0, 0, -1], [1, 1, 0, 0]]), of="records"
    )
    assert signed["lower"].tolist() == [-1.0, -0.0]


def test_shares_of_records_say_where_no_record_has_the_given_state():
    posterior = drawn_posterior(release_of(specification(*POOLED), total=200), 300)
    counts = finished_of(posterior).counts.copy()
    table = counts[0, :, :4].reshape(300, 2, 2)  # a, b
    table[:] = [[30.0, 10.0], [0.0, 0.0]]
    table[:240, 1] = [3.0, 1.0]  # in a fifth of the draws no record has a = 1
    frame = with_changes(posterior, counts=counts).interval(["b"], 0.9, of="records", given=["a"])
    assert frame.loc[(0, 0), NUMBERS].tolist() == [0.75, 0.75, 0.75]
    assert frame.loc[(1, 0), NUMBERS].tolist() == [0.75, 0.75, 0.75]
    assert not frame["note"].xs(0, level="a").str.contains("no record").any()
    assert frame["note"].xs(1, level="a").str.contains("in 20 % of draws no record has a=1").all()
    assert (frame["status"].xs(1, level="a") == "doubtful").all()
    # rarer than the misses of an interval: a note without a warning
    table[:285, 1] = [3.0, 1.0]
    rare = with_changes(posterior, counts=counts).interval(["b"], 0.9, of="records", given={"a": 1})
    assert (rare["status"] == "ok").all()
    assert rare["note"].str.contains("in 5 % of draws").all()
    table[:, 1] = 0.0
    moved = with_changes(posterior, counts=counts)
    none = moved.interval(["b"], of="records", given=["a"])
    assert none.loc[(0, 1), "estimate"] == 0.25
    empty = none.xs(1, level="a")
    assert empty["estimate"].isna().all()
    assert empty[["lower", "upper"]].to_numpy().tolist() == [[0.0, 1.0]] * 2
    assert (empty["status"] == "not trusted").all()
    assert empty["note"].str.contains("no record has a=1").all()
    either = moved.interval(["b"], of="records", given={"a": {0, 1}})
    assert either["estimate"].tolist() == [0.75, 0.25]


def test_intervals_of_a_query_on_impossible_cells_and_on_waves_are_those_of_the_states():
    """A whole table's answers are its joint states, whatever else the model has."""
    zeros = drawn_posterior(release_of(specification(*ZEROS)), 100)
    one, other = (release_of(specification(*AWKWARD["single"]), seed=seed) for seed in (1, 2))
    with warnings.catch_warnings():
        # few draws, and waves of different populations: nothing but equality is asked
        warnings.simplefilter("ignore", SamplingWarning)
        warnings.simplefilter("ignore", ConsistencyWarning)
        waves = LatentCounts().fit(
            [one, other], population="waves", rng=1, draws=50, tune=50, chains=2
        )
    assert "wave" in waves.specification.cliques[0]
    for posterior in (zeros, waves):
        clique = posterior.specification.cliques[0]
        for of in ("population", "records"):
            found, whole = (
                posterior.interval(q.table(*clique), of=of),
                posterior.interval(list(clique), of=of),
            )
            assert found[NUMBERS].to_numpy() == pytest.approx(whole[NUMBERS].to_numpy(), abs=1e-9)
            assert found["note"].tolist() == whole["note"].tolist()


def test_intervals_of_records_are_whole_numbers_of_the_finite_population():
    posterior = drawn_posterior(release_of(specification(*AWKWARD["tree"]), total=200), 300)
    frame = posterior.interval(["a", "b"], of="records")
    assert frame["estimate"].sum() == pytest.approx(200)
    drawn = posterior.tree["posterior"]["counts[a,b]"].values[0]
    whole = np.rint(drawn[:, 1, 1])
    assert (
        frame.loc[(1, "y"), "upper"]
        == limits_of_draws(whole[np.newaxis], 0.9, (0, 200), is_whole=True)[1]
    )
    for prob in (0.5, 0.77, 0.9):  # two adjacent draws may differ at any of their quantiles
        bounds = drawn_posterior(release_of(posterior.specification, total=200), 30).interval(
            ["a", "b"], prob, of="records"
        )[["lower", "upper"]]
        assert np.array_equal(bounds, np.rint(bounds))
    with pytest.raises(ModelError, match="population"):
        posterior.interval(["a", "c"], of="records")


def test_a_quantity_of_the_model_is_that_of_each_draw():
    posterior = drawn_posterior(release_of(specification(*AWKWARD["tree"])), 60)

    def odds(draw):
        table = draw.marginal(["a", "c"]).values
        return table[0, 0] * table[1, 1] / (table[0, 1] * table[1, 0])

    found = posterior.quantity(odds, prob=0.5)
    each = np.array([odds(posterior.solution_at(0, d)) for d in range(60)])
    assert found.draws.values[0] == pytest.approx(each)
    assert found.draws.dims == ("chain", "draw")
    assert float(found.lower) == pytest.approx(np.quantile(each, 0.25))
    assert float(found.estimate) == pytest.approx(each.mean())
    table = posterior.quantity(lambda draw: draw.marginal(["b"]), draws=10)
    assert table.draws.dims == ("chain", "draw", "b")
    assert list(table.estimate.coords["b"].values) == ["x", "y", "z"]
    assert table.draws.sizes["draw"] == 10
    sizes = iter(range(1, 100))
    with pytest.raises(ArgumentError, match="one shape"):
        posterior.quantity(lambda draw: np.zeros(next(sizes)))


def test_a_quantity_that_depends_on_a_variable_left_out_is_refused_by_name():
    posterior = drawn_posterior(release_of(specification(*AWKWARD["tree"])), 10)
    with pytest.raises(ModelError, match=r"`variables` must name all .*got 'a'; add 'c'"):
        posterior.quantity(lambda draw: draw.marginal(["a", "c"]), variables=["a"])
    with pytest.raises(ModelError, match=r"^variable 'unheard' is not declared"):
        posterior.quantity(lambda draw: draw.marginal(["unheard"]), variables=["a"])


def test_a_quantity_that_is_no_number_is_refused():
    posterior = drawn_posterior(release_of(specification(*AWKWARD["tree"])), 60)
    seen = []

    def undefined_once(draw):
        seen.append(draw)
        return [0.5, np.nan if len(seen) == 7 else 0.5]

    for function, words in (
        (undefined_once, "NaN or infinity in 1 of 60"),
        (lambda draw: np.nan, "NaN or infinity in 60 of 60"),
        (lambda draw: -np.inf, "finite numbers in every draw, got NaN or infinity in 60 of 60"),
        (lambda draw: "many", "numbers, got str"),
        (lambda draw: None, "NaN or infinity in 60 of 60"),
        (lambda draw: {"a": 1.0}, "numbers, got dict"),
    ):
        with pytest.raises(ArgumentError, match=f"`function` must give .*{words}"):
            posterior.quantity(function)


@pytest.mark.filterwarnings("ignore::bayesprivmrf.errors.PriorWarning")  # draws of the prior
def test_edges_are_ranked_by_the_probability_of_their_strength():
    posterior = drawn_posterior(release_of(specification(*AWKWARD["tree"])), 300)
    drawn = posterior.tree["posterior"]
    strength = np.abs(drawn["potentials[a,b]"].values[0]).max(axis=(1, 2))
    frame = posterior.edge_presence(0.3)
    assert frame.loc[("a", "b"), "probability"] == pytest.approx((strength > 0.3).mean())
    assert frame.loc[("a", "b"), "estimate"] == pytest.approx(strength.mean())
    assert list(frame["probability"]) == sorted(frame["probability"], reverse=True)
    assert set(frame.index) == {("a", "b"), ("b", "c")}
    with pytest.raises(ArgumentError, match="threshold"):
        posterior.edge_presence(-1)


def test_effects_beside_structural_zeros_are_not_reported():
    posterior = drawn_posterior(release_of(specification(*ZEROS)), 20)
    frame = posterior.edge_presence(0.1)
    assert np.isnan(frame.loc[("a", "b")].to_numpy(float)).all()
    assert np.isfinite(frame.loc[("b", "c")].to_numpy(float)).all()
    potentials = {
        name for name in posterior.tree["posterior"].data_vars if name.startswith("potentials")
    }
    assert potentials == {"potentials[c]", "potentials[b,c]"}


@pytest.mark.filterwarnings("ignore::bayesprivmrf.errors.PriorWarning")  # draws of the prior
def test_an_edge_counts_the_interactions_of_larger_cliques_that_hold_it():
    """A parity: every pair is independent, and yet no pair is without the third variable."""
    model = specification({v: [0, 1] for v in "abc"}, [("a", "b", "c")])
    posterior = drawn_posterior(release_of(model), 100)
    three = np.abs(posterior.tree["posterior"]["potentials[a,b,c]"].values).max(axis=(2, 3, 4))
    frame = posterior.edge_presence(0.2)
    assert (frame["estimate"] >= three.mean() - 1e-12).all()


@pytest.mark.filterwarnings("ignore::bayesprivmrf.errors.PriorWarning")  # draws of the prior
def test_large_cliques_keep_their_many_effects_out_of_the_tree_and_their_edges_in_reach():
    model = specification({v: [0, 1] for v in "abcdefgh"}, [tuple("abcdefgh")])
    posterior = drawn_posterior(release_of(model), 20)
    drawn = posterior.tree["posterior"]
    assert "potentials" in drawn.attrs
    tables = {"marginal[a,b,c,d,e,f,g,h]", "counts[a,b,c,d,e,f,g,h]"}
    assert set(drawn.data_vars) == {*tables, "scale"}
    assert len(posterior.edge_presence(0.1)) == 28


def test_a_quarter_of_the_log_odds_ratio_is_the_strength_between_two_state_variables():
    model = specification({"a": [0, 1], "b": [0, 1]}, [("a", "b")])
    posterior = drawn_posterior(release_of(model), 30)
    table = posterior.tree["posterior"]["marginal[a,b]"].values[0]
    ratio = np.log(table[:, 0, 0] * table[:, 1, 1] / (table[:, 0, 1] * table[:, 1, 0]))
    assert posterior.edge_presence(0)["estimate"].item() == pytest.approx(np.abs(ratio).mean() / 4)


def test_the_predictive_check_is_calibrated_on_the_true_tables_and_notices_false_ones():
    model = specification(*AWKWARD["tree"])
    release = release_of(model, law=Laplace(4.0))
    posterior = drawn_posterior(release, 100)
    # put the noise of the law between the latent tables and the release: the p-value of one draw is uniform
    latent = finished_of(posterior).counts[0, 0]
    generator = np.random.default_rng(5)
    shares = []
    for _ in range(10):
        noisy = latent + generator.laplace(0, 4.0, latent.shape)
        shares += list(
            held_at(posterior, latent, with_tables(release, noisy)).predictive_check()["p_value"]
        )
    # 30 that are not independent
    assert np.mean(shares) == pytest.approx(0.5, abs=3.5 * np.sqrt(1 / 12 / 20))
    far = held_at(posterior, latent, with_tables(release, latent + 40)).predictive_check()
    assert (far["p_value"].iloc[:2] < 0.01).all()
    assert list(far.index) == ["noisy_counts[a,b]", "noisy_counts[c,b]"]


def with_tables(release, noisy):
    model = release.specification
    return NoisyStatistics.from_tables(
        model, dict(model.tables(noisy)), noise=Laplace(4.0), total=release.total
    )


def held_at(posterior, latent, release):
    """The posterior, as if of another release, with its latent counts held at one table."""
    counts = finished_of(posterior).counts
    return with_changes(posterior, release, counts=np.broadcast_to(latent, counts.shape))


def test_synthetic_data_sets_come_from_different_draws_and_have_the_size_of_the_population():
    posterior = drawn_posterior(release_of(specification(*AWKWARD["tree"]), total=200), 100)
    sets = posterior.synthetic(3, rng=1)
    assert [len(frame) for frame in sets] == [200, 200, 200]
    again = posterior.synthetic(3, rng=1)
    assert all(one.equals(other) for one, other in zip(sets, again, strict=True))
    large = posterior.synthetic(2, 20_000, rng=2)
    for frame, draw in zip(large, (0, 99), strict=True):
        expected = posterior.solution_at(0, draw).marginal(["b"]).values
        found = (
            frame["b"].value_counts(normalize=True).reindex(["x", "y", "z"]).fillna(0).to_numpy()
        )
        assert found == pytest.approx(expected, abs=4 * np.sqrt(0.25 / 20_000))
    with pytest.raises(ArgumentError, match="number"):
        posterior.synthetic(101, rng=1)


def test_synthetic_data_sets_of_a_private_population_have_the_median_size():
    """Half of the draws are of twenty records, a tail of many more: their mean is none's."""
    posterior = drawn_posterior(release_of(specification(*AWKWARD["tree"]), total=None), 101)
    total = np.where(np.arange(101) < 60, 20.0, 5000.0)[np.newaxis]
    changed = with_changes(posterior, total=total)
    assert [len(frame) for frame in changed.synthetic(2, rng=1)] == [20, 20]


def test_synthetic_data_sets_of_a_population_that_may_be_nothing_need_a_size():
    drowned = release_of(
        specification({"a": [0, 1]}, [("a",)]), law=Laplace(1e4), records=5, total=None
    )
    posterior = drawn_posterior(drowned, 20)
    with pytest.raises(ArgumentError, match="`size`"):
        posterior.synthetic(2, rng=1)
    assert [len(frame) for frame in posterior.synthetic(2, 7, rng=1)] == [7, 7]


def test_the_tree_reads_plots_and_saves_as_it_is(tmp_path):
    states = {"draw": [0, 1], "a/b": ["x", "y"], 7: [0, 1, 2], "a,b": [0, 1]}
    model = specification(states, [("draw", "a/b"), ("a/b", 7), (7, "a,b")])
    posterior = drawn_posterior(release_of(model), 50, with_prior=True)
    summary = az.summary(posterior.tree)
    assert "marginal[draw_,a|b][0, x]" in summary.index
    posterior.save(tmp_path / "posterior.nc")
    again = az.from_netcdf(tmp_path / "posterior.nc")
    xr.testing.assert_equal(
        again["posterior"].to_dataset(), posterior.tree["posterior"].to_dataset()
    )
    assert set(again.children) == {
        *("posterior", "posterior_predictive", "prior", "prior_predictive"),
        *("sample_stats", "observed_data", "constant_data", "log_likelihood", "log_prior"),
        "bayesprivmrf",
    }
    az.plot_forest(posterior.tree, var_names=["marginal[7,a;b]"])


def test_a_file_that_cannot_be_written_is_named_and_one_that_is_there_is_replaced(tmp_path):
    first, second = (
        drawn_posterior(release_of(specification(*AWKWARD["single"])), size) for size in (5, 9)
    )
    path = tmp_path / "posterior.nc"
    for unwritable in (tmp_path / "missing" / "posterior.nc", tmp_path):
        with pytest.raises(
            ArgumentError, match=rf"`path` .*'{re.escape(str(unwritable))}'.* folder"
        ):
            first.save(unwritable)
    assert not list(tmp_path.iterdir())
    first.save(path)
    second.save(path)
    assert az.from_netcdf(path)["posterior"].sizes["draw"] == 9


def test_dimensions_never_collide_whatever_the_variables_are_called():
    names = ["chain", "chain_", "chain__", "a/b", "a|b", "", "_", "a|b_", "total", 7, "cell"]
    found = dimension_names(Domain.from_states({name: [0, 1] for name in names}))
    assert len(set(found)) == len(names)
    assert not {"chain", "draw", "total", "cell", ""} & set(found)
    assert found[1] == "chain_"
    assert found[4] == "a|b"


def test_observed_and_replicated_tables_are_those_of_the_release():
    model = specification(*ZEROS)
    release = release_of(model, law=DiscreteLaplace(2.0))
    posterior = drawn_posterior(release, 2000)
    observed = posterior.tree["observed_data"]["noisy_counts[a,b]"]
    assert np.array_equal(observed.values, release.tables["a", "b"])
    replicated = posterior.tree["posterior_predictive"]["noisy_counts[a,b]"].values[0]
    latent = posterior.tree["posterior"]["counts[a,b]"].values[0]
    assert (replicated[:, 1, 0] == 0).all()  # a cell that cannot occur is never noised
    noise = (replicated - latent)[:, 0]
    assert np.array_equal(noise, np.rint(noise))
    variance = DiscreteLaplace(2.0).variance
    assert noise.var() == pytest.approx(variance, rel=5 * np.sqrt(5 / noise.size))


def test_a_scope_that_two_releases_measured_has_two_observed_tables():
    model = specification(*AWKWARD["tree"])
    releases = [release_of(model, seed=1), release_of(model, seed=2)]
    posterior = drawn_posterior(releases, 20)
    assert {"noisy_counts[a,b]", "noisy_counts[a,b] 2"} <= set(
        posterior.tree["observed_data"].data_vars
    )
    first, second = gather(releases).answers(finished_of(posterior).counts)[::2]
    assert np.array_equal(first, second)


def test_bad_questions_are_refused_with_what_would_be_right():
    posterior = drawn_posterior(release_of(specification(*AWKWARD["tree"])), 20)
    for ask, words in (
        (lambda: posterior.interval(["a"], prob=90), "prob"),
        (lambda: posterior.interval(["a"], of="people"), "population"),
        (lambda: posterior.interval(["a", "a"]), "once"),
        (lambda: posterior.marginal([]), "at least one"),
        (lambda: posterior.solution_at(0, 20), "draw"),
        (lambda: posterior.network_at(1, 0), "chain"),
        (lambda: posterior.quantity(3), "callable"),
    ):
        with pytest.raises((ArgumentError, ModelError), match=words):
            ask()


def test_a_posterior_says_what_it_is():
    posterior = drawn_posterior(release_of(specification(*AWKWARD["tree"])), 20)
    assert isinstance(posterior, Posterior)
    assert "converged" in repr(posterior)
    assert "<table>" in html_of(posterior)
    assert posterior.method == "posterior"
    assert sorted(map(str, posterior.network.nodes())) == ["a", "b", "c"]


@pytest.mark.filterwarnings("ignore::bayesprivmrf.errors.SamplingWarning")  # few draws
@pytest.mark.parametrize("are_rare", [pytest.param(False, marks=pytest.mark.slow), True])
def test_edges_that_the_prior_decides_are_told_with_the_remedy(are_rare):
    """Of two independent variables with rare states, Dirichlet rows find an edge with certainty; effects do not."""
    shares = np.array([0.8, 0.14, 0.05, 0.01]) if are_rare else np.full(4, 0.25)
    table = np.rint(3000 * np.multiply.outer(shares, shares)).astype(int)
    table[0, 0] += 1  # equal numbers would be multiples of one, as if they were rounded
    model = specification({"a": range(4), "b": range(4)}, [("a", "b")])
    release = NoisyStatistics.from_tables(model, {("a", "b"): table}, noise=Laplace(1.0))
    short = {"rng": 1, "draws": 200, "tune": 100, "chains": 2, "time_limit": 1e-9}
    posterior = LatentCounts(formulation="hyper-dirichlet").fit(release, **short)
    if not are_rare:
        assert posterior.edge_presence(0.3)["probability"].item() < 0.1
        return
    with pytest.warns(
        PriorWarning, match=r"1 of 1 edges.*fit LatentCounts\(formulation='log-linear'\)"
    ):
        found = posterior.edge_presence(0.3)
    assert found["probability"].item() > 0.95
    assert LatentCounts().fit(release, **short).edge_presence(0.3)["probability"].item() < 0.5
