"""The command line as a whole: usage, failures, and files that no command writes over."""

from __future__ import annotations

import shutil

import pytest
from cli.toy import RELEASE, run

from bayesprivmrf.cli import guarded, main


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"--epsilon": "0"}, "`epsilon`"),
        ({"--epsilon": "-1"}, "`epsilon`"),
        ({"--epsilon": "nan"}, "`epsilon`"),
        ({"--model": "none.toml"}, "none.toml"),
        ({"--mechanism": "magic"}, "laplace"),
        ({"--mechanism": "magic"}, "call other mechanisms from Python, or install"),
        ({"--mechanism": "selectmeasure"}, "did you mean 'select-measure'"),
        ({"--mechanism": "objective-perturbation"}, "must be one of dpsgd, frank-wolfe, "),
        ({"--mechanism": "gaussian"}, "--rho"),
        ({"--set": "rho=3"}, "use `--rho 3`"),
        ({"--set": "adjacency=replace-one"}, "use `--adjacency replace-one`"),
    ],
)
def test_a_users_mistake_is_one_line_and_code_one(toy, capsys, change, message):
    options = {"--model": "model.toml", "--epsilon": "1", "--out": "toy.release"} | change
    code, out, err = run(
        capsys, "release", "data.csv", *(text for pair in options.items() for text in pair)
    )
    assert (code, out) == (1, "")
    assert message in err
    assert len(err.strip().splitlines()) == 1
    assert not (toy / "toy.release").exists()


@pytest.mark.parametrize(
    ("failure", "expected", "word"),
    [
        (RuntimeError("secret"), 1, "RuntimeError"),
        (type("PanicException", (BaseException,), {})("secret"), 1, "PanicException"),
        (MemoryError("secret"), 1, "MemoryError"),
        (KeyboardInterrupt("secret"), 130, "interrupted"),
    ],
)
def test_an_unexpected_failure_prints_its_kind_alone(capsys, failure, expected, word):
    def fail():
        raise failure

    assert guarded(fail) == expected
    out, err = capsys.readouterr()
    assert not out
    assert word in err
    assert "secret" not in err
    assert len(err.strip().splitlines()) == 1


def test_no_command_writes_over_what_it_reads(toy, capsys):
    (toy / "link").symlink_to("data.csv")
    (toy / "found").mkdir()
    shutil.copy("data.csv", "found/comparison.csv")
    for source, target in (
        ("data.csv", "data.csv"),
        ("data.csv", "link"),
        ("data.csv", "model.toml"),
    ):
        before = (toy / target).read_bytes()
        for force in ((), ("--force",)):
            code, _, err = run(capsys, "release", source, *RELEASE[2:-1], target, *force)
            assert code == 1
            assert "file that the command reads" in err
            assert (toy / target).read_bytes() == before
    code, _, err = run(
        capsys,
        "compare",
        "found/comparison.csv",
        "--model",
        "model.toml",
        "--out",
        "found",
        "--seed",
        "1",
    )
    assert code == 1
    assert "file that the command reads" in err
    assert (toy / "found" / "comparison.csv").read_bytes() == (toy / "data.csv").read_bytes()


def test_wrong_usage_is_code_two(toy, capsys):
    run(capsys, *RELEASE)
    fit = ["fit", "toy.release"]
    for arguments, words in [
        (["compare", "data.csv"], "--model"),
        (["release", "data.csv"], "required"),
        ([], "required"),
        (["compare", "--seed", "-1"], "at least 0"),
        (["compare", "--methods", "magic"], "choose from"),
        (["compare", "--methods", "posterior", "--inference", "loopy"], "needs --inference exact"),
        ([*fit, "--method", "posterior", "--inference", "loopy"], "exact marginals"),
        ([*fit, "--method", "posterior", "--draws", "0"], "at least 1"),
        ([*fit, "--method", "posterior", "--prob", "90"], "above 0 and below 1"),
        ([*fit, "--method", "posterior", "--prob", "nan"], "above 0 and below 1"),
        ([*fit, "--seed", "0"], "such as posterior, got noise-aware"),
        ([*fit, "--method", "noise-aware", "--chains", "2"], "such as posterior"),
        ([*fit, "--method", "cgm", "--prob", "0.5"], "has intervals"),
    ]:
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        assert caught.value.code == 2
        refusal, remedy = capsys.readouterr().err.splitlines()
        assert words in refusal
        assert remedy == " ".join(["see bayesprivmrf", *arguments[:1], "--help"])


@pytest.mark.parametrize("arguments", [[], ["cgm-fig2", "--quick"], ["--help"]])
def test_the_papers_figures_are_said_to_be_made_elsewhere(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        main(["reproduce", *arguments])
    assert caught.value.code == 2
    refusal, _ = capsys.readouterr().err.splitlines()
    assert "`uv run python -m benchmarks.papers`" in refusal
