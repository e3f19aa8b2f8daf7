"""Number of rows of one person that a release counts: a typed field of the release, not a setting."""

import json
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import bayesprivmrf as bpm
from bayesprivmrf import queries as q
from bayesprivmrf.errors import ArgumentError, ConsistencyWarning
from bayesprivmrf.mechanisms import ExactStatistics, LaplaceStatistics
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.noise import Laplace
from bayesprivmrf.privacy import PrivacyGuarantee
from bayesprivmrf.release import NoisyStatistics, PersonRows, Provenance

NETWORK = bpm.declare({"a": ["x", "y"], "b": ["x", "y"]}, [("a", "b")])
MODEL = ModelSpecification.from_pgmpy(NETWORK)
GUARANTEE = PrivacyGuarantee(epsilon=1.0, delta=0.0, adjacency="add-or-remove-one", unit="person")
FILES = Path(__file__).parent.parent / "golden" / "files"


def theirs(person_rows=None, **settings):
    return NoisyStatistics(
        specification=MODEL,
        tables=MODEL.tables(np.array([50.0, 20, 30, 40])),
        noise=(Laplace(2.0),),
        guarantee=GUARANTEE,
        provenance=Provenance(mechanism="Theirs", settings=settings),
        person_rows=person_rows,
    )


def version_of(path):
    with zipfile.ZipFile(path) as archive:
        return json.loads(archive.read("release.json"))["version"]


@pytest.mark.parametrize(
    "settings", [{"grid": "fine"}, {"at_most": 5}, {"person": "id", "at_most": 5, "grid": 9}]
)
def test_settings_of_another_mechanism_say_nothing_of_rows(settings, tmp_path):
    release = theirs(**settings)
    release.save(tmp_path / "theirs.release")
    for each in (release, bpm.load_release(tmp_path / "theirs.release")):
        assert each.person_rows is None
        assert each == release
        assert "were counted" not in each.privacy_statement()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            solution = bpm.NoiseAwareMAP().fit(each)
        assert not solution.stats.get("rests_on")
        solution.interval(["a"], of="records")


def test_a_mechanism_of_any_settings_may_say_how_many_rows_it_counts(tmp_path):
    release = theirs(PersonRows(at_most=5), max_rows=5)
    release.save(tmp_path / "theirs.release")
    assert version_of(tmp_path / "theirs.release") == 7
    for each in (release, bpm.load_release(tmp_path / "theirs.release")):
        assert each.person_rows == PersonRows(at_most=5)
        assert each.privacy_statement().endswith("at most 5 were counted.")
        with pytest.warns(ConsistencyWarning, match="up to 5 rows of one person"):
            bpm.NoiseAwareMAP().fit(each)


def test_mechanisms_state_the_rows_that_they_count(tmp_path):
    data = pd.DataFrame({"id": [1, 1, 2], "a": ["x", "y", "x"], "b": ["x", "y", "y"]})
    tables = [q.table("a", "b")]
    counted = LaplaceStatistics(epsilon=90.0, person="id", at_most=3).release(NETWORK, data, rng=1)
    weighed = LaplaceStatistics(epsilon=1.0, person="id", at_most=3, grid=6, queries=tables)
    exact = ExactStatistics(person="id", at_most=2).release(NETWORK, data)
    assert counted.person_rows == PersonRows(at_most=3)
    assert weighed.release(NETWORK, data, rng=1).person_rows == PersonRows(
        at_most=3, is_weighed=True
    )
    assert exact.person_rows == PersonRows(at_most=2)
    counted.save(
        tmp_path / "ours.release"
    )  # in a file, its settings say the same, as they always have
    assert version_of(tmp_path / "ours.release") == 1
    assert bpm.load_release(tmp_path / "ours.release") == counted


def test_files_that_were_written_before_keep_their_rows():
    assert (
        bpm.load_release(FILES / "v1" / "gaussian-persons.golden").person_rows.is_weighed is False
    )
    assert (
        bpm.load_release(FILES / "v4" / "measurements-units.golden").person_rows.is_weighed is True
    )
    assert bpm.load_release(FILES / "v1" / "laplace-replace-one.golden").person_rows is None


@pytest.mark.parametrize("at_most", [0, True, "3", 2.5])
def test_rows_that_are_no_number_are_refused(at_most):
    with pytest.raises(ArgumentError, match="at_most"):
        PersonRows(at_most=at_most)
