"""CGM on answers to queries: its E-step against a convex solver over all joint states, and what EM keeps."""

from dataclasses import replace

import numpy as np
import pytest
from inference.conftest import (
    AWKWARD,
    joint_states,
    probabilities,
    simulated_counts,
    specification,
    tables_of,
)
from scipy.optimize import minimize

from bayesprivmrf import queries as q
from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.inference import CGM, Status, discrepancy, e_step, gather
from bayesprivmrf.noise.kernels import ABSOLUTE
from bayesprivmrf.privacy import DiscreteGaussian, DiscreteLaplace, Gaussian, Laplace, NoNoise
from bayesprivmrf.release import Measurement, NoisyStatistics

MODELS = {name: specification(*given) for name, given in AWKWARD.items() if given[0]}
MODELS["isolated"] = specification({0: [1, 0], 2: ["z", "a"], 1: [3, 1, 2]}, [(0, 1), (2,)])
CHAIN = specification({v: ["u", "v", "w"] for v in "abc"}, [("a", "b"), ("b", "c")])
LAWS = (Laplace(4.0), DiscreteLaplace(3.0), Gaussian(5.0), DiscreteGaussian(4.0), NoNoise())


def release(model, counts, queries, laws, rng, total=None):
    """Answers to queries about counts, each with its law's noise."""
    given = []
    for query, law in zip(queries, laws, strict=True):
        exact = query.bind(model).answers(counts)
        given.append(Measurement(query, exact + law.draw(exact.shape, rng), law))
    return NoisyStatistics.from_measurements(model, given, total=total)


def queries_of(model, kind):
    """Queries of one kind about a model."""
    first, clique = model.cliques[0][0], model.cliques[0]
    states = model.domain.states_of(first)
    merged = {
        first: {"first": [states[0]], "others": states[1:]} if len(states) > 1 else {"all": states}
    }
    cells = int(np.prod(model.shapes[0]))
    return {
        "nested tables": [
            q.table(*reversed(clique)),
            *(q.table(v) for v in model.domain.variables),
        ],
        "coarsened": [q.coarsened(*clique, groups=merged), q.table(*model.cliques[-1])],
        "weighted": [
            q.weighted(*clique, matrix=[np.arange(cells) - 1, np.ones(cells)]),
            q.table(first),
        ],
        "parities": [q.parities(2)],
        "pooled": [q.pooled(_alike(model)), q.table(first)],
    }[kind]


def _alike(model):
    """Variables that have the states of the first, each a scope; not asked of states, but of how many there are."""
    states = model.domain.states_of(model.domain.variables[0])
    return [(v,) for v in model.domain.variables if model.domain.states_of(v) == states]


KINDS = ("nested tables", "coarsened", "weighted", "parities", "pooled")


def by_solver(model, evidence, theta, total):
    """Largest value of theta'n + H(n) + log p(y | A n) over distributions of the joint states, by SLSQP.

    An absolute residual is a variable above both its signs; an answer without noise is a constraint.
    """
    unit = np.array([tables_of(model, row) for row in np.eye(len(joint_states(model)))]).T
    linear = theta @ unit
    seen = total * np.array([evidence.gathered(column) for column in unit.T]).T
    answers, scales = evidence.noisy_counts, evidence.spread([law.scale for law in evidence.noise])
    kinds = np.where(evidence.is_exact, "=", np.where(evidence.kernels == ABSOLUTE, "a", "s"))
    states, absolute, square, exact = unit.shape[1], kinds == "a", kinds == "s", kinds == "="
    size = int(absolute.sum())

    def value(x):
        p, above = np.maximum(x[:states], 1e-300), x[states:]
        gap = (answers - seen @ p)[square] / scales[square]
        loss = (
            p @ np.log(p)
            - linear @ p
            + ((above / scales[absolute]).sum() + 0.5 * gap @ gap) / total
        )
        slope = np.log(p) + 1 - linear - (gap / scales[square]) @ seen[square] / total
        return loss, np.concatenate([slope, 1 / scales[absolute] / total])

    above = np.hstack([seen[absolute], np.eye(size)])
    below = np.hstack([-seen[absolute], np.eye(size)])
    held = np.hstack(
        [np.vstack([np.ones((1, states)), seen[exact]]), np.zeros((1 + int(exact.sum()), size))]
    )
    left, sizes, right = np.linalg.svd(held, full_matrices=False)  # SLSQP takes no constraint twice
    kept = sizes > 1e-9 * sizes.max()
    held, wanted = right[kept], (left.T @ np.append(1.0, answers[exact]))[kept] / sizes[kept]
    constraints = [{"type": "eq", "fun": lambda x: held @ x - wanted, "jac": lambda x: held}]
    if size:
        both, bound = (
            np.vstack([above, below]),
            np.concatenate([answers[absolute], -answers[absolute]]),
        )
        constraints.append(
            {"type": "ineq", "fun": lambda x: both @ x - bound, "jac": lambda x: both}
        )
    begin = np.full(states, 1 / states)
    start = np.concatenate([begin, np.abs(answers - seen @ begin)[absolute] + 1.0])
    found = minimize(
        value, start, jac=True, method="SLSQP", bounds=[(1e-12, 1)] * states + [(0, None)] * size,
        constraints=constraints, options={"maxiter": 2000, "ftol": 1e-13},
    )  # fmt: skip
    return -found.fun, found.x[:states]


def objective_of(evidence, theta, p, marginals):
    """The published objective over N of consistent tables, whose entropy is that of the distribution p."""
    gap = evidence.noisy_counts - evidence.total * evidence.gathered(marginals)
    assert np.abs(gap[evidence.is_exact]).max(initial=0.0) < 1e-2
    ratio = np.abs(gap[~evidence.is_exact]) / evidence.noise_width[~evidence.is_exact]
    loss = np.where(evidence.kernels[~evidence.is_exact] == ABSOLUTE, ratio, 0.5 * ratio**2).sum()
    return theta @ marginals - p @ np.log(np.maximum(p, 1e-300)) - loss / evidence.total


@pytest.mark.parametrize(
    ("name", "kind", "law"),
    [
        # each model with two kinds of queries, each kind with two models and more
        *(
            (name, KINDS[(place + turn) % len(KINDS)], LAWS[0])
            for place, name in enumerate(MODELS)
            for turn in (0, 2)
        ),
        # the penalty of a law does not depend on the model
        ("isolated", "weighted", LAWS[1]),
        *(
            pytest.param("isolated", kind, law, marks=pytest.mark.slow)
            for kind in KINDS
            for law in LAWS[2:]
        ),
    ],
    ids=str,
)
def test_the_e_step_maximises_the_published_objective(name, kind, law):
    """Value and distribution of the dual's mode are those of SLSQP over all joint states."""
    model, total, rng = MODELS[name], 60, np.random.default_rng([7, KINDS.index(kind)])
    counts, _ = simulated_counts(model, total, rng, scale=0.5)
    counts = counts + tables_of(model, np.full(len(joint_states(model)), 2.0))  # no cell is empty
    total += 2 * len(joint_states(model))
    queries = queries_of(model, kind)
    laws = [law, *(Laplace(3.0) for _ in queries[1:])]
    made = release(model, counts, queries, laws, rng, total=total)
    theta = 0.5 * rng.normal(size=model.size)
    evidence = gather(made)
    problem = e_step.EStepProblem(evidence, evidence.engine("exact"), theta)
    assert e_step.dual_e_step(problem).converged
    step = e_step.dual_e_step(problem, share=1e-4)
    p = probabilities(model, step.potentials)
    assert np.allclose(step.marginals, tables_of(model, p), atol=1e-9)
    best, found = by_solver(model, evidence, theta, total)
    assert np.abs(step.marginals - tables_of(model, found)).max() < 4e-3
    assert objective_of(evidence, theta, p, step.marginals) == pytest.approx(best, abs=3e-5)


def all_kinds(model, rng, law=None, records=400, total=None):
    counts, _ = simulated_counts(model, records, rng)
    queries = [query for kind in KINDS for query in queries_of(model, kind)]
    return release(model, counts, queries, [law or Laplace(6.0)] * len(queries), rng, total=total)


@pytest.mark.parametrize("law", LAWS[:4], ids=lambda law: law.name)
def test_every_em_step_makes_the_noisy_answers_more_probable(law):
    made = all_kinds(MODELS["cycle"], np.random.default_rng(3), law)
    evidence, values = gather(made), []
    for steps in range(1, 12, 2):
        fitted = CGM(steps=steps, stopping="none", acceleration=1.0).fit(made).marginals.flat
        gap = np.abs(evidence.noisy_counts - evidence.total * evidence.gathered(fitted))
        ratio = gap / evidence.noise_width
        values.append(np.where(evidence.kernels == ABSOLUTE, -ratio, -0.5 * ratio**2).sum())
    assert (np.diff(values) > -0.02 * np.sqrt(len(gap))).all()
    assert values[-1] > values[0] + 5


@pytest.mark.parametrize("law", LAWS[:4], ids=lambda law: law.name)
@pytest.mark.parametrize("name", MODELS)
def test_tables_asked_as_queries_give_what_the_plain_release_gives(name, law):
    model, rng = MODELS[name], np.random.default_rng(4)
    counts, _ = simulated_counts(model, 500, rng)
    made = release(
        model, counts, [q.table(*c) for c in model.cliques], [law] * len(model.cliques), rng
    )
    plain = gather(made)
    assert plain.matrix is None
    bound = tuple(q.table(*clique).bind(model) for clique in model.cliques)
    asked = replace(plain, queries=bound, scopes=())
    assert asked.matrix is not None
    theta = np.random.default_rng(5).normal(size=model.size)
    one, other = (
        e_step.dual_e_step(e_step.EStepProblem(e, e.engine("exact"), theta)) for e in (plain, asked)
    )
    assert np.array_equal(one.tilt, other.tilt)
    assert np.array_equal(one.marginals, other.marginals)
    engine = plain.engine("exact")
    measured = [
        discrepancy.Discrepancy(e, engine)(one.marginals, one.potentials) for e in (plain, asked)
    ]
    assert measured[0] == pytest.approx(measured[1], rel=1e-12)


def test_the_order_in_which_measurements_are_given_changes_nothing():
    made = all_kinds(CHAIN, np.random.default_rng(6))
    turned = NoisyStatistics.from_measurements(CHAIN, made.measurements[::-1])
    one, other = (
        CGM(steps=40, stopping="none").fit(each).marginals.flat for each in (made, turned)
    )
    assert np.abs(one - other).max() < 0.01 * 6 / 400


def test_a_measurement_taken_twice_is_one_of_twice_the_precision():
    rng = np.random.default_rng(7)
    counts, _ = simulated_counts(CHAIN, 400, rng)
    first, second = (counts + rng.normal(0, 8.0, counts.size) for _ in range(2))
    scopes = [q.table("a", "b"), q.table("b", "c"), q.parities(2)]
    parities = scopes[2].bind(CHAIN)

    def given(values, scale):
        parts = [values[:9], values[9:], parities.answers(values)]
        return [
            Measurement(query, part, Gaussian(scale))
            for query, part in zip(scopes, parts, strict=True)
        ]

    twice = NoisyStatistics.from_measurements(
        CHAIN, [*given(first, 8.0), *given(second, 8.0)], total=400
    )
    merged = NoisyStatistics.from_measurements(
        CHAIN, given((first + second) / 2, 8 / np.sqrt(2)), total=400
    )
    ends = [
        CGM(steps=30, stopping="none", acceleration=1.0).fit(e).marginals.flat
        for e in (twice, merged)
    ]
    assert np.abs(ends[0] - ends[1]).max() < 2e-4


def test_nested_tables_say_more_than_the_coarser_ones_alone():
    rng, errors = np.random.default_rng(8), np.zeros(2)
    for _ in range(12):
        counts, truth = simulated_counts(CHAIN, 400, rng)
        coarse = [q.table("a"), q.table("b"), q.table("c")]
        queries = [
            *coarse,
            q.coarsened("a", "b", a={"u": ["u"], "else": ["v", "w"]}),
            q.table("b", "c"),
        ]
        made = release(CHAIN, counts, queries, [Laplace(6.0)] * 5, rng)
        alone = NoisyStatistics.from_measurements(CHAIN, made.measurements[:3])
        expected = tables_of(CHAIN, probabilities(CHAIN, truth))
        for k, each in enumerate((alone, made)):
            errors[k] += np.abs(CGM().fit(each).marginals.flat - expected).sum()
    assert errors[1] < 0.75 * errors[0]


def test_the_sampling_variance_of_an_answer_is_that_of_records():
    model, rng = MODELS["cycle"], np.random.default_rng(9)
    made = all_kinds(model, rng)
    evidence, engine = gather(made), gather(made).engine("exact")
    theta = rng.normal(size=model.size)
    p, unit = probabilities(model, theta), np.array([tables_of(model, row) for row in np.eye(24)])
    shown = np.array([evidence.gathered(row) for row in unit])
    variance = p @ shown**2 - (p @ shown) ** 2
    measure = discrepancy.Discrepancy(evidence, engine)
    assert measure.pooled.size
    marginals = engine.marginals(theta)[1]
    assert np.allclose(measure._variance(p @ shown, marginals, theta), variance, atol=1e-9)


def test_answers_without_noise_are_given_back_along_the_whole_path():
    model, rng = MODELS["cycle"], np.random.default_rng(10)
    counts, _ = simulated_counts(model, 700, rng)
    queries = [q.table("a", "b"), q.table("b", "c"), q.table("c", "d"), q.parities(2), q.table("d")]
    laws = [NoNoise(), Laplace(9.0), Laplace(9.0), Laplace(9.0), NoNoise()]
    made = release(model, counts, queries, laws, rng)
    evidence = gather(made)
    assert evidence.total == 700
    for settings in ({}, {"steps": 1, "stopping": "none"}, {"steps": 300, "stopping": "none"}):
        solution = CGM(**settings).fit(made)
        missed = evidence.noisy_counts - 700 * evidence.gathered(solution.marginals.flat)
        assert np.abs(missed[evidence.is_exact]).max() < 1e-5
        assert np.abs(missed[~evidence.is_exact]).max() > 1


def test_the_published_iteration_refuses_queries():
    with pytest.raises(ArgumentError, match="one noisy table of each clique"):
        CGM(e_step="nlbp").fit(all_kinds(CHAIN, np.random.default_rng(11)))


def test_loopy_marginals_of_a_tree_give_the_exact_estimate_of_queries():
    made = all_kinds(CHAIN, np.random.default_rng(12))
    exact, loopy = (CGM(inference=kind).fit(made) for kind in ("exact", "loopy"))
    assert np.allclose(exact.marginals.flat, loopy.marginals.flat, atol=5e-4)
    assert loopy.status is Status.APPROXIMATE
