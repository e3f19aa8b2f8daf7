"""Right calls of queries, of what is measured by them, of chains and of readers."""

from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

import bayesprivmrf as bpm
from bayesprivmrf import mechanisms, readers, sequences
from bayesprivmrf import queries as q
from bayesprivmrf.privacy import Laplace, NoNoise
from bayesprivmrf.release import Measurement, NoisyStatistics

from .calls import LEDGER, STATES, Target, frame


def measured_targets(network: Any) -> list[Target]:
    """Return them."""
    asked = [
        q.table("a", "b"),
        q.coarsened("c", c={"all": [True, False]}),
        q.parities(2, with_empty=False),
    ]
    given = [Measurement(one, np.ones(len(one.bind(network))), Laplace(2.0)) for one in asked]
    return [
        *_queries(network, asked, given),
        *_mechanisms(network, asked),
        *_chains(),
        *_readers(network),
    ]


def _queries(network: Any, asked: Any, given: Any) -> list[Target]:
    return [
        Target(name="queries.table", call=lambda first, second: q.table(first, second).bind(network), arguments={
            "first": "a", "second": "b"}),
        Target(name="queries.coarsened", call=lambda first, groups: q.coarsened(first, groups=groups).bind(network),
            arguments={"first": "a", "groups": {"a": {"both": ["u", "v"]}}}),
        Target(name="queries.weighted", call=lambda matrix, labels: q.weighted("a", matrix=matrix, labels=labels),
            arguments={"matrix": [[1, -1]], "labels": ["difference"]}),
        Target(name="queries.parities", call=q.parities, arguments={"order": 2, "with_empty": True}),
        Target(name="queries.pooled", call=q.pooled, arguments={"scopes": [("a", "b"), ("b", "c")]}),
        Target(name="queries.sensitivity", call=q.sensitivity, arguments={
            "queries": asked, "network": network, "norm": 1, "adjacency": bpm.Adjacency.REPLACE_ONE,
            "scales": [1.0, 2.0, 3.0]}),
        Target(name="Measurement", call=Measurement, arguments={
            "query": asked[0], "values": np.ones(4), "noise": Laplace(1.0)}),
        Target(name="NoisyStatistics.from_measurements", call=NoisyStatistics.from_measurements, arguments={
            "network": network, "measurements": given, "guarantee": None, "total": 40}),
    ]  # fmt: skip


def _mechanisms(network: Any, asked: Any) -> list[Target]:
    def release(network: Any, data: Any, ledger: Any, **settings: Any) -> Any:
        return mechanisms.LaplaceStatistics(**settings).release(network, data, ledger=ledger)

    return [
        Target(name="LaplaceStatistics(queries).release", call=release, arguments={
            "network": network, "data": frame(), "ledger": LEDGER, "epsilon": 1.0, "queries": asked,
            "weights": [1, 2, 3]}, sure=("network", "data", "epsilon", "queries", "weights")),
    ]  # fmt: skip


def _chains() -> list[Target]:
    chain = bpm.markov_chain(["u", "v"], 3, share="transitions")
    parts = [q.pooled(list(pairwise(["x1", "x2", "x3"]))), q.table("x1")]
    release = NoisyStatistics.from_measurements(
        chain,
        [
            Measurement(one, values, Laplace(1.0))
            for one, values in zip(
                parts, [np.array([90, 20, 30, 60]), np.array([60, 40])], strict=True
            )
        ],
    )
    solution = bpm.NoiseAwareMAP().fit(release)
    return [
        Target(name="markov_chain", call=bpm.markov_chain, arguments={
            "states": ["u", "v"], "length": 4, "order": 1, "share": "potentials", "names": None}),
        Target(name="declare", call=bpm.declare, arguments={
            "states": STATES, "cliques": [("a", "b"), ("b", "c")], "tied": ()}),
        *(Target(name=f"sequences.{function.__name__}", call=function, arguments={
            "fit": solution, "prob": 0.9, "step": None})
            for function in (sequences.transition_matrix, sequences.stationary_law, sequences.sojourn_times)),
        Target(name="sequences.hitting_times", call=sequences.hitting_times, arguments={
            "fit": solution, "target": "u", "prob": 0.9}),
    ]  # fmt: skip


class _Mbi:
    def __init__(self, values: Any) -> None:
        self.noisy_measurement, self.clique, self.stddev, self.query = values, ("a", "b"), 2.0, None


def _readers(network: Any) -> list[Target]:
    counts = pd.DataFrame(
        {"a": ["u", "u", "v", "v"], "b": [0, 1, 0, 1], "value": [5.0, 6.0, 7.0, 8.0]}
    )
    whole = pd.DataFrame({"c": [True, False], "value": [10.0, 16.0]})
    both = pd.concat([counts, whole], ignore_index=True).astype(object)
    return [
        Target(name="readers.read_counts", call=readers.read_counts, arguments={
            "network": network, "source": both.where(both.notna(), "*"), "noise": Laplace(2.0), "groups": None,
            "columns": None, "everything": "*", "missing": None, "withheld": None, "guarantee": None, "total": None}),
        Target(name="readers.read_counts", call=readers.read_counts, arguments={
            "network": network, "source": counts.pivot(index="a", columns="b", values="value"), "noise": NoNoise(),
            "columns": {}, "withheld": {"s": (1, 4)}, "total": None}),
        Target(name="readers.from_mbi", call=readers.from_mbi, arguments={
            "network": network, "measurements": [(np.eye(4), np.full(4, 10.0), 2.0, ("a", "b"))], "noise": "gaussian",
            "total": 40}),
        Target(name="readers.from_mbi", call=lambda values: readers.from_mbi(network, [_Mbi(values)], total=40),
            arguments={"values": np.full(4, 10.0)}),
    ]  # fmt: skip
