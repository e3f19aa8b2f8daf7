"""Marks of simulated releases on everything made from them, and files that cannot imitate printed output."""

import dataclasses
import itertools
import json
import re
import warnings

import numpy as np
import pandas as pd
import pytest
from IPython.core.formatters import HTMLFormatter
from scipy.stats import norm

import bayesprivmrf as bpm
from bayesprivmrf import cli
from bayesprivmrf import queries as q
from bayesprivmrf.audit import privacy_loss
from bayesprivmrf.errors import ArgumentError, GuaranteeWarning, ReleaseFileError, SamplingWarning
from bayesprivmrf.mechanisms import (
    GaussianStatistics,
    LaplaceStatistics,
    ParityQueries,
    SelectMeasure,
)
from bayesprivmrf.noise import DiscreteGaussian, DiscreteLaplace, Gaussian, Laplace
from bayesprivmrf.privacy import PrivacyGuarantee
from bayesprivmrf.release import Measurement, NoisyStatistics, Provenance

from .nasty import document_and_array, write_sealed

STATES = {"a": ["x", "y"], "b": ["x", "y"], "c": ["x", "y"]}
NETWORK = bpm.declare(STATES, [("a", "b"), ("b", "c")])
PEOPLE = pd.DataFrame(np.random.default_rng(1).choice(["x", "y"], (400, 3)), columns=list(STATES))


def marks_of(made):
    return made.graph if hasattr(made, "add_edge") else made.attrs


@pytest.mark.filterwarnings("ignore:the chains have not mixed")
@pytest.mark.parametrize("rng", [1, None])
def test_tables_records_and_networks_of_a_simulated_release_are_marked(rng):
    release = LaplaceStatistics(epsilon=3.0).release(NETWORK, PEOPLE, rng=rng)
    solutions = [
        estimator.fit(release) for estimator in (bpm.NaiveMLE(), bpm.CGM(), bpm.NoiseAwareMAP())
    ]
    posterior = bpm.LatentCounts().fit(release, rng=1, draws=50, tune=50, chains=2)
    made = [posterior.network_at(0, 0), posterior.marginal("a"), *posterior.synthetic(2, rng=1)]
    for each in (*solutions, posterior.solution, posterior):
        made += [each.marginal(["a", "c"]), each.sample(5, rng=1), each.network]
    learned = SelectMeasure(rho=3.0).release(bpm.declare(STATES), PEOPLE, rng=rng)
    made += [
        learned.network,
        learned.sample(5, rng=1),
        learned.graph(),
        learned.solution.marginal("a"),
    ]
    made += [learned.association("a", "b")]
    wanted = (
        {"simulated": 1, "privacy": "from SIMULATED noise: protects nobody"} if rng == 1 else {}
    )
    for each in made:
        assert {
            name: value
            for name, value in marks_of(each).items()
            if name in ("simulated", "privacy")
        } == wanted


@pytest.mark.parametrize("rng", [1, None])
def test_files_of_a_fit_say_whether_it_is_simulated(rng, tmp_path, capsys):
    path, out = tmp_path / "r.release", tmp_path / "fit"
    GaussianStatistics(rho=2.0).release(NETWORK, PEOPLE, rng=rng).save(path)
    assert cli.main(["fit", str(path), "--method", "naive-mle", "--out", str(out)]) == 0
    assert json.loads((out / "network.json").read_text())["simulated"] is (rng == 1)
    tables = [pd.read_csv(table) for table in sorted(out.glob("marginals/*.csv"))]
    assert [set(table["simulated"]) for table in tables] == [{rng == 1}] * 2
    assert capsys.readouterr().out


def edited(path, edit):
    document, array = document_and_array(path)
    edit(document["content"])
    write_sealed(path, document, array)
    return path


@pytest.fixture
def saved(tmp_path):
    guarantee = PrivacyGuarantee(epsilon=1.0, adjacency="add-or-remove-one", unit="person")
    tables = {("a", "b"): np.eye(2), ("b", "c"): np.eye(2)}
    release = NoisyStatistics.from_tables(NETWORK, tables, noise=Laplace(2.0), guarantee=guarantee)
    release.save(tmp_path / "r.release")
    return tmp_path / "r.release"


@pytest.mark.parametrize("name", ["simulated", "mechanism", "settings", "versions"])
def test_a_file_that_lacks_a_part_of_its_provenance_is_refused(saved, name):
    with pytest.raises(ReleaseFileError, match=f"`{name}` must be there"):
        bpm.load_release(edited(saved, lambda content: content["provenance"].pop(name)))


@pytest.mark.parametrize(
    "edit",
    [
        lambda content: content["provenance"].update(mechanism="x\x1b]0;pwn\x07"),
        lambda content: content["guarantee"].update(unit="person\n\nAll data are safe."),
        lambda content: content["guarantee"].update(unit="person\u2028All data are safe."),
    ],
)
def test_a_mechanism_or_unit_that_is_not_one_line_of_text_is_refused(saved, edit):
    with pytest.raises(ReleaseFileError, match="one line"):
        bpm.load_release(edited(saved, edit))
    with pytest.raises(ArgumentError, match="one line"):
        Provenance(mechanism="a\nb")


def test_nothing_in_a_file_moves_the_cursor_or_forges_a_line(saved, capsys):
    def edit(content):
        content["variables"] = ["a\x1b[2J", "b\nsimulated: no", "\u202ec\x9b1m"]
        content["states"][0] = ["x\r\x07", "y\x7f\u2029"]

    edited(saved, edit)
    release = bpm.load_release(saved)
    solution = bpm.NoiseAwareMAP().fit(release)
    texts = [repr(release), HTMLFormatter()(release), release.privacy_statement(), repr(solution)]
    for arguments in (
        [],
        ["--method", "naive-mle"],
        ["--json"],
        ["--out", str(saved.parent / "fit")],
    ):
        assert cli.main(["fit", str(saved), *arguments]) == 0
        texts += capsys.readouterr()
    cli.main(["audit", str(saved)])
    texts += capsys.readouterr()
    for text in texts:
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e]", text)
        assert not re.search("^ *simulated: no", text, re.MULTILINE)


@pytest.mark.parametrize("adjacency", ["add-or-remove-one", "replace-one"])
@pytest.mark.parametrize(
    ("law", "form"),
    [
        (Laplace, "epsilon"),
        (DiscreteLaplace, "epsilon"),
        (Gaussian, "rho"),
        (DiscreteGaussian, "rho"),
    ],
)
def test_a_promise_that_the_noise_cannot_keep_is_told_when_a_file_is_loaded(
    tmp_path, adjacency, law, form
):
    moved = 1 if adjacency == "add-or-remove-one" else 2
    cost = 2 * moved / 4.0 if form == "epsilon" else 2 * moved / (2 * 4.0**2)
    for share in (1.0, 0.9):
        guarantee = PrivacyGuarantee(**{form: share * cost}, adjacency=adjacency)
        tables = {("a", "b"): np.eye(2), ("b", "c"): np.eye(2)}
        release = NoisyStatistics.from_tables(NETWORK, tables, noise=law(4.0), guarantee=guarantee)
        release.save(tmp_path / "r", overwrite=True)
        if share == 1:
            bpm.load_release(tmp_path / "r")
        else:
            with pytest.warns(GuaranteeWarning, match="noise alone costs"):
                bpm.load_release(tmp_path / "r")


@pytest.mark.parametrize("adjacency", ["add-or-remove-one", "replace-one"])
@pytest.mark.parametrize(
    ("norm", "law", "form"), [(1, DiscreteLaplace, "epsilon"), (2, Gaussian, "rho")]
)
def test_a_promise_that_the_noise_of_queries_cannot_keep_is_told_too(
    tmp_path, adjacency, norm, law, form
):
    weights = np.array([[1, 2], [0, 3]])
    asked, scales = [q.weighted("a", matrix=weights), q.table("b", "c")], [4.0, 3.0]
    records = itertools.product(range(2), repeat=3)
    seen = [(weights[:, a], np.eye(4)[2 * b + c]) for a, b, c in records]
    nobody = (np.zeros(2), np.zeros(4))
    pairs = itertools.product(seen, seen if adjacency == "replace-one" else [nobody])
    cost = max(
        sum(
            (np.abs(x - y) ** norm).sum() / s**norm
            for x, y, s in zip(one, other, scales, strict=True)
        )
        for one, other in pairs
    )
    for share in (1.0, 0.9):
        guarantee = PrivacyGuarantee(**{form: share * cost / norm}, adjacency=adjacency)
        measured = [
            Measurement(one, np.arange(float(size)), law(scale))
            for one, size, scale in zip(asked, (2, 4), scales, strict=True)
        ]
        release = NoisyStatistics.from_measurements(NETWORK, measured, guarantee=guarantee)
        release.save(tmp_path / "r", overwrite=True)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always", GuaranteeWarning)
            bpm.load_release(tmp_path / "r")
        assert [f"costs {cost / norm:.4g}" in str(one.message) for one in told] == [True] * (
            share < 1
        )


@pytest.mark.filterwarnings("ignore::bayesprivmrf.errors.NoiseWarning")
@pytest.mark.parametrize(
    ("adjacency", "budget"),
    [("add-or-remove-one", 1e-7), ("replace-one", 0.5), ("add-or-remove-one", 30.0)],
)
def test_the_promises_of_our_mechanisms_are_not_doubted(tmp_path, adjacency, budget):
    asked = {"queries": [q.table("a", "b"), q.table("b"), q.weighted("c", matrix=[[0, 3]])]}
    persons = {"person": "id", "at_most": 2}
    uneven = {"weights": {("a", "b"): 7.0, ("b", "c"): 0.3}}
    units = asked | persons | {"grid": 4}
    for more in ({}, uneven, persons, asked, asked | persons, units):
        for made in (
            LaplaceStatistics(epsilon=budget, adjacency=adjacency, **more),
            GaussianStatistics(rho=budget, adjacency=adjacency, **more),
        ):
            release = made.release(NETWORK, PEOPLE.assign(id=range(400)))
            release.save(tmp_path / "r", overwrite=True)
            assert bpm.load_release(tmp_path / "r") == release


LEARNING = [
    SelectMeasure(rho=0.5),
    SelectMeasure(rho=0.5, adjacency="replace-one"),
    SelectMeasure(rho=0.5, degree=1, measure="tables"),
    SelectMeasure(rho=0.5, degree=1, measure="moments", adjacency="replace-one"),
    ParityQueries(rho=0.5, order=2, method="gaussian"),
    ParityQueries(rho=0.5, order=2, method="gaussian", adjacency="replace-one"),
]


@pytest.mark.filterwarnings("ignore", "error::bayesprivmrf.errors.GuaranteeWarning")
@pytest.mark.parametrize(
    "mechanism", LEARNING, ids=lambda one: f"{type(one).__name__}, {one.adjacency}"
)
def test_a_learned_release_whose_tables_contradict_its_promise_does_not_load(tmp_path, mechanism):
    path = tmp_path / "r"
    release = mechanism.release(bpm.declare(STATES), PEOPLE)
    release.save(path)
    assert bpm.load_release(path).guarantee == release.guarantee
    if release.statistics is None:
        return
    edited(path, lambda content: content["guarantee"].update(rho=1e-6))
    with pytest.raises(
        ReleaseFileError, match=r"promises rho = 1e-06, but .* the promise is false"
    ):
        bpm.load_release(path)


FORMS = [
    {"form": "pure", "epsilon": 1e-9, "rho": None, "delta": 0.0},
    {"form": "zero-concentrated", "epsilon": None, "rho": 1e-18, "delta": 0.0},
    {"form": "approximate", "epsilon": 1e-9, "rho": None, "delta": 1e-12},
]


@pytest.mark.parametrize("adjacency", ["add-or-remove-one", "replace-one"])
@pytest.mark.parametrize("promise", FORMS, ids=lambda promise: promise["form"])
@pytest.mark.parametrize(
    "law", [Laplace(1.0), DiscreteLaplace(1.0), Gaussian(1.0), DiscreteGaussian(1.0)], ids=repr
)
@pytest.mark.parametrize("mechanism", ["LaplaceStatistics", "tables published elsewhere", "Theirs"])
def test_no_release_promises_next_to_nothing_beside_noise_of_one_record(
    tmp_path, mechanism, law, promise, adjacency
):
    path = tmp_path / "r"
    guarantee = PrivacyGuarantee(epsilon=8.0, delta=0.5, adjacency=adjacency)
    tables = {("a", "b"): np.eye(2), ("b", "c"): np.eye(2)}
    NoisyStatistics.from_tables(NETWORK, tables, noise=law, guarantee=guarantee).save(path)
    edited(path, lambda content: content["provenance"].update(mechanism=mechanism))
    bpm.load_release(path)
    edited(path, lambda content: content["guarantee"].update(promise))
    with pytest.raises(ReleaseFileError, match="the promise is false"):
        bpm.load_release(path)


@pytest.mark.parametrize("share", [0.999, 0.5, 1e-3])
def test_a_mechanism_that_counts_all_records_may_not_promise_less_than_its_noise_costs(
    tmp_path, share
):
    for mechanism, budget in (
        (LaplaceStatistics(epsilon=1.0), "epsilon"),
        (GaussianStatistics(rho=1.0), "rho"),
    ):
        for more in ({}, {"queries": [q.table("a"), q.weighted("b", matrix=[[1, 2]])]}):
            path = tmp_path / "r"
            dataclasses.replace(mechanism, **more).release(NETWORK, PEOPLE).save(
                path, overwrite=True
            )
            edited(
                path, lambda content, budget=budget: content["guarantee"].update({budget: share})
            )
            with pytest.raises(
                ReleaseFileError, match=f"promises {budget} = {share}.* the promise is false"
            ):
                bpm.load_release(path)


@pytest.mark.parametrize("adjacency", ["add-or-remove-one", "replace-one"])
@pytest.mark.parametrize(
    "mechanism", [LaplaceStatistics(epsilon=2.0), GaussianStatistics(rho=2.0)], ids=repr
)
def test_a_tiny_delta_hides_no_promise_that_all_tables_together_contradict(
    tmp_path, mechanism, adjacency
):
    path = tmp_path / "r"
    release = dataclasses.replace(mechanism, adjacency=adjacency).release(NETWORK, PEOPLE)
    honest = release.guarantee.to_approximate(1e-9)
    made = NoisyStatistics.from_measurements(NETWORK, release.measurements, guarantee=honest)
    made.save(path)
    assert bpm.load_release(path) == made
    # each table alone costs half of the budget
    edited(path, lambda content: content["guarantee"].update(epsilon=1.1))
    with pytest.raises(ReleaseFileError, match=r"shows? more of a record: the promise is false"):
        bpm.load_release(path)


def test_a_posterior_whose_release_makes_a_false_promise_does_not_load(tmp_path):
    release = LaplaceStatistics(epsilon=1.0).release(NETWORK, PEOPLE)
    cheap = dataclasses.replace(release.guarantee, epsilon=1e-9)
    with pytest.warns(SamplingWarning):
        posterior = bpm.LatentCounts(formulation="exact").fit(
            NoisyStatistics(
                specification=release.specification,
                measurements=release.measurements,
                guarantee=cheap,
                provenance=release.provenance,
            ),
            rng=1,
            draws=4,
            tune=4,
            chains=2,
        )
    posterior.save(tmp_path / "p.nc")
    with pytest.raises(ReleaseFileError, match="the promise is false"):
        bpm.load_posterior(tmp_path / "p.nc")


def smallest_delta(law, epsilon, cells):
    """The exact delta of noise on cells that differ by one record, from the difference of two distributions."""
    if law.is_discrete:
        return privacy_loss([law] * cells, [1] * cells).delta(epsilon)
    if law.kernel == "absolute":
        return -np.expm1((epsilon - 1 / law.scale) / 2)
    mu = np.sqrt(cells) / law.scale
    return norm.cdf(mu / 2 - epsilon / mu) - np.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)


@pytest.mark.filterwarnings("error::bayesprivmrf.errors.GuaranteeWarning")
@pytest.mark.parametrize(
    ("law", "adjacency"),
    [
        (Laplace, "add-or-remove-one"),
        (DiscreteLaplace, "replace-one"),
        (DiscreteLaplace, "add-or-remove-one"),
        (Gaussian, "replace-one"),
        (DiscreteGaussian, "replace-one"),
    ],
)
def test_the_tightest_promise_of_every_form_is_kept(tmp_path, law, adjacency):
    cells = 1 if adjacency == "add-or-remove-one" else 2
    for scale in (0.05, 0.3, 1.0, 30.0, 1e6):
        noise, promises = law(scale), []
        if noise.kernel == "absolute":
            pure = PrivacyGuarantee(epsilon=cells / scale, adjacency=adjacency)
            promises += [pure, pure.to_zero_concentrated(), pure.to_approximate(1e-6)]
        else:
            promises.append(PrivacyGuarantee(rho=cells / (2 * scale**2), adjacency=adjacency))
        # discrete losses are enumerated for moderate scales; two cells with Laplace noise have no short formula
        is_exact = 0.2 < scale < 100 and (
            noise.is_discrete or cells == 1 or noise.kernel == "square"
        )
        for share in (1e-3, 0.3, 0.9) if is_exact else ():
            epsilon = share * cells / scale
            delta = float(smallest_delta(noise, epsilon, cells))
            if 0 < delta < 1:
                promises.append(PrivacyGuarantee(epsilon=epsilon, delta=delta, adjacency=adjacency))
        for promise in promises:
            network = bpm.declare({"a": ["x", "y"]}, [("a",)])
            release = NoisyStatistics.from_tables(
                network, {"a": [3.0, 4.0]}, noise=noise, guarantee=promise
            )
            release.save(tmp_path / "r", overwrite=True)
            for mechanism in ("GaussianStatistics", "Theirs"):
                edited(
                    tmp_path / "r",
                    lambda content, to=mechanism: content["provenance"].update(mechanism=to),
                )
                assert bpm.load_release(tmp_path / "r").guarantee == promise
