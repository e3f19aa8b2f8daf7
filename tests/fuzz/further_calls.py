"""Right calls of the remaining public names: noise, sequences, planning, estimators, results and networks."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from inference.posterior.drawn import drawn_posterior

import bayesprivmrf as bpm
from bayesprivmrf import (
    evaluation,
    inference,
    learning,
    mechanisms,
    network,
    noise,
    planning,
    plots,
    queries,
    records,
    sequences,
    survey,
)
from bayesprivmrf.release import Measurement, NoisyStatistics, Provenance

from .calls import STATES, Target, frame

__all__ = ["further_targets"]

EVENTS = pd.DataFrame(
    {"id": [1, 2, 1, 2, 1], "day": [3, 1, 2, 4, 5], "state": ["u", "v", "v", "u", "u"]}
)
FEW_DRAWS = {"rng": 1, "draws": 2, "tune": 2, "chains": 1, "progress_bar": False}


def further_targets(declared: Any, released: Any, solution: Any) -> list[Target]:
    """Return them."""
    return [
        *_noise(),
        *_sequences(),
        *_declarations(declared, released),
        *_estimators(released),
        *_results(declared, released, solution),
        *_networks(),
        *_learned(),
        *_plans(declared),
        *_parts(released),
    ]


def _noise() -> list[Target]:
    found = []
    for kind in (noise.Laplace, noise.Gaussian, noise.DiscreteLaplace, noise.DiscreteGaussian):
        found += [
            Target(
                name=f"{kind.__name__}.of_variance",
                call=kind.of_variance,
                arguments={"variance": 2.0},
            ),
            Target(name=f"{kind.__name__}.summed", call=kind(2.0).summed, arguments={"count": 1}),
            Target(name=f"{kind.__name__}.summed", call=kind(1e150).summed, arguments={"count": 1}),
            Target(
                name=f"{kind.__name__}.draw", call=kind(1e150).draw, arguments={"size": 2, "rng": 1}
            ),
        ]
    law = noise.DiscreteLaplace(2.0)
    return [
        *found,
        Target(name="NoNoise.summed", call=noise.NoNoise().summed, arguments={"count": 1}),
        Target(name="Within.summed", call=noise.Within(4.5).summed, arguments={"count": 1}),
        Target(name="Within", call=noise.Within, arguments={"half_width": 4.5, "base": law, "base_scale": 2.0}),
        Target(name="Within.between", call=noise.Within.between, arguments={"lower": 0, "upper": 9, "noise": law}),
        Target(name="Within.log_density", call=noise.Within(4.5).log_density, arguments={"residual": [0.5, 1.5]}),
        Target(name="Within.score", call=noise.Within(4.5).score, arguments={"residual": [0.5, 1.5]}),
        Target(name="Within.draw", call=noise.Within(4.5).draw, arguments={"size": 2, "rng": 1}),
    ]  # fmt: skip


def _sequences() -> list[Target]:
    columns = {"person": "id", "position": "day", "state": "state"}
    chain = bpm.markov_chain(["u", "v"], 3, share="transitions")
    pairs = list(pairwise(["x1", "x2", "x3"]))
    release = NoisyStatistics.from_measurements(chain, [
        Measurement(queries.pooled(pairs), np.array([90, 20, 30, 60]), noise.Laplace(1.0)),
        Measurement(queries.table("x1"), np.array([60, 40]), noise.Laplace(1.0)),
    ])  # fmt: skip
    shared = bpm.NoiseAwareMAP().fit(release)
    ended = bpm.markov_chain(["u", "v"], 3, end="<end>")
    counts = np.array([[30.0, 8, 12], [6, 25, 9], [0, 0, 0]])
    of_lengths = bpm.NoiseAwareMAP().fit(
        NoisyStatistics.from_tables(ended, dict.fromkeys(pairs, counts), noise=noise.Laplace(1.0))
    )
    asked = {"variables": ["x1", "x2"], "prob": 0.9, "of": "population", "given": {"x3": "u"}}
    return [
        Target(name="wide_sequences", call=mechanisms.wide_sequences, arguments={
            "data": EVENTS, **columns, "length": 3, "names": ["a", "b", "c"], "longer": "cut"}),
        Target(name="transition_rows", call=mechanisms.transition_rows, arguments={
            "data": EVENTS, **columns, "names": ("from", "to")}),
        Target(name="markov_chain", call=bpm.markov_chain, arguments={
            "states": ["u", "v"], "length": 3, "end": "<end>", "names": ["a", "b", "c"]}),
        Target(name="TransitionSolution.interval", call=shared.interval, arguments=asked),
        Target(name="TransitionSolution.marginal", call=shared.marginal, arguments={
            "variables": ["x1", "x3"], "given": {"x2": "v"}}),
        Target(name="TransitionSolution.sample", call=shared.sample, arguments={"size": 2, "rng": 1}),
        Target(name="sequences.lengths", call=sequences.lengths, arguments={"fit": of_lengths, "prob": 0.9}),
    ]  # fmt: skip


def _declarations(declared: Any, released: Any) -> list[Target]:
    pure = bpm.PrivacyGuarantee(epsilon=1.0, adjacency="add-or-remove-one")
    model = released.specification
    tables = {clique: np.ones((2, 2)) for clique in model.cliques}
    bound = queries.table("a", "b").bind(declared)
    recoding = {"missing": {"a": "u"}, "other": None}
    return [
        Target(name="records_needed", call=planning.records_needed, arguments={
            "variables": 10, "size": 0.5, "guarantee": pure, "goal": "parameters", "states": 2, "order": 2,
            "width": 1.0}),
        Target(name="reference", call=mechanisms.reference, arguments={
            "network": declared, "data": frame(), **recoding, "person": None, "at_most": None, "count": None}),
        Target(name="reference of persons", call=mechanisms.reference, arguments={
            "network": declared, "data": frame().assign(id=range(40)), "person": "id", "at_most": 1}),
        Target(name="NoisyStatistics", call=NoisyStatistics, arguments={
            "specification": model, "guarantee": pure, "provenance": released.provenance,
            "tables": model.tables(np.ones(model.size)), "noise": [noise.DiscreteLaplace(2.0)] * 2, "total": 40,
            "person_rows": None}),
        Target(name="Provenance", call=Provenance, arguments={
            "mechanism": "Mine", "settings": {"epsilon": 1.0}, "simulated": False, "versions": {"mine": "1"}}),
        Target(name="BoundQuery.answers", call=bound.answers, arguments={
            "tables": model.tables(np.ones(model.size))}),
        Target(name="BoundQuery.answers of numbers", call=bound.answers, arguments={"tables": np.ones(model.size)}),
        Target(name="Query.bind", call=queries.table("a").bind, arguments={"network": declared}),
        Target(name="queries.table alone", call=lambda *, first: queries.table(first), arguments={"first": "a"}),
        Target(name="queries.parities", call=queries.parities, arguments={"order": 2, "least": 1}),
        Target(name="CliqueTables.table", call=model.tables(np.ones(model.size)).table, arguments={"position": 0}),
        Target(name="Measurement of labels", call=lambda values: NoisyStatistics.from_measurements(
            declared, [Measurement(queries.table("a"), values, noise.Laplace(1.0))]), arguments={
            "values": {"u": 1.0, "v": 2.0}}),
        Target(name="from_tables of variances", call=NoisyStatistics.from_tables, arguments={
            "network": declared, "tables": tables, "noise": np.full(2, 4.0), "total": None, "guarantee": None}),
        Target(name="GuaranteeRho.to_approximate", call=pure.to_zero_concentrated().to_approximate, arguments={
            "delta": 1e-9}),
        Target(name="ExternalField", call=network.ExternalField, arguments={"strength": 0.5, "center": 0.1}),
        Target(name="ExternalField.from_share", call=network.ExternalField.from_share, arguments={"share": 0.2}),
    ]  # fmt: skip


def _estimators(released: Any) -> list[Target]:
    fits = [
        Target(name=f"{make.__name__}().fit", call=make().fit, arguments={
            "releases": [released, released], "population": "waves"})
        for make in (bpm.NaiveMLE, bpm.NoiseAwareMAP, bpm.CGM)
    ]  # fmt: skip
    return [
        *fits,
        Target(name="LatentCounts().fit", call=_checked_alone(released), arguments={
            "prior": False, "sampler": "nutpie", "time_limit": 1.0, "population": "one", **FEW_DRAWS}),
        Target(name="LatentCounts", call=bpm.LatentCounts, arguments={
            "formulation": "exact", "concentration": 1.0, "scale": 1.0, "total_range": (1.0, 1e6)}),
        Target(name="gather", call=inference.gather, arguments={
            "releases": [released, released], "needs_kernel": True, "takes_bounds": False, "population": "one"}),
    ]  # fmt: skip


def _checked_alone(released: Any) -> Any:
    """Return a fit of a release without noise, which checks the settings, and is refused before it draws."""

    def fit(**settings: Any) -> Any:
        exact = NoisyStatistics.from_tables(
            released.specification,
            {clique: np.ones((2, 2)) for clique in released.specification.cliques},
            noise=noise.NoNoise(),
        )
        return bpm.LatentCounts().fit(exact, **settings)

    return fit


def _results(declared: Any, released: Any, solution: Any) -> list[Target]:
    learned = mechanisms.SelectMeasure(rho=1.0).release(bpm.declare(STATES), frame(), rng=1)
    posterior = drawn_posterior(released, 20)
    aware = bpm.NoiseAwareMAP().fit(released)
    asked = {"variables": ["a", "b"], "prob": 0.9, "of": "records", "given": {"c": True}}
    return [
        Target(name="NoiseAwareSolution.interval", call=aware.interval, arguments=asked),
        Target(name="LearnedPotentials.interval", call=learned.interval, arguments=asked),
        Target(name="Posterior.solution_at", call=posterior.solution_at, arguments={"chain": 0, "draw": 3}),
        Target(name="load_posterior", call=bpm.load_posterior, arguments={"path": "posterior", "largest": 2**30}),
        Target(name="uniform_solution", call=bpm.uniform_solution, arguments={"network": released.specification}),
        Target(name="kl_divergence", call=bpm.kl_divergence, arguments={"truth": solution, "estimate": aware}),
        Target(name="solution_of", call=evaluation.solution_of, arguments={"network": solution}),
        Target(name="compare of several", call=bpm.compare, arguments={
            "methods": {"x": aware, "y": posterior, "z": learned}, "truth": declared, "count": None}),
        Target(name="edge_marginals", call=plots.edge_marginals, arguments={
            "reference": aware, "solutions": {"x": posterior}}),
        Target(name="noisy_against_posterior", call=plots.noisy_against_posterior, arguments={
            "posterior": posterior, "cliques": [("a", "b")], "prob": 0.9, "is_centred": True}),
        Target(name="citation", call=lambda result: bpm.citation(result), arguments={"result": posterior}),
        Target(name="interval_frame", call=inference.interval_frame, arguments={
            "estimate": [0.5], "lower": [0.4], "upper": [0.6], "index": pd.RangeIndex(1),
            "status": bpm.Status.CONVERGED, "marks": (), "is_simulated": False}),
        Target(name="load_release", call=bpm.load_release, arguments={"path": "released"}),
        Target(name="read_declaration", call=records.read_declaration, arguments={"path": "model.toml"}),
        Target(name="recode", call=records.recode, arguments={
            "declaration": survey.fair_survey_declaration(), "data": survey.fair_survey_records().head(5)}),
    ]  # fmt: skip


def _networks() -> list[Target]:
    spins = np.array([1, -1, 1, 1], dtype=np.int8)
    chain = network.IsingNetwork.from_graph([(0, 1), (1, 2), (2, 3)])
    estimate = mechanisms.ObjectivePerturbation(epsilon=5.0).release(chain, spins, rng=1)
    unbounded = mechanisms.ObjectivePerturbation(epsilon=5.0, bounds=None).release(
        chain, spins, rng=1
    )
    few = {"configurations": 8, "noises": 2, "burn_in": 4, "sweeps": 1, "progress": False}
    simulated = {
        "rng": 1,
        "span": (0.0, 1.0),
        "betas": [0.0, 1.0],
        "cache": None,
        "moves": "heat-bath",
        **few,
    }
    spanned = {name: value for name, value in simulated.items() if name != "betas"}
    return [
        Target(name="NetworkEstimate.law", call=estimate.law, arguments=simulated),
        Target(name="NetworkEstimate.interval", call=unbounded.interval, sure=("span",), arguments={
            "prob": 0.9, **spanned}),
        Target(name="NetworkEstimate.save", call=estimate.save, arguments={"path": "estimate", "overwrite": True}),
        Target(name="ObjectivePerturbation.law", call=mechanisms.ObjectivePerturbation(epsilon=5.0).law, arguments={
            "network": chain, **simulated}),
    ]  # fmt: skip


def _learned() -> list[Target]:
    data, variables = frame(), bpm.declare(STATES)
    learned = mechanisms.SelectMeasure(rho=1.0).release(variables, data, rng=1)
    return [
        Target(name="LearnedPotentials.graph", call=learned.graph, arguments={"threshold": 0.1, "weight": "largest"}),
        Target(name="LearnedPotentials.association", call=learned.association, arguments={
            "first": "a", "second": "b"}),
        Target(name="LearnedPotentials.sample", call=learned.sample, arguments={
            "size": 3, "rng": 1, "method": "independent"}),
        Target(name="LearnedPotentials.save", call=learned.save, arguments={"path": "learned", "overwrite": True}),
        *(
            Target(name=f"{type(each).__name__}.interval", call=each.interval, arguments={
                "variables": ["a", "b"], "prob": 0.9, "of": "population", "given": {"c": True}})
            for each in (
                mechanisms.SelectMeasure(rho=1.0, degree=1).release(variables, data, rng=1),
                mechanisms.PrivateFrankWolfe(rho=1.0, width=1.0, steps=2).release(variables, data, rng=1),
            )
        ),
        Target(name="learned_graph", call=plots.learned_graph, arguments={
            "learned": learned, "threshold": 0.0, "excludes_zero": None, "order": "declared", "rng": 1}),
        Target(name="simulated_survey", call=learning.simulated_survey, arguments={"size": 5, "rng": 1}),
    ]  # fmt: skip


def _plans(declared: Any) -> list[Target]:
    variables = bpm.declare(STATES)
    statistics = [mechanisms.LaplaceStatistics(epsilon=1.0), mechanisms.GaussianStatistics(rho=1.0)]
    others = [
        mechanisms.SelectMeasure(rho=1.0),
        mechanisms.SelectMeasure(rho=1.0, degree=1),
        mechanisms.PrivateFrankWolfe(rho=1.0, width=1.0, steps=2),
        mechanisms.ParityQueries(rho=1.0, order=2),
        mechanisms.DPSGD(epsilon=1.0, delta=1e-5, steps=3),
    ]
    found = []
    for each in [*statistics, *others]:
        network = variables if each in others[:4] else declared
        arguments = {"network": network, "total": 100}
        found.append(
            Target(name=f"{type(each).__name__}.outlays", call=each.outlays, arguments=arguments)
        )
    for each in statistics:
        name = f"{type(each).__name__}.noise_laws"
        found.append(Target(name=name, call=each.noise_laws, arguments={"network": declared}))
    return found


def _parts(released: Any) -> list[Target]:
    model = released.specification
    chain = network.IsingNetwork.from_graph([(0, 1), (1, 2), (2, 3)])
    spins = np.array([1, -1, 1, 1], dtype=np.int8)
    likelihood = chain.pseudo_likelihood(spins)
    constants = mechanisms.ObjectivePerturbation(epsilon=5.0).release(chain, spins, rng=1).constants
    few = {"configurations": 8, "noises": 2, "burn_in": 4, "sweeps": 1, "progress": False}
    simulated = {"constants": constants, "bounds": (0.0, 5.0), "betas": [0.0, 1.0], "rng": 1, **few}
    return [
        Target(name="Domain.codes_of", call=model.domain.codes_of, arguments={"variable": "a"}),
        Target(name="ModelSpecification.positions_of", call=model.positions_of, arguments={"variables": ["a", "b"]}),
        Target(name="Measurement.aligned", call=Measurement(
            queries.table("a"), {"u": 1.0, "v": 2.0}, noise.Laplace(1.0)).aligned, arguments={"model": model}),
        Target(name="NoNoise.of_variance", call=noise.NoNoise.of_variance, arguments={"variance": 0.0}),
        Target(name="Within.of_variance", call=noise.Within.of_variance, arguments={"variance": 1.0}),
        Target(name="EstimateLaw.simulate", call=network.EstimateLaw.simulate, arguments={
            "network": chain, **simulated}),
        Target(name="IsingNetwork.pseudo_likelihood_estimate", call=chain.pseudo_likelihood_estimate, arguments={
            "outcomes": spins, "positive": 1, "negative": -1, "bounds": (0.0, 5.0)}),
        Target(name="PseudoLikelihood()", call=likelihood, arguments={"beta": 0.5}),
        Target(name="PseudoLikelihood.information", call=likelihood.information, arguments={"beta": 0.5}),
    ]  # fmt: skip
