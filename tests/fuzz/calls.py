"""Bad calls of the public names: valid ones, an argument or two of which is what nobody should pass."""

from __future__ import annotations

import datetime
import functools
import math
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import xarray as xr

import bayesprivmrf as bpm
from bayesprivmrf import learning, mechanisms, noise, plots, privacy, queries, records
from bayesprivmrf.network import EstimateLaw, IsingNetwork, PseudoLikelihood

__all__ = ["Call", "Ledger", "bad_calls"]

NASTY: dict[str, Any] = {
    "None": None,
    "nan": float("nan"),
    "inf": float("inf"),
    "-1": -1,
    "0": 0,
    "10**400": 10**400,
    "-10**400": -(10**400),
    "2**63": 2**63,
    "1e308": 1e308,
    "-inf": -np.inf,
    "5e-324": 5e-324,
    "np.float32('nan')": np.float32("nan"),
    "np.uint8(255)": np.uint8(255),
    "'no'": "no",
    "'\\x1b[2J'": "\x1b[2J",
    "'\\ud800'": "\ud800",
    "'../' * 2000": "../" * 2000,
    "Path('b' * 300)": Path("b" * 300),
    "Decimal('1e400')": Decimal("1e400"),
    "datetime.date.max": datetime.date.max,
    "True": True,
    "''": "",
    "'\\0'": "\0",
    "'a' * 300": "a" * 300,
    "b'a'": b"a",
    "1j": 1j,
    "Fraction(1, 3)": Fraction(1, 3),
    "Decimal('nan')": Decimal("nan"),
    "Decimal('0.5')": Decimal("0.5"),
    "[]": [],
    "{}": {},
    "()": (),
    "set()": set(),
    "object()": object(),
    "NotImplemented": NotImplemented,
    "...": ...,
    "lambda": lambda *_, **__: 0,
    "slice(1)": slice(1),
    "a generator": (x for x in ()),
    "np.array('x')": np.array("x"),
    "np.array(None)": np.array(None),
    "np.zeros(0)": np.zeros(0),
    "np.zeros((2, 2))": np.zeros((2, 2)),
    "np.zeros((1, 2, 3), complex)": np.zeros((1, 2, 3), complex),
    "np.array([nan, 1])": np.array([np.nan, 1.0]),
    "np.array(['a', None])": np.array(["a", None], dtype=object),
    "np.datetime64('NaT', 'D')": np.datetime64("NaT", "D"),
    "np.array([True])": np.array([True]),
    "pd.NA": pd.NA,
    "pd.NaT": pd.NaT,
    "pd.DataFrame()": pd.DataFrame(),
    "pd.DataFrame({0: [1]})": pd.DataFrame({0: [1]}),
    "pd.Series([pd.NA])": pd.Series([pd.NA], dtype="Int64"),
    "dict": dict,
    "pd.DataFrame": pd.DataFrame,
    "Domain": bpm.Domain,
    "[[['a']]]": [[["a"]]],
    "[[0], 1]": [[0], 1],
    "[None]": [None],
    "{None: None}": {None: None},
    "{'a': {}}": {"a": {}},
    "range(0)": range(0),
    "range(10**4)": range(10**4),
    "[nan, 1]": [math.nan, 1.0],
    "[1e308, 1e308]": [1e308, 1e308],
    "[-1, 2**63]": [-1, 2**63],
    "np.full((2, 2), 1e308)": np.full((2, 2), 1e308),
    "np.arange(4)": np.arange(4),
    "np.ma.masked": np.ma.masked,
    "pd.Series({'u': 1.0, 'v': 2.0})": pd.Series({"u": 1.0, "v": 2.0}),
    "pd.DataFrame(text)": pd.DataFrame({"a": ["u", None], "b": ["\x1b", "v"]}),
    "xr.DataArray(np.eye(2), dims='ab')": xr.DataArray(np.eye(2), dims=["a", "b"]),
    "Solution": bpm.Solution,
    "NoisyStatistics": bpm.NoisyStatistics,
    "a solution": bpm.uniform_solution(bpm.declare({"a": ["u", "v"]}, [("a",)])),
    "a model": bpm.ModelSpecification.from_pgmpy(bpm.declare({"a": ["u", "v"]}, [("a",)])),
    "a network": bpm.declare({"a": ["u", "v"]}, [("a",)]),
    "a query": queries.table("a"),
    "a law": noise.DiscreteLaplace(2.0),
    "a guarantee": bpm.PrivacyGuarantee(epsilon=1.0, adjacency="add-or-remove-one"),
}


class Ledger:
    """Records what is charged."""

    def __init__(self) -> None:
        self.spent: list[Any] = []

    def spend(self, guarantee: Any, provenance: Any) -> None:
        self.spent.append(guarantee)


@dataclass(frozen=True, kw_only=True)
class Target:
    """A public call that is right as it stands; `sure` are arguments of which one is replaced at least."""

    name: str
    call: Callable[..., Any]
    arguments: dict[str, Any]
    sure: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Call:
    """One bad call, with the text that reproduces it."""

    text: str
    run: Callable[[], Any]
    ledger: Ledger | None


def bad_calls(count: int, seed: int) -> Iterator[Call]:
    """Yield bad calls, each target in turn."""
    rng = np.random.default_rng(seed)
    known = targets()
    for number in range(count):
        target = known[number % len(known)]
        names = list(target.arguments)
        chosen = set(
            rng.choice(names, size=min(len(names), 1 + int(rng.random() < 0.3)), replace=False)
        )
        if target.sure:
            chosen.add(str(rng.choice(target.sure)))
        arguments, told = dict(target.arguments), []
        for name in sorted(chosen):
            text, arguments[name] = _bad(arguments[name], rng)
            told.append(f"{name}={text}")
        ledger = arguments.get("ledger")
        if ledger is LEDGER:
            ledger = arguments["ledger"] = Ledger()
        yield Call(
            text=f"{target.name}({', '.join(told)})",
            run=functools.partial(target.call, **arguments),
            ledger=ledger if isinstance(ledger, Ledger) else None,
        )


def _bad(valid: Any, rng: np.random.Generator) -> tuple[str, Any]:
    """Return a nasty value, or the valid one with a nasty value somewhere in it, and how to write it."""
    text = str(rng.choice(list(NASTY)))
    nasty = NASTY[text]
    if rng.random() < 0.6 or not isinstance(valid, dict | list | tuple) or not valid:
        return text, nasty
    place, kind = int(rng.integers(len(valid))), rng.random()
    if isinstance(valid, dict):
        key = list(valid)[place]
        if kind < 0.6 or not isinstance(nasty, Hashable):
            return f"{{..., {key!r}: {text}}}", valid | {key: nasty}
        rest = {one: value for one, value in valid.items() if one != key}
        if kind < 0.8:
            return f"{{... without {key!r}}}", rest
        return f"{{... {text} for the key {key!r}}}", rest | {nasty: valid[key]}
    if kind < 0.8:
        return f"[..., {text} at {place}]", type(valid)(
            [*valid[:place], nasty, *valid[place + 1 :]]
        )
    return f"[... without {place}]", type(valid)([*valid[:place], *valid[place + 1 :]])


STATES = {"a": ["u", "v"], "b": [0, 1], "c": [True, False]}
CLIQUES = [("a", "b"), ("b", "c")]
LEDGER = Ledger()
"""Stands for a new one in each call."""


def frame() -> pd.DataFrame:
    codes = np.random.default_rng(0).integers(0, 2, (40, 3))
    return pd.DataFrame(
        {name: [STATES[name][i] for i in codes[:, k]] for k, name in enumerate(STATES)}
    )


@functools.cache
def targets() -> list[Target]:
    """Return the valid calls."""
    from .further_calls import further_targets
    from .measured_calls import measured_targets
    from .reading_calls import reading_targets

    network = bpm.declare(STATES, cliques=CLIQUES)
    model = bpm.ModelSpecification.from_pgmpy(network)
    released = mechanisms.LaplaceStatistics(epsilon=1.0).release(network, frame(), rng=1)
    solution = bpm.NaiveMLE().fit(released)
    return [
        *_declarations(network, model),
        *_inference(network, released, solution),
        *_guarantees(),
        *_laws(),
        *_mechanisms(network),
        *_networks(),
        *_learned(network),
        *_files(released),
        *_plots(solution),
        *measured_targets(network),
        *reading_targets(network, released),
        *further_targets(network, released, solution),
    ]


def _declarations(network: Any, model: Any) -> list[Target]:
    domain = model.domain
    tables = {clique: np.ones((2, 2)) for clique in model.cliques}
    law = noise.DiscreteLaplace(2.0)
    arrays = list(tables.values())
    return [
        Target(name="declare", call=bpm.declare, arguments={
            "states": STATES, "cliques": CLIQUES, "impossible": [{"a": "u", "b": 0}]}),
        Target(name="Domain", call=bpm.Domain, arguments={
            "variables": ("a", "b"), "states": (("u", "v"), (0, 1))}),
        Target(name="Domain.from_states", call=bpm.Domain.from_states, arguments={"states": STATES}),
        Target(name="Domain.index", call=domain.index, arguments={"variable": "a"}),
        Target(name="Domain.states_of", call=domain.states_of, arguments={"variable": "a"}),
        Target(name="Domain.code", call=domain.code, arguments={"variable": "a", "label": "u"}),
        Target(name="ModelSpecification", call=bpm.ModelSpecification, arguments={
            "domain": domain, "cliques": (("a", "b"), ("c",)), "impossible": ((("a", "u"), ("b", 0)),),
            "cliques_declared": True}),
        Target(name="ModelSpecification.from_pgmpy", call=bpm.ModelSpecification.from_pgmpy, arguments={
            "network": network, "states": STATES}),
        Target(name="ModelSpecification.tables", call=model.tables, arguments={"flat": np.zeros(model.size)}),
        Target(name="ModelSpecification.to_pgmpy", call=model.to_pgmpy, arguments={
            "potentials": np.zeros(model.size), "log_partition": 1.0}),
        Target(name="CliqueTables.from_arrays", call=bpm.CliqueTables.from_arrays, arguments={
            "domain": domain, "cliques": list(tables), "arrays": arrays}),
        Target(name="CliqueTables", call=bpm.CliqueTables, arguments={
            "domain": domain, "cliques": (("a", "b"), ("b", "c")), "flat": np.zeros(8)}),
        Target(name="CliqueTables.to_xarray", call=model.tables(np.zeros(model.size)).to_xarray, arguments={
            "clique": ("a", "b"), "name": "x"}),
        Target(name="NoisyStatistics.from_tables", call=bpm.NoisyStatistics.from_tables, arguments={
            "network": network, "tables": tables, "noise": law,
            "guarantee": bpm.PrivacyGuarantee(epsilon=1.0, adjacency=bpm.Adjacency.REPLACE_ONE), "total": 4}),
        Target(name="NoisyStatistics.from_tables", call=bpm.NoisyStatistics.from_tables, arguments={
            "network": network, "tables": tables, "noise": dict.fromkeys(tables, law)}),
        Target(name="uniform_solution", call=bpm.uniform_solution, arguments={"network": network}),
    ]  # fmt: skip


def _fitting(make: Callable[..., Any], releases: Any) -> Callable[..., Any]:
    """Construct with settings and fit; no release stands for the settings alone."""
    return lambda **settings: (
        make(**settings) if releases is None else make(**settings).fit(releases)
    )


def _inference(network: Any, released: Any, solution: Any) -> list[Target]:
    settings: dict[Any, dict[str, Any]] = {
        bpm.NaiveMLE: {
            "ridge": 1.0, "projection": "simplex", "inference": "exact", "iterations": 50, "tolerance": 1e-3},
        bpm.CGM: {
            "steps": 20, "stopping": "none", "acceleration": 1.5, "e_step": "dual", "damping": 0.5,
            "nlbp_iterations": 5, "is_smoothed": True, "inference": "exact"},
        bpm.NoiseAwareMAP: {"scale": 1.0, "inference": "exact", "rounds": 2, "tolerance": 0.5},
        bpm.LatentCounts: {
            "formulation": "auto", "concentration": 1.0, "scale": None, "total_range": (1.0, 1e10)},
    }  # fmt: skip
    fitted = [
        Target(name=f"{make.__name__}(...).fit", call=_fitting(make, fit), arguments=given)
        for make, given in settings.items()
        for fit in [None if make is bpm.LatentCounts else released]
    ]
    fits = [
        Target(
            name=f"{make.__name__}().fit",
            call=make().fit,
            arguments={"releases": [released, released]},
        )
        for make in (bpm.NaiveMLE, bpm.NoiseAwareMAP)
    ]
    latent = {"rng": 1, "prior": False, "sampler": "nutpie", "draws": 2, "tune": 2, "chains": 1}
    aware = bpm.NoiseAwareMAP().fit(released)
    return [
        *fitted,
        *fits,
        Target(name="LatentCounts().fit", call=bpm.LatentCounts().fit, sure=("releases",), arguments={
            "releases": [released], **latent}),
        Target(name="Solution.marginal", call=solution.marginal, arguments={
            "variables": ["a", "c"], "given": {"b": 0}}),
        Target(name="Solution.probability", call=solution.probability, arguments={
            "states": {"a": "u", "c": True}, "given": {"b": 0}}),
        Target(name="Solution.sample", call=solution.sample, arguments={
            "size": 3, "rng": 1, "method": "balanced"}),
        Target(name="NoiseAwareSolution.interval", call=aware.interval, arguments={
            "variables": ["a", "b"], "prob": 0.9, "given": {"c": True}}),
        Target(name="compare", call=bpm.compare, arguments={
            "methods": {"x": solution}, "truth": solution, "holdout": frame(), "missing": None, "other": None}),
        Target(name="kl_divergence", call=bpm.kl_divergence, arguments={"truth": network, "estimate": solution}),
        Target(name="holdout_log_likelihood", call=bpm.holdout_log_likelihood, arguments={
            "estimate": solution, "data": frame(), "missing": None, "other": None}),
        Target(name="combine_estimates", call=bpm.combine_estimates, arguments={
            "estimates": [1.0, 2.0, 4.0], "variances": [1.0, 2.0, 1.0], "prob": 0.9}),
        Target(name="citation", call=lambda first, second: bpm.citation(first, second), arguments={
            "first": solution, "second": released}),
    ]  # fmt: skip


def _guarantees() -> list[Target]:
    adjacency = bpm.Adjacency.REPLACE_ONE
    pure = bpm.PrivacyGuarantee(epsilon=1.0, adjacency=adjacency)
    zero = bpm.PrivacyGuarantee(rho=1.0, adjacency=adjacency)
    approximate = {"epsilon": 1.0, "delta": 1e-6, "adjacency": adjacency, "unit": "person"}
    return [
        Target(name="PrivacyGuarantee", call=bpm.PrivacyGuarantee, arguments=approximate),
        Target(name="PrivacyGuarantee", call=bpm.PrivacyGuarantee, arguments={"rho": 1.0, "adjacency": adjacency}),
        Target(name="to_approximate", call=zero.to_approximate, arguments={"delta": 1e-6}),
        Target(name="PrivacyGuarantee.from_dict", call=bpm.PrivacyGuarantee.from_dict, arguments={
            "values": pure.as_dict()}),
        Target(name="PrivacyGuarantee.from_dict", call=bpm.PrivacyGuarantee.from_dict, arguments={
            "values": zero.as_dict()}),
        Target(name="selection_scale", call=privacy.selection_scale, arguments={
            "score_range": 1.0, "rho": 0.1, "choices": 3, "at_once": True}),
        Target(name="selection_rho", call=privacy.selection_rho, arguments={
            "score_range": 1.0, "scale": 2.0, "choices": 3, "at_once": False}),
        Target(name="discrete_laplace_laws", call=mechanisms.discrete_laplace_laws, arguments={
            "shares": [0.5, 0.5], "epsilon": 1.0, "sensitivity": 2}),
        Target(name="discrete_gaussian_laws", call=mechanisms.discrete_gaussian_laws, arguments={
            "shares": [0.5, 0.5], "rho": 1.0, "sensitivity": 1.5}),
        Target(name="promised_loss", call=mechanisms.promised_loss, arguments={
            "laws": [noise.DiscreteLaplace(2.0)], "sensitivity": 1}),
        Target(name="compose", call=lambda first, second: bpm.compose(first, second), arguments={
            "first": zero, "second": zero}),
    ]  # fmt: skip


def _laws() -> list[Target]:
    found = []
    for law in (
        privacy.Laplace,
        privacy.Gaussian,
        privacy.DiscreteLaplace,
        privacy.DiscreteGaussian,
        privacy.NoNoise,
    ):
        scale, name = 0.0 if law is privacy.NoNoise else 2.0, law.__name__
        made: Any = law(scale)
        found += [
            Target(name=name, call=law, arguments={"scale": scale}),
            Target(
                name=f"{name}.log_density", call=made.log_density, arguments={"residual": [1, 2]}
            ),
            Target(name=f"{name}.score", call=made.score, arguments={"residual": [1, 2]}),
            Target(
                name=f"{name}.draw",
                call=made.draw,
                arguments={"size": 3, "rng": np.random.default_rng(1)},
            ),
        ]
    return [
        *found,
        Target(name="noise_from_dict", call=privacy.noise_from_dict, arguments={
            "values": privacy.DiscreteGaussian(2.0).as_dict()}),
        Target(name="noise_source", call=noise.noise_source, arguments={"rng": 1}),
    ]  # fmt: skip


def _mechanisms(network: Any) -> list[Target]:
    variables, data = bpm.declare(STATES), frame()
    m = mechanisms
    redirect = {"missing": {"a": "u"}, "other": None}
    shared = {"adjacency": "replace-one", **redirect}
    weights = {("a", "b"): 1.0, ("b", "c"): 2.0}
    settings: list[tuple[Any, dict[str, Any], Any]] = [
        (m.LaplaceStatistics, {"epsilon": 1.0, "weights": weights, **shared}, network),
        (m.GaussianStatistics, {"rho": 1.0, "weights": weights, **shared}, network),
        (m.ExactStatistics, dict(shared), network),
        (m.PrivateFrankWolfe, {
            "rho": 1.0, "width": 1.0, "order": 2, "steps": 2, "method": "softmax",
            "target": "l1", **shared}, variables),
        (m.PrivateLogisticRegression, {"rho": 1.0, "radius": 1.0, "target": "a", "steps": 2, **shared}, variables),
        (m.SelectMeasure, {"rho": 1.0, "degree": 1, "measure": "moments", **shared}, variables),
        (m.SelectMeasure, {"rho": 1.0, "workload": [("a", "b")], "maximum_cells": 1000, **shared}, variables),
        (m.ParityQueries, {"rho": 1.0, "order": 2, "method": "gaussian", "rounds": None, **shared}, variables),
        (m.DPSGD, {
            "epsilon": 1.0, "delta": 1e-5, "steps": 3, "sampling_rate": 0.5, "clip": 1.0, "learning_rate": 0.1,
            "averaging": 0.5, **redirect}, network),
    ]  # fmt: skip
    graph = IsingNetwork.from_graph([(0, 1), (1, 2), (2, 3)])
    outcomes = np.array([1, -1, 1, 1])
    perturbation = {
        "epsilon": 5.0, "delta": 1e-6, "calibration": "tight", "bounds": (0.0, 5.0), "positive": 1, "negative": -1,
        "allow_large_delta": False}  # fmt: skip
    found = []
    for make, given, model in settings:
        found += _uses_of(make, given, model, data)
    return found + _uses_of(m.ObjectivePerturbation, perturbation, graph, outcomes)


def _uses_of(make: Any, given: dict[str, Any], model: Any, data: Any) -> list[Target]:
    """Return bad settings, bad settings that are then used, and bad uses of good settings."""
    good, name = make(**given), make.__name__
    use = {"network": model, "data": data}
    ledger = {} if make is mechanisms.ExactStatistics else {"ledger": LEDGER}

    def released(ledger: Any = None, **settings: Any) -> Any:
        return make(**settings).release(
            model, data, rng=1 if ledger is None else None, ledger=ledger
        )

    return [
        Target(name=name, call=make, arguments=given),
        Target(
            name=f"{name}(...).release", call=released, arguments=given | ledger, sure=tuple(given)
        ),
        Target(
            name=f"{name}(...).promise", call=lambda **s: make(**s).promise(model), arguments=given
        ),
        Target(
            name=f"{name}(...).preview", call=lambda **s: make(**s).preview(model), arguments=given
        ),
        Target(name=f"{name}.promise", call=good.promise, arguments={"network": model}),
        Target(
            name=f"{name}.preview", call=good.preview, arguments={"network": model, "total": 100}
        ),
        Target(name=f"{name}.release", call=good.release, arguments=use | {"rng": 1}),
        Target(name=f"{name}.release", call=good.release, arguments=use | {"rng": None} | ledger),
    ]


def _networks() -> list[Target]:
    pairs, spins = [(0, 1), (1, 2), (2, 3)], np.array([1, -1, 1, 1], dtype=np.int8)
    network = IsingNetwork.from_graph(pairs)
    weighted = nx.path_graph(3)
    likelihood = network.pseudo_likelihood(spins)
    chains = {"sweeps": 2, "burn_in": 2, "chains": 2, "moves": "heat-bath"}
    small = {
        "betas": [0.0, 1.0], "configurations": 8, "noises": 2, "burn_in": 4, "sweeps": 1, "progress": False,
        "moves": "heat-bath"}  # fmt: skip
    estimate = mechanisms.ObjectivePerturbation(epsilon=5.0).release(network, spins, rng=1)
    law = EstimateLaw.of(estimate, rng=1, **small)

    def interval(law: Any, **given: Any) -> Any:
        return estimate.interval(law=law, **given, **(small if law is None else {}))

    return [
        Target(name="IsingNetwork.from_graph", call=IsingNetwork.from_graph, arguments={
            "graph": pairs, "coupling": "raw", "nodes": [0, 1, 2, 3], "weight": "weight"}),
        Target(name="IsingNetwork.from_graph", call=IsingNetwork.from_graph, arguments={
            "graph": weighted, "coupling": "mean-degree", "weight": "weight", "mean_degree": 2.0}),
        Target(name="IsingNetwork.from_matrix", call=IsingNetwork.from_matrix, arguments={
            "J": [[0, 1], [1, 0]], "nodes": ["a", "b"]}),
        Target(name="IsingNetwork", call=IsingNetwork, arguments={
            "nodes": ("a", "b"), "coupling": np.array([[0.0, 1.0], [1.0, 0.0]])}),
        Target(name="IsingNetwork.subnetwork", call=network.subnetwork, arguments={"nodes": [0, 1]}),
        Target(name="IsingNetwork.spins", call=network.spins, arguments={
            "outcomes": {0: "y", 1: "n", 2: "y", 3: "y"}, "positive": "y", "negative": "n"}),
        Target(name="IsingNetwork.simulate", call=network.simulate, arguments={
            "beta": 0.5, "size": 2, "rng": 1, **chains}),
        Target(name="IsingNetwork.sample", call=network.sample, arguments={"beta": 0.5, "size": 2, "rng": 1}),
        Target(name="IsingNetwork.local_fields", call=network.local_fields, arguments={"spins": spins}),
        Target(name="IsingNetwork.energy", call=network.energy, arguments={"spins": spins}),
        Target(name="IsingNetwork.log_pseudo_likelihood", call=network.log_pseudo_likelihood, arguments={
            "beta": 0.5, "spins": spins}),
        Target(name="IsingNetwork.maximum_pseudo_likelihood", call=network.maximum_pseudo_likelihood, arguments={
            "spins": spins, "bounds": (0.0, 5.0)}),
        Target(name="IsingNetwork.pseudo_likelihood", call=network.pseudo_likelihood, arguments={"spins": spins}),
        Target(name="PseudoLikelihood.from_fields", call=PseudoLikelihood.from_fields, arguments={
            "fields": np.ones(4), "spins": spins}),
        Target(name="PseudoLikelihood.score", call=likelihood.score, arguments={"beta": 0.5}),
        Target(name="PseudoLikelihood.maximiser", call=likelihood.maximiser, arguments={"bounds": (0.0, 5.0)}),
        Target(name="EstimateLaw.of", call=EstimateLaw.of, arguments={"estimate": estimate, "rng": 1, **small}),
        Target(name="EstimateLaw.value_of", call=law.value_of, arguments={"estimate": estimate}),
        Target(name="EstimateLaw.estimates_at", call=law.estimates_at, arguments={"beta": 0.5}),
        Target(name="EstimateLaw.save", call=law.save, arguments={"path": Path("law")}),
        Target(name="EstimateLaw.load", call=EstimateLaw.load, arguments={"path": Path("law")}),
        Target(name="NetworkEstimate.interval", call=interval, arguments={
            "prob": 0.9, "law": law, "rng": None, "method": "inversion"}),
        Target(name="NetworkEstimate.interval", call=interval, arguments={
            "prob": 0.9, "law": law, "method": "inversion"}),
    ]  # fmt: skip


def _learned(network: Any) -> list[Target]:
    variables, data = bpm.declare(STATES), frame()
    m = mechanisms
    parities = m.ParityQueries(rho=1.0, order=2, method="gaussian").release(variables, data, rng=1)
    models = [
        m.PrivateFrankWolfe(rho=1.0, width=1.0, steps=2).release(variables, data, rng=1),
        m.PrivateFrankWolfe(rho=1.0, width=1.0, steps=2, order=3).release(variables, data, rng=1),
        m.SelectMeasure(rho=1.0, degree=1).release(variables, data, rng=1),
        m.DPSGD(epsilon=1.0, delta=1e-5, steps=3, clip=1.0, learning_rate=0.1).release(
            network, data, rng=1
        ),
        parities.fit(),
    ]
    regression = m.PrivateLogisticRegression(rho=1.0, radius=1.0, target="a", steps=2)
    found = [
        Target(name="LearnedRegression.probability", call=regression.release(variables, data, rng=1).probability,
               arguments={"states": {"b": 0, "c": True}}),
        Target(name="ReleasedParities.fit", call=parities.fit, arguments={"order": 2, "ridge": 0.1}),
        Target(name="simulated_survey", call=learning.simulated_survey, arguments={"size": 5, "rng": 1}),
    ]  # fmt: skip
    for model in models:
        name = type(model).__name__
        found += [
            Target(name=f"{name}.graph", call=model.graph, arguments={"threshold": 0.0, "weight": "dependence"}),
            Target(name=f"{name}.association", call=model.association, arguments={"first": "a", "second": "b"}),
            Target(name=f"learned_graph of {name}", call=plots.learned_graph, arguments={
                "learned": model, "threshold": 0.0, "weight": "largest", "order": "declared"}),
            Target(name=f"couplings of {name}", call=plots.couplings, arguments={
                "learned": model, "pairs": [("a", "b")], "weight": "largest"}),
            Target(name=f"{name}.sample", call=model.sample, arguments={"size": 3, "rng": 1}),
            Target(name=f"{name}.solution.marginal", call=model.solution.marginal, arguments={"variables": ["a"]}),
            Target(name=f"{name}.solution.sample", call=model.solution.sample, arguments={"size": 3, "rng": 1}),
            Target(name=f"{name}.couplings_interval", call=model.couplings_interval,
                   sure=("prob", "of", "method"), arguments={
                "prob": 0.9, "rng": 1, "replicates": 8, "of": "couplings", "method": "calibrated", "total": 40,
                "progress_bar": False}),
        ]  # fmt: skip
    return found


def _files(released: Any) -> list[Target]:
    file = Path("released")
    with_recoding = {"states": STATES, "cliques": CLIQUES}
    return [
        Target(name="NoisyStatistics.save", call=released.save, arguments={
            "path": file, "allow_unprotected": False, "overwrite": True}),
        Target(name="load_release", call=bpm.load_release, arguments={"path": file, "largest": 2**20}),
        Target(name="read_records", call=records.read_records, arguments={"path": "records.csv"}),
        Target(name="read_declaration", call=records.read_declaration, arguments={"path": "model.toml"}),
        Target(name="recode", call=records.recode, sure=("declaration",), arguments={
            "declaration": with_recoding, "data": frame()}),
    ]  # fmt: skip


def _plots(solution: Any) -> list[Target]:
    return [
        Target(name="calibration_ranks", call=plots.calibration_ranks, arguments={
            "ranks": {"x": [0, 1, 2, 3]}, "draws": 9, "prob": 0.95}),
        Target(name="edge_marginals", call=plots.edge_marginals, arguments={
            "reference": solution, "solutions": {"x": solution}}),
        Target(name="holdout_against_epsilon", call=plots.holdout_against_epsilon, arguments={
            "results": pd.DataFrame({"epsilon": [1.0], "method": ["x"], "holdout_log_likelihood": [-1.0]}),
            "reference": None}),
        Target(name="marginal_forest", call=plots.marginal_forest, arguments={
            "methods": {"x": solution}, "variables": ["a"], "truth": None, "holdout": frame(), "prob": 0.9}),
        Target(name="noisy_against_posterior", call=plots.noisy_against_posterior, sure=("posterior",), arguments={
            "posterior": solution, "cliques": [("a", "b")], "prob": 0.9, "is_centred": True}),
    ]  # fmt: skip
