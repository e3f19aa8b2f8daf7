"""`bayesprivmrf fit --method posterior`: intervals, trees and files of a posterior."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from cli.toy import RELEASE, run

from bayesprivmrf.inference import Status

POSTERIOR = (
    "fit",
    "toy.release",
    "--method",
    "posterior",
    "--seed",
    "1",
    "--draws",
    "200",
    "--chains",
    "2",
)


@pytest.mark.slow  # compiles a posterior
def test_a_posterior_is_printed_with_intervals_and_written_as_a_tree(toy, capsys):
    import arviz as az

    run(capsys, *RELEASE)
    code, out, _ = run(capsys, *POSTERIOR, "--prob", "0.5", "--out", "found.nc", "--json")
    assert code == 0
    found = json.loads(out)
    assert (found["method"], found["seed"], found["prob"]) == ("posterior", 1, 0.5)
    assert found["status"] in {status.value for status in Status}
    tree = az.from_netcdf("found.nc")
    drawn = tree["posterior"]["marginal[a,b]"]
    assert dict(drawn.sizes) == {"chain": 2, "draw": 200, "a": 2, "b": 2}
    assert tree.attrs["simulated"] == 0
    assert "epsilon = 5" in tree.attrs["privacy"].replace("ε", "epsilon")
    table = found["marginals"][0]
    np.testing.assert_allclose(table["estimate"], drawn.mean(("chain", "draw")), atol=1e-12)
    for name, level in (("lower", 0.25), ("upper", 0.75)):
        np.testing.assert_allclose(
            table[name], drawn.quantile(level, ("chain", "draw")), atol=1e-12
        )
    again = json.loads(run(capsys, *POSTERIOR, "--prob", "0.5", "--json")[1])
    assert again["marginals"] == found["marginals"]
    other = json.loads(run(capsys, *POSTERIOR[:-5], "2", *POSTERIOR[-4:], "--json")[1])
    assert other["marginals"] != found["marginals"]
    shown = run(capsys, *POSTERIOR)[1]
    assert "90 % intervals, sampled with seed 1" in shown
    assert shown.count("\nc  ") == 3  # a row for each state of c


def test_a_posteriors_file_is_checked_before_sampling_and_replaced_only_when_forced(
    toy, capsys, monkeypatch
):
    from bayesprivmrf.cli import fit

    run(capsys, *RELEASE)
    (toy / "kept.nc").write_text("kept")
    shutil.copy("toy.release", "release.nc")

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("it was fitted")

    with monkeypatch.context() as patched:
        patched.setattr(fit, "fitted", refuse)
        for source, out, words in [
            ("toy.release", "kept.nc", "--force"),
            ("toy.release", "folder", "ends in .nc"),
            ("toy.release", "nowhere/x.nc", "existing folder"),
            ("release.nc", "release.nc", "file that the command reads"),
        ]:
            code, printed, err = run(capsys, "fit", source, *POSTERIOR[2:], "--out", out)
            assert (code, printed) == (1, "")
            assert words in err
    assert (toy / "kept.nc").read_text() == "kept"


@pytest.mark.slow  # compiles a posterior
def test_a_posteriors_file_is_replaced_whole(toy, capsys):
    run(capsys, *RELEASE)
    (toy / "kept.nc").write_text("kept")
    assert run(capsys, *POSTERIOR, "--out", "kept.nc", "--force")[0] == 0
    assert (toy / "kept.nc").read_bytes() != b"kept"
    assert not list(toy.glob(".bayesprivmrf-*"))


@pytest.mark.slow  # compiles a posterior
def test_an_unconverged_posterior_ends_well_with_its_status_and_one_warning(toy, capsys):
    run(capsys, *RELEASE)
    code, out, err = run(capsys, *POSTERIOR[:-3], "8", *POSTERIOR[-2:], "--json")
    assert code == 0
    assert json.loads(out)["status"] != "converged"
    (line,) = err.strip().splitlines()
    assert line.startswith("bayesprivmrf: warning: ")
    assert "raise `--draws`" in line  # what one can do here, not in Python
    assert "posterior.stats" not in line
