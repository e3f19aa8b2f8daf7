import json
import os
import stat
import zipfile

import numpy as np
import pytest
from inference.conftest import AWKWARD, specification
from notebook import html_of

from bayesprivmrf import load_release
from bayesprivmrf.errors import (
    ArgumentError,
    ForeignFileError,
    ModelError,
    NewerFormatError,
    PrivacyError,
    ReleaseFileError,
)
from bayesprivmrf.privacy import (
    Adjacency,
    DiscreteLaplace,
    Gaussian,
    Laplace,
    NoNoise,
    PrivacyGuarantee,
)
from bayesprivmrf.release import NoisyStatistics, Provenance, file

GUARANTEE = PrivacyGuarantee(epsilon=1.0, adjacency=Adjacency.ADD_OR_REMOVE_ONE)
MODEL = specification(
    {"a": ["no", "yes"], 0: [3, 1.5, True], ("t", 1): [("x", 2), "y"]},
    [(0, "a"), ("a", ("t", 1))],
    [((0, 1.5), ("a", "yes"))],
)


def release(model=MODEL, seed=0, **rest):
    rng = np.random.default_rng(seed)
    settings = {
        "specification": model,
        "tables": model.tables(rng.integers(-5, 50, model.size)),
        "noise": tuple(DiscreteLaplace(4.0) for _ in model.cliques),
        "guarantee": GUARANTEE,
        "provenance": Provenance(
            mechanism="LaplaceStatistics",
            settings={"epsilon": 0.5, "weights": {("a", 0): 1.0}},
            versions={"opendp": "0.16.0"},
        ),
    }
    return NoisyStatistics(**{**settings, **rest})


def test_a_saved_release_comes_back_equal_with_labels_as_declared(tmp_path):
    path = tmp_path / "survey.release"
    given = release()
    given.save(path)
    back = load_release(path)
    assert back == given
    assert back.specification.domain.states[1] == (3, 1.5, True)
    assert [type(label) for label in back.specification.domain.states[1]] == [int, float, bool]
    assert back.specification.domain.variables == ("a", 0, ("t", 1))
    assert back.tables.flat.dtype == given.tables.flat.dtype
    assert back.provenance.versions == given.provenance.versions


@pytest.mark.parametrize("name", AWKWARD)
def test_awkward_models_survive_the_file(tmp_path, name):
    given = release(specification(*AWKWARD[name]))
    given.save(tmp_path / "r")
    assert load_release(tmp_path / "r") == given


def test_equal_releases_give_equal_files(tmp_path):
    release().save(tmp_path / "one")
    release().save(tmp_path / "two")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_a_label_of_another_kind_comes_back_as_its_text(tmp_path):
    model = specification({"a": [frozenset({1}), range(3)]}, [("a",)])
    given = release(model)
    given.save(tmp_path / "r")
    assert load_release(tmp_path / "r").specification.domain.states == (
        ("frozenset({1})", "range(0, 3)"),
    )


def test_any_cut_of_the_file_is_a_clear_error(tmp_path):
    path = tmp_path / "r"
    release().save(path)
    whole = path.read_bytes()
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        with pytest.raises(ReleaseFileError, match="cut short or altered"):
            load_release(path)


def test_any_changed_byte_is_an_error_or_changes_nothing(tmp_path):
    path = tmp_path / "r"
    given = release()
    given.save(path)
    whole = path.read_bytes()
    refused = 0
    for position in range(len(whole)):
        changed = bytearray(whole)
        changed[position] ^= 0x5A
        path.write_bytes(bytes(changed))
        try:
            assert load_release(path) == given
        except ReleaseFileError:
            refused += 1
    assert refused > 0.8 * len(whole)


def edit(path, change):
    with zipfile.ZipFile(path) as archive:
        document, array = json.loads(archive.read("release.json")), archive.read("tables.npy")
    change(document)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("release.json", json.dumps(document))
        archive.writestr("tables.npy", array)


def test_an_edited_document_is_refused_by_its_checksum(tmp_path):
    path = tmp_path / "r"
    release().save(path)
    edit(path, lambda document: document["content"]["guarantee"].update(epsilon=0.1))
    with pytest.raises(ReleaseFileError, match="altered"):
        load_release(path)


def test_a_newer_format_and_a_foreign_file_say_so(tmp_path):
    path = tmp_path / "r"
    release().save(path)
    edit(path, lambda document: document.update(version=file.FORMAT_VERSION + 1))
    with pytest.raises(
        NewerFormatError,
        match=f"format version {file.FORMAT_VERSION + 1}, newer than {file.FORMAT_VERSION}",
    ):
        load_release(path)
    release().save(path, overwrite=True)
    edit(path, lambda document: document.update(format="something"))
    with pytest.raises(ForeignFileError, match="not a release of bayesprivmrf"):
        load_release(path)
    path.write_bytes(b"a,b\n1,2\n")
    with pytest.raises(ForeignFileError, match="not a release of bayesprivmrf"):
        load_release(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("sheet.xml", "")
    with pytest.raises(ForeignFileError, match="not a release of bayesprivmrf"):
        load_release(path)
    assert issubclass(NewerFormatError, ReleaseFileError)
    assert issubclass(ForeignFileError, ReleaseFileError)
    with pytest.raises(ReleaseFileError, match="there is no release file"):
        load_release(tmp_path / "nowhere")


def test_another_release_is_replaced_only_when_told_to(tmp_path):
    path = tmp_path / "r"
    release(seed=0).save(path)
    before = path.read_bytes()
    release(seed=0).save(path)  # the same content
    with pytest.raises(ReleaseFileError, match="overwrite=True"):
        release(seed=1).save(path)
    assert path.read_bytes() == before
    release(seed=1).save(path, overwrite=True)
    assert load_release(path) == release(seed=1)
    edit(
        path, lambda document: document.update(version=file.FORMAT_VERSION + 1)
    )  # of a newer version, and as dear
    with pytest.raises(ReleaseFileError, match="overwrite=True"):
        release(seed=1).save(path)


def test_a_release_whose_labels_become_text_can_be_saved_again(tmp_path):
    given = release(specification({"a": [frozenset({1}), b"raw"]}, [("a",)]))
    given.save(tmp_path / "r")
    first = (tmp_path / "r").read_bytes()
    given.save(tmp_path / "r")  # no other release, though its labels now read as text
    assert (tmp_path / "r").read_bytes() == first


def test_a_file_of_another_kind_is_kept(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_bytes(b"a,b\n1,2\n")
    with pytest.raises(ReleaseFileError, match="holds another release or file"):
        release().save(path)
    assert path.read_bytes() == b"a,b\n1,2\n"
    release().save(path, overwrite=True)
    assert load_release(path) == release()


def test_an_empty_file_is_replaced_and_a_damaged_one_only_when_told_to(tmp_path):
    path = tmp_path / "r"
    path.touch()
    release(seed=0).save(path)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(ReleaseFileError, match="overwrite=True"):
        release(seed=0).save(path)
    release(seed=1).save(path, overwrite=True)
    assert load_release(path) == release(seed=1)


def test_unwritable_places_are_refused_and_leave_nothing(tmp_path):
    with pytest.raises(ReleaseFileError, match="existing folder"):
        release().save(tmp_path / "no" / "r")
    with pytest.raises(ReleaseFileError, match="must name a file"):
        release().save(tmp_path)
    assert os.listdir(tmp_path) == []


def test_exact_tables_are_saved_only_when_allowed(tmp_path):
    exact = release(noise=(NoNoise(), NoNoise()), guarantee=None)
    with pytest.raises(PrivacyError, match=r"without privacy noise .*allow_unprotected=True"):
        exact.save(tmp_path / "r")
    exact.save(tmp_path / "r", allow_unprotected=True)
    assert load_release(tmp_path / "r") == exact
    assert "not for publication" in exact.privacy_statement()
    assert "not for publication" in repr(exact)


def test_a_file_of_exact_tables_is_its_owners_alone_and_the_mask_is_never_opened(
    tmp_path, monkeypatch
):
    asked = []
    true_umask = os.umask

    def umask(mask):
        asked.append(mask)
        return true_umask(mask)

    monkeypatch.setattr(os, "umask", umask)
    before = true_umask(0o022)
    try:
        release(noise=(NoNoise(), NoNoise()), guarantee=None).save(
            tmp_path / "exact", allow_unprotected=True
        )
        release().save(tmp_path / "noisy")
    finally:
        true_umask(before)
    assert stat.S_IMODE(os.stat(tmp_path / "exact").st_mode) == 0o600
    assert stat.S_IMODE(os.stat(tmp_path / "noisy").st_mode) == 0o644
    assert asked[::2] == [0o077] * (len(asked) // 2)
    assert set(asked) == {0o077, 0o022}


def test_a_guarantee_beside_a_table_without_noise_is_refused():
    for noise in (
        (NoNoise(), NoNoise()),
        (DiscreteLaplace(4.0), NoNoise()),
        (DiscreteLaplace(1e-5), Laplace(1.0)),
    ):
        with pytest.raises(PrivacyError, match="no noise"):
            release(noise=noise)
    with pytest.raises(PrivacyError, match="no noise"):
        NoisyStatistics.from_tables(
            specification({"a": [0, 1]}, [("a",)]),
            {("a",): [3, 4]},
            noise=NoNoise(),
            guarantee=GUARANTEE,
        )


def test_a_public_total_beside_a_guarantee_that_protects_it_is_refused():
    with pytest.raises(PrivacyError, match="`total` must be None"):
        release(total=100)
    assert release(total=100, guarantee=None).total == 100
    public = PrivacyGuarantee(epsilon=0.5, adjacency=Adjacency.REPLACE_ONE)
    assert release(total=100, guarantee=public).total == 100


def test_estimated_total_is_the_best_linear_combination_of_the_tables_sums():
    model = specification({"a": [0, 1], "b": [0, 1, 2]}, [("a",), ("b",)])
    noisy = release(
        model, tables=model.tables([10.0, 12.0, 8.0, 7.0, 9.0]), noise=(Laplace(1.0), Gaussian(3.0))
    )
    variances = np.array([2 * 2.0, 3 * 9.0])
    weights = (1 / variances) / (1 / variances).sum()
    assert noisy.estimated_total == pytest.approx(weights @ [22, 24])
    assert noisy.total_standard_error == pytest.approx((1 / variances).sum() ** -0.5)
    public = PrivacyGuarantee(epsilon=0.5, adjacency=Adjacency.REPLACE_ONE)
    known = release(model, tables=noisy.tables, noise=noisy.noise, total=23, guarantee=public)
    assert (known.estimated_total, known.total_standard_error) == (23.0, 0.0)


def test_estimated_total_is_unbiased_with_the_stated_error():
    model = specification({"a": [0, 1], "b": [0, 1, 2], "c": [0, 1, 2]}, [("a", "b"), ("c",)])
    rng = np.random.default_rng(5)
    exact = np.array([30, 10, 5, 5, 25, 25, 35, 35, 30.0])
    laws = (Laplace(2.0), Laplace(5.0))
    scales = np.repeat([2.0, 5.0], [6, 3])
    estimates = []
    for _ in range(1000):
        flat = exact + rng.laplace(0, scales)
        estimates.append(release(model, tables=model.tables(flat), noise=laws).estimated_total)
    error = release(model, tables=model.tables(exact), noise=laws).total_standard_error
    assert abs(np.mean(estimates) - 100) < 4.5 * error / np.sqrt(1000)  # level below 1e-5
    assert np.std(estimates) == pytest.approx(error, rel=0.15)


def test_impossible_cells_are_public_zeros():
    noisy = release()
    assert not noisy.tables.flat[~MODEL.possible].any()


def test_tables_from_elsewhere_are_accepted_in_any_axis_order():
    model = specification({"a": [0, 1], "b": [0, 1, 2]}, [("a", "b")])
    table = np.arange(6.0).reshape(2, 3)
    one = NoisyStatistics.from_tables(model, {("a", "b"): table}, noise=Laplace(1.0))
    two = NoisyStatistics.from_tables(
        model, {("b", "a"): table.T}, noise={("b", "a"): Laplace(1.0)}
    )
    assert one == two
    assert one.privacy_statement() == "No privacy guarantee is stated for these tables."


@pytest.mark.parametrize(
    ("tables", "noise", "error", "message"),
    [
        ({("a", "b"): np.ones((3, 2))}, Laplace(1.0), ModelError, r"shape \(2, 3\)"),
        ({("a",): np.ones(2)}, Laplace(1.0), ModelError, "entry for the clique"),
        (
            {("a", "b"): np.ones((2, 3)), ("z",): [1]},
            Laplace(1.0),
            ModelError,
            "tables of measured cliques",
        ),
        ({("a", "b"): np.full((2, 3), np.nan)}, Laplace(1.0), ModelError, "must be finite"),
        ({("a", "b"): np.full((2, 3), 0.5)}, DiscreteLaplace(1.0), ModelError, "whole numbers"),
        ({("a", "b"): np.full((2, 3), "x")}, Laplace(1.0), ArgumentError, "array of numbers"),
        ({("a", "b"): np.ones(6)}, Laplace(1.0), ModelError, r"shape \(2, 3\)"),
        ({("a", "b"): np.ones((2, 3))}, 2.0, ArgumentError, "must be a noise distribution"),
    ],
)
def test_foreign_tables_that_do_not_fit_are_refused(tables, noise, error, message):
    model = specification({"a": [0, 1], "b": [0, 1, 2]}, [("a", "b")])
    with pytest.raises(error, match=message):
        NoisyStatistics.from_tables(model, tables, noise=noise)


def test_representations_carry_the_privacy_sentence_and_mark_simulations():
    real = release()
    assert GUARANTEE.sentence() in repr(real)
    assert "<table>" in html_of(real)
    simulated = release(provenance=Provenance(mechanism="LaplaceStatistics", simulated=True))
    assert "protects nobody" in repr(simulated)
    assert "protects nobody" in html_of(simulated)
    assert "protects nobody" in simulated.privacy_statement()
