"""A release file is checked in full when it is loaded, and a hostile one costs neither memory nor a raw error."""

import json
import struct
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
from notebook import html_of

from bayesprivmrf import load_release
from bayesprivmrf.errors import ArgumentError, BayesPrivMRFError, GuaranteeWarning, ReleaseFileError
from bayesprivmrf.privacy import PrivacyGuarantee
from bayesprivmrf.release import Provenance

from .nasty import NASTY, document_and_array, edited, places, stored, write_sealed

FILES = Path(__file__).parents[1] / "golden" / "files"
EACH_KIND = [
    "v1/laplace-impossible-weights",
    "v2/tight-pure",
    "v3/ising-tables",
    "v3/pairwise-frank-wolfe-pairs",
    "v3/monomials-fitted-cliques",
    "v3/monomials-frank-wolfe-linf-cliques",
    "v3/parities-gaussian",
    "v3/potentials-dpsgd-impossible",
    "v3/regression",
]


def attempt(path: Path, again: Path) -> None:
    """Load, show and save what may be nonsense: nothing but an error of the library's own may be raised."""
    try:
        release = load_release(path)
    except ReleaseFileError:
        return
    repr(release)
    html_of(release)
    release.privacy_statement()
    release.save(again, overwrite=True, **({"allow_unprotected": True} if release.is_exact else {}))


def try_all_edits(tmp_path, name, step):
    document, array = document_and_array(FILES / f"{name}.golden")
    edits = [(place, new) for place in places(document) if place != ("sha256",) for new in NASTY]
    for place, new in edits[::step]:
        try:
            write_sealed(tmp_path / "r", edited(document, place, new), array)
        except (TypeError, KeyError):  # nothing is left that a checksum could be made of
            continue
        try:
            attempt(tmp_path / "r", tmp_path / "again")
        except GuaranteeWarning:  # the promise does not fit the noise, which is said
            continue
        except BayesPrivMRFError as error:  # loaded, and then refused something
            raise AssertionError(f"{place} = {new!r:.60}: {error}") from error
        except Exception as error:
            raise AssertionError(
                f"{place} = {new!r:.60}: {type(error).__name__} {error}"
            ) from error


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", EACH_KIND)
def test_a_nonsensical_value_is_refused_or_harmless(tmp_path, name):
    try_all_edits(tmp_path, name, step=29)


@pytest.mark.slow
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", EACH_KIND)
def test_every_nonsensical_value_is_refused_or_harmless(tmp_path, name):
    try_all_edits(tmp_path, name, step=1)


@pytest.mark.parametrize(
    ("name", "place", "new"),
    [
        ("v1/laplace-replace-one", ("total",), "nan"),
        ("v1/laplace-replace-one", ("total",), True),
        ("v1/laplace-replace-one", ("total",), 10**400),
        ("v1/laplace-replace-one", ("total",), -1),
        ("v1/laplace-replace-one", ("cliques_declared",), "x"),
        ("v1/laplace-replace-one", ("cliques", 0, 0), -1),
        ("v1/laplace-replace-one", ("cliques", 0, 0), True),
        ("v1/laplace-replace-one", ("variables", 2), None),
        ("v1/laplace-replace-one", ("guarantee", "form"), "zero-concentrated"),
        ("v1/laplace-replace-one", ("provenance", "simulated"), 1e308),
        ("v1/laplace-replace-one", ("provenance", "mechanism"), -1),
        ("v1/laplace-replace-one", ("provenance", "settings"), "x"),
        ("v3/ising-tables", ("guarantee",), None),
        ("v3/ising-tables", ("total",), {}),
        ("v3/ising-tables", ("map", "plan", "count"), 10**6),
        ("v3/ising-frank-wolfe", ("total",), "nan"),
        ("v3/ising-frank-wolfe", ("map", "cardinalities"), [2, 2]),
        ("v3/ising-frank-wolfe", ("map", "kind"), "parities"),
        ("v3/monomials-fitted", ("total",), 10**400),
        ("v3/monomials-fitted", ("order",), 10**6),
        ("v3/parities-gaussian", ("details",), -1e308),
        ("v3/potentials-dpsgd", ("total",), [[[[]]]]),
        ("v2/tight-pure", ("inverse_temperature",), None),
        ("v2/tight-pure", ("constants", "step"), "x"),
        ("v2/tight-pure", ("constants", "grid"), -1.0),
        ("v2/tight-pure", ("bounds",), [1, 0]),
    ],
)
def test_a_value_of_another_type_is_refused_by_name_of_the_file(tmp_path, name, place, new):
    document, array = document_and_array(FILES / f"{name}.golden")
    write_sealed(tmp_path / "r", edited(document, ("content", *place), new), array)
    with pytest.raises(ReleaseFileError, match="r' holds no release that can be read"):
        load_release(tmp_path / "r")


@pytest.mark.parametrize("version", [True, 0, -5, 1.0, "1", None])
def test_a_version_is_a_whole_number_from_one(tmp_path, version):
    document, array = document_and_array(FILES / "v1/laplace-replace-one.golden")
    write_sealed(tmp_path / "r", edited(document, ("version",), version), array)
    with pytest.raises(ReleaseFileError, match="altered"):
        load_release(tmp_path / "r")


@pytest.mark.parametrize("name", EACH_KIND)
def test_an_array_of_another_type_or_shape_is_refused(tmp_path, name):
    document, array = document_and_array(FILES / f"{name}.golden")
    (tmp_path / "npy").write_bytes(array)
    held = np.load(tmp_path / "npy")
    for wrong in (
        held.astype(complex),
        held.astype(str),
        held[..., None],
        held[:0],
        np.full_like(held, np.nan, dtype=float),
        np.full(10**6, 1.0),
    ):
        write_sealed(tmp_path / "r", document, stored(wrong))
        with pytest.raises(ReleaseFileError):
            load_release(tmp_path / "r")


def test_an_array_of_another_byte_order_is_read(tmp_path):
    document, array = document_and_array(FILES / "v1/laplace-replace-one.golden")
    (tmp_path / "npy").write_bytes(array)
    held = np.load(tmp_path / "npy")
    write_sealed(tmp_path / "r", document, stored(held.astype(held.dtype.newbyteorder("S"))))
    flat = load_release(tmp_path / "r").tables.flat
    assert flat.dtype == held.dtype
    assert (flat == held).all()


def test_nested_lists_are_no_recursion_error(tmp_path):
    document, array = document_and_array(FILES / "v1/laplace-replace-one.golden")
    text = json.dumps(edited(document, ("content", "total"), "HERE")).replace(
        '"HERE"', "[" * 10**5 + "]" * 10**5
    )
    with zipfile.ZipFile(tmp_path / "r", "w") as archive:
        archive.writestr("release.json", text)
        archive.writestr("tables.npy", array)
    with pytest.raises(ReleaseFileError, match="not a complete release file"):
        load_release(tmp_path / "r")


def peak_of_load(path, **settings) -> tuple[int, str]:
    """Bytes that a load took before it was refused, and what it said."""
    tracemalloc.start()
    try:
        with pytest.raises(ReleaseFileError) as refused:
            load_release(path, **settings)
        return tracemalloc.get_traced_memory()[1], str(refused.value)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("member", ["release.json", "tables.npy"])
def test_a_small_file_that_unpacks_to_much_is_refused_before_it_is_unpacked(tmp_path, member):
    document, array = document_and_array(FILES / "v1/laplace-replace-one.golden")
    held = {"release.json": json.dumps(document).encode(), "tables.npy": array}
    held[member] += b" " * (24 << 20)
    with zipfile.ZipFile(tmp_path / "r", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in held.items():
            archive.writestr(name, content)
    peak, message = peak_of_load(tmp_path / "r", largest=16 << 20)
    assert peak < 4 << 20
    assert "pass a larger `largest`" in message


def test_a_header_that_lies_about_a_members_size_costs_no_memory(tmp_path):
    document, array = document_and_array(FILES / "v1/laplace-replace-one.golden")
    size = 64 << 20
    with zipfile.ZipFile(tmp_path / "r", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("release.json", json.dumps(document))
        archive.writestr("tables.npy", array + b"\0" * (size - len(array)))
    whole = (tmp_path / "r").read_bytes()
    assert (
        whole.count(struct.pack("<I", size)) == 2
    )  # once before the member, once in the directory
    (tmp_path / "r").write_bytes(
        whole.replace(struct.pack("<I", size), struct.pack("<I", len(array)))
    )
    peak, message = peak_of_load(tmp_path / "r")
    assert peak < 4 << 20
    assert "not a complete release file" in message


def test_more_may_be_allowed_to_a_file_that_is_trusted(tmp_path):
    path = FILES / "v1/laplace-replace-one.golden"
    with pytest.raises(ReleaseFileError, match="larger `largest`"):
        load_release(path, largest=1000)
    assert load_release(path, largest=10**5) == load_release(path)
    for largest in (0, -1, "x", None, True, 1e9):
        with pytest.raises(ArgumentError, match="`largest`"):
            load_release(path, largest=largest)


@pytest.mark.parametrize("path", [5, None, "\0", "a\0b", ["a"], "\ud800"])
def test_what_is_no_path_is_refused_as_an_argument(path):
    with pytest.raises(ArgumentError, match="`path` must be"):
        load_release(path)


def test_a_path_that_no_file_can_have_and_a_folder_are_clear_errors(tmp_path):
    for path in ("a" * 300, tmp_path, tmp_path / "none"):
        with pytest.raises(ReleaseFileError):
            load_release(path)
    with pytest.raises(ArgumentError, match="path of a file"):
        load_release("")


@pytest.mark.parametrize("values", [0, None, [], {}, "x", np.array([1.0, 2.0]), {"epsilon": 1.0}])
def test_a_guarantee_is_made_of_its_own_values_alone(values):
    with pytest.raises(ArgumentError, match="`values` must be a mapping with form"):
        PrivacyGuarantee.from_dict(values)


def test_a_guarantee_whose_form_contradicts_its_numbers_is_refused():
    values = PrivacyGuarantee(epsilon=1.0, adjacency="replace-one").as_dict()
    assert PrivacyGuarantee.from_dict(values).epsilon == 1.0
    with pytest.raises(ArgumentError, match="`form` must be 'pure'"):
        PrivacyGuarantee.from_dict(values | {"form": "approximate"})


@pytest.mark.parametrize(
    "fields",
    [
        {"mechanism": 1},
        {"settings": "x"},
        {"simulated": 1},
        {"simulated": "no"},
        {"versions": None},
    ],
)
def test_a_provenance_has_the_types_that_it_states(fields):
    with pytest.raises(ArgumentError, match="of a provenance must be"):
        Provenance(**{"mechanism": "M"} | fields)
