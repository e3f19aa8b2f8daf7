"""Labeled tables: aligned by name and label, in any order, or refused."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

import bayesprivmrf as bpm
from bayesprivmrf import queries as q
from bayesprivmrf.errors import ArgumentError, DataError, ModelError
from bayesprivmrf.model import Domain, ModelSpecification
from bayesprivmrf.noise import Gaussian, Laplace
from bayesprivmrf.release import Measurement, NoisyStatistics

STATES = {"sat": ["low", "medium", "high"], 0: [2, 0, 1], "sex": ["m", "f"]}
NETWORK = bpm.declare(STATES, cliques=[("sat", 0, "sex")])
SCOPE = ("sat", 0, "sex")
COUNTS = np.arange(18.0).reshape(3, 3, 2) ** 1.5


def plain(scope=SCOPE, values=COUNTS, **more):
    return NoisyStatistics.from_tables(NETWORK, {scope: values}, noise=Laplace(1.0), **more)


def shuffled_forms(values, scope, random):
    """The same table, permuted at random, in every labeled form."""
    axes = random.permutation(len(scope)).tolist()
    orders = [random.permutation(len(STATES[v])).tolist() for v in scope]
    names = [scope[axis] for axis in axes]
    labels = [[STATES[scope[axis]][code] for code in orders[axis]] for axis in axes]
    moved = values[np.ix_(*orders)].transpose(axes)
    dims = [str(name) for name in names]
    yield xr.DataArray(moved, dims=dims, coords=dict(zip(dims, labels, strict=True)))
    index = pd.MultiIndex.from_product(labels, names=names)
    long = pd.Series(moved.ravel(), index=index).sample(
        frac=1, random_state=int(random.integers(99))
    )
    yield long
    yield long.to_dict() if axes == sorted(axes) else long.rename("count").to_frame()
    if len(names) > 1:
        sides = int(random.integers(1, len(names)))
        wide = long.rename_axis(dims).unstack(list(range(sides)))  # by number: 0 is a name too
        yield wide.sample(frac=1, random_state=1).T
    if axes == sorted(axes):
        yield pd.Series(moved.ravel(), index=index.set_names([None] * len(names)))
        yield xr.DataArray(
            moved,
            dims=[f"dim_{k}" for k in axes],
            coords={f"dim_{k}": own for k, own in enumerate(labels)},
        )


def test_a_frame_with_a_column_of_states_is_refused_with_a_remedy_that_works():
    network = bpm.declare({"sex": ["f", "m"], "ill": ["no", "yes"]}, [("sex", "ill")])

    def read(table):
        return NoisyStatistics.from_tables(network, {("sex", "ill"): table}, noise=Laplace(1.0))

    wide = pd.DataFrame({"sex": ["m", "f"], "no": [3.5, 1.5], "yes": [4.0, 2.0]})
    with pytest.raises(ModelError, match=r"in a column; write `frame.set_index\(\['sex'\]\)`\.$"):
        read(wide)
    wanted = read([[1.5, 2.0], [3.5, 4.0]])
    assert read(wide.set_index(["sex"])) == wanted
    long = wide.melt("sex", var_name="ill", value_name="n")
    with pytest.raises(
        ModelError, match=r"set_index\(\['sex', 'ill'\]\)` and take the column of its counts"
    ):
        read(long)
    assert read(long.set_index(["sex", "ill"])["n"]) == wanted
    # counts that are named after their variable, and a state with the name of a variable
    people = pd.DataFrame({"sex": ["f", "m", "m"]})
    counts = people.groupby("sex")["sex"].count().to_frame()
    one = bpm.declare({"sex": ["f", "m"]}, [("sex",)])
    assert NoisyStatistics.from_tables(one, {"sex": counts}, noise=Laplace(1.0)).tables[
        "sex"
    ].tolist() == [
        1,
        2,
    ]
    alike = bpm.declare({"a": ["x", "y"], "b": ["a", "b"]}, [("a", "b")])
    table = pd.DataFrame([[1.0, 2.0], [3.0, 4.0]], index=["x", "y"], columns=["a", "b"])
    NoisyStatistics.from_tables(alike, {("a", "b"): table}, noise=Laplace(1.0))


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32 - 1), st.permutations(SCOPE), st.integers(1, 3))
def test_any_layout_of_a_labeled_table_gives_the_release_of_the_plain_array(seed, order, count):
    scope, random = tuple(order[:count]), np.random.default_rng(seed)
    values = random.integers(0, 99, [len(STATES[v]) for v in scope]).astype(float)
    network = bpm.declare({v: STATES[v] for v in scope}, cliques=[scope])
    wanted = NoisyStatistics.from_tables(network, {scope: values}, noise=Laplace(1.0))
    by_variance = NoisyStatistics.from_tables(network, [(scope, values)], noise=[values + 1])
    for form in shuffled_forms(values, scope, random):
        assert NoisyStatistics.from_tables(network, {scope: form}, noise=Laplace(1.0)) == wanted
        measured = [Measurement(q.table(*scope), form, Laplace(1.0))]
        assert NoisyStatistics.from_measurements(network, measured) == wanted
        more = (
            {cell: each + 1 for cell, each in form.items()} if isinstance(form, dict) else form + 1
        )
        assert NoisyStatistics.from_tables(network, [(scope, form)], noise=[more]) == by_variance


def test_a_crosstab_is_aligned_though_pandas_sorts_its_labels():
    people = pd.DataFrame(
        {"sat": ["low"] * 5 + ["high"] * 2 + ["medium"] * 3, "sex": list("mfmfmfmfmf")}
    )
    network = bpm.declare({"sat": STATES["sat"], "sex": ["m", "f"]}, [("sat", "sex")])
    counts = [
        [(people.sat.eq(a) & people.sex.eq(b)).sum() for b in ("m", "f")] for a in STATES["sat"]
    ]
    wanted = NoisyStatistics.from_tables(network, {("sat", "sex"): counts}, noise=Laplace(1.0))
    for table in (
        pd.crosstab(people.sat, people.sex),
        pd.crosstab(people.sex, people.sat),
        pd.crosstab(people.sat.to_numpy(), people.sex.to_numpy()),  # whose axes pandas names itself
        people.pivot_table(index="sex", columns="sat", aggfunc="size"),
        people.value_counts(),
        people.groupby(["sex", "sat"]).size().astype("Int64").unstack(),
    ):
        assert (
            NoisyStatistics.from_tables(network, {("sat", "sex"): table}, noise=Laplace(1.0))
            == wanted
        )
    with pytest.raises(ModelError, match="leave out the margins"):
        NoisyStatistics.from_tables(
            network,
            {("sat", "sex"): pd.crosstab(people.sat, people.sex, margins=True)},
            noise=Laplace(1.0),
        )


def test_the_library_reads_its_own_marginals_and_answers():
    solution = bpm.NoiseAwareMAP().fit(plain(values=COUNTS + 0.3))
    wanted = plain(values=200 * solution.marginal(list(SCOPE)).to_numpy())
    assert plain(values=200 * solution.marginal(["sex", 0, "sat"])) == wanted
    query = q.coarsened("sat", "sex", sat={"low": ["low"], "more": ["medium", "high"]})
    answers = solution.interval(query)["estimate"]
    again = [
        Measurement(query, values, Laplace(1.0)) for values in (answers[::-1], answers.to_numpy())
    ]
    first, second = (
        NoisyStatistics.from_measurements(NETWORK, [one]).measurements[0] for one in again
    )
    np.testing.assert_array_equal(first.values, second.values)


def test_measurements_of_queries_are_aligned_by_groups_and_by_rows():
    merged = q.coarsened("sat", sat={"few": ["low"], "more": ["medium", "high"]})
    weighed = q.weighted("sex", matrix=[[1, 0], [1, 1]], labels=["men", "all"])
    pooled = q.pooled([("sat",)])
    release = NoisyStatistics.from_measurements(
        NETWORK,
        [
            Measurement(q.table(*SCOPE), COUNTS.ravel(), Laplace(1.0)),
            Measurement(merged, pd.Series({"more": 5.0, "few": 2.0}), Laplace(1.0)),
            Measurement(weighed, pd.Series({"all": 9.0, "men": 4.0}), Laplace(1.0)),
            Measurement(pooled, {"high": 3.0, "low": 1.0, "medium": 2.0}, Laplace(1.0)),
        ],
    )
    assert [list(each.values) for each in release.measurements[1:]] == [[2, 5], [4, 9], [1, 2, 3]]


def test_labels_are_equal_as_declared_states_are():
    domain = Domain.from_states({"a": [1, True, "one"]})
    network = ModelSpecification(domain=domain, cliques=(("a",),))
    wanted = NoisyStatistics.from_tables(network, {"a": [10.0, 20.0, 30.0]}, noise=Laplace(1.0))
    table = pd.Series([30.0, 20.0, 10.0], index=pd.Index(["one", True, 1.0], dtype=object))
    assert NoisyStatistics.from_tables(network, {"a": table}, noise=Laplace(1.0)) == wanted


@pytest.mark.parametrize(
    "states", [[0, 1], [1, 0], [1.0, 0.0], [True, False], ["yes", "no"], [0, 1, 2]]
)
def test_numbers_that_pandas_counts_rows_by_are_labels_of_the_states_or_refused(states):
    """pandas stores the index of ``pd.Series({0: 7.0, 1: 3.0})`` and the one that it sets itself alike."""
    network, rows = bpm.declare({"a": states}, [("a",)]), pd.RangeIndex(2)
    count = pd.Series({0: 7.0, 1: 3.0})
    assert count.index.equals(rows)
    labeled = xr.DataArray([7.0, 3.0], dims="a", coords={"a": rows})
    for table in (count, pd.Series([7.0, 3.0]), count.to_frame(), count.to_dict(), labeled):
        reads = (
            lambda table=table: NoisyStatistics.from_tables(
                network, {"a": table}, noise=Laplace(1.0)
            ),
            lambda table=table: NoisyStatistics.from_measurements(
                network, [Measurement(q.table("a"), table, Laplace(1.0))]
            ),
            lambda table=table: NoisyStatistics.from_tables(
                network, {"a": np.zeros(len(states))}, noise={"a": table}
            ),
        )
        for read in reads:
            if set(states) != {0, 1} or isinstance(states[0], bool):
                with pytest.raises(ModelError, match=r"must be labeled|must hold each state"):
                    read()
            elif read is reads[2]:
                assert sorted(read().cell_variances()) == pytest.approx([3.0, 7.0])
            else:
                assert read().flat.tolist() == [(7.0, 3.0)[int(state)] for state in states]


def test_positions_that_stand_for_states_have_no_labels_in_queries_and_measurements_of_mbi():
    network = bpm.declare({"a": [1, 0]}, [("a",)])
    count, weights = pd.Series({0: 7.0, 1: 3.0}), pd.DataFrame([[1, 0], [1, 1]])
    for table in (count, count.set_axis(["x", "y"]), xr.DataArray(count.to_numpy(), dims="a")):
        with pytest.raises(ArgumentError, match="plain array"):
            bpm.readers.from_mbi(network, [(None, table, 1.0, ("a",))])
    for matrix in (weights, weights.set_axis([0, 1], axis=1), weights.set_axis(["x", "y"], axis=1)):
        with pytest.raises(ArgumentError, match="plain array"):
            bpm.readers.from_mbi(network, [(matrix, [7.0, 3.0], 1.0, ("a",))])
        with pytest.raises(ArgumentError, match="plain array"):
            q.weighted("a", matrix=matrix)


TABLE = pd.DataFrame(
    [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]],
    index=pd.Index(["high", "low", "medium"], name="sat"),
    columns=pd.Index(["f", "m"], name="sex"),
)


@pytest.mark.parametrize(
    ("table", "error", "message"),
    [
        (TABLE.rename(index={"low": "Low"}), ModelError, "labeled on 'sat'.*got 'Low'"),
        (TABLE.loc[["low", "high"]], ModelError, "2 of 3 combinations"),
        (TABLE.loc[["low", "high", "high", "medium"]], ModelError, "4 entries with 3 of 3"),
        (TABLE.rename_axis(index="satisfaction"), ModelError, "an axis named 'satisfaction'"),
        (TABLE.rename_axis(index="sex"), ModelError, "two have the same name"),
        (TABLE.loc["low"], ModelError, "one axis or level for each of 2"),
        (TABLE.rename_axis(index=None, columns=None).T, ModelError, "labeled on 'sat'"),
        (TABLE.stack()[1:], ModelError, "5 of 6 combinations"),
        (np.ma.masked_equal(TABLE.to_numpy(), 4.0), ArgumentError, "masked array"),
        ([*np.ma.masked_equal(TABLE.to_numpy(), 4.0)], ArgumentError, "masked array"),
        ([row for _, row in TABLE.iterrows()], ModelError, "labeled values"),
        ({"low": 3.0}, ModelError, "a tuple of 2 states"),
        (
            TABLE.astype(object).map(lambda count: "4" if count == 4.0 else count),
            ArgumentError,
            "array of numbers",
        ),
    ],
)
def test_a_table_whose_labels_cannot_be_matched_is_refused(table, error, message):
    network = bpm.declare({"sat": STATES["sat"], "sex": ["m", "f"]}, [("sat", "sex")])
    with pytest.raises(error, match=message):
        NoisyStatistics.from_tables(network, {("sat", "sex"): table}, noise=Laplace(1.0))


def test_noise_of_labeled_cells_is_aligned_under_its_own_key():
    network = bpm.declare({"sat": STATES["sat"], "sex": ["m", "f"]}, [("sat", "sex")])
    key, counts = ("sat", "sex"), np.zeros((3, 2))
    variances = TABLE.loc[STATES["sat"], ["m", "f"]].to_numpy()
    wanted = NoisyStatistics.from_tables(network, {key: counts}, noise={key: variances})
    laws = TABLE.map(Gaussian.of_variance)
    for noise in (
        TABLE,
        TABLE.T,
        TABLE.rename_axis(index=None, columns=None),
        laws,
        laws.stack().to_dict(),
    ):
        assert NoisyStatistics.from_tables(network, {key: counts}, noise={key: noise}) == wanted
    turned = TABLE.T.rename_axis(index=None, columns=None)
    assert (
        NoisyStatistics.from_tables(network, {key: counts}, noise={("sex", "sat"): turned})
        == wanted
    )
    with pytest.raises(ArgumentError, match="masked array"):
        NoisyStatistics.from_tables(
            network, {key: counts}, noise={key: np.ma.masked_less(variances, 2)}
        )


SQUARE = ("a", "b")
CELLS = pd.DataFrame(
    [[10.0, 20.0], [30.0, 40.0]],
    index=pd.Index(["x", "y"], name="a"),
    columns=pd.Index(["p", "q"], name="b"),
)
FORMS = {
    "frame": lambda table: table,
    "transposed": lambda table: table.T,
    "stacked": lambda table: table.stack(),
    "mapping": lambda table: table.stack().to_dict(),
    "array": xr.DataArray,
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("laws", [False, True])
def test_noise_without_labels_beside_a_table_in_another_order_is_refused(form, laws):
    """Read by position, the variance of one cell would go to another."""
    states = {"a": ["y", "x"], "b": ["q", "p"]}
    network, table = bpm.declare(states, [SQUARE]), FORMS[form](CELLS)
    variances = pd.DataFrame([[1.0, 4.0], [9.0, 16.0]], index=CELLS.index, columns=CELLS.columns)
    noise = variances.map(Gaussian.of_variance) if laws else variances
    for bare in (noise.to_numpy(), noise.to_numpy().tolist()):
        for unlabeled in ([bare], {SQUARE: bare}):
            with pytest.raises(
                ModelError, match=r"labeled as its table is.*an array without labels"
            ):
                NoisyStatistics.from_tables(network, {SQUARE: table}, noise=unlabeled)
    release = NoisyStatistics.from_tables(network, {SQUARE: table}, noise={SQUARE: noise})
    found = {
        float(value): each.noise.variance
        for each in release.measurements
        for value in each.values.tolist()
    }
    assert found == pytest.approx({10.0: 1.0, 20.0: 4.0, 30.0: 9.0, 40.0: 16.0})


def test_noise_without_labels_beside_a_table_in_declared_order_is_read():
    network = bpm.declare({"a": ["x", "y"], "b": ["p", "q"]}, [SQUARE])
    variances = np.array([[1.0, 4.0], [9.0, 16.0]])
    wanted = NoisyStatistics.from_tables(network, {SQUARE: CELLS.to_numpy()}, noise=[variances])
    named = xr.DataArray(
        CELLS.to_numpy().T, dims=["b", "a"]
    )  # axes with names, in declared order each
    for table, noise in (
        (CELLS, variances),
        (CELLS.stack(), variances),
        (CELLS.stack().to_dict(), variances),
        (named, named.copy(data=variances.T)),
        (CELLS, named.copy(data=variances.T)),
    ):
        assert NoisyStatistics.from_tables(network, {SQUARE: table}, noise=[noise]) == wanted
    turned = {("b", "a"): variances.T}
    assert NoisyStatistics.from_tables(network, {SQUARE: CELLS}, noise=turned) == wanted
    for table, noise in (
        (CELLS.T, [variances]),
        (named, [variances]),
        (CELLS.T, [xr.DataArray(variances)]),
        (CELLS[::-1], turned),
        (CELLS[::-1], [named.copy(data=variances.T)]),
    ):
        with pytest.raises(ModelError, match="labeled as its table is"):
            NoisyStatistics.from_tables(network, {SQUARE: table}, noise=noise)
    alike = NoisyStatistics.from_tables(
        network, {SQUARE: CELLS[::-1]}, noise=[np.full((2, 2), 4.0)]
    )
    assert alike == NoisyStatistics.from_tables(network, {SQUARE: CELLS}, noise=Gaussian(2.0))


def test_scores_are_aligned_with_the_states():
    wanted = bpm.declare(STATES, [SCOPE], ordinal={"sat": [1, 2, 5], 0: [0, 3, 7]})
    for scores in (pd.Series, dict):
        given = {"sat": scores({"high": 5, "low": 1, "medium": 2}), 0: scores({1: 7, 0: 3, 2: 0})}
        network = bpm.declare(STATES, [SCOPE], ordinal=given)
        assert network.graph == wanted.graph


def test_labels_that_nothing_can_align_are_refused_rather_than_lost():
    weights = pd.Series([1.0, 2.0], index=["second", "first"])
    from bayesprivmrf.mechanisms import LaplaceStatistics

    with pytest.raises(ArgumentError, match="in their order"):
        LaplaceStatistics(epsilon=1.0, queries=[q.table("sat"), q.table("sex")], weights=weights)
    with pytest.raises(ArgumentError, match="plain array"):
        q.weighted("sex", matrix=pd.DataFrame([[0, 1]], columns=["m", "f"]))
    with pytest.raises(ArgumentError, match="must have the same index"):
        bpm.inference.combine_estimates(weights, weights[::-1])
    rows = {"sex": pd.Series(["m", "f"]), "value": pd.Series([1.0, 2.0], index=[1, 0])}
    with pytest.raises(DataError, match="the same index"):
        bpm.readers.read_counts(NETWORK, rows, noise=Laplace(1.0))
