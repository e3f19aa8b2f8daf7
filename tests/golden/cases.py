"""Small releases of every kind: what the golden results are inferred from.

Most are golden files. The others are published here, their numbers by arithmetic, so that no mechanism and no
generator's stream can change them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from golden.reading import FILES

STORED: dict[str, str] = {
    "tables of a chain": "v1/laplace-add-or-remove",
    "tables with structural zeros": "v1/laplace-impossible-weights",
    "nested tables": "v1/laplace-nested-cliques",
    "normal noise, public total": "v1/gaussian-replace-one",
    "real-valued Laplace noise": "v1/published-laplace",
    "several rows a person": "v1/gaussian-persons",
    "bounded tables": "v1/published-bounds",
    "queries of every kind": "v4/measurements-kinds",
    "bounded queries": "v4/measurements-bounds",
    "weighted rows of persons": "v4/measurements-units",
    "ties, tables": "v5/laplace-tied",
    "ties, axes turned": "v5/laplace-tied-axes",
    "ties, sums": "v5/measurements-tied",
    "linear scores": "v5/laplace-scores",
    "smooth scores": "v5/laplace-smooth-scores",
    "transitions": "v5/laplace-transitions",
    "transitions, bounded sums": "v5/measurements-transitions-bounds",
}


def _joint(model: Any, records: int) -> np.ndarray:
    """Whole numbers of records in each joint state, none in one that cannot occur; axes are the variables."""
    shape = tuple(len(states) for states in model.domain.states)
    weights = (2.0 + np.arange(np.prod(shape)) * 5 % 7).reshape(shape)
    possible = np.ones(model.size, dtype=bool) if model.possible is None else model.possible
    for scope, cells in zip(model.scopes, np.split(possible, model.offsets[1:-1]), strict=True):
        around = [size if axis in scope else 1 for axis, size in enumerate(shape)]
        weights *= (
            cells.reshape([shape[axis] for axis in scope])
            .transpose(np.argsort(scope))
            .reshape(around)
        )
    return np.floor(records * weights / weights.sum())


def published(network: Any, measured: list[tuple[Any, Any]], *, shift: int = 0) -> Any:
    """A release of answers to queries, each with its distribution of the noise, about 300 records."""
    from bayesprivmrf.model import ModelSpecification
    from bayesprivmrf.release import Measurement, NoisyStatistics

    model = ModelSpecification.from_pgmpy(network)
    joint = np.roll(_joint(model, 300), shift)
    axes = range(joint.ndim)
    tables = [
        joint.transpose([*scope, *(a for a in axes if a not in scope)]) for scope in model.scopes
    ]
    cells = np.concatenate(
        [
            table.reshape(*table.shape[: len(scope)], -1).sum(-1).ravel()
            for scope, table in zip(model.scopes, tables, strict=True)
        ]
    )
    given = []
    for query, law in measured:
        answers = query.bind(network).in_cliques @ cells
        noise = np.arange(1, len(answers) + 1) * 3 % 5 - 2  # within two standard errors
        given.append(Measurement(query, answers + noise * (law.variance > 0), law))
    is_exact = any(law.variance == 0 for _, law in measured)
    return NoisyStatistics.from_measurements(
        network, given, total=int(joint.sum()) if is_exact else None
    )


def released() -> dict[str, Any]:
    """A release, or a list of releases of one population, by what it is an example of."""
    from bayesprivmrf import load_release, markov_chain
    from bayesprivmrf import queries as q
    from bayesprivmrf.model import declare
    from bayesprivmrf.privacy import DiscreteGaussian, DiscreteLaplace, Gaussian, NoNoise, Within
    from bayesprivmrf.release import Measurement, NoisyStatistics

    found: dict[str, Any] = {
        name: load_release(FILES / f"{path}.golden") for name, path in STORED.items()
    }
    found["two releases"] = [
        found["tables of a chain"],
        load_release(FILES / "v1/laplace-replace-one.golden"),
    ]

    pair = declare({"a": ["x", "y"], "b": [1, 2, 3]}, [("a", "b")])
    found["one table"] = published(pair, [(q.table("a", "b"), DiscreteLaplace(2.0))])

    edges = [("a", "b"), ("b", "c"), ("a", "c")]
    triangle = declare({name: ["x", "y"] for name in "abc"}, edges)
    noisy = [(q.table(*edge), DiscreteGaussian(3.0)) for edge in edges]
    found["tables of a cycle"] = published(triangle, noisy)
    found["cycle, an exact margin"] = published(triangle, [*noisy, (q.table("a"), NoNoise())])
    value, bound = Within.between(30, 59)
    found["cycle, a bounded table"] = NoisyStatistics.from_measurements(
        triangle,
        [
            Measurement(q.table("a", "b"), [80.0, 64.0, 70.0, 90.0], DiscreteLaplace(4.0)),
            Measurement(q.table("b", "c"), [90.0, 60.0, 70.0, 80.0], DiscreteLaplace(4.0)),
            Measurement(
                q.weighted("a", "c", matrix=[[1, 0, 0, 0]], labels=["both"]), [value], bound
            ),
        ],
        total=300,
    )

    chain = declare({name: ["x", "y"] for name in "abc"}, edges[:2])
    mixed = [(q.table("a", "b"), DiscreteLaplace(2.0)), (q.table("b", "c"), Gaussian(4.0))]
    found["chain, an exact margin"] = published(chain, [*mixed, (q.table("b"), NoNoise())])
    asked = [
        (q.parities(2), Gaussian(4.0)),
        (q.coarsened("a", "b", groups={"b": {"any": ["x", "y"]}}), DiscreteLaplace(2.0)),
        (q.pooled([("a", "b"), ("b", "c")]), Gaussian(6.0)),
    ]
    found["parities, coarsened, pooled"] = published(chain, asked)

    areas = {"north": ["n1", "n2"], "south": ["s1", "s2"]}
    country = declare(
        {"area": ["n1", "n2", "s1", "s2"], "ill": ["no", "yes"]},
        [("area", "ill")],
        levels={"area": {"region": areas}},
    )
    counts = [
        (q.table("area", "ill"), DiscreteLaplace(3.0)),
        (q.table("ill"), DiscreteLaplace(1.0)),
    ]
    found["levels of areas"] = published(country, counts)

    visits = markov_chain(["h", "w"], 4, share="transitions", end="<end>")
    steps = [("x1", "x2"), ("x2", "x3"), ("x3", "x4")]
    sums = [(q.pooled(steps), DiscreteLaplace(2.0)), (q.table("x1"), DiscreteLaplace(2.0))]
    found["transitions with an end"] = published(visits, sums)
    return found


def waves() -> list[Any]:
    """Two releases, each of people of its own."""
    from bayesprivmrf import queries as q
    from bayesprivmrf.model import declare
    from bayesprivmrf.privacy import DiscreteLaplace

    network = declare({"a": ["x", "y"], "b": ["x", "y"]}, [("a", "b")])
    law = DiscreteLaplace(3.0)
    return [published(network, [(q.table("a", "b"), law)], shift=shift) for shift in (0, 1)]
