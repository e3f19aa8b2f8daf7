"""Labels in release files: they come back as they were declared, of a fixed list of kinds."""

import datetime
import enum
import itertools
import uuid
from decimal import Decimal
from fractions import Fraction
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bayesprivmrf as bpm
from bayesprivmrf import queries as q
from bayesprivmrf.errors import ModelError, ReleaseFileError
from bayesprivmrf.mechanisms import LaplaceStatistics, ObjectivePerturbation
from bayesprivmrf.network import IsingNetwork
from bayesprivmrf.noise import Laplace
from bayesprivmrf.release import Measurement, NoisyStatistics

from .nasty import document_and_array, write_sealed

BERLIN = ZoneInfo("Europe/Berlin")
LABELS = [
    datetime.date(2020, 2, 29),
    datetime.datetime(2020, 2, 29, 1, 2, 3, 4),
    datetime.datetime(2020, 10, 25, 2, 30, tzinfo=BERLIN, fold=1),
    datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC),
    datetime.time(3, 4),
    datetime.timedelta(1, 2, 3),
    Decimal("1.50"),
    Fraction(1, 3),
    b"\x00\xff",
    float("inf"),
    pd.Timestamp("2020-01-01 01:02:03.123456789"),
    pd.Timestamp("2020-06-01", tz="Europe/Berlin"),
    pd.Timestamp("2020-01-01 00:00+05:30"),
    pd.Timedelta("1 days 00:00:00.000000001"),
    pd.Period("2020-03", "M"),
    pd.Period("2020Q1", freq="Q-NOV"),
    *pd.cut(pd.Series([1, 2, 3.5]), 2).cat.categories,
    pd.cut(pd.Series([1, 2, 3]), [-np.inf, 2, np.inf]).cat.categories[0],
    pd.Interval(pd.Timestamp("2020"), pd.Timestamp("2021"), closed="both"),
    ("a", 1, pd.Period("2020", "Y"), (datetime.date(2021, 1, 1),)),
    uuid.UUID(int=2**100 + 1),
    complex(1.5, -2.0),
    np.complex128(0.1j),
    np.datetime64("2020-01-01T01:02:03.000000004"),
    np.timedelta64(4, "ns"),
]


def is_same(found, label):
    return (
        type(found) is type(label)
        and found == label
        and str(found) == str(label)
        and hash(found) == hash(label)
    )


def saved_and_loaded(release, path):
    release.save(path, overwrite=True)
    return bpm.load_release(path)


def test_labels_of_every_kind_come_back_as_themselves(tmp_path):
    model = bpm.model.ModelSpecification.from_pgmpy(
        bpm.declare({"a": LABELS, LABELS[0]: ["x"]}, [("a", LABELS[0])])
    )
    merged = {LABELS[4]: LABELS[:5], LABELS[16]: LABELS[5:]}
    release = NoisyStatistics.from_measurements(
        model,
        [
            Measurement(q.table("a"), np.arange(float(len(LABELS))), Laplace(1.0)),
            Measurement(q.coarsened("a", groups={"a": merged}), [1.0, 2.0], Laplace(1.0)),
        ],
    )
    again = saved_and_loaded(release, tmp_path / "labels.release")
    assert again == release
    declared = model.domain.states[0]
    assert all(map(is_same, again.specification.domain.states[0], declared))
    assert is_same(again.specification.domain.variables[1], LABELS[0])
    assert declared[-2:] == (pd.Timestamp("2020-01-01T01:02:03.000000004"), pd.Timedelta(4, "ns"))


@settings(max_examples=60, deadline=None)
@given(
    st.dates()
    | st.datetimes()
    | st.datetimes(timezones=st.just(BERLIN) | st.just(datetime.UTC)).filter(
        lambda moment: moment.astimezone(datetime.UTC).astimezone(moment.tzinfo) == moment
    )
    | st.times()
    | st.timedeltas()
    | st.decimals(allow_nan=False)
    | st.fractions()
    | st.uuids()
    | st.complex_numbers(allow_nan=False)
    | st.binary()
    | st.integers(-(2**60), 2**60).map(pd.Timestamp)
    | st.builds(
        pd.Period,
        ordinal=st.integers(-9999, 9999),
        freq=st.sampled_from(["D", "M", "W-MON", "h", "Y-MAR"]),
    )
    | st.floats(-9, 9).map(lambda low: pd.Interval(low, low + 1))
)
def test_any_label_of_a_kind_comes_back(tmp_path_factory, label):
    network = bpm.declare({"a": [label, "other"]}, [("a",)])
    release = NoisyStatistics.from_tables(network, {"a": [1.0, 2.0]}, noise=Laplace(1.0))
    again = saved_and_loaded(release, tmp_path_factory.getbasetemp() / "any.release")
    assert is_same(again.specification.domain.states[0][0], label)


def test_a_real_release_of_dates_and_intervals_is_fitted_after_it_was_loaded(tmp_path):
    days = pd.Series(pd.date_range("2020-01-01", periods=3, freq="D").repeat(4), name="day")
    data = pd.DataFrame({"day": days, "size": pd.cut(pd.Series(range(12)), 3)})
    network = bpm.declare(
        {"day": days.unique(), "size": data["size"].cat.categories}, [("day", "size")]
    )
    release = LaplaceStatistics(epsilon=9.0).release(network, data, rng=1)
    again = saved_and_loaded(release, tmp_path / "dates.release")
    table = pd.crosstab(data["size"], data["day"]).astype(float)
    tables = [
        NoisyStatistics.from_tables(model, {("day", "size"): table}, noise=Laplace(1.0))
        for model in (network, again.specification)
    ]
    assert tables[0] == tables[1]
    solution = bpm.NoiseAwareMAP().fit(again)
    assert set(solution.sample(50, rng=1)["size"]) <= set(data["size"])
    assert solution.marginal("day", given={"size": data["size"][0]}).shape == (3,)


def test_nodes_of_a_network_come_back_as_themselves(tmp_path):
    nodes = LABELS[:4]
    network = IsingNetwork.from_graph(list(itertools.pairwise(nodes)))
    release = ObjectivePerturbation(epsilon=5.0).release(network, dict.fromkeys(nodes, 1), rng=1)
    again = saved_and_loaded(release, tmp_path / "nodes.release")
    assert all(map(is_same, again.network.nodes, nodes))


class Colour(enum.Enum):
    RED = 1


class Word(enum.StrEnum):
    RED = "red"


@pytest.mark.parametrize("label", [Colour.RED, Word.RED, ("a", Colour.RED), ("a", ("b", Word.RED))])
def test_enums_are_refused_at_declaration(label):
    for declare in (
        lambda: bpm.declare({"a": [label, "x"]}, [("a",)]),
        lambda: bpm.declare({label: ["x", "y"]}),
        lambda: IsingNetwork.from_graph([(label, "x")], nodes=[label, "x"]),
        lambda: IsingNetwork.from_graph([(label, "x")]),
    ):
        with pytest.raises(ModelError, match=r"`\.name`"):
            declare()


@pytest.mark.parametrize(
    "label",
    [np.longdouble("0.1"), np.clongdouble(1), ("a", np.longdouble(2)), np.timedelta64(3, "M")],
    ids=["longdouble", "clongdouble", "in a tuple", "months"],
)
def test_values_that_only_numpy_has_are_refused_at_declaration(label):
    for declare in (
        lambda: bpm.declare({"a": [label, "x"]}, [("a",)]),
        lambda: bpm.declare({label: ["x", "y"]}),
        lambda: bpm.model.Domain(variables=("a",), states=((label, "x"),)),
        lambda: IsingNetwork.from_graph([(label, "x")], nodes=[label, "x"]),
    ):
        with pytest.raises(ModelError, match="Python has no type for"):
            declare()


def test_names_and_states_of_numpy_times_come_back_as_times(tmp_path):
    moments = np.array(["2020-01-01T10:00", "2020-01-02"], "datetime64[ns]")
    domain = bpm.model.Domain(variables=(moments[0],), states=(tuple(moments),))
    model = bpm.model.ModelSpecification(domain=domain, cliques=((moments[0],),))
    release = NoisyStatistics.from_tables(model, {(moments[0],): [1.0, 2.0]}, noise=Laplace(1.0))
    again = saved_and_loaded(release, tmp_path / "times.release").specification.domain
    assert again.variables == (pd.Timestamp(moments[0]),)
    assert again.states == (tuple(map(pd.Timestamp, moments)),)
    assert [again.code(moments[0], moment) for moment in moments] == [0, 1]


def test_files_without_the_newest_kinds_of_labels_keep_their_version(tmp_path):
    versions = []
    for label in ("x", 2.5, LABELS[0], LABELS[9], uuid.UUID(int=1), 1j):
        network = bpm.declare({"a": [label, "other"]}, [("a",)])
        NoisyStatistics.from_tables(network, {"a": [1.0, 2.0]}, noise=Laplace(1.0)).save(
            tmp_path / "v", overwrite=True
        )
        versions.append(document_and_array(tmp_path / "v")[0]["version"])
    assert versions == [1, 1, 7, 7, 8, 8]


@pytest.mark.parametrize(
    "written",
    [
        {"os.system": "true"},
        {"date": "2020-02-30"},
        {"date": 5},
        {"period": [1, "os"]},
        {"decimal": "one"},
        {"decimal": "1E+999999999"},  # its integer would fill the memory
        {"fraction": "1e9999999"},  # as this one's
        {"datetime": ["2020-01-01T00:00:00", 0, "../../etc/passwd"]},
        {"interval": [2, 1, "right"]},
        {"bytes": "f"},
        {"date": "2020-02-29", "time": "01:00:00"},
        None,
    ],
)
def test_labels_that_no_release_writes_are_refused(written, tmp_path):
    path = tmp_path / "forged.release"
    network = bpm.declare({"a": ["x", "y"]}, [("a",)])
    NoisyStatistics.from_tables(network, {"a": [1.0, 2.0]}, noise=Laplace(1.0)).save(path)
    document, array = document_and_array(path)
    document["content"]["states"][0][0] = written
    write_sealed(path, document, array)
    with pytest.raises(ReleaseFileError, match="a label must be"):
        bpm.load_release(path)


def test_a_time_zone_that_the_machine_does_not_know_keeps_its_offset(tmp_path):
    path, moment = tmp_path / "zone.release", datetime.datetime(2020, 6, 1, tzinfo=BERLIN)
    network = bpm.declare({"a": [moment, "other"]}, [("a",)])
    NoisyStatistics.from_tables(network, {"a": [1.0, 2.0]}, noise=Laplace(1.0)).save(path)
    document, array = document_and_array(path)
    document["content"]["states"][0][0]["datetime"][2] = "../../etc/passwd"
    write_sealed(path, document, array)
    assert bpm.load_release(path).specification.domain.states[0][0] == moment
