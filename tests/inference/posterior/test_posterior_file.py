"""Posterior files: a loaded posterior answers as before, and other files are refused."""

import json
import shutil
from dataclasses import replace

import h5py
import numpy as np
import pandas as pd
import pytest
from inference.conftest import noisy_release, specification
from repeats import few

import bayesprivmrf as bpm
from bayesprivmrf.errors import ForeignFileError, NewerFormatError, ReleaseFileError
from bayesprivmrf.mechanisms import LaplaceStatistics
from bayesprivmrf.privacy import Laplace

pytestmark = pytest.mark.filterwarnings("ignore::bayesprivmrf.errors.SamplingWarning")
SHORT = {"draws": 40, "tune": 40, "chains": 2, "time_limit": 1e-9, "progress_bar": False}
STATES = {"a": [0, 1], "b": ["x", "y", "z"], "c": [True, False]}


def fitted(formulation="auto", **settings):
    rng = np.random.default_rng(0)
    data = pd.DataFrame({name: rng.choice(states, 200) for name, states in STATES.items()})
    network = bpm.declare(STATES, [("a", "b"), ("b", "c")])
    release = LaplaceStatistics(epsilon=1.0).release(network, data, rng=3)
    return bpm.LatentCounts(formulation=formulation, **settings).fit(release, rng=1, **SHORT)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A posterior of one table, which is read many times."""
    network = bpm.declare({name: STATES[name] for name in "ab"}, [("a", "b")])
    data = pd.DataFrame({"a": [0, 1, 1] * 20, "b": ["x", "y", "x"] * 20})
    release = LaplaceStatistics(epsilon=1.0).release(network, data, rng=3)
    posterior = bpm.LatentCounts().fit(release, rng=1, **SHORT)
    path = tmp_path_factory.mktemp("posterior") / "one.nc"
    posterior.save(path)
    return posterior, path


def odds(draw):
    table = draw.marginal(["a", "c"]).values
    return table[0, 0] * table[1, 1] / (table[0, 1] * table[1, 0])


@pytest.mark.parametrize("formulation", few(["log-linear", "auto", "hyper-dirichlet"]))
def test_a_loaded_posterior_answers_every_question_as_before(tmp_path, formulation):
    posterior = fitted(formulation)
    posterior.save(tmp_path / "p.nc")
    loaded = bpm.load_posterior(tmp_path / "p.nc")
    for asked in (["a", "b"], ["a", "c"]):
        pd.testing.assert_frame_equal(loaded.interval(asked), posterior.interval(asked))
    records = posterior.interval(["c", "b"], of="records")
    pd.testing.assert_frame_equal(loaded.interval(["c", "b"], of="records"), records)
    assert loaded.marginal(["c"], given={"a": 1}).equals(posterior.marginal(["c"], given={"a": 1}))
    assert loaded.quantity(odds, draws=20).draws.equals(posterior.quantity(odds, draws=20).draws)
    assert repr(loaded.summary()) == repr(posterior.summary())
    assert (loaded.status, loaded.stats["problems"]) == (
        posterior.status,
        posterior.stats["problems"],
    )
    np.testing.assert_equal(
        loaded.stats, posterior.stats
    )  # where NaN equals NaN: whole records have no E-BFMI
    assert loaded.sample(20, rng=1).equals(posterior.sample(20, rng=1))
    assert "posterior" in loaded.tree
    assert "bayesprivmrf" not in loaded.tree


def test_a_simulated_posterior_stays_one(saved):
    loaded = bpm.load_posterior(saved[1])
    assert loaded.is_simulated
    assert "SIMULATED" in repr(loaded)


def test_waves_come_back(tmp_path):
    rng = np.random.default_rng(1)
    model = specification({"a": [0, 1], "b": [0, 1]}, [("a", "b")])
    waves = [
        noisy_release(model, np.array([40.0, 10, 20, 30]), Laplace(1.0), rng) for _ in range(2)
    ]
    posterior = bpm.LatentCounts().fit(waves, population="waves", rng=1, **SHORT)
    posterior.save(tmp_path / "p.nc")
    loaded = bpm.load_posterior(tmp_path / "p.nc")
    asked = ["a", "wave"]
    pd.testing.assert_frame_equal(
        loaded.interval(asked, of="records"), posterior.interval(asked, of="records")
    )


def test_a_prior_that_was_fixed_comes_back(tmp_path):
    fitted("hyper-dirichlet", concentration=0.7, total_range=(10, 1e4)).save(tmp_path / "p.nc")
    loaded = bpm.load_posterior(tmp_path / "p.nc")
    assert loaded.stats["concentration"] == 0.7
    assert loaded.pymc_model["total"] is not None


def test_a_panel_with_the_prior_of_an_earlier_version_says_so(tmp_path):
    """Its visits had margins of their own, so `pymc_model` is another model than that of the draws."""
    scopes = [("a", "b"), ("c", "b")]
    network = bpm.declare({name: [2, 0, 1] for name in "abc"}, scopes)
    rng = np.random.default_rng(4)
    tables = {scope: np.diag([30, 20, 10]) + rng.laplace(0.0, 2.0, (3, 3)) for scope in scopes}
    release = bpm.NoisyStatistics.from_tables(network, tables, noise=Laplace(2.0))
    posterior = bpm.LatentCounts(formulation="hyper-dirichlet").fit(release, rng=1, **SHORT)
    known = {k: v for k, v in posterior.stats.items() if not k.startswith("log_margins_spread")}
    for name, stats in (("new", posterior.stats), ("old", known)):
        replace(posterior, stats=stats).save(tmp_path / name)
    assert bpm.load_posterior(tmp_path / "new").problems == posterior.problems
    assert "earlier version" in bpm.load_posterior(tmp_path / "old").problems[-1]


def test_arviz_reads_the_file(saved):
    import arviz as az

    assert "posterior" in az.from_netcdf(saved[1])


def altered(path, folder, change):
    """A copy of a file after a change by HDF5."""
    copy = folder / "copy.nc"
    shutil.copy(path, copy)
    with h5py.File(copy, "r+") as file:
        change(file)
    return copy


def _forget_the_mark(file):
    file.attrs["simulated"] = 0


def _move_a_draw(file):
    file["posterior"]["marginal[a,b]"][0, 0, 0, 0] += 0.25


def _name_another_status(file):
    document = json.loads(file["bayesprivmrf"].attrs["document"])
    file["bayesprivmrf"].attrs["document"] = json.dumps(
        document | {"status": "converged", "formulation": "x"}
    )


def _link_outwards(file):
    file["posterior"]["leak"] = h5py.ExternalLink("/etc/hostname", "/")


def _drop_a_table(file):
    del file["posterior"]["counts[a,b]"]


@pytest.mark.parametrize(
    "change", [_forget_the_mark, _move_a_draw, _name_another_status, _link_outwards, _drop_a_table]
)
def test_an_altered_file_is_refused(saved, tmp_path, change):
    with pytest.raises(ReleaseFileError, match="not a posterior that can be read"):
        bpm.load_posterior(altered(saved[1], tmp_path, change))


def test_a_file_of_another_kind_is_refused_by_name(saved, tmp_path):
    (tmp_path / "text").write_text("a,b\n")
    with pytest.raises(ForeignFileError):
        bpm.load_posterior(tmp_path / "text")
    saved[0].tree.to_netcdf(tmp_path / "tree.nc", engine="h5netcdf")
    with pytest.raises(ForeignFileError, match="arviz"):
        bpm.load_posterior(tmp_path / "tree.nc")
    with pytest.raises(ReleaseFileError, match=r"^there is no posterior file at '.*nothing\.nc'"):
        bpm.load_posterior(tmp_path / "nothing.nc")
    (tmp_path / "half.nc").write_bytes(saved[1].read_bytes()[:20_000])
    with pytest.raises(ReleaseFileError):
        bpm.load_posterior(tmp_path / "half.nc")


def test_a_newer_file_and_one_that_is_too_large_are_refused(saved, tmp_path):
    newer = altered(saved[1], tmp_path, lambda file: file.attrs.modify("format_version", 99))
    with pytest.raises(NewerFormatError, match="upgrade"):
        bpm.load_posterior(newer)
    with pytest.raises(ReleaseFileError, match="`largest="):
        bpm.load_posterior(saved[1], largest=1000)


def test_the_model_of_pymc_is_one_object_that_keeps_what_is_added():
    import pymc as pm

    posterior = fitted("hyper-dirichlet")
    with posterior.pymc_model:
        pm.Potential("mild", -posterior.pymc_model["total"] / 1e6)
    assert "mild" in posterior.pymc_model.named_vars
    assert posterior.pymc_model is posterior.pymc_model
    other = fitted("log-linear")
    with posterior.pymc_model:
        assert "mild" not in other.pymc_model.named_vars
