"""Interval frames: remarks on rows are columns, which files and merged tables keep."""

import io
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bayesprivmrf as bpm
from bayesprivmrf import queries as q
from bayesprivmrf import sequences
from bayesprivmrf.inference import Mark, RowStatus, Status, interval_frame
from bayesprivmrf.mechanisms import LaplaceStatistics, SelectMeasure
from bayesprivmrf.privacy import Laplace
from bayesprivmrf.release import Measurement, NoisyStatistics

COLUMNS = ["estimate", "lower", "upper", "status", "note"]
ORDER = list(RowStatus)
LABELS = st.one_of(st.integers(-5, 5), st.text("abc,;\"'é ", min_size=1, max_size=4))
MARKS = st.lists(
    st.tuples(st.sampled_from(ORDER), st.sampled_from(["declared: a ⟂ c | b", "one, two", "x; y"])),
    max_size=4,
)


@st.composite
def frames(draw):
    """A frame with marks on some rows, with one variable or two."""
    names = draw(st.sampled_from([["x"], ["x", "y, z"]]))
    states = [draw(st.lists(LABELS, min_size=1, max_size=3, unique_by=str)) for _ in names]
    index = pd.MultiIndex.from_product(states, names=names)
    index = index if len(names) > 1 else pd.Index(states[0], name="x")
    rows, numbers = len(index), np.linspace(0, 1, len(index))
    marks = [
        Mark(status, note, np.array(draw(st.lists(st.booleans(), min_size=rows, max_size=rows))))
        for status, note in draw(MARKS)
    ]
    status = draw(st.sampled_from(list(Status)))
    frame = interval_frame(
        numbers,
        numbers - 0.1,
        numbers + 0.1,
        index,
        status=status,
        marks=marks,
        is_simulated=draw(st.booleans()),
    )
    return frame, marks, status


@settings(max_examples=10, deadline=None)
@given(frames())
def test_no_mark_is_lost_by_files_by_concat_or_by_merge(found):
    frame, marks, status = found
    assert list(frame.columns) == COLUMNS
    assert (frame.columns.name, frame.attrs) == (None, {})
    worst = [
        max([RowStatus.OK, *(mark.status for mark in marks if mark.rows[row])], key=ORDER.index)
        for row in range(len(frame))
    ]
    least = {Status.ITERATION_LIMIT: "doubtful", Status.STOPPED_EARLY: "doubtful"}
    least |= {Status.NOT_TRUSTED: "not trusted", Status.DIVERGED: "not trusted"}
    expected = [max(each, least.get(status, "ok"), key=ORDER.index) for each in worst]
    assert frame["status"].tolist() == expected
    assert frame["note"].str.split().str.len().between(1, 20).all()
    said = frame[["status", "note"]].to_numpy().tolist()
    flat = frame.reset_index()
    text = io.StringIO()
    flat.to_csv(text, index=False)
    text.seek(0)
    packed = io.BytesIO()
    flat.astype({name: str for name in flat.columns if name not in COLUMNS}).to_parquet(packed)
    together = pd.concat([frame, frame])
    merged = flat.merge(flat[[name for name in flat if name not in COLUMNS]].drop_duplicates())
    for back in (pd.read_csv(text), pd.read_parquet(packed), together.iloc[: len(frame)], merged):
        assert back[["status", "note"]].to_numpy().tolist() == said
    assert "simulated" not in frame.to_latex().split("\n")[2]


def test_one_variable_has_a_plain_index_and_reindexes():
    network = bpm.declare(states={"a": ["lo", "hi"], "b": [0, 1]}, cliques=[("a", "b")])
    data = pd.DataFrame({"a": ["lo", "hi"] * 200, "b": [0, 1, 1, 1] * 100})
    fit = bpm.NoiseAwareMAP().fit(LaplaceStatistics(epsilon=1.0).release(network, data, rng=1))
    learned = SelectMeasure(rho=1.0).release(network, data, rng=1)
    for solution in (fit, learned.solution):
        frame = solution.interval("a")
        assert not isinstance(frame.index, pd.MultiIndex)
        assert frame.reindex(["hi", "lo"])["estimate"].sum() == pytest.approx(1)
        assert frame["note"].str.startswith("simulated; ").all()
        counts = solution.interval("a", of="records")
        assert counts["estimate"].sum() == pytest.approx(400, abs=60)
        assert (counts["upper"] == counts["upper"].round()).all()


def chain_release(measured, share="transitions"):
    """Sums over the steps of a chain, and the tables of some steps, of steps that are alike."""
    network = bpm.markov_chain(["a", "b"], 4, share=share)
    steps = [(f"x{t}", f"x{t + 1}") for t in range(1, 4)]
    table = np.array([[500.0, 100.0], [100.0, 300.0]])
    given_ = [Measurement(q.pooled(steps), 3 * table.ravel(), Laplace(1.0))]
    given_ += [Measurement(q.table(*step), table.ravel(), Laplace(1.0)) for step in measured]
    given_ += [Measurement(q.table("x1"), np.array([600.0, 400.0]), Laplace(1.0))]
    return NoisyStatistics.from_measurements(network, given_)


@pytest.mark.parametrize("share", ["transitions", "potentials"])
@pytest.mark.filterwarnings("ignore::bayesprivmrf.errors.NoiseWarning")
def test_rows_say_that_they_rest_on_what_the_steps_share_unless_their_own_table_was_measured(share):
    said = {"transitions": "one transition matrix for all steps", "potentials": "tied potentials"}[
        share
    ]
    fit = bpm.NoiseAwareMAP().fit(chain_release([("x3", "x4")], share))
    assert any(said in sentence.lower() for sentence in fit.assumptions)
    assert fit.assumptions[-1] == "The records are a simple random sample of the population."
    for variables in (["x1", "x2"], ["x1", "x3"], ["x2", "x4"]):
        frame = fit.interval(variables)
        assert frame["note"].str.contains(said).all()
        assert frame["status"].isin(["model", "doubtful"]).all()
    assert not fit.interval(["x3", "x4"])["note"].str.contains(said).any()
    # the sum over the steps less the other steps' own tables leaves that of x2
    assert not fit.interval(["x2"])["note"].str.contains(said).any()
    without = bpm.NoiseAwareMAP().fit(chain_release([], share))
    assert without.interval(["x2"])["note"].str.contains(said).all()
    assert not without.interval(["x1"])["note"].str.contains(said).any()
    settings = {} if share == "transitions" else {"step": 1}
    assert sequences.transition_matrix(fit, **settings)["note"].str.contains(said).all()


def note_of(*notes, is_simulated=False):
    """Note of one row with these remarks."""
    frame = interval_frame(
        0.5,
        0.4,
        0.6,
        pd.Index(["x"], name="a"),
        status=Status.CONVERGED,
        marks=[Mark(RowStatus.MODEL, note) for note in notes],
        is_simulated=is_simulated,
    )
    return frame["note"].item()


@pytest.mark.parametrize("is_simulated", [False, True])
@pytest.mark.parametrize("others", [(), ("one transition matrix for all steps",)])
def test_a_long_note_keeps_what_to_measure_at_its_end(others, is_simulated):
    times = [f"the state in the {which} month of the panel" for which in ("first", "last")]
    note = f"memory beyond one step not tested: measure ({times[0]}, {times[1]})"
    found = note_of(note, *others, is_simulated=is_simulated)
    assert len(found.split()) == 20
    assert "memory beyond one step not tested:" in found
    assert "last month of the panel)" in found
    assert ("and 1 more" in found) == bool(others)


def test_a_later_note_that_fits_is_not_hidden_by_a_long_one():
    long = "declared: " + " ".join(f"v{number}" for number in range(15))
    found = note_of("the model omits the interaction of a with b", long, "tied potentials")
    assert found == "the model omits the interaction of a with b; tied potentials and 1 more"


def test_all_interactions_that_a_model_omits_are_in_one_note():
    network = bpm.declare({name: [0, 1] for name in "abc"}, [("a", "b", "c")])
    release = NoisyStatistics.from_tables(
        network, {("a", "b", "c"): np.full((2, 2, 2), 100.0)}, noise=Laplace(1.0)
    )
    fit = bpm.NoiseAwareMAP().fit(release, model=[("a",), ("b",), ("c",)])
    notes = fit.interval(["a", "b", "c"])["note"]
    assert set(notes) == {"the model omits a × b, a × c, b × c"}


def test_a_limit_of_zero_has_no_sign():
    ends = np.array([-0.0, 0.25])
    index = pd.Index(["impossible", "possible"], name="x")
    frame = interval_frame(ends, ends, ends, index, status=Status.CONVERGED)
    assert "-0" not in frame.to_csv()
    assert frame["upper"].tolist() == [0.0, 0.25]


def test_no_interval_is_better_than_its_fit():
    network = bpm.markov_chain(["a", "b"], 4, share="transitions")
    steps = [(f"x{t}", f"x{t + 1}") for t in range(1, 4)]
    tables = [[[500.0, 100], [100, 300]], [[100.0, 500], [300, 100]], [[350.0, 50], [50, 550]]]
    given_ = [
        Measurement(q.table(*s), np.ravel(t), Laplace(1.0))
        for s, t in zip(steps, tables, strict=True)
    ]
    with pytest.warns(UserWarning, match="not trusted"):
        fit = bpm.NoiseAwareMAP().fit(NoisyStatistics.from_measurements(network, given_))
    assert fit.status is Status.NOT_TRUSTED
    assert fit.problems
    for frame in (
        fit.interval(["x2"]),
        fit.interval(q.pooled(steps)),
        sequences.transition_matrix(fit),
    ):
        assert (frame["status"] == "not trusted").all()


def test_every_kind_of_result_states_its_problems_and_what_it_rests_on():
    names = ["a", "b", "c"]
    network = bpm.declare({key: [0, 1] for key in names}, list(pairwise(names)))
    rng = np.random.default_rng(0)
    data = pd.DataFrame(rng.integers(0, 2, (300, 3)), columns=names)
    release = LaplaceStatistics(epsilon=1.0).release(network, data, rng=1)
    expected = ("Declared: a ⟂ c | b.", "The records are a simple random sample of the population.")
    for estimator in (bpm.NaiveMLE(), bpm.CGM(), bpm.NoiseAwareMAP()):
        fit = estimator.fit(release)
        assert fit.assumptions == expected
        assert all(isinstance(sentence, str) for sentence in fit.problems)
    learned = SelectMeasure(rho=1.0).release(
        bpm.declare({key: [0, 1] for key in names}), data, rng=1
    )
    assert learned.assumptions[-1] == expected[-1]
    assert learned.assumptions == learned.solution.assumptions
    assert learned.problems == learned.solution.problems


def test_a_quantity_has_a_frame_with_the_columns_and_marks_of_intervals():
    network = bpm.declare(
        {"a": [0, 1], "b": ["x", "y", "z"], "c": [0, 1]}, [("a", "b"), ("b", "c")]
    )
    rng = np.random.default_rng(1)
    data = pd.DataFrame({name: rng.choice(network.states[name], 600) for name in "abc"})
    release = LaplaceStatistics(epsilon=1.0).release(network, data, rng=1)
    posterior = bpm.LatentCounts().fit(release, rng=1, draws=300, chains=2)
    table = posterior.quantity(lambda draw: draw.marginal(["a", "b"])).frame
    expected = posterior.interval(["a", "b"])
    assert list(table.columns) == COLUMNS
    assert table.index.equals(expected.index)
    numbers = ["estimate", "lower", "upper"]
    assert table[numbers].to_numpy() == pytest.approx(expected[numbers].to_numpy(), abs=0.02)
    assert table["note"].str.startswith("simulated;").all()
    assert set(table["status"]) <= {
        "model",
        "prior",
    }  # the function might depend on a and c given b
    number = posterior.quantity(lambda draw: float(draw.marginal(["a"])[0]))
    assert list(number.frame.index) == ["value"]
    assert (number.status, number.note) == tuple(number.frame.loc["value", ["status", "note"]])
    assert number.note.startswith("simulated; ")
    assert number.note in repr(number)
    assert posterior.probability({"a": 0}).frame["note"].str.startswith("simulated;").all()
