"""Make the golden release files, and what is expected of them. Run by hand, never by a test.

A published format never changes meaning, so the files of an old version are made by the code that wrote it, and are
never made again. Each writer below is a commit of this library; its recipes use the names that the commit has. From
the root of the repository, for instance::

    git worktree add --detach OLD 8d61c39
    PYTHONPATH=OLD:tests uv run python -P tests/golden/make_files.py 1
    git worktree remove OLD

Without an argument the files are left as they are, and ``expected.json`` is written anew from what the code at hand
reads in them; look at the difference before it is committed::

    PYTHONPATH=tests uv run python -P tests/golden/make_files.py

Format version 1 (noisy statistics) was written from 3b9cbca on, by mechanisms from 7a34c0e on; version 2 (network
estimates) from e53fd2c on; version 3 (all that is learned) from 84028c7 on;
version 4 (answers to queries) from 5eb1a54 on; version 5 (potentials that are shared) from 99f94df on, scores and
levels from e3ac0ee on, bounds of counts in any version from 34e9a67 on; version 7 (rows of one person, kinds of
labels, external fields) was not released before; version 8 has labels that are UUIDs or complex numbers;
version 9 has measured scopes that lie in no declared clique. A kind is written in the first version that has it, so
that today's code, too, is a writer of every version. No mechanism learns a model from a declaration that shares
potentials, so that there is no learned model of version 5. 7a34c0e wrote the same bytes as 8d61c39, and
e53fd2c as 38adf8d; 99f94df as 4b8687e. Version 3 grew while it was made: what 84028c7 itself wrote of parities and
monomials, before 1c3bf15 stated the law of the total and the map, cannot be read; no package was ever published that
wrote it.
"""

from __future__ import annotations

import datetime
import json
import subprocess
import sys
import warnings
import zlib
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from golden.made_up import (
    BINARY,
    CHAIN,
    NO_PREGNANT_MEN,
    NODES,
    SURVEY,
    SURVEY_CLIQUES,
    binary_records,
    network_edges,
    outcomes,
    survey_records,
)
from golden.reading import FILES, described, document_of

type Releases = Iterator[tuple[str, Any]]

LABELS = {
    "text é": ["no", "yes"],
    0: [3, 1.5, True],
    ("pair", 1): [("x", 2, (False,)), -7],
    2.5: [datetime.date(2020, 2, 29), Fraction(1, 3)],
}
"""Variables and states of every type; a date and a fraction come back as text."""

LABEL_CLIQUES = [(0, "text é"), ("text é", ("pair", 1)), (2.5,)]


def _numbers(size: int) -> np.ndarray:
    return np.arange(size) * 37 % 101 - 11


def published_tables() -> Releases:
    """Tables that somebody else published; the one recipe that needs no mechanism, and is not simulated."""
    from bayesprivmrf.model import ModelSpecification, declare
    from bayesprivmrf.privacy import Gaussian, Laplace, PrivacyGuarantee
    from bayesprivmrf.release import NoisyStatistics

    network = declare(SURVEY, SURVEY_CLIQUES)
    model = ModelSpecification.from_pgmpy(network)
    tables = {
        clique: (_numbers(6)[: np.prod(shape)] + 0.25).reshape(shape)
        for clique, shape in zip(model.cliques, model.shapes, strict=True)
    }
    promise = PrivacyGuarantee(epsilon=1.0, delta=1e-6, adjacency="replace-one", unit="person")
    yield (
        "published-laplace",
        NoisyStatistics.from_tables(
            network,
            tables,
            noise=Laplace(2.0),
            guarantee=PrivacyGuarantee(rho=0.5, adjacency="replace-one"),
        ),
    )
    yield (
        "published-mixed-laws",
        NoisyStatistics.from_tables(
            network,
            tables,
            noise=dict(zip(model.cliques, [Gaussian(3.0), Laplace(1.5)], strict=True)),
            guarantee=promise,
            total=600,
        ),
    )


def more_published_tables() -> Releases:
    """Tables published elsewhere: labels of every type, integer laws, exact tables, variables alone."""
    from bayesprivmrf.model import ModelSpecification, declare
    from bayesprivmrf.privacy import DiscreteGaussian, DiscreteLaplace, Gaussian, NoNoise
    from bayesprivmrf.release import NoisyStatistics

    def release(network: Any, noise: Any) -> NoisyStatistics:
        model = ModelSpecification.from_pgmpy(network)
        flat = _numbers(model.size)
        return NoisyStatistics.from_tables(
            network, {c: model.tables(flat)[c] for c in model.cliques}, noise=noise
        )

    labels = declare(LABELS, LABEL_CLIQUES, impossible=[{0: True, "text é": "yes"}])
    laws = [DiscreteLaplace(4.0), DiscreteGaussian(2.5), Gaussian(1.0)]
    yield (
        "published-labels-mixed-integer-laws",
        release(labels, dict(zip(LABEL_CLIQUES, laws, strict=True))),
    )
    yield "published-variables-alone", release(declare(BINARY), DiscreteLaplace(1.0))
    yield "published-exact", release(declare(SURVEY, SURVEY_CLIQUES), NoNoise())


def measurements() -> Releases:
    """Answers to a query of every kind, published elsewhere."""
    from bayesprivmrf import queries as q
    from bayesprivmrf.model import declare
    from bayesprivmrf.privacy import DiscreteLaplace, Gaussian, PrivacyGuarantee
    from bayesprivmrf.release import Measurement, NoisyStatistics

    pair, merged = ("pair", 1), {("odd", True): [3, True], 6.5: [1.5]}
    networks = {
        "kinds": (
            declare(LABELS, LABEL_CLIQUES),
            (
                q.table("text é", 0),
                q.coarsened(0, "text é", groups={0: merged}),
                q.weighted(pair, matrix=[[2, -1], [0, 0]], labels=["x", "y é"]),
                q.parities(2),
                q.parities(1, with_empty=False),
                q.table(2.5),
            ),
        ),
        "pooled": (
            declare({v: ["h", "w"] for v in "abc"}, [("a", "b"), ("b", "c")]),
            (q.pooled([("a", "b"), ("b", "c")]), q.table("b")),
        ),
    }
    for name, (network, asked) in networks.items():
        given = [
            Measurement(query, _numbers(len(query.bind(network))), law)
            for query, law in zip(asked, [DiscreteLaplace(2.0), Gaussian(3.0)] * 3, strict=False)
        ]
        promise = PrivacyGuarantee(rho=0.5, adjacency="replace-one")
        yield (
            f"measurements-{name}",
            NoisyStatistics.from_measurements(network, given, guarantee=promise, total=90),
        )


def bounded_counts() -> Releases:
    """Counts of which only bounds are known, with and without noise before them, beside others; and sums of units."""
    from bayesprivmrf import queries as q
    from bayesprivmrf.mechanisms import LaplaceStatistics
    from bayesprivmrf.model import declare
    from bayesprivmrf.privacy import DiscreteGaussian, DiscreteLaplace, Gaussian, Within
    from bayesprivmrf.release import Measurement, NoisyStatistics

    network = declare(SURVEY, SURVEY_CLIQUES, impossible=NO_PREGNANT_MEN)
    one = q.coarsened("age", age={"young": ["young"], "older": ["middle", "old"]})
    value, withheld = Within.between(0, 9, DiscreteLaplace(2.0))
    exact, bound = Within.between(12, 17)
    noisy, wide = Within.between(3, 100, DiscreteGaussian(1.5))
    given = [
        Measurement(one, [value, value], withheld),
        Measurement(q.weighted("sex", matrix=[[1, 0]], labels=["f"]), [exact], bound),
        Measurement(q.table("pregnant", "sex"), [noisy, noisy, noisy, 0.5], wide),
        Measurement(q.table("age"), [40.5, 30.25, 29.0], Gaussian(2.0)),
    ]
    yield "measurements-bounds", NoisyStatistics.from_measurements(network, given)
    persons = LaplaceStatistics(
        epsilon=2.0,
        person="who",
        at_most=3,
        grid=6,
        queries=[q.table("smokes"), q.table("coughs", "ill")],
    )
    rows = binary_records().assign(who=np.arange(600) * 7 % 400)
    yield "measurements-units", persons.release(declare(BINARY, CHAIN), rows, rng=10)


def bounded_rows() -> Releases:
    """Tables of persons that have several rows each, and a table of which only bounds are known."""
    from bayesprivmrf.mechanisms import GaussianStatistics
    from bayesprivmrf.model import ModelSpecification, declare
    from bayesprivmrf.privacy import DiscreteLaplace, Within
    from bayesprivmrf.release import NoisyStatistics

    rows = binary_records().assign(who=np.arange(600) * 7 % 400)
    persons = GaussianStatistics(rho=1.0, person="who", at_most=2)
    yield "gaussian-persons", persons.release(declare(BINARY, CHAIN), rows, rng=11)
    model = ModelSpecification.from_pgmpy(declare(SURVEY, SURVEY_CLIQUES))
    laws = [Within(4.5), DiscreteLaplace(3.0)]
    tables = dict(
        zip(model.cliques, [np.full((2, 2), 4.5), _numbers(6).reshape(2, 3)], strict=True)
    )
    yield (
        "published-bounds",
        NoisyStatistics.from_tables(
            model, tables, noise=dict(zip(model.cliques, laws, strict=True))
        ),
    )


def tied() -> Releases:
    """Noisy tables of models whose cliques share potentials: a chain's steps, and a pair with its axes turned."""
    from bayesprivmrf.mechanisms import LaplaceStatistics
    from bayesprivmrf.model import declare

    chain = declare(BINARY, [("smokes",), *CHAIN], tied=[CHAIN])
    yield "laplace-tied", LaplaceStatistics(epsilon=1.0).release(chain, binary_records(), rng=91)
    both = [("smokes", "coughs"), ("coughs", "smokes")]
    alike = declare(BINARY, [both[0], ("ill", "old")], tied=[both])
    yield (
        "laplace-tied-axes",
        LaplaceStatistics(epsilon=1.0).release(alike, binary_records(), rng=93),
    )


def tied_sums() -> Releases:
    """Noisy sums over the steps of a chain that share potentials."""
    from bayesprivmrf import queries as q
    from bayesprivmrf.mechanisms import GaussianStatistics
    from bayesprivmrf.model import declare

    chain = declare(BINARY, [("smokes",), *CHAIN], tied=[CHAIN])
    sums = GaussianStatistics(
        rho=0.5, adjacency="replace-one", queries=[q.pooled(CHAIN), q.table("smokes")]
    )
    yield "measurements-tied", sums.release(chain, binary_records(), rng=92)


def chains() -> Releases:
    """A chain whose steps have one matrix of probabilities: its tables, sums of its steps, and bounds of these."""
    from bayesprivmrf import markov_chain
    from bayesprivmrf import queries as q
    from bayesprivmrf.mechanisms import LaplaceStatistics
    from bayesprivmrf.privacy import DiscreteLaplace, Within
    from bayesprivmrf.release import Measurement, NoisyStatistics

    chain = markov_chain(["no", "yes"], 4, share="transitions", names=list(BINARY))
    yield (
        "laplace-transitions",
        LaplaceStatistics(epsilon=1.0).release(chain, binary_records(), rng=94),
    )
    given = [
        Measurement(q.pooled(CHAIN), [4.5, 4.5, 4.5, 4.5], Within(4.5, DiscreteLaplace(1.0))),
        Measurement(q.table("smokes"), [30, 12], DiscreteLaplace(1.0)),
    ]
    yield (
        "measurements-transitions-bounds",
        NoisyStatistics.from_measurements(chain, given, total=45),
    )


def scores_and_levels() -> Releases:
    """Tables of a model with scores of ordered states, kept whole or linear, and with levels of areas."""
    from bayesprivmrf.mechanisms import ExactStatistics, LaplaceStatistics
    from bayesprivmrf.model import declare

    areas = {"age": {"generation": {"first": ["young"], "second": ["middle", "old"]}}}
    linear = declare(SURVEY, SURVEY_CLIQUES, ordinal=["age"], impossible=NO_PREGNANT_MEN)
    smooth = declare(SURVEY, SURVEY_CLIQUES, ordinal={"age": "smooth", "sex": [-1.5, 2.0]})
    levels = declare(SURVEY, SURVEY_CLIQUES, levels=areas)
    yield "laplace-scores", LaplaceStatistics(epsilon=1.0).release(linear, survey_records(), rng=95)
    yield (
        "laplace-smooth-scores",
        LaplaceStatistics(epsilon=1.0).release(smooth, survey_records(), rng=96),
    )
    yield "exact-levels", ExactStatistics().release(levels, survey_records(), rng=97)


def statistics() -> Releases:
    """Noisy tables by every mechanism that measures them."""
    from bayesprivmrf.mechanisms import ExactStatistics, GaussianStatistics, LaplaceStatistics
    from bayesprivmrf.model import declare

    chain = declare(BINARY, CHAIN)
    survey = declare(SURVEY, SURVEY_CLIQUES, impossible=NO_PREGNANT_MEN)
    nested = declare(BINARY, [*CHAIN, ("ill",), ("coughs", "smokes"), ("ill", "coughs", "old")])
    binary, persons = binary_records(), survey_records()
    yield "laplace-add-or-remove", LaplaceStatistics(epsilon=1.0).release(chain, binary, rng=1)
    yield (
        "laplace-replace-one",
        LaplaceStatistics(epsilon=2.0, adjacency="replace-one").release(chain, binary, rng=2),
    )
    weighted = LaplaceStatistics(
        epsilon=1.0, weights={("age", "pregnant"): 3.0, ("sex", "pregnant"): 1.0}
    )
    yield "laplace-impossible-weights", weighted.release(survey, persons, rng=3)
    yield "laplace-nested-cliques", LaplaceStatistics(epsilon=0.5).release(nested, binary, rng=4)
    odd = persons.assign(
        age=persons["age"].replace("old", "very old"), sex=persons["sex"].replace("m", None)
    )
    redirected = LaplaceStatistics(epsilon=1.0, missing={"sex": "f"}, other={"age": "old"})
    yield "laplace-redirected", redirected.release(declare(SURVEY, SURVEY_CLIQUES), odd, rng=5)
    yield "gaussian-add-or-remove", GaussianStatistics(rho=0.1).release(chain, binary, rng=6)
    yield (
        "gaussian-replace-one",
        GaussianStatistics(rho=0.5, adjacency="replace-one").release(survey, persons, rng=7),
    )
    yield "exact", ExactStatistics().release(chain, binary, rng=8)
    yield (
        "exact-replace-one",
        ExactStatistics(adjacency="replace-one").release(survey, persons, rng=9),
    )


def network_estimates() -> Releases:
    """The strength of peer influence on a network, in all calibrations."""
    from bayesprivmrf.mechanisms import ObjectivePerturbation
    from bayesprivmrf.network import IsingNetwork

    network = IsingNetwork.from_graph(network_edges(), "degree-normalised", nodes=NODES)
    for seed, (name, settings) in enumerate(
        {
            "tight-pure": {},
            "paper-pure": {"calibration": "paper", "bounds": (0.0, 2.0)},
            "tight-approximate": {"delta": 0.01, "bounds": None},
            "paper-approximate": {"delta": 0.01, "calibration": "paper"},
        }.items()
    ):
        yield (
            name,
            ObjectivePerturbation(epsilon=8.0, **settings).release(network, outcomes(), rng=seed),
        )
    weighted = [(a, b, 0.5 + i % 3 / 4) for i, (a, b) in enumerate(network_edges())]
    spins = np.where(outcomes() == 1, "for", "against")
    named = ObjectivePerturbation(epsilon=8.0, positive="for", negative="against")
    yield (
        "weighted-named-outcomes",
        named.release(IsingNetwork.from_graph(weighted, "mean-degree"), spins, rng=9),
    )


def papers_frank_wolfe(**settings: Any) -> Any:
    """Frank-Wolfe with the paper's constants, as today's code or an earlier writer has it."""
    try:
        from benchmarks.papers.frank_wolfe import PaperFrankWolfe
    except ImportError:
        from bayesprivmrf.mechanisms import PrivateFrankWolfe

        return PrivateFrankWolfe(**settings, calibration="paper")
    return PaperFrankWolfe(**settings)


def graphs_by_blocks(**settings: Any) -> Any:
    """Structure certified by blocks, as today's code or an earlier writer has it."""
    try:
        from benchmarks.papers.block_structure import BlockStructure
    except ImportError:
        from bayesprivmrf.mechanisms import StableStructure

        return StableStructure(**settings, certificate="blocks")
    return BlockStructure(**settings)


def couplings() -> Releases:
    """Couplings that select-measure and Frank-Wolfe have learned."""
    from bayesprivmrf.mechanisms import PrivateFrankWolfe, SelectMeasure
    from bayesprivmrf.model import declare

    binary, persons = binary_records(), survey_records()
    variables, several, chain = declare(BINARY), declare(SURVEY), declare(BINARY, CHAIN)
    replace_one = {"adjacency": "replace-one"}
    for seed, (name, mechanism, model, data) in enumerate(
        [
            ("ising-moments", SelectMeasure(rho=1.0, degree=1), variables, binary),
            (
                "ising-moments-replace-one",
                SelectMeasure(rho=1.0, degree=2, **replace_one),
                chain,
                binary,
            ),
            ("ising-tables", SelectMeasure(rho=1.0, degree=1, measure="tables"), variables, binary),
            ("pairwise-tables", SelectMeasure(rho=1.0, degree=1), several, persons),
            (
                "pairwise-tables-replace-one",
                SelectMeasure(rho=1.0, degree=2, **replace_one),
                several,
                persons,
            ),
            ("ising-frank-wolfe", PrivateFrankWolfe(rho=2.0, width=2.0), variables, binary),
            (
                "ising-frank-wolfe-cliques",
                PrivateFrankWolfe(rho=2.0, width=2.0, steps=6),
                chain,
                binary,
            ),
            (
                "ising-frank-wolfe-paper",
                papers_frank_wolfe(rho=2.0, width=2.0, steps=6, **replace_one),
                variables,
                binary,
            ),
            (
                "pairwise-frank-wolfe-softmax",
                PrivateFrankWolfe(rho=2.0, width=2.0, **replace_one),
                several,
                persons,
            ),
            (
                "pairwise-frank-wolfe-pairs",
                PrivateFrankWolfe(rho=2.0, width=2.0, method="pairs"),
                several,
                persons,
            ),
            (
                "pairwise-frank-wolfe-paper",
                papers_frank_wolfe(rho=2.0, width=2.0, steps=6, method="pairs", **replace_one),
                several,
                persons,
            ),
        ]
    ):
        yield name, mechanism.release(model, data, rng=20 + seed)


def learned_by_rounds() -> Releases:
    """Models that select-measure has learned in rounds, with what it measured: states merged, and none."""
    from bayesprivmrf.mechanisms import SelectMeasure
    from bayesprivmrf.model import declare

    yield (
        "potentials-rounds",
        SelectMeasure(rho=1.0).release(declare(BINARY), binary_records(), rng=45),
    )
    rare = SelectMeasure(rho=0.002, adjacency="replace-one")
    yield "potentials-rounds-merged", rare.release(declare(SURVEY), survey_records(), rng=46)


def monomials() -> Releases:
    """Models of three-way interactions that Frank-Wolfe has learned."""
    from bayesprivmrf.mechanisms import PrivateFrankWolfe
    from bayesprivmrf.model import declare

    binary = binary_records()
    three = declare(BINARY, [("smokes", "coughs", "ill"), ("ill", "old")])
    first = PrivateFrankWolfe(rho=2.0, width=2.0, order=3)
    yield "monomials-frank-wolfe", first.release(declare(BINARY), binary, rng=41)
    second = PrivateFrankWolfe(
        rho=2.0, width=2.0, order=3, steps=5, target="linf", adjacency="replace-one"
    )
    yield "monomials-frank-wolfe-linf-cliques", second.release(three, binary, rng=42)


def parities() -> Releases:
    """Parities by every method, and models fitted to them."""
    from bayesprivmrf.mechanisms import ParityQueries
    from bayesprivmrf.model import declare

    binary = binary_records()
    variables = declare(BINARY)
    three = declare(BINARY, [("smokes", "coughs", "ill"), ("ill", "old")])
    gaussian = ParityQueries(rho=1.0, order=3, method="gaussian").release(variables, binary, rng=51)
    yield "parities-gaussian", gaussian
    yield "monomials-fitted", gaussian.fit()
    yield "monomials-fitted-pairs-ridge", gaussian.fit(2, ridge=0.5)
    public = ParityQueries(rho=1.0, order=3, method="gaussian", adjacency="replace-one")
    cliques = public.release(three, binary, rng=52)
    yield "parities-gaussian-replace-one-cliques", cliques
    yield "monomials-fitted-cliques", cliques.fit()
    auto = ParityQueries(rho=1.0, order=2).release(variables, binary, rng=53)
    yield "parities-auto", auto
    yield "monomials-fitted-bought-total", auto.fit()
    weights = ParityQueries(rho=0.5, order=3, method="pmw").release(variables, binary, rng=54)
    yield "parities-pmw", weights
    yield "monomials-fitted-pmw", weights.fit()
    # "parities-sepfem" is kept from 35d2ecb, whose mechanism still had that method


def potentials() -> Releases:
    """Potentials by clipped gradients: one ascent, cells that are impossible, and the trials of a search."""
    from bayesprivmrf.mechanisms import DPSGD
    from bayesprivmrf.model import declare

    try:
        from benchmarks.papers.dpsgd_search import DPSGDSearch
    except ImportError:  # an earlier writer had it in the package
        from bayesprivmrf.mechanisms import DPSGDSearch

    chain = declare(BINARY, CHAIN)
    survey = declare(SURVEY, SURVEY_CLIQUES, impossible=NO_PREGNANT_MEN)
    quick = {"epsilon": 4.0, "delta": 1e-4}
    one = DPSGD(**quick, steps=5, sampling_rate=0.5).release(chain, binary_records(), rng=61)
    yield "potentials-dpsgd", one
    settings = {
        "steps": 4,
        "sampling_rate": 1.0,
        "clip": 1.0,
        "learning_rate": 0.5,
        "averaging": 0.0,
    }
    yield (
        "potentials-dpsgd-impossible",
        DPSGD(**quick, **settings).release(survey, survey_records(), rng=62),
    )
    grid = {"steps": [3], "sampling_rate": [0.5], "clip": [1.0, 2.0]}
    whole = DPSGDSearch(**quick, grid=grid).release(chain, binary_records(), rng=63)
    for position, release in enumerate(whole.releases):
        yield f"potentials-search-{position}", release
    alone = DPSGDSearch(**quick, grid=grid, covers="trial").release(chain, binary_records(), rng=64)
    yield "potentials-search-by-trial", alone.releases[0]


def regressions() -> Releases:
    """Regressions of one variable on the others."""
    from bayesprivmrf.mechanisms import PrivateLogisticRegression
    from bayesprivmrf.model import declare

    first = PrivateLogisticRegression(rho=1.0, radius=4.0, target="ill")
    yield "regression", first.release(declare(BINARY), binary_records(), rng=71)
    settings = {"radius": 4.0, "target": "pregnant", "steps": 6, "adjacency": "replace-one"}
    second = PrivateLogisticRegression(rho=1.0, **settings)
    yield (
        "regression-several-states-replace-one",
        second.release(declare(SURVEY), survey_records(), rng=72),
    )


def graphs() -> Releases:
    """Trees that were let out, and a refusal, each with its noisy distance."""
    from bayesprivmrf.mechanisms import StableStructure
    from bayesprivmrf.model import declare

    tree = StableStructure(epsilon=1.0, delta=0.01)
    yield "graph-tree", tree.release(declare(BINARY), binary_records(1200), rng=81)
    several = StableStructure(epsilon=8.0, delta=0.01, adjacency="replace-one")
    yield "graph-tree-replace-one", several.release(declare(SURVEY), survey_records(1200), rng=82)
    yield "graph-refused", tree.release(declare(SURVEY), survey_records(60), rng=83)


def graphs_with_loops() -> Releases:
    """Graphs that may have loops, by margins and by blocks, with variables without an edge, and without any."""
    from bayesprivmrf.mechanisms import StableStructure
    from bayesprivmrf.model import declare

    settings = {"epsilon": 2.0, "delta": 0.01, "structure": "graph"}
    margins = StableStructure(**settings, threshold=0.2)
    yield "graph-margins", margins.release(declare(BINARY), binary_records(1200), rng=84)
    strong = StableStructure(**settings, threshold=0.7, given=1, adjacency="replace-one")
    yield "graph-without-edges", strong.release(declare(SURVEY), survey_records(1200), rng=85)
    blocks = graphs_by_blocks(**settings, threshold=0.2, given=0, blocks=12)
    yield "graph-blocks", blocks.release(declare(BINARY), binary_records(6000), rng=86)


def only(recipe: Callable[[], Releases], *names: str) -> Callable[[], Releases]:
    """A recipe that gives some of its releases alone."""
    return lambda: (each for each in recipe() if each[0] in names)


def graphs_of_threes() -> Releases:
    """A graph of cliques of three, with a threshold that was chosen; and a refusal."""
    from bayesprivmrf.mechanisms import StableStructure
    from bayesprivmrf.model import declare

    settings = {"epsilon": 8.0, "delta": 0.01, "structure": "graph", "order": 3}
    chosen = StableStructure(**settings, threshold="gap", given=1)
    yield "graph-threes", chosen.release(declare(BINARY), binary_records(6000), rng=87)
    fixed = StableStructure(**settings | {"order": 4}, threshold=0.2, adjacency="replace-one")
    yield "graph-fours-refused", fixed.release(declare(BINARY), binary_records(60), rng=88)


def fields() -> Releases:
    """The strength of peer influence beside a public external field."""
    from bayesprivmrf.mechanisms import ObjectivePerturbation
    from bayesprivmrf.network import IsingNetwork
    from bayesprivmrf.privacy import ExternalField

    for seed, (name, field) in enumerate(
        {"strength": 0.3, "share": ExternalField.from_share(0.3)}.items()
    ):
        network = IsingNetwork.from_graph(network_edges(), "mean-degree", nodes=NODES, field=field)
        yield (
            f"field-by-{name}",
            ObjectivePerturbation(epsilon=8.0).release(network, outcomes(), rng=seed),
        )


def facts() -> Releases:
    """Rows of one person that no setting states, and labels of every kind that files restore."""
    import pandas as pd

    from bayesprivmrf.model import ModelSpecification, declare
    from bayesprivmrf.privacy import Laplace
    from bayesprivmrf.release import NoisyStatistics, PersonRows, Provenance

    states = {
        "day": [datetime.date(2026, 1, 31), datetime.date(2026, 2, 1)],
        "time": [pd.Timestamp("2026-01-31 12:30"), pd.Timestamp("2026-01-31 13:30")],
        "age": [pd.Interval(0, 30), pd.Interval(30, 60), pd.Interval(60, float("inf"))],
        "month": [pd.Period("2026-01", "M"), pd.Period("2026-02", "M")],
        "price": [Decimal("1.50"), Decimal("2")],
        "part": [Fraction(1, 3), Fraction(2, 3)],
        "code": [b"\x00\xff", b"a"],
    }
    model = ModelSpecification.from_pgmpy(declare(states, [(name,) for name in states]))
    yield (
        "facts",
        NoisyStatistics(
            specification=model,
            tables=model.tables(np.arange(1.0, model.size + 1)),
            noise=(Laplace(1.0),) * len(states),
            guarantee=None,
            provenance=Provenance(mechanism="Theirs", simulated=True),
            person_rows=PersonRows(at_most=3, is_weighed=True),
        ),
    )


def newer_labels() -> Releases:
    """Labels of the kinds that version 8 added."""
    from uuid import UUID

    from bayesprivmrf.model import declare
    from bayesprivmrf.privacy import Laplace
    from bayesprivmrf.release import NoisyStatistics

    states = {
        "site": [UUID(int=1), UUID(int=2**127)],
        "root": [1j, -1j, complex(0.1, float("inf"))],
    }
    network = declare(states, [(name,) for name in states])
    tables = {name: np.arange(1.0, len(own) + 1) for name, own in states.items()}
    yield "labels", NoisyStatistics.from_tables(network, tables, noise=Laplace(1.0))


def distant_scopes() -> Releases:
    """Tables of variables that share no clique, beside tables, chains and sums over steps."""
    from bayesprivmrf import queries as q
    from bayesprivmrf.model import declare, markov_chain
    from bayesprivmrf.noise import DiscreteGaussian, DiscreteLaplace
    from bayesprivmrf.release import Measurement, NoisyStatistics

    times = ["jan", "feb", "mar", "dec"]
    steps = [("jan", "feb"), ("feb", "mar"), ("mar", "dec")]
    network = declare({v: ["h", "w"] for v in times}, steps)
    chain = markov_chain(["h", "w"], len(times), share="transitions", names=times)
    laws = [DiscreteLaplace(2.0), DiscreteGaussian(3.0)] * 3
    asked = {
        "tables": (network, [*(q.table(*step) for step in steps), q.table("jan", "dec")]),
        "chain": (chain, [q.pooled(steps), q.table("jan"), q.table("jan", "dec")]),
    }
    # without declared cliques, which a table of the ends may not share
    free = declare({v: ["h", "w"] for v in times})
    for name, (model, queries) in asked.items():
        given = [
            Measurement(query, _numbers(len(query.bind(free))), law)
            for query, law in zip(queries, laws, strict=False)
        ]
        yield f"distant-{name}", NoisyStatistics.from_measurements(model, given, total=90)


WRITERS: dict[str, tuple[str, int, str, tuple[Callable[[], Releases], ...]]] = {
    # name: commit, format version, prefix of the files, recipes
    "1": ("8d61c39", 1, "", (published_tables, more_published_tables, statistics)),
    "1-bounds": ("4b8687e", 1, "", (bounded_rows,)),
    "2": ("38adf8d", 2, "", (network_estimates,)),
    "2-later": (  # the same content, its keys in another order
        "35d2ecb",
        2,
        "later-",
        (only(network_estimates, "paper-approximate", "weighted-named-outcomes"),),
    ),
    "3-early": (  # the map of a model fitted to parities does not state the law of the total yet
        "1c3bf15",
        3,
        "early-",
        (
            only(parities, "monomials-fitted", "monomials-fitted-bought-total"),
            only(potentials, "potentials-dpsgd"),
        ),
    ),
    "3": ("35d2ecb", 3, "", (couplings, monomials, parities, potentials, regressions)),
    "4": ("5eb1a54", 4, "", (measurements,)),
    "4-rounds": ("89fb2b7", 4, "", (learned_by_rounds,)),
    "4-graphs": ("65b9fef", 4, "", (graphs,)),
    "4-loops": ("738a2bc", 4, "", (graphs_with_loops,)),
    "4-bounds": ("4b8687e", 4, "", (bounded_counts,)),
    "5": ("99f94df", 5, "", (tied,)),
    "5-later": ("4b8687e", 5, "", (tied_sums, chains, scores_and_levels)),
    "6": ("c68df34", 6, "", (graphs_of_threes,)),
    "7": ("6bcb577", 7, "", (fields, facts)),
    "8": ("6dec0b9", 8, "", (newer_labels,)),
    "9": ("4ee8cef", 9, "", (distant_scopes,)),
}


def make(writer: str) -> None:
    """Make the files of one writer, whose code must be the one that is imported."""
    import bayesprivmrf

    commit, version, prefix, recipes = WRITERS[writer]
    home = Path(bayesprivmrf.__file__).parents[1]
    at = subprocess.run(
        ["git", "rev-parse", "--short=7", "HEAD"],
        cwd=home,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    changed = subprocess.run(
        ["git", "diff", "--quiet", commit, "--", "bayesprivmrf"], cwd=home
    ).returncode
    if changed:
        raise SystemExit(
            f"the code that is imported is {at}, not {commit}: see the head of this file."
        )
    folder = FILES / f"v{version}"
    folder.mkdir(parents=True, exist_ok=True)
    for recipe in recipes:
        for name, release in recipe():
            target = folder / f"{prefix}{name}.golden"
            target.unlink(missing_ok=True)
            options = {"allow_unprotected": True} if getattr(release, "is_exact", False) else {}
            release.save(target, **options)
            target.chmod(0o644)
            assert document_of(target)["version"] == version, name
            print(f"{target.stat().st_size:6}  v{version}/{target.name}")


def expect() -> None:
    """Write what is expected of every file."""
    import benchmarks.papers.frank_wolfe  # noqa: F401  # its maps stand in files of releases for comparison
    from bayesprivmrf import load_release

    found = {
        "made with zlib": zlib.ZLIB_RUNTIME_VERSION,
        "files": {
            path.relative_to(FILES).as_posix(): described(load_release(path), path)
            for path in sorted(FILES.rglob("*.golden"))
        },
    }
    text = json.dumps(found, indent=1, ensure_ascii=False, sort_keys=True)
    (FILES.parent / "expected.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # so few records are drowned in the noise
        for chosen in sys.argv[1:]:
            make(chosen)
        if not sys.argv[1:]:
            expect()
