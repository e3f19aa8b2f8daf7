"""Names and states of a forged file reach no terminal as they are, in any text, HTML, error or command."""

import re
import warnings

import numpy as np
import pandas as pd
import pytest
from inference.posterior.drawn import drawn_posterior
from notebook import html_of

import bayesprivmrf as bpm
from bayesprivmrf import cli, errors, sequences
from bayesprivmrf import queries as q
from bayesprivmrf.mechanisms import LaplaceStatistics, SelectMeasure, reference
from bayesprivmrf.noise import Laplace

A, B, C = "a\x1b[2J", "b\nstatus: converged", "\u202ec\x9b1m"
STATES = {
    A: ["x\r\x07", "y\x7f\u2029"],
    B: [("t\x1b[31m", 1), ("z\x1b]0;pwn\x07", 2)],
    C: ["u", "v\x08"],
}
CLIQUES = [(A, B), (B, C)]
# all controls but the line feed, which a text of several lines has; and what turns the direction of writing
RAW = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def records(size=2000):
    """Records in which the variables depend on each other."""
    rng = np.random.default_rng(1)
    code, columns = rng.integers(2, size=size), {}
    for name, states in STATES.items():
        cells = np.empty(2, dtype=object)
        cells[:] = states
        columns[name] = cells[np.where(rng.random(size) < 0.8, code, 1 - code)]
    return pd.DataFrame(columns)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Files that somebody may have forged: a release of tables, and a learned model."""
    here = tmp_path_factory.mktemp("forged")
    LaplaceStatistics(epsilon=1.0).release(bpm.declare(STATES, CLIQUES), records(), rng=1).save(
        here / "tables"
    )
    SelectMeasure(rho=0.5).release(bpm.declare(STATES), records(), rng=1).save(here / "learned")
    return here


def require_escaped(*shown):
    """Require that text, HTML and other printed forms hold no control character and no forged line."""
    for value in shown:
        texts = [value] if isinstance(value, str) else [repr(value), str(value)]
        if hasattr(value, "_repr_html_"):
            texts.append(html_of(value))
        if isinstance(value, pd.DataFrame | pd.Series):
            texts.append(value.to_string())
        for text in texts:
            assert not RAW.search(text), ascii(text)
            assert not re.search("^ *status: converged", text, re.MULTILINE), ascii(text)


def test_cards_tables_and_frames_of_fits(folder):
    release = bpm.load_release(folder / "tables")
    require_escaped(
        release, release.privacy_statement(), release.specification, *release.measurements
    )
    for fit in (
        bpm.NoiseAwareMAP().fit(release),
        bpm.NaiveMLE().fit(release),
        bpm.CGM().fit(release),
    ):
        require_escaped(
            fit, fit.marginal([A, B]), fit.marginal(A, given={C: "u"}), fit.marginals, fit.network
        )
        require_escaped(
            fit.sample(5, rng=1), *fit.problems, *fit.assumptions, fit.marginals.to_xarray((A, B))
        )
        require_escaped(bpm.compare({"fit": fit}, truth=fit))
    fit = bpm.NoiseAwareMAP().fit(release)
    for asked in ([A, B], [A], [A, C], [B], q.table(A, B)):
        frame = fit.interval(asked)
        require_escaped(
            frame, frame["estimate"], frame.loc[frame["estimate"] > 0], frame.reset_index()
        )
        require_escaped(fit.interval(asked, of="records"), frame.drop(columns="lower"), frame.T)
    # the labels are as declared, so that rows are found by them
    assert fit.interval(A).loc["x\r\x07", "estimate"] > 0
    assert type(bpm.NoiseAwareMAP().fit(plain_release()).interval("a")) is pd.DataFrame


def plain_release():
    network = bpm.declare({"a": ["é", "日本"]}, [("a",)])
    return bpm.NoisyStatistics.from_tables(network, {"a": [50, 50]}, noise=Laplace(2.0))


def test_posteriors(folder, tmp_path):
    posterior = drawn_posterior(bpm.load_release(folder / "tables"), 12)
    posterior.save(tmp_path / "it.nc")
    for one in (posterior, bpm.load_posterior(tmp_path / "it.nc")):
        require_escaped(
            one,
            one.tree,
            one.tree["posterior"].to_dataset(),
            one.interval([A, B]),
            one.marginal([A, C]),
        )
        require_escaped(
            one.interval([B, C], of="records"),
            one.interval([A], given={B: [("z\x1b]0;pwn\x07", 2)]}),
        )
        quantity = one.quantity(lambda draw: draw.marginal([A, B]))
        require_escaped(
            quantity, quantity.frame, quantity.estimate, one.probability({A: "x\r\x07"})
        )
        require_escaped(
            one.summary(),
            one.edge_presence(0.1),
            one.predictive_check(rng=1),
            one.synthetic(2, 5, rng=1)[0],
        )


def test_learned_models(folder):
    learned = bpm.load_release(folder / "learned")
    require_escaped(
        learned, learned.solution, learned.interval([A, B]), learned.interval([C], of="records")
    )
    require_escaped(
        learned.association(A, B), learned.graph(), learned.network, learned.sample(5, rng=1)
    )
    require_escaped(*learned.problems, *learned.assumptions, str(learned.summary()))


def test_previews_chains_and_references():
    network = bpm.declare(STATES, CLIQUES)
    require_escaped(
        LaplaceStatistics(epsilon=1.0).preview(network, 400),
        SelectMeasure(rho=0.5).preview(network, 400),
    )
    exact = reference(network, records())
    require_escaped(exact, exact.marginal([A, B]), exact.sample(4, rng=1))
    chain = bpm.markov_chain(["s\x1b[2J", "t"], 4, names=[f"m{k}\x1b" for k in range(4)])
    fit = bpm.NoiseAwareMAP().fit(
        LaplaceStatistics(epsilon=1.0).release(
            chain, bpm.uniform_solution(chain).sample(200, rng=1), rng=1
        )
    )
    require_escaped(sequences.transition_matrix(fit, step=1), sequences.stationary_law(fit, step=1))


def test_errors_and_warnings(folder):
    fit = bpm.NoiseAwareMAP().fit(bpm.load_release(folder / "tables"))
    asks = (
        lambda: fit.interval("no\x1b[2J"),
        lambda: fit.marginal(A, given={B: "none\x1b"}),
        lambda: fit.marginal(A, given={A: "u"}),
        lambda: fit.interval(q.table(A, "no\x1b")),
        lambda: bpm.declare(STATES, [(A, "q\x1b")]),
        lambda: bpm.declare({A: ["x", "x"]}, [(A,)]),
        lambda: LaplaceStatistics(epsilon=1.0).release(
            bpm.declare(STATES, CLIQUES), records()[[A]]
        ),
        lambda: bpm.load_release(folder / "no\x1b[2J"),
    )
    for ask in asks:
        with pytest.raises(errors.BayesPrivMRFError) as caught:
            ask()
        require_escaped(str(caught.value), caught.value.at_command_line)
    kinds = [
        each
        for each in vars(errors).values()
        if isinstance(each, type) and issubclass(each, Exception)
    ]
    assert len(kinds) > 15
    for kind in kinds:
        with warnings.catch_warnings():
            require_escaped(str(kind(f"of {A}")))


def test_commands(folder, capsys, tmp_path):
    commands = [
        ["fit", str(folder / name), *more]
        for name in ("tables", "learned")
        for more in ([], ["--json"])
    ]
    commands += [
        ["fit", str(folder / "tables"), "--method", "naive-mle", "--out", str(tmp_path / "fit")]
    ]
    commands += [["audit", str(folder / "tables"), "--quick"], ["fit", str(folder / "no\x1b[2J")]]
    for command in commands:
        try:
            cli.main(command)
        except SystemExit:  # an option that this command does not have
            capsys.readouterr()
            continue
        require_escaped(*capsys.readouterr())


def test_problems_assumptions_and_notes_of_restricted_and_contradicted_fits():
    network = bpm.declare(STATES, CLIQUES, ordinal=[A, B])
    noise, tables = Laplace(1.0), {(A, B): np.full((2, 2), 50.0), (B, C): np.eye(2) * 100}
    release = bpm.NoisyStatistics.from_tables(network, tables, noise=noise)
    other = bpm.NoisyStatistics.from_tables(
        network, {**tables, (A, B): np.diag([190.0, 10.0])}, noise=noise
    )
    with pytest.warns(errors.ConsistencyWarning) as caught:
        fit = bpm.NoiseAwareMAP().fit([release, other])
    assert fit.problems
    require_escaped(*fit.problems, *fit.assumptions, *(str(one.message) for one in caught))
    require_escaped(*fit.interval([A, C])["note"], fit)
