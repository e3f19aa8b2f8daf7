"""Every warning of the package points at the user's line, by whichever path the user's call reaches it."""

import os
import re
import warnings
from pathlib import Path

import networkx as nx
import numpy as np
import pandas as pd
import pytest

import bayesprivmrf as bpm
from bayesprivmrf import errors, readers
from bayesprivmrf.mechanisms import LaplaceStatistics, ObjectivePerturbation, SelectMeasure
from bayesprivmrf.network import IsingNetwork
from bayesprivmrf.privacy import Laplace, PrivacyGuarantee

PACKAGE = Path(bpm.__file__).parent
CHAIN = bpm.declare({"a": [0, 1], "b": [0, 1], "c": [0, 1]}, [("a", "b"), ("b", "c")])
RECORDS = pd.DataFrame({"a": [0, 1] * 200, "b": [0, 1, 1, 0] * 100, "c": [0, 0, 1, 1] * 100})
# two tables of other records: they disagree about b
CONTRADICTION = {("a", "b"): [[400, 0], [400, 0]], ("b", "c"): [[0, 0], [400, 400]]}


def tables(values=None, **stated):
    values = (
        {("a", "b"): [[90, 60], [70, 80]], ("b", "c"): [[100, 60], [60, 80]]}
        if values is None
        else values
    )
    return bpm.NoisyStatistics.from_tables(CHAIN, values, noise=Laplace(4.0), **stated)


def clear():
    return LaplaceStatistics(epsilon=1.0).release(CHAIN, RECORDS, rng=1)


def nested_declaration(_):
    bpm.declare({"a": [0, 1], "b": [0, 1]}, [("a", "b"), ("a",)])


def self_loops(_):
    IsingNetwork.from_graph(nx.Graph([(0, 0), (0, 1)]))


def percentages(_):
    tables({("a", "b"): [[20.5, 29.5], [25.0, 25.0]], ("b", "c"): [[25.5, 20.0], [24.5, 30.0]]})


def percentages_of_a_frame(_):
    frame = pd.DataFrame({"a": [0, 1], "value": [20.5, 79.5]})
    readers.read_counts(bpm.declare({"a": [0, 1]}), frame, noise=Laplace(1.0))


def wrong_promise(folder):
    guarantee = PrivacyGuarantee(epsilon=0.01, adjacency="add-or-remove-one")
    tables(guarantee=guarantee).save(folder / "a.release")
    bpm.load_release(folder / "a.release")


def unlinked_releases(_):
    one, other = bpm.declare({"a": [0, 1]}), bpm.declare({"z": [0, 1]})
    bpm.NaiveMLE().fit(
        [
            bpm.NoisyStatistics.from_tables(each, {v: [200, 300]}, noise=Laplace(1.0))
            for v, each in (("a", one), ("z", other))
        ]
    )


def other_relations(_):
    replaced = LaplaceStatistics(epsilon=1.0, adjacency="replace-one").release(
        CHAIN, RECORDS, rng=1
    )
    bpm.NoiseAwareMAP().fit([clear(), replaced])


def preview(_):
    LaplaceStatistics(epsilon=1e-3).preview(CHAIN, total=100)


def drowned(_):
    LaplaceStatistics(epsilon=1e-3).release(CHAIN, RECORDS, rng=1)


def learned(_):
    SelectMeasure(rho=1e-3, degree=2).release(
        bpm.declare({v: [0, 1] for v in "abc"}), RECORDS, rng=1
    )


def hubs(_):
    ObjectivePerturbation(epsilon=1.0).release(
        IsingNetwork.from_graph(nx.star_graph(400)), np.ones(401, dtype=int), rng=0
    )


def column_of_counts(_):
    LaplaceStatistics(epsilon=1.0).release(CHAIN, RECORDS.assign(freq=1), rng=1)


def column_of_counts_held_out(_):
    bpm.compare({"mode": bpm.NaiveMLE().fit(tables())}, holdout=RECORDS.assign(freq=1))


def contradicted_by(estimator):
    def contradicted(_):
        estimator.fit(tables(CONTRADICTION))

    return contradicted


def few_draws(_):
    posterior = bpm.LatentCounts().fit(
        tables(), draws=4, tune=4, chains=2, rng=1, progress_bar=False
    )
    assert posterior.status is not bpm.Status.CONVERGED


def counts_of_a_chain(_):
    chain = bpm.markov_chain([0, 1], 3, share="transitions", names=["m1", "m2", "m3"])
    data = pd.DataFrame(
        np.random.default_rng(1).integers(0, 2, (300, 3)), columns=["m1", "m2", "m3"]
    )
    release = LaplaceStatistics(epsilon=1.0).release(chain, data, rng=1)
    posterior = bpm.LatentCounts().fit(
        release, draws=4, tune=4, chains=2, rng=1, progress_bar=False
    )
    posterior.interval(["m1", "m2"], of="records")


def frozen_chains(_):
    IsingNetwork.from_graph(nx.grid_2d_graph(12, 12)).sample(
        beta=1.0, size=4, burn_in=1, sweeps=1, rng=1
    )


def by_a_cached_property(_):
    class Study:
        import functools

        @functools.cached_property
        def network(self):
            return bpm.declare({"a": [0, 1], "b": [0, 1]}, [("a", "b"), ("a",)])

    assert Study().network


SAMPLING, CONSISTENCY = errors.SamplingWarning, errors.ConsistencyWarning
CASES = [
    (nested_declaration, errors.DeclarationWarning),
    (self_loops, errors.DeclarationWarning),
    (percentages, CONSISTENCY),
    (percentages_of_a_frame, CONSISTENCY),
    (wrong_promise, errors.GuaranteeWarning),
    (unlinked_releases, errors.DeclarationWarning),
    (other_relations, errors.GuaranteeWarning),
    (preview, errors.NoiseWarning),
    (drowned, errors.NoiseWarning),
    (learned, errors.NoiseWarning),
    (hubs, CONSISTENCY),
    (column_of_counts, errors.DeclarationWarning),
    (column_of_counts_held_out, errors.DeclarationWarning),
    (contradicted_by(bpm.NaiveMLE(ridge=1e-3)), CONSISTENCY),
    (contradicted_by(bpm.CGM()), CONSISTENCY),
    (contradicted_by(bpm.NoiseAwareMAP()), CONSISTENCY),
    (few_draws, SAMPLING),
    (counts_of_a_chain, SAMPLING),
    (frozen_chains, SAMPLING),
    (by_a_cached_property, errors.DeclarationWarning),
]


@pytest.mark.parametrize(("call", "category"), CASES)
def test_a_warning_points_at_the_line_of_the_call(call, category, tmp_path):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call(tmp_path)
    own = [each for each in caught if issubclass(each.category, errors.BayesPrivMRFWarning)]
    assert any(each.category is category for each in own)
    assert {each.filename for each in own} == {__file__}


def test_warnings_are_issued_in_one_place():
    """Nowhere else is `warnings.warn` called, whose `stacklevel` is right for one path to it only."""
    issuing = [
        path
        for path in PACKAGE.rglob("*.py")
        if re.search(r"\bwarn(_explicit)?\(", path.read_text("utf-8"))
    ]
    others = {
        "errors.py",
        "chains/heat_bath.py",
        "network/ising.py",
    }  # two have a method of this name
    assert {path.relative_to(PACKAGE).as_posix() for path in issuing} == others
    assert not [path for path in PACKAGE.rglob("*.py") if "stacklevel=" in path.read_text("utf-8")]


def test_a_study_beside_the_package_with_its_name_in_front_is_pointed_at():
    """A prefix without its separator would take the folder `bayesprivmrf_study` for a part of the package."""
    study = f"{PACKAGE}_study{os.sep}run.py"
    program = "declare({'a': [0, 1], 'b': [0, 1]}, [('a', 'b'), ('a',)])"
    with pytest.warns(errors.DeclarationWarning) as caught:
        exec(compile(program, study, "exec"), {"declare": bpm.declare})
    assert caught[0].filename == study
