"""Tables as agencies print them: what is recognized, what is refused, and that no hidden count is read as zero.

All numbers are invented. The layouts are those of the pages that the tests name.
"""

from __future__ import annotations

import re
import zipfile
from unittest import mock

import numpy as np
import pandas as pd
import pytest

import bayesprivmrf as bpm
from bayesprivmrf import Measurement, NoisyStatistics
from bayesprivmrf import queries as q
from bayesprivmrf.errors import ArgumentError, BayesPrivMRFError, DataError, ModelError
from bayesprivmrf.noise import (
    CellKey,
    Coarsened,
    DiscreteLaplace,
    Laplace,
    NoNoise,
    RandomRounding,
    Rounded,
    Suppressed,
    Within,
)
from bayesprivmrf.readers import read_counts, read_folder

AGES = ["<30", "30-60", ">60"]
SEXES = ["Female", "Male"]
NETWORK = bpm.declare({"age": AGES, "sex": SEXES}, [("age", "sex")])
ALL = q.coarsened("age", groups={"age": {"all": AGES}})

# Six counts, their margins and their total, each rounded at random to base 3
CELLS = [12, 9, 30, 21, 6, 3]
BY_AGE = [24, 48, 9]
BY_SEX = [51, 33]
TOTAL = 84
WIDE = """\
Age,Female,Male,Total
<30,12,9,24
30-60,30,21,48
>60,6,3,9
Total,51,33,84
"""


def released(rule, *, cells=CELLS, total=None):
    """The release of the cells, both margins and the number of records."""
    measured = [(q.table("age", "sex"), cells), (q.table("age"), BY_AGE), (q.table("sex"), BY_SEX)]
    measured.append((ALL, [TOTAL]))
    tables = [Measurement(query, np.array(values, dtype=float), rule) for query, values in measured]
    return NoisyStatistics.from_measurements(NETWORK, tables, total=total)


def content(release):
    """What a release holds, in an order of its own."""
    parts = [
        (
            repr(each.query.bind(NETWORK).matrix.toarray().tolist()),
            repr(each.noise),
            each.values.tolist(),
        )
        for each in release.measurements
    ]
    return sorted(parts)


def saved(folder, **texts):
    """A folder of CSV files."""
    for name, text in texts.items():
        (folder / f"{name}.csv").write_text(text)
    return folder


@pytest.fixture
def path(tmp_path):
    return tmp_path / "table.csv"


LAYOUTS = {
    "plain": WIDE,
    "title, blank lines and notes": (
        f'"Table 3: People by age, 2018"\n\n{WIDE}\nNote: rounded to base 3\nSource: census, 2018\n'
    ),
    "semicolons": WIDE.replace(",", ";"),
    "tabs": WIDE.replace(",", "\t"),
    "labels in other spellings": WIDE.replace("Total", "All ages", 1)
    .replace("30-60", "30 – 60")
    .replace("<30", "< 30")
    .replace("Female", " female ")
    .replace("Total,51", "TOTAL:,51"),
    "marks of footnotes": WIDE.replace("Female", "Female [note 1]").replace("<30", "<30²"),
    "states below a name": WIDE.replace("Age,", ",Sex,,\nAge,", 1),
    "units below the labels": WIDE.replace("Total\n", "Total\n,Number,Number,Number\n", 1),
    "one count a line": """\
age,sex,Count
<30,Female,12
<30,Male,9
<30,Total,24
30-60,Female,30
30-60,Male,21
30-60,Total,48
>60,Female,6
>60,Male,3
>60,Total,9
Total,Female,51
Total,Male,33
Total,Total,84
""",
    "labels once": """\
age,sex,Count
Total,,84
,Female,51
,Male,33
<30,,24
,Female,12
,Male,9
30-60,,48
,Female,30
,Male,21
>60,,9
,Female,6
,Male,3
""",
    "sections with totals": """\
People,Number
Total:,84
Female:,51
<30,12
30-60,30
>60,6
Male:,33
<30,9
30-60,21
>60,3
""",
}


@pytest.mark.parametrize("text", LAYOUTS.values(), ids=LAYOUTS)
def test_every_layout_gives_the_same_release(path, text, capsys):
    wanted = released(RandomRounding(3))
    if text == LAYOUTS["sections with totals"]:  # its column has no totals by age
        others = [each for each in wanted.measurements if each.query != q.table("age")]
        wanted = NoisyStatistics.from_measurements(NETWORK, others)
    path.write_text(text, encoding="utf-8")
    found = read_counts(NETWORK, path, noise=RandomRounding(3))
    assert content(found) == content(wanted)
    assert "(age, sex): 6 numbers, random-rounding" in capsys.readouterr().out


def test_a_table_of_one_variable_may_have_its_states_above_the_counts(path):
    path.write_text("Sex,Female,Male,All people\nNumber,51,33,84\n")
    values = [m.values.tolist() for m in read_counts(NETWORK, path, noise=Rounded(3)).measurements]
    assert values == [BY_SEX, [TOTAL]]


def test_sections_without_their_own_counts_have_a_total_each_or_one_at_the_end(path):
    rows = ["People,n", "Female,", "<30,12", "30-60,30", ">60,6", "{0}", "Male,", "<30,9"]
    rows += ["30-60,21", ">60,3", "{1}"]
    text = "\n".join(rows)
    for first, last, further in [
        ("", "", []),
        ("Total,51", "Total,33", [(q.table("sex"), BY_SEX)]),
        ("", "Total,84", [(ALL, [TOTAL])]),
        ("Total,51", "Total,33\nTotal,84", [(q.table("sex"), BY_SEX), (ALL, [TOTAL])]),
    ]:
        path.write_text(text.format(first, last) + "\n")
        found = read_counts(NETWORK, path, noise=RandomRounding(3))
        tables = [(q.table("age", "sex"), CELLS), *further]
        own = [Measurement(k, np.array(v, dtype=float), RandomRounding(3)) for k, v in tables]
        assert content(found) == content(NoisyStatistics.from_measurements(NETWORK, own))
    path.write_text(text.format("Total,51", "") + "\n")
    with pytest.raises(DataError, match=r"totals of .* two variables in two columns"):
        read_counts(NETWORK, path, noise=RandomRounding(3))


@pytest.mark.parametrize("is_crosstab", [True, False])
def test_frames_with_margins_and_their_files_are_read(path, is_crosstab):
    columns = pd.Index([*SEXES, "All"], name="sex")
    rows = pd.Index([*AGES, "All"], name="age")
    values = np.column_stack([np.reshape(CELLS, (3, 2)), BY_AGE])
    frame = pd.DataFrame(np.vstack([values, [*BY_SEX, TOTAL]]), index=rows, columns=columns)
    source = frame
    if not is_crosstab:
        frame.to_csv(path)
        source = path
    found = read_counts(NETWORK, source, noise=RandomRounding(3))
    assert content(found) == content(released(RandomRounding(3)))


def test_states_above_states_and_columns_of_labels_are_read(path):
    network = bpm.declare(
        {"sex": SEXES, "work": ["no", "yes"], "age": AGES, "own": ["no", "yes"]},
        [("sex", "work", "age", "own")],
    )
    rng = np.random.default_rng(3)
    values = 3 * rng.integers(1, 30, (2, 2, 3, 2))
    columns = pd.MultiIndex.from_product([SEXES, ["no", "yes"]], names=["sex", "work"])
    rows = pd.MultiIndex.from_product([AGES, ["no", "yes"]], names=["age", "own"])
    frame = pd.DataFrame(
        values.transpose(2, 3, 0, 1).reshape(6, 4).astype(int), index=rows, columns=columns
    )
    wanted = bpm.NoisyStatistics.from_tables(
        network, {("sex", "work", "age", "own"): values}, noise=Rounded(3)
    )
    # "no" and "yes" are states of two variables, which the names of the columns of labels tell apart
    assert read_counts(network, frame, noise=Rounded(3)) == wanted
    # spreadsheets merge cells, so that repeated labels are empty
    lines = [["", "", "Female", "", "Male", ""], ["age", "own", "no", "yes", "no", "yes"]]
    for number, (label, row) in enumerate(zip(rows, frame.to_numpy().tolist(), strict=True)):
        lines.append([label[0] if number % 2 == 0 else "", label[1], *map(str, row)])
    path.write_text("\n".join(",".join(line) for line in lines))
    assert read_counts(network, path, noise=Rounded(3)) == wanted
    path.write_text("\n".join(",".join(line) for line in lines).replace("own", ""))
    with pytest.raises(DataError, match=r"one variable each.*2 readings; write the name"):
        read_counts(network, path, noise=Rounded(3))


# ------------------------------------------------------------------------------------------------- symbols


def test_a_symbol_stands_for_its_bounds_and_never_for_zero(path):
    path.write_text("age,Female,Male\n<30,s,9\n30-60,x,-\n>60,<5,14\n")
    marks = {"s": (1, 5), "x": None, "-": 0, "<5": (1, 4)}
    found = read_counts(NETWORK, path, noise=NoNoise(), withheld=marks, total=60)
    by_noise = {each.noise: each for each in found.measurements}
    assert by_noise[NoNoise()].values.tolist() == [9, 0, 14]
    found = read_counts(NETWORK, path, noise=Suppressed(1, 6), withheld=marks, total=60)
    by_noise = {each.noise: each for each in found.measurements}
    assert by_noise[NoNoise()].values.tolist() == [9, 0, 14]
    for rule, row in [(Suppressed(1, 6), 0), (Suppressed(1, 5), 4)]:
        assert by_noise[rule].values.tolist() == [-1]
        matrix = by_noise[rule].query.bind(NETWORK).matrix.toarray()
        assert np.flatnonzero(matrix).tolist() == [row]
    # the count that may be any is measured by nothing
    matrices = [each.query.bind(NETWORK).matrix.toarray() for each in found.measurements]
    assert np.sum(matrices[0], axis=0)[2] + sum(m[:, 2].sum() for m in matrices[1:]) == 0
    own = read_counts(NETWORK, path, noise=DiscreteLaplace(1.0), withheld=marks, total=60)
    assert Within.between(1, 5, DiscreteLaplace(1.0))[1] in {
        each.noise for each in own.measurements
    }


@pytest.mark.parametrize("mark", ["s", "..", "<5", "5-9", "x", "-", "c", "*", "..C", "(D)", ""])
def test_a_symbol_without_a_meaning_is_refused_with_the_remedy(path, mark):
    path.write_text(f"age,Female,Male\n<30,{mark},9\n30-60,30,21\n>60,6,3\n")
    seen = re.escape(repr(mark)) if mark else "an empty entry"
    with pytest.raises(DataError, match=f"{seen} in line 2, column 2; say in `withheld`"):
        read_counts(NETWORK, path, noise=RandomRounding(3))


@pytest.mark.parametrize(
    ("withheld", "message"),
    [
        ({"<5": 4}, "or to a number if they have no digit"),
        ({"5": (1, 4)}, "map marks that are not numbers"),
        ({"1,410": (1, 4)}, "map marks that are not numbers"),
        ({"s": (4, 1)}, "the first at most the second"),
        ({"s": (1, 2, 3)}, "pairs of bounds"),
        ({"s": (-1, 4)}, "low"),
        ({"s": "few"}, "pairs of bounds"),
        (["s"], "map marks"),
    ],
)
def test_a_meaning_that_says_nothing_is_refused(path, withheld, message):
    path.write_text("age,Female,Male\n<30,s,9\n30-60,30,21\n>60,6,3\n")
    with pytest.raises(ArgumentError, match=message):
        read_counts(NETWORK, path, noise=RandomRounding(3), withheld=withheld)


def test_numbers_are_read_with_separators_of_thousands_and_refused_where_these_may_be_decimal(path):
    network = bpm.declare({"sex": SEXES}, [("sex",)])
    for text, separator in [('"1,410"', ","), ("1 410", ";"), ("1\u00a0410", ","), ("1'410", ",")]:
        path.write_text(f"Sex{separator}People\nFemale{separator}{text}\nMale{separator}60\n")
        found = read_counts(network, path, noise=Rounded(10))
        assert [each.values.tolist() for each in found.measurements] == [[1410, 60]]
    for text, separator in [("1.410", ","), ("1,410", ";"), ("1.410", ";")]:
        path.write_text(f"Sex{separator}People\nFemale{separator}{text}\nMale{separator}60\n")
        with pytest.raises(DataError, match="separates thousands or decimals; write `decimal="):
            read_counts(network, path, noise=Rounded(10))


@pytest.mark.parametrize(
    ("decimal", "text", "number"),
    [
        (",", "1.410", 1410),
        (",", "1.410.000", 1_410_000),
        (",", "1 410,0", 1410),
        (".", "1,410", 1410),
        (".", "1410.0", 1410),
        (",", "1.4", None),
        (".", "1.410", None),
        (".", "1,41", None),
    ],
)
@pytest.mark.parametrize("noise", [Rounded(10), DiscreteLaplace(2.0)])
def test_a_declared_decimal_mark_gives_each_number_one_reading(path, decimal, text, number, noise):
    """As printed tables with a rule, and in long form with added noise."""
    network = bpm.declare({"sex": SEXES}, [("sex",)])
    path.write_text(f"sex;value\nFemale;{text}\nMale;60\n")
    if number is None:
        with pytest.raises(BayesPrivMRFError):
            read_counts(network, path, noise=noise, decimal=decimal)
    else:
        (found,) = read_counts(network, path, noise=noise, decimal=decimal).measurements
        assert found.values.tolist() == [number, 60]


def test_a_decimal_mark_is_a_point_or_a_comma(path):
    path.write_text(WIDE)
    for noise in (Rounded(3), Laplace(2.0)):
        with pytest.raises(ArgumentError, match="`decimal` must be"):
            read_counts(NETWORK, path, noise=noise, decimal=" ")


def test_numbers_of_a_frame_have_one_reading_whatever_mark_is_declared():
    frame = pd.DataFrame([[12.5, 9.125], [30.25, 21.0], [6.0, 3.0]], index=AGES, columns=SEXES)
    for decimal in (None, ",", "."):
        (found,) = read_counts(NETWORK, frame, noise=Laplace(2.0), decimal=decimal).measurements
        assert found.values.ravel().tolist() == frame.to_numpy().ravel().tolist()


# -------------------------------------------------------------------------------------- agencies' layouts


def test_statistics_new_zealand_prints_a_title_random_totals_and_a_mark_of_confidential_cells(path):
    """http://infoshare.stats.govt.nz/browse_for_stats/Maps_and_geography/Geographic-areas/urban-rural-profile/standards.aspx"""
    path.write_text(
        '"Age and sex, usually resident population, 2018"\n'
        '"Age group",Sex,,\n,Male,Female,"Total people"\n'
        "<30,..C,12,24\n30-60,21,30,48\n>60,3,6,9\n"
        '"Total people",33,51,84\n'
        '"Symbols: ..C confidential"\n"All counts are randomly rounded to base 3"\n'
    )
    found = read_counts(NETWORK, path, noise=RandomRounding(3), withheld={"..C": (0, 11)})
    cells = {each.noise: each for each in found.measurements if len(each.values) in (1, 5)}
    assert cells[Suppressed(0, 12)].values.tolist() == [-1]
    values = [each.values.tolist() for each in found.measurements]
    assert [12, 30, 21, 6, 3] in values
    assert BY_AGE in values
    assert BY_SEX in values
    assert [TOTAL] in values


def test_statistics_canada_prints_one_count_a_line_with_a_column_of_symbols(path):
    """https://statcan.gc.ca/en/developers/csv/user-guide and https://www.statcan.gc.ca/eng/concepts/definitions/guide-symbol"""
    header = "REF_DATE,GEO,DGUID,Age group,Gender,UOM,UOM_ID,SCALAR_FACTOR,VECTOR,COORDINATE,VALUE"
    lines = [f"{header},STATUS,SYMBOL,TERMINATED,DECIMALS"]
    values = dict(zip([(a, s) for a in AGES for s in SEXES], [10, 5, 30, 20, "", 15], strict=True))
    values[("Total - Age group", "Female")] = 40
    for number, ((age, sex), value) in enumerate(values.items()):
        status = "x" if value == "" else ""
        lines.append(
            f'2021,Canada,2021A1,"{age}",{sex},Number,223,units ,v{number},1.{number},{value},{status},,,0'
        )
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(DataError, match=r"table of sex .* each of its 2 cells"):
        read_counts(NETWORK, path, noise=RandomRounding(5), withheld={"": (0, 4)})
    path.write_text("\n".join(lines[:-1]) + "\n")
    with pytest.raises(DataError, match="an empty entry in line 6"):
        read_counts(NETWORK, path, noise=RandomRounding(5))
    found = read_counts(
        NETWORK, path, noise=RandomRounding(5), withheld={"x": None}, columns={"symbol": "STATUS"}
    )
    (cells,) = found.measurements
    assert cells.values.tolist() == [10, 5, 30, 20, 15]
    text = path.read_text().replace(",Number,223", ",Percent,239", 1)
    path.write_text(text)
    with pytest.raises(DataError, match="have one entry, because no variable is declared for it"):
        read_counts(
            NETWORK,
            path,
            noise=RandomRounding(5),
            withheld={"x": None},
            columns={"symbol": "STATUS"},
        )


def test_the_office_for_national_statistics_prints_codes_beside_labels(path):
    """https://github.com/prteek/nest-smart/blob/HEAD/backend/models/ingestion/ons_census2021/imd/imd.sql"""
    lines = [
        "Lower tier local authorities Code,Lower tier local authorities,Age (3 categories) Code,Age (3 categories),"
        "Sex (2 categories) Code,Sex (2 categories),Observation"
    ]
    for number, value in enumerate(CELLS):
        age, sex = divmod(number, 2)
        lines.append(f"E06000001,Hartlepool,{age + 1},{AGES[age]},{sex + 1},{SEXES[sex]},{value}")
    path.write_text("\n".join(lines) + "\n")
    keys = pd.DataFrame({"pcv": [1, 1, 2, 2], "ckey": [0, 1, 0, 1], "pvalue": [-1, 1, 0, 0]})
    found = read_counts(NETWORK, path, noise=CellKey(keys))
    (cells,) = found.measurements
    assert cells.query == q.table("age", "sex")
    assert cells.values.tolist() == CELLS
    assert cells.noise == CellKey(keys)


def test_nhs_england_prints_stars_for_small_counts_and_rounds_the_others(path):
    """https://digital.nhs.uk/data-and-information/data-tools-and-services/data-services/hospital-episode-statistics/change-to-disclosure-control-methodology-for-hes-and-ecds-from-september-2018"""
    path.write_text(
        '"Table 4: Attendances by age and sex"\n\n'
        'Age band,All persons,Female,Male\nAll ages,"1,235",735,505\n'
        '<30,20,15,*\n30-60,"1,000",600,400\n>60,215,120,100\n\n'
        '"* is a count from 1 to 7. Other counts are rounded to the nearest 5."\n'
    )
    found = read_counts(NETWORK, path, noise=Rounded(5), withheld={"*": (1, 7)})
    values = {(len(each.values), each.noise): each.values.tolist() for each in found.measurements}
    assert values[5, Rounded(5)] == [15, 600, 400, 120, 100]
    assert values[1, Suppressed(1, 8)] == [-1]
    assert values[3, Rounded(5)] == [20, 1000, 215]
    assert values[1, Rounded(5)] == [1235]


def test_the_census_bureau_prints_sections_that_begin_with_their_total(path):
    """https://github.com/gabrieljohndusing/NCNW-Project-Datasets (data-sets/census, GROUP_S0101_LEGEND.md)"""
    path.write_text(
        "Label (Grouping),Some County!!Estimate\nTotal:,84\n\u00a0\u00a0\u00a0\u00a0Male:,33\n"
        "\u00a0\u00a0\u00a0\u00a0\u00a0\u00a0\u00a0\u00a0<30,9\n        30-60,21\n        >60,3\n"
        "    Female:,51\n        <30,12\n        30-60,30\n        >60,6\n",
        encoding="utf-8-sig",
    )
    found = read_counts(NETWORK, path, noise=Rounded(3))
    values = {each.query: each.values.tolist() for each in found.measurements}
    assert values == {q.table("age", "sex"): CELLS, q.table("sex"): BY_SEX, ALL: [TOTAL]}


# ------------------------------------------------------------------------------------------------- folders


def test_a_folder_is_one_release_with_two_layouts_and_a_rule_for_each_table(tmp_path, capsys):
    saved(
        tmp_path,
        age_sex="age,Female,Male\n<30,12,9\n30-60,30,21\n>60,6,3\n",
        ages="Age group,Number\n<30,24.4\n30-60,47\n>60,9.5\n",
        sexes="sex,Count\nFemale,50\nMale,35\nTotal,84\n",
    )
    (tmp_path / "readme.md").write_text("no table")
    rules = {("sex", "age"): RandomRounding(3), "ages.csv": Laplace(1.0), "sex": Rounded(5)}
    found = read_folder(NETWORK, tmp_path, noise=rules | {(): NoNoise()})
    assert {(len(each.values), each.noise) for each in found.measurements} == {
        (6, RandomRounding(3)),
        (3, Laplace(1.0)),
        (2, Rounded(5)),
        (1, NoNoise()),
    }
    assert found.total == 84  # an exact number of records is known
    shown = capsys.readouterr().out
    assert "ages.csv: one count a line, by age" in shown
    assert "not read: readme.md" in shown
    with pytest.raises(ArgumentError, match=r"entry for the number of records, or for its file"):
        read_folder(NETWORK, tmp_path, noise=rules)
    with pytest.raises(ArgumentError, match="'ags' as well"):
        read_folder(NETWORK, tmp_path, noise=rules | {(): NoNoise(), "ags": Rounded(5)})


def test_repeated_numbers_are_used_once_unless_chance_made_them_differ(tmp_path, capsys):
    sheet = "Age,Female,Male,Total\n<30,12,9,24\n30-60,30,21,48\n>60,6,3,9\n"
    saved(tmp_path, one=sheet, two="Age,People\n<30,24\n30-60,48\n>60,9\n")
    for rule in (RandomRounding(3), Rounded(3)):
        found = read_folder(NETWORK, tmp_path, noise=rule)
        assert [len(each.values) for each in found.measurements] == [6, 3]
    assert "repeats other tables, and is used once" in capsys.readouterr().out
    saved(tmp_path, two="Age,People\n<30,24\n30-60,51\n>60,9\n")
    found = read_folder(NETWORK, tmp_path, noise=RandomRounding(3))
    assert [len(each.values) for each in found.measurements] == [6, 3, 3]
    with pytest.raises(DataError, match=r"number of another table in each cell.*the same people"):
        read_folder(NETWORK, tmp_path, noise=Rounded(3))
    # where one table hides a cell, the other shows it
    saved(tmp_path, two="Age,People\n<30,x\n30-60,48\n>60,s\n")
    marks = {"x": None, "s": (5, 30)}
    found = read_folder(NETWORK, tmp_path, noise=Rounded(3), withheld=marks)
    assert [each.values.tolist() for each in found.measurements][1] == BY_AGE


def test_a_workbook_has_a_table_in_each_sheet(tmp_path):
    """The engine of pandas for workbooks is an extra, so that a stand-in reads here."""
    (tmp_path / "tables.xlsx").write_bytes(b"")
    rows = [line.split(",") for line in WIDE.splitlines()]
    sheets = {
        "Contents": pd.DataFrame([["Contents", None], ["Table 1", "People by age"]]),
        "Table 1": pd.DataFrame([[float(t) if t.isdigit() else t for t in row] for row in rows]),
    }
    with mock.patch.object(pd, "read_excel", return_value=sheets):
        found = read_folder(NETWORK, tmp_path, noise=RandomRounding(3))
    assert content(found) == content(released(RandomRounding(3)))


def test_a_workbook_that_cannot_be_read_is_refused(tmp_path):
    (tmp_path / "tables.xlsx").write_bytes(b"no workbook")
    with pytest.raises(DataError, match=r"'tables.xlsx' .*as CSV"):
        read_folder(NETWORK, tmp_path, noise=RandomRounding(3))


def test_texts_of_a_workbook_are_no_empty_cells(tmp_path):
    """Pandas reads "n/a" and the state "None" as missing values unless it is told not to."""
    (tmp_path / "tables.xlsx").write_bytes(b"")
    frame = pd.DataFrame([line.split(",") for line in WIDE.splitlines()])
    with mock.patch.object(pd, "read_excel", return_value={"1": frame}) as reader:
        read_folder(NETWORK, tmp_path, noise=RandomRounding(3))
    assert reader.call_args.kwargs["keep_default_na"] is False


SHEET = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
LINKS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"


def workbook(place, titles):
    """A workbook whose sheets have the given XML and state; the stand-in for pandas' engine has their entries."""
    sheets = "".join(
        f'<sheet name="{title}" sheetId="{k}" r:id="r{k}"{state}/>'
        for k, (title, (_, state)) in enumerate(titles.items(), start=1)
    )
    links = "".join(
        f'<Relationship Id="r{k}" Target="worksheets/s{k}.xml"/>' for k in range(1, len(titles) + 1)
    )
    with zipfile.ZipFile(place, "w") as book:
        book.writestr(
            "xl/workbook.xml",
            f'<workbook xmlns="{SHEET}" xmlns:r="{LINKS}"><sheets>{sheets}</sheets></workbook>',
        )
        book.writestr("xl/_rels/workbook.xml.rels", f"<Relationships>{links}</Relationships>")
        for k, (content, _) in enumerate(titles.values(), start=1):
            book.writestr(
                f"xl/worksheets/s{k}.xml", f'<worksheet xmlns="{SHEET}">{content}</worksheet>'
            )


# Sexes above ages; the totals of each sex and the row of a region are hidden, and labels stand in hidden columns
MERGED = [
    ["", "", "Female", "", "", "", "Male", "", "", ""],
    ["", "", "All ages", *AGES, "All ages", *AGES],
    ["North", "People", 1, 1, 1, 1, 1, 1, 1, 1],
    ["All", "People", 48, 12, 30, 6, 33, 9, 21, 3],
]
HIDDEN_PARTS = (
    '<cols><col min="1" max="3" hidden="1"/><col min="7" max="7" hidden="true"/>'
    '<col min="8" max="8" hidden="0"/></cols><sheetData><row r="1"/><row/><row hidden="1"/><row r="4"/></sheetData>'
    '<mergeCells><mergeCell ref="C1:F1"/><mergeCell ref="G1:J1"/></mergeCells>'
)


def test_hidden_parts_of_a_workbook_are_left_out_and_said_so(tmp_path, capsys):
    """Hidden sheets may hold the counts before they were rounded, and hidden columns parts of totals."""
    workbook(tmp_path / "t.xlsx", {"Table": (HIDDEN_PARTS, ""), "Raw": ("", ' state="veryHidden"')})
    raw = pd.DataFrame([line.split(",") for line in WIDE.replace("12,9", "11,10").splitlines()])
    with mock.patch.object(
        pd, "read_excel", return_value={"Table": pd.DataFrame(MERGED), "Raw": raw}
    ):
        (found,) = read_folder(NETWORK, tmp_path, noise=RandomRounding(3)).measurements
    assert sorted(found.values.ravel().tolist()) == sorted(CELLS)
    assert found.values.ravel()[0] == CELLS[0]
    said = capsys.readouterr().out
    assert "t.xlsx[Raw]: not read, because it is hidden" in said
    assert "1 hidden row, 4 hidden columns" in said


def test_a_table_that_lacks_cells_because_they_are_hidden_is_refused_with_the_remedy(tmp_path):
    content = '<sheetData><row r="1"/><row r="2" hidden="1"/></sheetData>'
    workbook(tmp_path / "t.xlsx", {"1": (content, "")})
    frame = pd.DataFrame([line.split(",") for line in WIDE.splitlines()])
    with (
        mock.patch.object(pd, "read_excel", return_value={"1": frame}),
        pytest.raises(DataError, match="unhide them: 1 hidden row had been left out"),
    ):
        read_folder(NETWORK, tmp_path, noise=RandomRounding(3))


@pytest.mark.parametrize("name", ["t.ods", "t.xls", "t.xlsx"])
def test_a_workbook_whose_hidden_parts_cannot_be_found_is_read_and_said_so(tmp_path, name, capsys):
    """The file with the ending of Excel is of another kind, as pandas finds out by its content."""
    (tmp_path / name).write_bytes(b"")
    frame = pd.DataFrame([line.split(",") for line in WIDE.splitlines()])
    with mock.patch.object(pd, "read_excel", return_value={"1": frame}):
        read_folder(NETWORK, tmp_path, noise=RandomRounding(3))
    assert "hidden parts are read as well: save it as .xlsx" in capsys.readouterr().out


ANSWERS = (
    "q,Q,{unit}OBS_VALUE\nno,no,{entry}5\nno,yes,{entry}10\nyes,no,{entry}20\nyes,yes,{entry}25\n"
)


FLAGGED = "age,work,value,status\n<30,no,0,x\n<30,yes,30,\n30+,no,0,\n30+,yes,25,p\n"


def test_a_hidden_count_that_is_printed_as_zero_is_not_read_as_zero(path):
    states = {"age": ["<30", "30+"], "work": ["no", "yes"]}
    network = bpm.declare(states=states, cliques=[("age", "work")])
    path.write_text(FLAGGED)
    with pytest.raises(DataError, match="0 beside a flag in column 4"):
        read_folder(network, path.parent, noise=Rounded(5))
    found = read_folder(
        network,
        path.parent,
        noise=Rounded(5),
        columns={"symbol": "status"},
        withheld={"x": (1, 4)},
    )
    laws = {one.noise: one.values.tolist() for one in found.measurements}
    assert laws[Suppressed(1, 5)] == [-1]
    assert laws[Rounded(5)] == [30, 0, 25]
    # a flag of other counts too is no mark of hidden ones
    path.write_text(FLAGGED.replace("0,x", "0,p"))
    (measured,) = read_folder(network, path.parent, noise=Rounded(5)).measurements
    assert measured.values.tolist() == [0, 30, 0, 25]


def test_names_that_differ_in_case_are_two_variables(path):
    states = ["no", "yes"]
    network = bpm.declare(states={"q": states, "Q": states}, cliques=[("q", "Q")])
    path.write_text(ANSWERS.format(unit="", entry=""))
    (measured,) = read_folder(network, path.parent, noise=Rounded(5)).measurements
    assert measured.values.tolist() == [5, 10, 20, 25]


@pytest.mark.parametrize(
    ("unit", "entry"),
    [("UNIT,", "Percent,"), ("UNIT,", "Thousands,"), ("UNIT_MULT,", "3,"), ("unit,", "per 1 000,")],
)
def test_a_unit_that_is_no_count_is_refused(path, unit, entry):
    network = bpm.declare(states={"q": ["no", "yes"], "Q": ["no", "yes"]}, cliques=[("q", "Q")])
    path.write_text(ANSWERS.format(unit=unit, entry=entry))
    with pytest.raises(
        DataError, match="hold counts, got percentages, rates, averages or thousands"
    ):
        read_folder(network, path.parent, noise=Rounded(5))


@pytest.mark.parametrize(
    ("title", "is_of_counts"),
    [
        ("Table 3: Percentage of people by age", False),
        ("People by age (%)", False),
        ("People by age, in thousands", False),
        ("Deaths per 100,000 people", False),
        ("Number and percentage of people", True),
        ("Percentages may not add up", True),
        ("People by age (thousands)", False),
        ("Table 2. Median age by sex", False),
        ("Rounded to the nearest thousand", True),
        ("People by age, 2018", True),
    ],
)
def test_a_title_tells_a_table_that_is_not_of_counts(path, title, is_of_counts):
    path.write_text(f'"{title}"\n{WIDE}')
    if is_of_counts:
        read_folder(NETWORK, path.parent, noise=RandomRounding(3))
        return
    with pytest.raises(DataError, match="by its title"):
        read_folder(NETWORK, path.parent, noise=RandomRounding(3))


def test_a_last_row_with_a_hidden_count_and_an_unknown_label_is_no_note(path):
    path.write_text(f"{WIDE}unknown,6,,6\nSource: an office,,,\n")
    with pytest.raises(DataError, match="declared states"):
        read_folder(NETWORK, path.parent, noise=RandomRounding(3))


# ----------------------------------------------------------------------------------------------- bad input

BAD = {
    "base": (WIDE.replace("30,21", "31,21"), Rounded(3), "numbers that Rounded.* can give.*line 3"),
    "base of a total": (WIDE.replace("84", "85"), RandomRounding(3), "can give.*line 5, column 4"),
    "range": (WIDE, Coarsened([(0, 0), (1, 9), (10, 99)]), "can give"),
    "suppressed": (WIDE.replace("6,3", "6,2"), Suppressed(1, 3), "can give.*line 4"),
    "fraction": (WIDE.replace("6,3", "6,3.5"), NoNoise(), "can give.*line 4"),
    "negative": (WIDE.replace("6,3", "6,-3"), Rounded(3), "can give"),
    "unit of totals": (WIDE.replace("51,33,84", "6,3,9"), Rounded(3), "check their units"),
    "total in thousands": (WIDE.replace("51,33,84", "51,33,0"), Rounded(3), "check their units"),
    "duplicate": (WIDE.replace("Total,51", "< 30 ,51").replace("< 30", "<30"), Rounded(3), "again"),
    "spelling": (WIDE.replace(">60,6,3,9", ">60,6,3,9\n>60:,6,3,9"), Rounded(3), "cell once"),
    "missing row": (WIDE.replace(">60,6,3,9\n", ""), Rounded(3), "no count is read as 0"),
    "unknown row": (WIDE.replace(">60", "60 and over"), Rounded(3), "declared states of 'age'"),
    "percentages beside": (
        "Age,Female,%,Male\n<30,12,10,9\n30-60,30,70,21\n>60,6,20,3\n",
        Rounded(3),
        "column 3 .* percentages",
    ),
    "percent signs": (WIDE.replace("30,21", "30%,21"), Rounded(3), "a percentage in line 3"),
    "column of percentages": (
        "age,Percent\n<30,30\n30-60,60\n>60,9\n",
        Rounded(3),
        "percentages, rates",
    ),
    "two columns of numbers": (
        "age,Last year,This year\n<30,30,3\n30-60,60,6\n>60,9,9\n",
        Rounded(3),
        "2 columns of numbers; .*columns",
    ),
    "hidden variable": (
        "age,area,n\n<30,A,3\n<30,B,6\n30-60,A,3\n30-60,B,6\n>60,A,3\n>60,B,9\n",
        Rounded(3),
        "no variable is declared",
    ),
    "two years": (
        "Year,sex,n\n2018,Female,30\n2023,Male,60\n2018,Total,90\n",
        Rounded(3),
        "no variable is declared",
    ),
    "percentages below": (
        ",Number,,Per cent,\nage,Female,Male,Female,Male\n<30,12,9,50,50\n",
        Rounded(3),
        "column 4 .* percentages",
    ),
    "percentages in the second half": (
        "age,Female,Male,Female,Male\n,Number,Number,Row %,Row %\n<30,12,9,57,43\n",
        Rounded(3),
        "column 4 .* percentages",
    ),
    "percentages in a section": (
        WIDE.replace("<30", "Per cent,,,\n<30"),
        Rounded(3),
        "percentages.* by a note in line 2",
    ),
    "percentages that add up": (
        "age,Female,Male,Total\n<30,60,40,100\n30-60,55,45,100\n>60,50,50,100\n",
        Rounded(5),
        "totals of 100 each",
    ),
    "thousands below the labels": (
        WIDE.replace("<30", ",'000,'000,'000\n<30"),
        Rounded(3),
        "column 2 .* thousands",
    ),
    "thousands in a name": (
        "age,Persons (thousands)\n<30,30\n30-60,60\n>60,9\n",
        Rounded(3),
        "or thousands",
    ),
    "averages": ("age,Average income\n<30,30\n30-60,60\n>60,9\n", Rounded(3), "averages"),
    "thousands in a note": (f"{WIDE}Note: Numbers in thousands.\n", Rounded(3), "in line 6"),
    "labels with marks": (WIDE.replace("Female", "Female (1)"), Rounded(3), "."),
    "unlabeled column": (WIDE.replace(",Total\n", ",\n", 1), Rounded(3), "state or a total"),
    "unknown column": (
        WIDE.replace(",Total\n", ",Other\n", 1),
        Rounded(3),
        "state or a total, got none or another",
    ),
    "no table": ("a,b\nc,d\n1,2\n", Rounded(3), "got neither"),
    "empty": ("", Rounded(3), "."),
    "one line": ("age,Female,Male\n", Rounded(3), "."),
    "two readings": ("Sheet,n\nno,3\nyes,6\n", Rounded(3), "got neither"),
}


@pytest.mark.parametrize(("text", "rule", "message"), BAD.values(), ids=BAD)
def test_a_bad_table_is_refused_with_a_remedy(tmp_path, text, rule, message):
    saved(tmp_path, table=text)
    with pytest.raises(BayesPrivMRFError, match=message):
        read_folder(NETWORK, tmp_path, noise=rule)


def test_a_group_without_a_label_is_no_total(path):
    """SQL engines write the group of missing values without a label, also beside a label of another variable."""
    lines = [f"{a},{s},{n}" for a in AGES for s, n in zip([*SEXES, ""], (12, 9, 3), strict=True)]
    path.write_text("\n".join(["age,sex,n", *lines]) + "\n")
    with pytest.raises(BayesPrivMRFError, match="label in each row of counts"):
        read_counts(NETWORK, path, noise=Rounded(3))


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"pcv": [1, 1], "ckey": [0, 1]}, "have the columns pcv, ckey and pvalue"),
        ({"i": [1, 1], "v": [-1, 1], "p": [0.5, 0.4]}, "sum to 1"),
        ({"pcv": [1, 1], "ckey": [1, 2], "pvalue": [-1, 1]}, "begin at 0"),
    ],
)
def test_a_bad_perturbation_table_is_refused(keys, message):
    with pytest.raises(ArgumentError, match=message):
        CellKey(pd.DataFrame(keys))


def test_folders_without_tables_and_other_paths_are_refused(tmp_path):
    with pytest.raises(DataError, match="hold CSV files or workbooks, got none"):
        read_folder(NETWORK, tmp_path, noise=Rounded(3))
    saved(tmp_path, notes="Note\nwithout numbers\n")
    with pytest.raises(DataError, match=r"notes\.csv must have states of a variable"):
        read_folder(NETWORK, tmp_path, noise=Rounded(3))
    with pytest.raises(ArgumentError, match="`read_counts` reads one file"):
        read_folder(NETWORK, tmp_path / "notes.csv", noise=Rounded(3))
    saved(tmp_path, notes=WIDE)
    with pytest.raises(ArgumentError, match="noise"):
        read_folder(NETWORK, tmp_path, noise="rounded")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ArgumentError, match=r"columns.*'vale'.*'value' is similar"):
        read_folder(NETWORK, tmp_path, noise=Rounded(3), columns={"vale": "n"})


def test_tables_that_contradict_each_other_are_refused(tmp_path):
    saved(tmp_path, age=WIDE, sex="sex,n\nFemale,5100\nMale,3300\n")
    with pytest.raises(ModelError, match="unit"):
        read_folder(NETWORK, tmp_path, noise=RandomRounding(3))


def test_every_estimator_fits_a_folder(tmp_path):
    saved(tmp_path, table=WIDE.replace(",3,9", ",s,9"))
    found = read_folder(NETWORK, tmp_path, noise=RandomRounding(3), withheld={"s": (1, 5)})
    for estimator in (bpm.NoiseAwareMAP(), bpm.CGM(), bpm.NaiveMLE()):
        assert estimator.fit(found).status in ("converged", "stopped early", "approximate")


def test_marks_among_exact_counts_are_suppression_that_every_estimator_reads(tmp_path):
    saved(tmp_path, table="Age,Female,Male\n<30,12,9\n30-60,30,21\n>60,6,s\n")
    settings = {"noise": NoNoise(), "withheld": {"s": (1, 5)}, "total": sum(CELLS)}
    found = read_folder(NETWORK, tmp_path, **settings)
    assert Suppressed(1, 6) in {one.noise for one in found.measurements}
    frame = bpm.NoiseAwareMAP().fit(found).interval(["age", "sex"], of="records")
    # the public number of records tells the hidden count
    assert frame.estimate.to_numpy() == pytest.approx(CELLS)


@pytest.mark.parametrize(
    ("line", "is_right"),
    [
        ("Means of transport by sex", True),
        ("The survey has a sample of two million.", True),
        ("Rounded to the closest thousand", True),
        ("Means by sex", False),
        ("Numbers are in units of one thousand.", False),
    ],
)
def test_lines_that_name_means_and_thousands_refuse_tables_of_these_alone(path, line, is_right):
    network = bpm.declare({"rate": ["per cent", "fixed"], "sex": ["f", "m"]}, [("rate", "sex")])
    path.write_text(f"{line}\n,rate,\nsex,per cent,fixed\nf,10,30\nm,20,45\n")
    if is_right:
        (table,) = read_folder(network, path.parent, noise=Rounded(5)).measurements
        np.testing.assert_array_equal(np.ravel(table.values), [10, 20, 30, 45])
    else:
        with pytest.raises(DataError, match="averages or thousands"):
            read_folder(network, path.parent, noise=Rounded(5))
