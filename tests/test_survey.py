"""The model file, the recoding of records, and the default survey."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest

from bayesprivmrf.errors import BayesPrivMRFError, DataError, ModelError
from bayesprivmrf.mechanisms import ExactStatistics
from bayesprivmrf.records import read_declaration, read_records, recode
from bayesprivmrf.survey import fair_survey_declaration, fair_survey_records, load_fair_survey

MODEL = """
title = "A small survey"
cliques = [["age", "smokes"], ["smokes", "ill"]]

[variables.age]
states = ["young", "middle", "old", "unknown"]
breaks = [30, 60]
missing = "unknown"

[variables.smokes]
states = ["no", "yes", "odd"]
values = [0, [1, 2]]
other = "odd"

[variables.ill]
states = ["no", "yes"]

[[impossible]]
age = "young"
smokes = "odd"
"""


@pytest.fixture
def declared(tmp_path):
    def write(text=MODEL):
        path = tmp_path / "model.toml"
        path.write_text(text)
        return read_declaration(path)

    return write


def column(variable: str, rule: str) -> str:
    return f'cliques = [["{variable}"]]\n[variables.{variable}]\n{rule}'


def test_the_file_says_what_declare_would(declared):
    specification = declared().specification
    assert specification.domain.variables == ("age", "smokes", "ill")
    assert specification.domain.states_of("age") == ("young", "middle", "old", "unknown")
    assert specification.cliques == (("age", "smokes"), ("smokes", "ill"))
    assert specification.impossible == ((("age", "young"), ("smokes", "odd")),)
    assert declared().network.check_model()


def test_equal_bins_are_written_short(declared):
    rule = 'bins = { from = 0, to = 1, number = 10 }\nmissing = "none"\nother = "odd"'
    declaration = declared(column("x", rule))
    states = declaration.specification.domain.states_of("x")
    assert (states[:3], states[-4:]) == (
        ("up to 0.1", "0.1 to 0.2", "0.2 to 0.3"),
        ("0.8 to 0.9", "above 0.9", "none", "odd"),
    )
    values = [-5, 0.1, 0.3, np.nextafter(0.3, 1), 0.9, 1, 7, None, "x"]
    coded = recode(declaration, pd.DataFrame({"x": np.array(values, dtype=object)}))["x"].tolist()
    assert coded == [
        *("up to 0.1", "up to 0.1", "0.2 to 0.3", "0.3 to 0.4"),
        *("0.8 to 0.9", "above 0.9", "above 0.9", "none", "odd"),
    ]
    income = declared(column("x", "bins = { from = 0, to = 100_000, number = 100 }"))
    assert income.rules["x"].breaks == tuple(1000.0 * k for k in range(1, 100))


def test_bins_are_right_closed_and_unbounded_at_the_ends(declared):
    ages = [-1e9, 30.0, np.nextafter(30.0, 31.0), 60.0, np.nextafter(60.0, 61.0), 1e9, np.nan]
    frame = pd.DataFrame({"age": ages, "smokes": 0, "ill": "no"})
    found = recode(declared(), frame)["age"].tolist()
    assert found == ["young", "young", "middle", "middle", "old", "old", "unknown"]


def test_bins_values_and_missing_codes_of_a_model_file_reach_a_mechanism_in_python(declared):
    """By the names in the guide to the command line; an error of the raw values says what is left out otherwise."""
    declaration = declared()
    frame = pd.DataFrame(
        {"age": [25.0, 45.0, np.nan], "smokes": [0, 2, 7], "ill": ["no", "yes", "no"]}
    )
    counts = ExactStatistics().release(declaration.network, recode(declaration, frame)).tables
    assert counts["age", "smokes"].tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 0], [0, 0, 1]]
    assert counts["smokes", "ill"].tolist() == [[1, 0], [0, 1], [1, 0]]
    with pytest.raises(DataError, match="must hold only the declared states"):
        ExactStatistics().release(declaration.network, frame[:2])


def test_several_values_may_mean_one_state_and_other_takes_the_rest(declared):
    frame = pd.DataFrame({"age": 1, "smokes": [0, 1, 2, 3], "ill": "no"})
    assert recode(declared(), frame)["smokes"].tolist() == ["no", "yes", "yes", "odd"]


def test_a_value_that_no_rule_covers_stays_as_it_is(declared):
    frame = pd.DataFrame({"age": ["x", "inf", "40"], "smokes": 0, "ill": ["maybe", None, "no"]})
    coded = recode(declared(), frame)
    assert coded["age"].tolist() == ["x", "inf", "middle"]
    assert coded["ill"].tolist()[0] == "maybe"
    assert coded["ill"].isna().tolist() == [False, True, False]


def test_text_keeps_its_leading_zeros_and_na_labels(tmp_path):
    (tmp_path / "m.toml").write_text(column("code", 'states = ["01", "1", "NA"]'))
    (tmp_path / "d.csv").write_text("code,unused\n01,a\n1,b\nNA,c\n")
    coded = recode(read_declaration(tmp_path / "m.toml"), read_records(tmp_path / "d.csv"))
    assert coded["code"].tolist() == ["01", "1", "NA"]


def test_only_an_empty_field_is_missing(tmp_path):
    (tmp_path / "d.csv").write_text("a,b\nnull,1\n,2\nnan,3\n")
    assert read_records(tmp_path / "d.csv")["a"].isna().tolist() == [False, True, False]


@pytest.mark.parametrize(
    ("states", "text", "found"),
    [
        ("[1, 2]", ["1", "2.0", "01", "x"], [1, 2, 1, "x"]),
        ("[0.5, 2]", ["0.5", ".5", "2"], [0.5, 0.5, 2]),
        ("[true, false]", ["true", "False", "1"], [True, False, "1"]),
        ("[9007199254740993, 9007199254740992]", ["9007199254740993"], [9007199254740993]),
    ],
)
def test_text_is_read_as_the_declared_kind(declared, states, text, found):
    coded = recode(declared(column("x", f"states = {states}")), pd.DataFrame({"x": text}))[
        "x"
    ].tolist()
    assert coded == found
    assert [type(value) for value in coded] == [type(value) for value in found]


def test_true_and_one_stay_two_values(declared):
    declaration = declared(column("x", 'states = ["number", "truth"]\nvalues = [1, true]'))
    coded = recode(declaration, pd.DataFrame({"x": np.array([1, True, 1.0, True], dtype=object)}))
    assert coded["x"].tolist() == ["number", "truth", "number", "truth"]
    assert recode(declaration, pd.DataFrame({"x": [True]}))["x"].tolist() == ["truth"]


def test_other_engines_and_categories_give_the_same_labels(declared):
    frame = pd.DataFrame({"age": [10, 40], "smokes": [0, 2], "ill": ["no", "yes"]})
    expected = recode(declared(), frame)
    pd.testing.assert_frame_equal(recode(declared(), pl.from_pandas(frame)), expected)
    pd.testing.assert_frame_equal(recode(declared(), frame.astype({"ill": "category"})), expected)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cliques = [", "not TOML"),
        ("cliques = []", r"\[variables.NAME\]"),
        ("colour = 1\n" + MODEL, "key 'colour', which is unknown"),
        (column("x", "state = [1]"), "key 'state', which is unknown"),
        (column("x", 'states = "no"'), "must list its `states`"),
        (column("x", "states = [[1], [2]]"), "text, numbers"),
        (column("x", 'states = ["a", "a"]'), "must not repeat"),
        (column("x", 'states = ["a"]\nvalues = [1]\nbreaks = []'), "got both"),
        (column("x", 'states = ["a", "b"]\nvalues = [1]'), "one entry for each of its 2 states"),
        (column("x", 'states = ["a", "b"]\nvalues = [1, [2, 1.0]]'), "1.0 twice"),
        (column("x", 'states = ["a", "b"]\nbreaks = [1, 2]'), "one number fewer"),
        (column("x", 'states = ["a", "b", "c"]\nbreaks = [2, 2]'), "must increase"),
        (column("x", 'states = ["a", "b"]\nbreaks = [nan]'), "finite"),
        (column("x", "bins = 100"), "from = 0, to = 100, number = 20"),
        (column("x", "bins = { from = 0, to = 9 }"), "from = 0, to = 100, number = 20"),
        (column("x", "bins = { from = 0, to = 9, number = 1 }"), "from 2 to 100,000"),
        (column("x", "bins = { from = 9, to = 9, number = 3 }"), "must have `from` below `to`"),
        (column("x", "bins = { from = 0, to = inf, number = 3 }"), "finite number"),
        (column("x", f"bins = {{ from = 0, to = {10**400}, number = 3 }}"), "finite number"),
        (
            column("x", "bins = { from = 1e9, to = 1.0000000000000002e9, number = 50 }"),
            "wide enough",
        ),
        (
            column("x", 'states = ["a"]\nbins = { from = 0, to = 9, number = 3 }'),
            "`bins` or `states`, got both",
        ),
        (column("x", 'states = ["a", "b"]\nmissing = "c"'), "`missing` of"),
        (column("x", 'states = ["a", "b"]').replace('["x"]', '["z"]'), "'z'"),
        ('cliques = [["x"]]\n[variables]\nx = 3', "must be a table"),
    ],
)
def test_a_malformed_file_is_one_clear_error(declared, text, message):
    with pytest.raises(ModelError, match=message) as caught:
        declared(text)
    assert "model.toml" in str(caught.value)


def test_a_missing_model_file_is_a_clear_error(tmp_path):
    with pytest.raises(ModelError, match="cannot be read"):
        read_declaration(tmp_path / "nowhere.toml")


def test_unreadable_records_never_print_a_value(tmp_path):
    for name, content in [
        ("a.csv", 'x,y\n1,2\nsecret,3,4,5\n"'),
        ("a.parquet", "secret"),
        ("a.xlsx", "secret"),
    ]:
        (tmp_path / name).write_text(content)
        with pytest.raises(BayesPrivMRFError) as caught:
            read_records(tmp_path / name)
        assert "secret" not in str(caught.value)
    with pytest.raises(DataError, match="cannot be read"):
        read_records(tmp_path / "nowhere.csv")


def test_parquet_keeps_its_types(tmp_path):
    pd.DataFrame({"x": [1, 2], "y": ["01", "NA"]}).to_parquet(tmp_path / "d.parquet")
    frame = read_records(tmp_path / "d.parquet")
    assert frame["x"].tolist() == [1, 2]
    assert frame["y"].tolist() == ["01", "NA"]


def test_a_missing_column_is_a_clear_error(declared):
    with pytest.raises(DataError, match="'smokes'"):
        recode(declared(), pd.DataFrame({"age": [1]}))
    with pytest.raises(DataError, match="data frame"):
        recode(declared(), [1, 2])


def test_the_survey_lies_inside_its_declaration():
    domain = fair_survey_declaration().specification.domain
    frame = fair_survey_records()
    assert frame.shape == (6366, 9)
    for variable in domain.variables:
        assert set(frame[variable]) == set(domain.states_of(variable))


def test_the_survey_has_nine_variables_and_nine_cliques():
    network, frame = load_fair_survey()
    assert list(frame.columns) == list(network.nodes)
    assert len(network.nodes) == 9
    assert len(network.get_factors()) == 9


def test_the_shipped_survey_has_the_records_of_statsmodels():
    datasets = pytest.importorskip("statsmodels.datasets.fair")
    expected = recode(fair_survey_declaration(), datasets.load_pandas().data)
    pd.testing.assert_frame_equal(fair_survey_records(), expected)
