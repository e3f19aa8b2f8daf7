"""Right calls of what reads others' files, of posteriors and structures, of audits, and of marginals on arrays."""

from __future__ import annotations

import csv
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from inference.posterior.drawn import drawn_posterior

import bayesprivmrf as bpm
from bayesprivmrf import audit, marginals, mechanisms, readers
from bayesprivmrf.noise import DiscreteLaplace, noise_source

from .calls import LEDGER, STATES, Target, frame

__all__ = ["reading_targets"]


def reading_targets(network: Any, released: Any) -> list[Target]:
    """Return them."""
    return [
        *_readers(network),
        *_posterior(released),
        *_structures(),
        *_learned(),
        *_audits(network),
        *_marginals(),
    ]


def _readers(network: Any) -> list[Target]:
    places = bpm.declare({"tract": ["4401", "4402"], "age": ["young", "old"]}, [("tract", "age")])

    def census(**given: Any) -> Any:
        _census_folder()
        return readers.read_census(places, **given)

    linear = SimpleNamespace(
        query=None, noisy_measurement=np.full(4, 10.0), stddev=2.0, clique=("a", "b")
    )

    def opendp(keys: Any, marginals: Any, **given: Any) -> Any:
        table = SimpleNamespace(keys=keys, marginals=marginals)
        return readers.from_opendp(network, table, **given)

    keys = {name: list(states) for name, states in STATES.items()}
    of_each = {"query": None, "values": np.full(4, 10.0), "deviation": 2.0, "clique": ("a", "b")}

    def opendp_of_one(**one: Any) -> Any:
        return opendp(keys, {("a", "b"): tuple(one.values())}, noise="discrete-gaussian", total=40)

    return [
        Target(name="readers.read_census", call=census, arguments={
            "source": "census", "queries": {"age_dpq": ("age",)}, "levels": ["Tract"], "area": "tract",
            "constraints": None, "state": "44", "noise": "discrete-gaussian", "guarantee": None, "total": 42}),
        Target(name="readers.read_census", call=census, arguments={
            "source": Path("census"), "queries": {"age_dpq": ("age",), "total_dpq": ()},
            "levels": {"County": {"44": ["4401", "4402"]}, "Tract": None}, "area": "tract", "state": None}),
        Target(name="readers.from_opendp", call=opendp, arguments={
            "keys": keys, "marginals": {("a", "b"): linear}, "noise": "discrete-gaussian", "missing": None,
            "guarantee": None, "total": 40}),
        Target(name="readers.from_opendp of one", call=opendp_of_one, arguments=of_each),
        Target(name="readers.from_opendp", call=readers.from_opendp, sure=("contingency_table",), arguments={
            "network": network, "contingency_table": SimpleNamespace(), "noise": "discrete-laplace"}),
    ]  # fmt: skip


def _census_folder() -> None:
    for level, codes, times in (("Tract", ["4401", "4402"], 1), ("County", ["44"], 2)):
        place = Path("census") / level / "DPQuery" / "State=44"
        if place.is_dir():
            continue
        place.mkdir(parents=True)
        with (place / "part.csv").open("w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(["geocode", "query_name", "value", "variance", "query_shape"])
            for code in codes:
                rows.writerow([code, "age_dpq", f"[{12 * times}, {9 * times}]", 2.0, "[2]"])
                rows.writerow([code, "total_dpq", f"[{20 * times}]", 2.0, "[1]"])


def _posterior(released: Any) -> list[Target]:
    posterior = drawn_posterior(released, 20, with_prior=True)
    return [
        Target(name="Posterior.interval", call=posterior.interval, arguments={
            "variables": ["a", "b"], "prob": 0.9, "of": "population", "given": {"c": True}}),
        Target(name="Posterior.interval", call=posterior.interval, arguments={
            "variables": "a", "prob": 0.9, "of": "records", "given": {"b": 0}}),
        Target(name="Posterior.probability", call=posterior.probability, arguments={
            "states": {"a": "u", "c": True}, "prob": 0.9, "given": {"b": 0}}),
        Target(name="Posterior.quantity", call=_with_function(posterior.quantity, "function"), arguments={
            "function": lambda draw: draw.marginal(["a"]), "prob": 0.9, "draws": 5}),
        Target(name="Posterior.marginal", call=posterior.marginal, arguments={
            "variables": ["a", "c"], "given": {"b": 0}}),
        Target(name="Posterior.summary", call=posterior.summary, arguments={"prob": 0.9}),
        Target(name="Posterior.edge_presence", call=posterior.edge_presence, arguments={
            "threshold": 0.1, "prob": 0.9}),
        Target(name="Posterior.predictive_check", call=posterior.predictive_check, arguments={"rng": 1}),
        Target(name="Posterior.synthetic", call=posterior.synthetic, arguments={
            "number": 2, "size": 5, "rng": 1}),
        Target(name="Posterior.sample", call=posterior.sample, arguments={
            "size": 5, "rng": 1, "method": "independent"}),
        Target(name="Posterior.network_at", call=posterior.network_at, arguments={"chain": 0, "draw": 3}),
        Target(name="Posterior.save", call=posterior.save, arguments={"path": Path("tree.nc")}),
    ]  # fmt: skip


def _with_function(call: Any, *names: str) -> Any:
    """Replace what ends in an error of its own when it is called by what cannot be called.

    Classes, and functions of anything, are the caller's to get right.
    """

    def called(**given: Any) -> Any:
        return call(
            **{
                name: None if name in names and isinstance(value, type) else value
                for name, value in given.items()
            }
        )

    return called


def _structures() -> list[Target]:
    variables, data = bpm.declare(STATES), frame()
    settings = {
        "epsilon": 1.0, "delta": 0.01, "structure": "graph", "threshold": 0.2, "given": 1, "order": 2,
        "adjacency": "replace-one", "missing": {"a": "u"}, "other": None,
    }  # fmt: skip
    good = mechanisms.StableStructure(epsilon=8.0, delta=0.01)

    def promised(**settings: Any) -> Any:
        return mechanisms.StableStructure(**settings).promise(variables)

    def released(ledger: Any, **settings: Any) -> Any:
        return mechanisms.StableStructure(**settings).release(variables, data, ledger=ledger)

    tree = {
        "epsilon": 1.0,
        "delta": 0.01,
        "adjacency": "replace-one",
        "missing": {"a": "u"},
        "other": None,
    }
    graph = good.release(bpm.declare(STATES), frame(), rng=1)
    return [
        Target(name="StableStructure", call=mechanisms.StableStructure, arguments=settings),
        Target(name="StableStructure(...).promise", call=promised, arguments=settings),
        Target(name="StableStructure(...).release", call=released, sure=tuple(tree), arguments={
            **tree, "ledger": LEDGER}),
        Target(name="StableStructure.preview", call=good.preview, arguments={"network": variables, "total": 100}),
        Target(name="StableStructure.release", call=good.release, arguments={
            "network": variables, "data": data, "rng": None, "ledger": LEDGER}),
        Target(name="ReleasedGraph.save", call=graph.save, arguments={"path": Path("graph"), "overwrite": True}),
    ]  # fmt: skip


def _learned() -> list[Target]:
    states = STATES | {"d": ["x", "y", "z"]}
    data = frame().assign(d=["x", "y", "z", "x"] * 10)
    learned = mechanisms.SelectMeasure(rho=1.0, degree=1).release(bpm.declare(states), data, rng=1)
    return [
        Target(name="LearnedPairwise.graph", call=learned.graph, arguments={
            "threshold": 0.0, "weight": "dependence"}),
        Target(name="LearnedPairwise.association", call=learned.association, arguments={
            "first": "a", "second": "d"}),
        Target(name="LearnedPairwise.sample", call=learned.sample, arguments={"size": 3, "rng": 1}),
        Target(name="LearnedPairwise.save", call=learned.save, arguments={
            "path": Path("learned"), "overwrite": True}),
        Target(name="LearnedPairwise.couplings_interval", call=learned.couplings_interval,
               sure=("prob", "of", "method"), arguments={
            "prob": 0.9, "rng": 1, "replicates": 4, "of": "fields", "method": "calibrated", "total": 40}),
        Target(name="record_codes", call=mechanisms.record_codes, arguments={
            "domain": bpm.Domain.from_states(STATES), "data": frame(), "missing": {"a": 0}, "other": None}),
    ]  # fmt: skip


def _audits(network: Any) -> list[Target]:
    law, guarantee = (
        DiscreteLaplace(2.0),
        bpm.PrivacyGuarantee(epsilon=1.0, adjacency="add-or-remove-one"),
    )

    def statistic(runs: int) -> np.ndarray:
        return np.arange(runs) % 7.0

    settings = {"runs": 100, "confidence": 0.99, "deltas": [0.0, 0.1]}
    draws = [audit.Sums(law=law, copies=2), audit.Choices(scale=2.0, score_range=1.0, copies=1)]
    loss = audit.privacy_loss([law], [1])
    functions = ("randomizer_a", "randomizer_b", "guarantee_curve", "add")
    return [
        Target(name="audit.audit", call=_with_function(audit.audit, *functions), arguments={
            "randomizer_a": statistic, "randomizer_b": statistic, "guarantee_curve": guarantee, **settings}),
        Target(name="audit.audit_noise", call=_with_function(audit.audit_noise, *functions), arguments={
            "add": lambda counts, table: counts, "laws": [law], "adjacency": "replace-one", "moves": [(1, -1)],
            **settings}),
        Target(name="audit.audit_draws", call=audit.audit_draws, arguments={
            "draws": draws, "source": noise_source(1), **settings}),
        Target(name="audit.audit_releases", call=audit.audit_releases, sure=("mechanism", "model"), arguments={
            "mechanism": mechanisms.LaplaceStatistics(epsilon=1.0), "model": network, **settings}),
        Target(name="audit.exact_cost", call=audit.exact_cost, arguments={"draws": draws, "guarantee": guarantee}),
        Target(name="audit.Sums", call=audit.Sums, arguments={"law": law, "copies": 2, "shift": 1}),
        Target(name="audit.Choices", call=audit.Choices, arguments={
            "scale": 2.0, "score_range": 1.0, "copies": 1, "behind": 0.0}),
        Target(name="audit.StableAnswers", call=audit.StableAnswers, arguments={
            "law": law, "threshold": 4, "copies": 1}),
        Target(name="audit.privacy_loss", call=audit.privacy_loss, arguments={"laws": [law, law], "shifts": [1, -1]}),
        Target(name="audit.gaussian_epsilon", call=audit.gaussian_epsilon, arguments={"mu": 1.0, "delta": 1e-6}),
        Target(name="PrivacyLoss.epsilon", call=loss.epsilon, arguments={"delta": 1e-3}),
        Target(name="PrivacyLoss.delta", call=loss.delta, arguments={"epsilon": 0.5}),
    ]  # fmt: skip


def _marginals() -> list[Target]:
    model = {"cardinalities": [2, 3, 2], "scopes": [(0, 1), (1, 2)]}
    flat = np.zeros(12)
    limit = {"memory_limit": 2**30}
    return [
        Target(name="marginals.forecast", call=marginals.forecast, arguments=dict(model)),
        Target(name="marginals.marginal_engine", call=marginals.marginal_engine, arguments={
            **model, "kind": "loopy", **limit}),
        Target(name="marginals.marginal_of", call=marginals.marginal_of, arguments={
            **model, "potentials": flat, "query": (0, 2), "given": {1: 0}, "kind": "loopy", **limit}),
        Target(name="marginals.clamped", call=marginals.clamped, arguments={
            **model, "potentials": flat, "states": {1: 2}}),
        Target(name="marginals.sample", call=marginals.sample, arguments={
            **model, "potentials": flat, "size": 5, "rng": np.random.default_rng(1), "is_balanced": False, **limit}),
    ]  # fmt: skip
