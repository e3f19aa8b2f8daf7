"""A release kind is open all the way: it registers, is saved and read, or is refused before a budget is spent."""

import base64
import json
import subprocess
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bayesprivmrf import load_release
from bayesprivmrf.cli import main
from bayesprivmrf.errors import ReleaseFileError
from bayesprivmrf.mechanisms import Mechanism
from bayesprivmrf.privacy import DiscreteLaplace, PrivacyGuarantee
from bayesprivmrf.release import RELEASE_KINDS, Provenance, Released

from .nasty import document_and_array, write_sealed

FILES = Path(__file__).parents[1] / "golden" / "files"
GUARANTEE = PrivacyGuarantee(epsilon=1.0, adjacency="add-or-remove-one")


@dataclass(frozen=True, repr=False, kw_only=True)
class NoisyCount(Released):
    records: int
    noise: DiscreteLaplace
    guarantee: PrivacyGuarantee
    provenance: Provenance

    kind = "counted-records"

    def _content(self):
        return {"records": self.records, "noise": self.noise.as_dict()}

    @classmethod
    def _restored(cls, content, array, **stamp):
        return cls(records=content.whole("records", -(10**12)), noise=content.law("noise"), **stamp)

    def _facts(self):
        return [("records", f"about {self.records}"), ("privacy", self.privacy_statement())]


@dataclass(frozen=True, repr=False, kw_only=True)
class Nameless(Released):
    guarantee: PrivacyGuarantee
    provenance: Provenance

    def _facts(self):
        return [("privacy", self.privacy_statement())]


class CountsRecords(Mechanism[Any, DiscreteLaplace, np.ndarray, NoisyCount]):
    """The number of records, with the noise of its plan."""

    runs_from_file = True
    releases = (NoisyCount,)

    def _read(self, plan, data):
        return np.array([len(data)])

    def _randomise(self, plan, exact, source, stamp):
        noisy = int(source.add(exact, plan)[0])
        return NoisyCount(
            records=noisy, noise=plan, guarantee=stamp.guarantee, provenance=stamp.provenance
        )


@dataclass(frozen=True, kw_only=True)
class RecordCount(CountsRecords):
    epsilon: float

    def _prepare(self, network):
        return DiscreteLaplace(1.5 / self.epsilon)

    def _guarantee(self, plan):
        return PrivacyGuarantee(epsilon=self.epsilon, adjacency="add-or-remove-one")


class NamelessCount(RecordCount):
    releases = (Nameless,)

    def _read(self, plan, data):
        raise AssertionError("the data was read")


class SilentCount(NamelessCount):
    releases = ()


class PlainCount(NamelessCount):
    releases = (Provenance,)


def count(**changes):
    given = {
        "records": 12,
        "noise": DiscreteLaplace(1.5),
        "guarantee": GUARANTEE,
        "provenance": PROVENANCE,
    }
    return NoisyCount(**given | changes)


PROVENANCE = Provenance(mechanism="RecordCount", settings={"epsilon": 1.0})


def test_a_kind_of_another_package_is_saved_and_read(tmp_path):
    count().save(tmp_path / "r")
    assert load_release(tmp_path / "r") == count()


def test_a_release_without_a_kind_cannot_be_saved_and_stays_as_it_was(tmp_path):
    given = Nameless(guarantee=GUARANTEE, provenance=PROVENANCE)
    with pytest.raises(ReleaseFileError, match="Nameless, to be saved, must name its kind"):
        given.save(tmp_path / "r")
    assert not list(tmp_path.iterdir())
    assert "epsilon = 1" in repr(given)


def test_a_kind_that_is_read_back_as_another_release_cannot_be_saved(tmp_path):
    @dataclass(frozen=True, repr=False, kw_only=True)
    class Forgetful(NoisyCount):
        kind = "forgetful-count"

        @classmethod
        def _restored(cls, content, array, **stamp):
            return cls(records=0, noise=content.law("noise"), **stamp)

    @dataclass(frozen=True, repr=False, kw_only=True)
    class Changed(NoisyCount):
        kind = "changed-count"

        @classmethod
        def _restored(cls, content, array, **stamp):
            return NoisyCount._restored(content, array, **stamp)

    for kind in (Forgetful, Changed):
        given = kind(
            records=12, noise=DiscreteLaplace(1.5), guarantee=GUARANTEE, provenance=PROVENANCE
        )
        with pytest.raises(
            ReleaseFileError, match="reading it back gives another release; correct its kind's"
        ):
            given.save(tmp_path / "r")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["", 3])
def test_a_kind_has_a_name(name):
    hooks = {name: vars(NoisyCount)[name] for name in ("_content", "_restored")}
    with pytest.raises(TypeError, match="must have a `kind` that is text"):
        type("Nameless", (Released,), {"kind": name} | hooks)


def test_a_kind_must_say_how_it_is_written_and_be_the_only_one_of_its_name():
    hooks = {name: vars(NoisyCount)[name] for name in ("_content", "_restored")}
    for missing in hooks:
        with pytest.raises(TypeError, match="must supply `_content` and `_restored`"):
            type(
                "Half",
                (Released,),
                {"kind": "half"} | {n: h for n, h in hooks.items() if n != missing},
            )
    with pytest.raises(TypeError, match=r"another kind than 'noisy-statistics', which .*NoisyStat"):
        type("Usurper", (Released,), {"kind": "noisy-statistics"} | hooks)
    again = type(
        "NoisyCount", (Released,), {"kind": "counted-records", "__module__": __name__} | hooks
    )
    try:
        assert (
            RELEASE_KINDS.find("counted-records") is again
        )  # as when a notebook's cell is run again
    finally:
        RELEASE_KINDS.add("counted-records", NoisyCount)


PLUGIN = f"from {__name__} import NoisyCount\nclass Made(NoisyCount):\n    kind = 'plugged-True'\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (PLUGIN, None),
        ("", "'counting_plugin:Made'.*AttributeError"),
        ("import no_such_module", "'counting_plugin:Made'.*No module named 'no_such_module'"),
        (None, "no installed package provides its kind, 'plugged-False'; install"),
    ],
)
def test_a_kind_that_was_not_imported_is_found_by_its_entry_point(
    tmp_path, monkeypatch, text, said
):
    count().save(tmp_path / "r")
    document, array = document_and_array(tmp_path / "r")
    kind = document["content"]["kind"] = f"plugged-{text is PLUGIN}"
    write_sealed(tmp_path / "r", document, array)
    if text is not None:
        folder = tmp_path / "counting_plugin-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text("Name: counting-plugin\nVersion: 1.0\n")
        listed = f"[bayesprivmrf.releases]\n{kind} = counting_plugin:Made\n"
        (folder / "entry_points.txt").write_text(listed)
        (tmp_path / "counting_plugin.py").write_text(text)
        monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "counting_plugin", raising=False)
    if said is None:
        found = load_release(tmp_path / "r")
        assert (found.kind, found.records) == (kind, count().records)
        return
    with pytest.raises(ReleaseFileError, match=said):
        load_release(tmp_path / "r")


def kinds_of(base):
    """Classes below another one that name a kind."""
    for made in base.__subclasses__():
        if "kind" in vars(made):
            yield made
        yield from kinds_of(made)


def test_entry_points_bring_the_library_s_own_kinds():
    found = {}
    for group in ("bayesprivmrf.releases", "bayesprivmrf.learning_maps"):
        for point in metadata.entry_points(group=group):
            assert point.load().kind == point.name
            found[point.name] = point.load()
    own = {made.kind for made in kinds_of(Released) if made.__module__.startswith("bayesprivmrf.")}
    assert own - {"noisy-statistics", "noisy-measurements"} == {
        kind for kind, made in found.items() if issubclass(made, Released)
    }


def test_a_fresh_process_reads_a_learned_model_with_its_map():
    code = "import sys, bayesprivmrf as b; print(b.load_release(sys.argv[1]).map.kind)"
    path = FILES / "v3" / "ising-frank-wolfe.golden"
    found = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True)
    assert (found.stdout.strip(), found.stderr) == ("pair-regressions", "")


MODEL = """
cliques = [["a"]]
[variables.a]
states = ["x", "y"]
"""


@pytest.fixture
def toy(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("model.toml").write_text(MODEL)
    Path("data.csv").write_text("a\n" + "x\ny\n" * 50)
    return tmp_path


@pytest.fixture
def installed(install):
    """Let the command line find mechanisms and their kind of release by entry points."""
    made = {
        "count": RecordCount,
        "nameless": NamelessCount,
        "silent": SilentCount,
        "plain": PlainCount,
    }
    install("bayesprivmrf.mechanisms", made)
    install("bayesprivmrf.releases", {"counted-records": NoisyCount})
    return install


COMMAND = (
    "release",
    "data.csv",
    "--model",
    "model.toml",
    "--epsilon",
    "1",
    "--out",
    "count.release",
)


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("form", [(), ("--json",)])
def test_the_command_line_saves_a_kind_of_another_package(toy, capsys, form):
    assert main([*COMMAND, "--mechanism", "count", *form]) == 0
    said = capsys.readouterr().out
    release = load_release("count.release")
    if form:
        told = json.loads(said)
        assert (told["kind"], told["records"]) == ("counted-records", release.records)
    assert isinstance(release, NoisyCount)
    assert not release.provenance.simulated
    assert abs(release.records - 100) < 60  # exp(-40) and less


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("name", ["nameless", "silent", "plain"])
def test_the_command_line_refuses_a_release_that_cannot_be_saved_before_it_reads_data(
    toy, capsys, name
):
    assert main([*COMMAND, "--mechanism", name]) == 1
    said = capsys.readouterr()
    assert "must be one whose release can be saved" in said.err
    assert said.out == ""
    assert not Path("count.release").exists()


def test_the_command_line_refuses_a_kind_that_is_not_listed_under_its_name_before_it_reads_data(
    toy, installed, capsys
):
    for classes, status in (({}, 1), ({"counted-records": NoisyCount}, 0)):
        installed("bayesprivmrf.releases", classes)
        assert main([*COMMAND, "--mechanism", "count"]) == status
    said = capsys.readouterr().err
    assert (
        "NoisyCount must be listed as 'counted-records', its own name, in the entry-point group"
        in said
    )
    installed("bayesprivmrf.releases", {"counted-records": RecordCount})
    assert main([*COMMAND, "--mechanism", "count", "--force"]) == 1


@dataclass(frozen=True, kw_only=True)
class DeltaCount(CountsRecords):
    delta: float

    def _prepare(self, network):
        return DiscreteLaplace(1.5)

    def _guarantee(self, plan):
        return PrivacyGuarantee(epsilon=0.0, delta=self.delta, adjacency="add-or-remove-one")


def test_a_mechanism_whose_budget_is_a_setting_runs_from_the_command_line(toy, installed, capsys):
    installed("bayesprivmrf.mechanisms", {"count": DeltaCount})
    head, tail = COMMAND[:4], COMMAND[6:]
    given = ["--mechanism", "count", "--set", "delta=0.01"]
    for budget in ("--epsilon", "--rho"):
        assert main([*head, *tail, budget, "1", *given]) == 1
        said = capsys.readouterr().err
        assert (
            f"takes no `{budget}`; give it its budget by `--set`, such as `--set delta=...`" in said
        )
    assert main(["plan", "--model", "model.toml", *given]) == 0
    assert "delta = 0.01" in capsys.readouterr().out
    assert main([*head, *tail, *given]) == 0
    assert load_release("count.release").guarantee.delta == 0.01
    with pytest.raises(SystemExit):
        main([*head, *tail, *given[:2]])
    assert "one of the arguments --epsilon --rho is required" in capsys.readouterr().err


FULL = """
import os, resource, sys
sys.path.insert(0, {folder!r})
from bayesprivmrf import kinds as registers, mechanisms
from release import test_kinds as kinds
limit = lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

class Filling(kinds.RecordCount):
    def _randomise(self, *given):
        release = super()._randomise(*given)
        print("drawn", release.records, file=sys.stderr)
        limit(300)
        return release

point = lambda made: [type("P", (), dict(name="count", value="", load=lambda self: made))()]
mechanisms.installed = lambda group: point(Filling)
registers.entry_points = lambda group, name: point(kinds.NoisyCount)
def release_of(size):
    limit(size)
    code = kinds.main([*kinds.COMMAND, "--mechanism", "count"])
    print("code", code, *sorted(os.listdir()), file=sys.stderr)

release_of(2000)
print("the disk fills later", file=sys.stderr)
release_of(2**30)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX limits")
def test_on_a_full_disk_no_noise_is_drawn_and_where_it_fills_meanwhile_the_release_is_printed(toy):
    script = FULL.format(folder=str(Path(__file__).parents[1]))
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    full, fills = found.stderr.split("the disk fills later\n")
    for said in (full, fills):
        assert "code 1 data.csv model.toml" in said
    assert "must have space for a release of up to 1," in full
    assert "'count.release' (File too large)" in full
    assert "drawn" not in full
    # so what was printed is of the second call
    assert "'count.release' cannot be written (File too large)" in fills
    assert "The budget is spent" in fills
    Path("release.txt").write_text(found.stdout)
    decode = [sys.executable, "-m", "base64", "-d", "release.txt"]  # as the message says
    Path("count.release").write_bytes(
        subprocess.run(decode, capture_output=True, check=True).stdout
    )
    assert f"drawn {load_release('count.release').records}" in fills
    assert Path("count.release").read_bytes() == base64.b64decode(found.stdout)
