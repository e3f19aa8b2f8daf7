"""Every estimator on every kind of query under every kind of law: it fits, or refuses as the docs say."""

import numpy as np
import pytest
from inference.conftest import simulated_counts, specification
from inference.posterior.drawn import finished_of

from bayesprivmrf import queries as q
from bayesprivmrf.errors import ArgumentError, ModelError
from bayesprivmrf.inference import CGM, LatentCounts, NaiveMLE, NoiseAwareMAP, gather, registry
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.privacy import Gaussian, Laplace, NoNoise
from bayesprivmrf.release import Measurement, NoisyStatistics

CHAIN = specification({v: ["n", "y"] for v in "abc"}, [("a", "b"), ("b", "c")])
QUERIES = {
    "table": q.table("b", "a"),
    "coarsened": q.coarsened("a", "b", b={"all": ["n", "y"]}),
    "weighted": q.weighted("a", "b", matrix=[[0, 1, 2, 3], [-1, 0, 0, 2]]),
    "parities": q.parities(2),
    "pooled": q.pooled([("a", "b"), ("b", "c")]),
}
# queries are summed before the law is asked: each kind of query is under one law or two, and each law under two kinds
QUERIES_AND_LAWS = pytest.mark.parametrize(
    ("kind", "law"),
    [
        ("table", Laplace(4.0)),
        ("table", NoNoise()),
        ("coarsened", NoNoise()),
        ("weighted", Gaussian(4.0)),
        ("weighted", NoNoise()),
        ("parities", Gaussian(4.0)),
        ("pooled", Laplace(4.0)),
    ],
    ids=lambda each: getattr(each, "name", each),
)
ESTIMATORS = {
    "NaiveMLE()": NaiveMLE(),
    "CGM()": CGM(),
    "CGM(e_step='nlbp')": CGM(e_step="nlbp"),
    "NoiseAwareMAP()": NoiseAwareMAP(),
    "LatentCounts()": LatentCounts(formulation="hyper-dirichlet"),
    "LatentCounts(formulation='log-linear')": LatentCounts(formulation="log-linear"),
    "LatentCounts(formulation='exact')": LatentCounts(formulation="exact"),
}


def refused(name, kind, law):
    """What the docs say of a cell of the matrix that is empty."""
    if name == "CGM(e_step='nlbp')":
        return "use e_step='dual'"
    if "Latent" not in name or not isinstance(law, NoNoise):
        return None
    if "exact" not in name:
        return "formulation='exact'"
    return "nested or disjoint" if kind in ("weighted", "pooled") else None


def test_the_matrix_holds_every_estimator():
    kinds = {type(each) for each in ESTIMATORS.values()}
    assert {"naive-mle", "cgm", "noise-aware", "posterior"} <= set(registry.estimator_names())
    assert kinds == {NaiveMLE, CGM, NoiseAwareMAP, LatentCounts}


@pytest.mark.filterwarnings(
    "ignore::bayesprivmrf.errors.SamplingWarning"
)  # ten draws are not mixed
@QUERIES_AND_LAWS
@pytest.mark.parametrize("name", ESTIMATORS)
def test_an_estimator_fits_or_refuses(name, kind, law):
    rng = np.random.default_rng(5)
    counts, _ = simulated_counts(CHAIN, 200, rng)
    given = []
    for query, own in ((QUERIES[kind], law), (q.table("b", "c"), Laplace(4.0))):
        answers = query.bind(CHAIN).answers(counts)
        given.append(Measurement(query, answers + own.draw(answers.shape, rng), own))
    made = NoisyStatistics.from_measurements(CHAIN, given)
    settings = {"rng": 1, "draws": 10, "tune": 20, "chains": 1} if "Latent" in name else {}
    if (message := refused(name, kind, law)) is not None:
        with pytest.raises((ArgumentError, ModelError), match=message):
            ESTIMATORS[name].fit(made, **settings)
        return
    fitted = ESTIMATORS[name].fit(made, **settings)
    assert np.isfinite(fitted.marginals.flat).all()
    tables = gather(made).total * fitted.marginals.flat
    if "Latent" in name and isinstance(
        law, NoNoise
    ):  # the records' own; of the population no answer is exact
        tables = finished_of(fitted).counts.reshape(-1, CHAIN.size)
    answers = QUERIES[kind].bind(CHAIN).answers(tables)
    near = 1e-3 if isinstance(law, NoNoise) else 60
    assert np.abs(answers - given[0].values).max() < near


@pytest.mark.filterwarnings(
    "ignore::bayesprivmrf.errors.SamplingWarning"
)  # ten draws are not mixed
@pytest.mark.filterwarnings(
    "ignore::bayesprivmrf.errors.ConsistencyWarning"
)  # the records follow no such chain
@QUERIES_AND_LAWS
def test_the_posterior_of_shared_transitions_fits_or_refuses(kind, law):
    chain = ModelSpecification(
        domain=CHAIN.domain, cliques=CHAIN.cliques, ties=(CHAIN.cliques,), shares_transitions=True
    )
    rng = np.random.default_rng(5)
    counts, _ = simulated_counts(chain, 200, rng)
    given = []
    for query, own in ((QUERIES[kind], law), (q.table("b", "c"), Laplace(4.0))):
        answers = query.bind(chain).answers(counts)
        given.append(Measurement(query, answers + own.draw(answers.shape, rng), own))
    made = NoisyStatistics.from_measurements(chain, given)
    if isinstance(law, NoNoise) and kind != "coarsened":
        with pytest.raises(ModelError, match=r"nested or disjoint|tables of single times"):
            LatentCounts().fit(made, rng=1, draws=10, tune=20, chains=1)
        return
    fitted = LatentCounts().fit(made, rng=1, draws=10, tune=20, chains=1)
    steps = [fitted.marginals.flat[:4].reshape(2, 2), fitted.marginals.flat[4:].reshape(2, 2)]
    rows = [step / step.sum(axis=1, keepdims=True) for step in steps]
    assert np.abs(rows[0] - rows[1]).max() < 0.1  # means of draws whose rows are the same
