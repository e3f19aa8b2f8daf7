"""Files in the census layout are read as what was measured, and files that are otherwise are refused."""

import csv

import numpy as np
import pytest

import bayesprivmrf as bpm
from bayesprivmrf import queries as q
from bayesprivmrf.errors import ArgumentError, DataError, ModelError
from bayesprivmrf.inference import gather
from bayesprivmrf.noise import DiscreteGaussian, DiscreteLaplace, Gaussian, Within
from bayesprivmrf.readers import read_census

from .census_layout import (
    ORDERED,
    SMALL_AXES,
    SMALL_VARIANCES,
    level_sums,
    noisy_rows,
    rhode_island,
    small_truth,
    true_counts,
    variances,
    write_rows,
)

TRUTH = small_truth()
NETWORK = bpm.declare(
    {"tract": list(TRUTH), "votingage": ["under 18", "18+"], "race": ["r1", "r2", "r3"]},
    [("tract", "votingage", "race")],
)
QUERIES = {
    "total_dpq": (),
    "cenrace_dpq": "race",
    "votingage * cenrace_dpq": ("votingage", "race"),
    "detailed_dpq": (None, "votingage", "race"),
}


@pytest.fixture(params=["csv", "parquet"])
def folder(request, tmp_path):
    rng = np.random.default_rng(7)
    for level, length in (("Tract", 4), ("County", 2)):
        truth = level_sums(TRUTH, length)
        rows = list(noisy_rows(truth, SMALL_VARIANCES, SMALL_AXES, rng))
        write_rows(rows, tmp_path, level, kind=request.param)
        exact = [
            {
                "geocode": code,
                "query_name": name,
                "sign": sign,
                "query_shape": [1, 1, 1],
                "value": [int(table.sum())],
                "variance": 0.0,
            }
            for code, table in truth.items()
            for name, sign in (("total_con", "="), ("total_ub_con", "<="))
        ]
        write_rows(exact, tmp_path, level, "Constraint", kind=request.param)
    return tmp_path


def read(folder, **kept):
    return read_census(
        NETWORK, folder, **{"queries": QUERIES, "levels": ["Tract"], "area": "tract", **kept}
    )


def test_each_query_is_measured_with_its_published_variance(folder):
    release = read(folder)
    expected = {
        (q.table("tract"), 4.0),
        (q.table("tract", "race"), 9.0),
        (q.table("tract", "votingage", "race"), 6.25),
        (q.table("tract", "votingage", "race"), 8.0),  # summed over two kinds of quarters
    }
    assert {(m.query, round(m.noise.variance, 4)) for m in release.measurements} == expected
    assert all(m.noise.name == "discrete-gaussian" for m in release.measurements)
    assert release.guarantee is None
    truth = np.stack(list(TRUTH.values()))
    for each in release.measurements:
        exact = each.query.bind(NETWORK).answers(truth.ravel())
        assert np.abs(each.values - exact).max() < 5 * each.noise.standard_deviation


def test_axes_that_the_model_lacks_are_summed_over(folder):
    release = read(folder, queries={"detailed_dpq": (None, None, "race")})
    (one,) = release.measurements
    assert one.query == q.table("tract", "race")
    assert one.noise.variance == pytest.approx(4 * 4.0, rel=1e-6)
    exact = np.stack(list(TRUTH.values())).sum(axis=1)
    assert np.abs(one.values - exact.ravel()).max() < 5 * 4


def test_levels_are_coarsenings_of_the_area(folder):
    release = read(
        folder, queries={"cenrace_dpq": ("race",), "total_dpq": ()}, levels=["Tract", "County"]
    )
    groups = {"tract": {"44": ("4401", "4402"), "45": ("4503",)}}
    assert [m.query for m in release.measurements] == [
        q.table("tract", "race"),
        q.table("tract"),
        q.coarsened("tract", "race", groups=groups),
        q.coarsened("tract", groups=groups),
    ]
    mapped = {"Tract": None, "County": {"45": ["4503"], "44": ["4401", "4402"]}}
    other = read(folder, queries={"total_dpq": ()}, levels=mapped)
    at = [each.query.bind(NETWORK).labels for each in other.measurements]
    assert at[1] == ("tract=45", "tract=44")
    assert other.measurements[1].values.tolist() == release.measurements[3].values[::-1].tolist()


def test_one_area_needs_no_variable_for_it(folder):
    network = bpm.declare(
        {"votingage": ["under 18", "18+"], "race": [1, 2, 3]}, [("votingage", "race")]
    )
    release = read_census(
        network,
        folder,
        queries=QUERIES,
        levels=["Tract"],
        geocode="4402",
        constraints={"total_con": ()},
        state="44",
    )
    assert release.total == TRUTH["4402"].sum()
    assert [len(m.values) for m in release.measurements] == [1, 3, 6, 6]


def test_exact_counts_are_measured_without_noise_and_that_of_all_people_is_the_total(folder):
    release = read(folder, constraints={"total_con": ()})
    assert [m.noise.name for m in release.measurements].count("none") == 1
    assert release.total is None
    assert release.estimated_total == sum(table.sum() for table in TRUTH.values())
    whole = {"Tract": None, "County": {"44": ["4401", "4402", "4503"]}}
    with pytest.raises(ModelError, match="one population in one unit"):
        read(folder, levels=whole, constraints={"total_con": ()})  # "44" does not hold the third


def bounds_of(release):
    """Query, lower and upper bound of each number that is known within bounds."""
    return [
        (each.query, each.values - each.noise.half_width, each.values + each.noise.half_width)
        for each in release.measurements
        if isinstance(each.noise, Within)
    ]


def test_a_bound_is_a_count_within_zero_and_it(folder):
    release = read(folder, constraints={"total_ub_con": ()})
    assert release.total is None
    found = bounds_of(release)
    assert len(found) == len(TRUTH)  # one for each half width
    lower, upper = (np.concatenate([each[k] for each in found]) for k in (1, 2))
    assert (lower == 0).all()
    assert sorted(upper) == sorted(table.sum() for table in TRUTH.values())
    both = read(folder, constraints={"total_ub_con": (), "total_con": ()})
    assert len(bounds_of(both)) == len(TRUTH)
    with pytest.raises(ArgumentError, match="use LatentCounts"):
        bpm.NaiveMLE().fit(release)


def constraint_rows(name, values, **kept):
    return [
        {
            "geocode": code,
            "query_name": name,
            "query_shape": [1, 2, 1],
            "value": each,
            "variance": 0.0,
            **kept,
        }
        for code, each in values.items()
    ]


@pytest.mark.parametrize("signs", [("<=", ">="), ("le", "ge"), None])
def test_signs_are_read_or_else_names(folder, signs):
    """A lower bound reaches up to all people where their number is told, and to 10^10 where it is not."""
    ages = {code: table.sum(axis=1) for code, table in TRUTH.items()}
    rows = []
    for way, name in enumerate(("votingage_ub_con", "votingage_lb_con")):
        given = {} if signs is None else {"sign": signs[way]}
        rows += constraint_rows(
            name, {code: (each + 5 - 10 * way).tolist() for code, each in ages.items()}, **given
        )
    write_rows(rows, folder, "Tract", "Constraint", state="45")
    asked = {"votingage_ub_con": ("votingage",), "votingage_lb_con": ("votingage",)}
    queries = {"total_dpq": ()}
    write_rows(
        list(noisy_rows(TRUTH, {"total": 4.0}, SMALL_AXES, np.random.default_rng(1))),
        folder,
        "Tract",
        state="45",
    )
    for number in (None, sum(int(table.sum()) for table in TRUTH.values())):
        release = read(folder, queries=queries, constraints=asked, state="45", total=number)
        found = bounds_of(release)
        assert sum(len(lower) for _, lower, _ in found) == 12
        ends = [
            (int(low), int(high))
            for _, lower, upper in found
            for low, high in zip(lower, upper, strict=True)
        ]
        counts = [count for each in ages.values() for count in each]
        expected = [(0, count + 5) for count in counts] + [
            (count - 5, number or 10**10) for count in counts
        ]
        assert sorted(ends) == sorted(expected)


def test_a_sign_that_says_nothing_and_bounds_that_contradict_are_refused(folder):
    write_rows(
        constraint_rows("votingage_con", {c: [1, 2] for c in TRUTH}, sign="~"),
        folder,
        "Tract",
        "Constraint",
        "45",
    )
    write_rows(
        list(noisy_rows(TRUTH, {"total": 4.0}, SMALL_AXES, np.random.default_rng(1))),
        folder,
        "Tract",
        state="45",
    )
    asked = {
        "queries": {"total_dpq": ()},
        "state": "45",
        "constraints": {"votingage_con": ("votingage",)},
    }
    with pytest.raises(DataError, match="must have a sign among"):
        read(folder, **asked)
    write_rows(
        constraint_rows("votingage_con", {c: [1, -2] for c in TRUTH}, sign="<="),
        folder,
        "Tract",
        "Constraint",
        "45",
    )
    with pytest.raises(ModelError, match="allow some number of people"):
        read(folder, **asked)


@pytest.mark.filterwarnings(
    "ignore::bayesprivmrf.errors.SamplingWarning"
)  # fifty draws are not mixed
@pytest.mark.skipif(rhode_island() is None, reason="the shared data set pl94_ri is not here")
def test_bounds_of_rhode_island_hold_in_every_draw_of_a_model_of_two_cliques(tmp_path):
    """Exact numbers of people by tract, and bounds on voters and on Hispanics, in files of the layout."""
    truth = true_counts(rhode_island(), "Tract")
    small = {code: table.sum(axis=2)[:, :, np.newaxis] // 60 for code, table in truth.items()}
    axes, rng = {"votingage": 2, "hispanic": 2, "cenrace": 1}, np.random.default_rng(2)
    rows = list(noisy_rows(small, {"votingage": 9.0, "hispanic": 9.0}, axes, rng))
    write_rows(rows, tmp_path, "Tract", kind="parquet")
    rows = []
    for code, table in small.items():
        kinds = {
            "votingage_lb_con": table.sum(axis=(1, 2)) // 10 * 10,
            "hispanic_ub_con": table.sum(axis=(0, 2)) + 3,
        }
        for name, values in kinds.items():
            shape = [2, 1, 1] if name.startswith("voting") else [1, 2, 1]
            sign = ">=" if "lb" in name else "<="
            rows.append(
                {
                    "geocode": code,
                    "query_name": name,
                    "sign": sign,
                    "query_shape": shape,
                    "value": values.tolist(),
                    "variance": 0.0,
                }
            )
        rows.append(
            {
                "geocode": code,
                "query_name": "total_con",
                "sign": "=",
                "query_shape": [1, 1, 1],
                "value": [int(table.sum())],
                "variance": 0.0,
            }
        )
    write_rows(rows, tmp_path, "Tract", "Constraint", kind="parquet")
    network = bpm.declare(
        {"tract": sorted(small), "votingage": ["under 18", "18+"], "hispanic": ["no", "yes"]},
        [("tract", "votingage"), ("tract", "hispanic")],
    )
    release = read_census(
        network,
        tmp_path,
        queries={"votingage_dpq": ("votingage",), "hispanic_dpq": ("hispanic",)},
        constraints={
            "total_con": (),
            "votingage_lb_con": ("votingage",),
            "hispanic_ub_con": ("hispanic",),
        },
        levels=["Tract"],
        area="tract",
    )
    posterior = bpm.LatentCounts().fit(release, rng=1, draws=50, tune=50, chains=2, time_limit=1)
    drawn = posterior.tree["posterior"]
    for position, name in enumerate(("votingage", "hispanic")):
        counts = drawn[f"counts[tract,{name}]"].to_numpy().reshape(-1, len(small), 2)
        table = np.array([small[code].sum(axis=(1 - position, 2)) for code in sorted(small)])
        assert (counts.sum(axis=2) == table.sum(axis=1)).all()
        assert (counts >= table // 10 * 10).all() if position == 0 else (counts <= table + 3).all()
        assert np.abs(counts.mean(axis=0) - table).max() < 12


def test_coarsened_queries_are_read(folder):
    merged = q.coarsened("race", race={"first": ["r1"], "second": ["r2"], "third": ["r3"]})
    release = read(folder, queries={"cenrace_dpq": merged})
    assert release.measurements[0].query == q.coarsened(
        "tract", "race", groups={"race": {"first": ["r1"], "second": ["r2"], "third": ["r3"]}}
    )


@pytest.mark.parametrize(
    ("kept", "error", "message"),
    [
        ({"queries": {"cenrace": ("race",)}}, ArgumentError, "got 'cenrace'; 'cenrace_dpq' is similar"),
        ({"queries": {"hisp_dpq": ("race",)}}, ArgumentError, "it has 'cenrace_dpq'"),
        ({"queries": {}}, ArgumentError, "at least"),
        ({"queries": {"cenrace_dpq": ("votingage",)}}, DataError, "must have 2 numbers"),
        ({"queries": {"detailed_dpq": (None, "race", "votingage")}}, DataError, "must have any x 3 x 2 numbers"),
        ({"queries": {"cenrace_dpq": q.parities(1)}}, ArgumentError, "tables or coarsened"),
        ({"levels": ["tract"]}, DataError, "'Tract' is similar"),
        ({"levels": "Tract"}, ArgumentError, "a list of levels"),
        ({"levels": ["Tract", "Tract"]}, ArgumentError, "each level once"),
        ({"area": None}, ArgumentError, "either `area` or `geocode`"),
        ({"geocode": "4401"}, ArgumentError, "either `area` or `geocode`"),
        ({"state": "9"}, DataError, "one of the partitions"),
        ({"noise": "normal"}, ArgumentError, "known noise distribution"),
        ({"levels": {"Tract": {"4401": ["4401"], "4402": ["4402"]}}}, ArgumentError, "got '4503' no times"),
        ({"constraints": {"totl_con": ()}}, ArgumentError, "'total_con' is similar"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(folder, kept, error, message):
    with pytest.raises(error, match=message):
        read(folder, **kept)


def test_a_geography_that_holds_other_areas_is_refused(folder):
    network = bpm.declare(
        {"tract": ["4401", "4503"], "votingage": [0, 1], "race": [1, 2, 3]},
        [("tract", "votingage", "race")],
    )
    with pytest.raises(DataError, match="1 of them are not states of 'tract'"):
        read_census(network, folder, queries=QUERIES, levels=["Tract", "County"], area="tract")
    alone = read_census(network, folder, queries=QUERIES, levels=["Tract"], area="tract")
    assert len(alone.measurements[0].values) == 2
    elsewhere = bpm.declare(
        {"tract": ["99"], "votingage": [0, 1], "race": [1, 2, 3]}, [("tract", "votingage", "race")]
    )
    with pytest.raises(DataError, match="prefix of the area '99', got none"):
        read_census(elsewhere, folder, queries=QUERIES, levels=["Tract"], area="tract")


def _rewritten(tmp_path, change):
    rows = [
        dict(row)
        for row in noisy_rows(TRUTH, SMALL_VARIANCES, SMALL_AXES, np.random.default_rng(7))
    ]
    rows = change(rows) or rows
    write_rows(rows, tmp_path, "Tract")
    return tmp_path


def test_a_query_that_one_area_lacks_or_has_twice_is_refused(tmp_path):
    def lacks(rows):
        return [r for r in rows if (r["geocode"], r["query_name"]) != ("4402", "total_dpq")]

    with pytest.raises(DataError, match="'total_dpq' for the area '4402', got none"):
        read(_rewritten(tmp_path, lacks))
    with pytest.raises(DataError, match="'total_dpq' twice"):
        read(_rewritten(tmp_path, lambda rows: [*rows, rows[0]]))


@pytest.mark.parametrize(
    ("old", "new"),
    [("geocode", "GEOCODE"), ("variance", "variances"), ("query_shape", "query shape")],
)
def test_another_spelling_of_a_column_is_named(tmp_path, old, new):
    def renamed(rows):
        return [
            {new if name == old else name: value for name, value in row.items()} for row in rows
        ]

    with pytest.raises(DataError, match=f"'{old}'.*'{new}'"):
        read(_rewritten(tmp_path, renamed))


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"value": "[1, 2"}, "must be lists of numbers"),
        ({"value": ["secret"]}, "must be finite numbers"),
        ({"variance": -1.0}, "must be at least 0"),
        ({"variance": "1e4 people"}, "must be finite numbers"),
        (
            {"value": [1, 2]},
            "must have 1 numbers, one for each combination of its axes' states, got 2",
        ),
    ],
)
def test_a_broken_entry_is_refused_without_its_value(tmp_path, entry, message):
    def broken(rows):
        rows[0].update(entry)

    with pytest.raises(DataError, match=message) as caught:
        read(_rewritten(tmp_path, broken))
    assert "secret" not in str(caught.value)
    assert "1e4" not in str(caught.value)


def test_a_table_in_another_unit_is_refused(tmp_path):
    def thousands(rows):
        for row in rows:
            if row["query_name"] == "total_dpq":
                row["value"] = [row["value"][0] * 1000]

    with pytest.raises(ModelError, match="one population in one unit"):
        read(_rewritten(tmp_path, thousands))


def test_areas_with_noise_of_their_own_keep_it(tmp_path):
    def differ(rows):
        for row in rows:
            if row["geocode"] == "4503":
                row["variance"] *= 4

    release = read(
        _rewritten(tmp_path, differ), queries={"votingage * cenrace_dpq": ("votingage", "race")}
    )
    evidence = gather(release)
    spread = evidence.matrix.T @ evidence.spread([law.variance for law in evidence.noise])
    np.testing.assert_allclose(spread, np.repeat([6.25, 6.25, 25.0], 6), rtol=1e-6)


def test_a_folder_that_is_none_is_refused(tmp_path):
    with pytest.raises(DataError, match="must be the folder"):
        read(tmp_path / "nowhere")
    (tmp_path / "Tract.parquet").mkdir()
    with pytest.raises(DataError, match="must have a folder 'DPQuery'"):
        read(tmp_path)


@pytest.mark.parametrize("scale", [1.5, 2.0, 3.3])
@pytest.mark.parametrize("count", [2, 3, 8])
def test_a_sum_of_discrete_gaussian_draws_has_the_law_that_is_said(scale, count):
    law = DiscreteGaussian(scale)
    reach = int(12 * scale) + 1
    one = np.exp(law.log_density(np.arange(-reach, reach + 1)))
    whole = np.ones(1)
    for _ in range(count):
        whole = np.convolve(whole, one)
    width = (len(whole) - 1) // 2
    summed = np.exp(law.summed(count).log_density(np.arange(-width, width + 1)))
    assert np.abs(whole - summed).max() < count * 5e-10
    assert law.summed(count).variance == pytest.approx(count * law.variance, rel=1e-8)


def test_a_sum_without_a_law_of_its_own_has_a_table():
    for law in (DiscreteGaussian(1.0), DiscreteLaplace(3.0)):
        assert law.summed(1) is law
        assert law.summed(2).variance == pytest.approx(2 * law.variance)
    assert Gaussian(2.0).summed(4) == Gaussian(4.0)


def test_a_query_that_is_summed_over_an_axis_has_the_law_of_the_sum(folder):
    release = read(folder, noise=DiscreteLaplace)
    names = {law.name for law in release.noise}
    assert "summed" in names
    assert bpm.NaiveMLE().fit(release).status


# Rhode Island's prototype file with the published budget

RHODE_ISLAND = rhode_island()
needs_data = pytest.mark.skipif(
    RHODE_ISLAND is None, reason="shared/data/pl94_ri is not beside the checkout"
)
RACES = [f"race {number}" for number in range(1, 64)]
PUBLISHED = {
    "total_dpq": (),
    "cenrace_dpq": "race",
    "hispanic_dpq": "hispanic",
    "votingage_dpq": "age",
    "votingage * hispanic_dpq": ("age", "hispanic"),
    "hispanic * cenrace_dpq": ("hispanic", "race"),
    "votingage * cenrace_dpq": ("age", "race"),
    "votingage * hispanic * cenrace_dpq": ("age", "hispanic", "race"),
    "detailed_dpq": (None, "age", "hispanic", "race"),
}


@needs_data
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_three_tracts_of_rhode_island_are_read_with_the_published_noise(tmp_path, kind):
    rng = np.random.default_rng(20)
    for level in ("Tract", "Block_Group"):
        truth, published = true_counts(RHODE_ISLAND, level), variances(RHODE_ISLAND, level)
        rows = noisy_rows(truth, published, {"hhgq": 8, **ORDERED}, rng)
        write_rows(rows, tmp_path, level, kind=kind)
    tracts = true_counts(RHODE_ISLAND, "Tract")
    chosen = sorted(tracts)[:3]
    groups = [
        code for code in sorted(true_counts(RHODE_ISLAND, "Block_Group")) if code[:11] in chosen
    ]
    states = {"age": ["under 18", "18+"], "hispanic": ["no", "yes"], "race": RACES}
    axes = ("age", "hispanic", "race")
    by_tract = bpm.declare({"area": chosen, **states}, [("area", *axes)])
    release = read_census(
        by_tract, tmp_path, queries=PUBLISHED, levels=["Tract"], area="area", state="44"
    )
    assert len(release.measurements) == 9
    exact = np.stack([tracts[code] for code in chosen]).ravel().astype(float)
    scores = []
    for each in release.measurements:
        residual = each.values - each.query.bind(by_tract).answers(exact)
        scores += (residual / each.noise.standard_deviation).tolist()
    assert abs(np.std(scores) - 1) < 4 / np.sqrt(2 * len(scores))
    assert abs(np.mean(scores)) < 4 / np.sqrt(len(scores))
    nested = bpm.declare({"area": groups, **states}, [("area", *axes)])
    both = read_census(
        nested,
        tmp_path,
        queries={"total_dpq": (), "hispanic * cenrace_dpq": ("hispanic", "race")},
        levels=["Tract", "Block_Group"],
        area="area",
    )
    assert [len(m.values) for m in both.measurements] == [3, 378, len(groups), 126 * len(groups)]
    total = sum(tracts[code].sum() for code in chosen)
    assert abs(both.estimated_total - total) < 5 * both.total_standard_error
    assert both.total_standard_error < release.total_standard_error


@needs_data
def test_the_shared_files_have_the_published_shares():
    with (RHODE_ISLAND / "budget.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            shares = [
                int(a) / int(b)
                for a, b in (row[n].split("/") for n in ("level_share", "query_share"))
            ]
            assert float(row["variance"]) == pytest.approx(
                (339 / 542) ** 2 / np.prod(shares), rel=1e-5
            )


def test_axes_in_another_order_than_the_files_are_refused(tmp_path):
    name = "votingage * cenrace_dpq"
    with pytest.raises(DataError, match="in the file's order"):
        read(_rewritten(tmp_path, lambda rows: rows), queries={name: ("race", "votingage")})


def test_a_total_that_contradicts_a_constraint_is_refused(folder):
    network = bpm.declare(
        {"votingage": ["under 18", "18+"], "race": [1, 2, 3]}, [("votingage", "race")]
    )
    truth = int(TRUTH["4402"].sum())
    given = {
        "queries": {"detailed_dpq": (None, "votingage", "race")},
        "constraints": {"total_con": ()},
    }

    def total(number):
        return read_census(
            network, folder, levels=["Tract"], geocode="4402", total=number, **given
        ).total

    assert total(truth) == truth
    with pytest.raises(ModelError, match="in the constraints, 345"):
        total(truth + 5)
