"""Records that `StableStructure` needs: trees of chains, graphs with loops beside blocks and the theorem, two halves.

    OMP_NUM_THREADS=1 uv run python benchmarks/structure.py PART [ARGUMENTS]

PART is ``trees``, ``graphs`` or ``blocks`` (with p, the couplings' size and, if not as below, numbers of records),
``others``, ``gap`` (with the couplings' sizes), ``threes`` (with a kind), ``halves`` (with the
file of the survey NLTCS, 16 columns of 0 and 1 below a header) or ``wide`` (with how many are given).
Epsilon 1, delta 1e-6, add-or-remove-one; ten releases a cell, each of a new graph, the first of its
records and new noise. Counted: the right graph, a wrong one, a refusal.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from itertools import combinations, product
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import networkx as nx
import numpy as np
import pandas as pd
from papers.block_structure import BlockStructure
from papers.lower_bounds import Task
from papers.theorems import UPPER_BOUNDS

import bayesprivmrf as bpm
from bayesprivmrf.mechanisms import StableStructure
from bayesprivmrf.mechanisms.structure.dependence_graph import (
    GraphSearch,
    graphs_to_choose,
    stable_graph,
)

PROMISE: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}
RUNS, SWEEPS = 10, 40

type Drawn = tuple[nx.Graph, np.ndarray]


def declared(p: int, k: int) -> Any:
    return bpm.declare(states={f"v{i}": list(range(k)) for i in range(p)})


def frame(codes: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame(codes, columns=[f"v{i}" for i in range(codes.shape[1])])


def chain(p: int, k: int, size: int, rng: np.random.Generator) -> Drawn:
    """Each variable equals the one before it with probability .5, else it is uniform."""
    columns = [rng.integers(0, k, size)]
    for _ in range(p - 1):
        columns.append(np.where(rng.random(size) < 0.5, columns[-1], rng.integers(0, k, size)))
    return nx.path_graph(p), np.column_stack(columns)


def potts(graph: nx.Graph, k: int, coupling: float, size: int, rng: np.random.Generator) -> Drawn:
    """Gibbs sampling of couplings of this size, random signs: exp(coupling x x'); of more states, of being alike."""
    for edge in graph.edges:
        graph.edges[edge]["weight"] = coupling * rng.choice([-1, 1]) * (2 if k == 2 else 1)
    signed = nx.to_scipy_sparse_array(graph, nodelist=sorted(graph), dtype=np.float32, format="csr")
    colours = nx.greedy_color(graph)
    classes = [[v for v in graph if colours[v] == c] for c in sorted(set(colours.values()))]
    codes = rng.integers(0, k, (len(graph), size), dtype=np.int8)
    for _ in range(SWEEPS):
        for some in classes:
            alike = np.stack(
                [signed[some] @ (codes == state).astype(np.float32) for state in range(k)]
            )
            weights = np.exp(alike - alike[0]).cumsum(axis=0)
            level = rng.random(weights.shape[1:], dtype=np.float32) * weights[-1]
            codes[some] = (level > weights[:-1]).sum(axis=0)
    return graph, codes.T


def regular(p: int, coupling: float, k: int = 2) -> Callable[[int, np.random.Generator], Drawn]:
    def draw(size: int, rng: np.random.Generator) -> Drawn:
        return potts(
            nx.random_regular_graph(3, p, seed=int(rng.integers(2**31))), k, coupling, size, rng
        )

    return draw


def grid(side: int, coupling: float) -> Callable[[int, np.random.Generator], Drawn]:
    def draw(size: int, rng: np.random.Generator) -> Drawn:
        return potts(
            nx.convert_node_labels_to_integers(nx.grid_2d_graph(side, side)), 2, coupling, size, rng
        )

    return draw


def shown(
    name: str,
    mechanism: StableStructure,
    sizes: list[int],
    draw: Any,
    *,
    k: int = 2,
    told: str = "",
) -> None:
    """Print how many releases of the first records of each run were right, wrong and refused, and their time."""
    rng = np.random.default_rng(list(name.encode()))
    rows = {size: {"right": 0, "wrong": 0, "refused": 0, "seconds": 0.0} for size in sizes}
    for run in range(RUNS):
        graph, codes = draw(max(sizes), rng)
        true = {frozenset((f"v{a}", f"v{b}")) for a, b in graph.edges}
        for size, row in rows.items():
            begin = time.process_time()
            found = mechanism.release(declared(codes.shape[1], k), frame(codes[:size]), rng=run)
            row["seconds"] += (time.process_time() - begin) / RUNS
            is_right = not found.is_refusal and set(map(frozenset, found.edges)) == true
            row["refused" if found.is_refusal else "right" if is_right else "wrong"] += 1
    for size, row in rows.items():
        print(
            f"{name + told:44} n {size:<7,}",
            " ".join(f"{key} {value:<5.3g}" for key, value in row.items()),
            flush=True,
        )


def trees() -> None:
    for p, k in [(16, 2), (64, 2), (256, 2), (16, 5)]:
        shown(
            f"chain p={p} k={k}",
            StableStructure(**PROMISE),
            [250, 350, 500, 700, 1_000, 1_400, 2_000],
            lambda size, rng, p=p, k=k: chain(p, k, size, rng),
            k=k,
        )


def theorem(p: int, coupling: float) -> float:
    """Corollary 6.3 with all constants 1."""
    bound = next(one for one in UPPER_BOUNDS if one.privacy == "approximate")
    task = Task(variables=p, size=coupling, goal="structure", width=3 * coupling)
    return bound.needed(task, PROMISE["epsilon"], PROMISE["delta"])


SIZES = [1_000, 1_400, 2_000, 2_800, 4_000]


def graphs(p: str, coupling: str, *sizes: str) -> None:
    mechanism = StableStructure(**PROMISE, structure="graph")
    print(
        f"theorem, p={p} coupling={coupling}: {theorem(int(p), float(coupling)):.2g} records",
        flush=True,
    )
    asked = list(map(int, sizes)) or SIZES
    shown(
        f"3-regular p={p} coupling={coupling}", mechanism, asked, regular(int(p), float(coupling))
    )


def others() -> None:
    mechanism = StableStructure(**PROMISE, structure="graph")
    shown("grid 5 x 5 coupling=0.3", mechanism, SIZES, grid(5, 0.3))
    shown("grid 5 x 5 coupling=0.5", mechanism, SIZES, grid(5, 0.5))
    shown("3-regular p=12 k=3 coupling=0.8", mechanism, SIZES, regular(12, 0.8, 3), k=3)
    for threshold in (0.1, 0.03):
        strong = StableStructure(**PROMISE, structure="graph", threshold=threshold)
        sizes = [4_000, 8_000, 16_000, 32_000]
        shown(f"3-regular p=16 coupling=0.8 threshold={threshold}", strong, sizes, regular(16, 0.8))


def blocks(p: str, coupling: str, *sizes: str) -> None:
    mechanism = BlockStructure(**PROMISE, structure="graph")
    asked = list(map(int, sizes)) or [11_000, 16_000, 22_000, 32_000, 45_000]
    shown(
        f"blocks, 3-regular p={p} coupling={coupling}",
        mechanism,
        asked,
        regular(int(p), float(coupling)),
    )


KINDS: dict[str, Callable[[np.random.Generator], nx.Graph]] = {
    "tree": lambda rng: nx.random_labeled_tree(16, seed=int(rng.integers(2**31))),
    "regular": lambda rng: nx.random_regular_graph(3, 16, seed=int(rng.integers(2**31))),
    "grid": lambda _: nx.convert_node_labels_to_integers(nx.grid_2d_graph(4, 4)),
    "cliques": lambda _: nx.disjoint_union_all([nx.complete_graph(4)] * 4),
    "hub": lambda _: nx.star_graph(15),
}


def gap(*couplings: str) -> None:
    """The chances of a right graph, a wrong one and a refusal, over the noise: the default threshold, and the gap."""
    model = declared(16, 2)
    cards = (2,) * 16
    rules: dict[str, Any] = {"0.1": None, "gap": "gap"}
    for coupling, kind in product(couplings, KINDS):
        rng = np.random.default_rng(list(f"{kind} {coupling}".encode()))
        told: dict[Any, np.ndarray] = {key: np.zeros(3) for key in product((4_000, 16_000), rules)}
        for _ in range(RUNS):
            graph, codes = potts(KINDS[kind](rng), 2, float(coupling), 16_000, rng)
            true = tuple(sorted(tuple(sorted(edge)) for edge in graph.edges))
            for (size, name), chances in told.items():
                mechanism = StableStructure(**PROMISE, structure="graph", threshold=rules[name])
                plan = mechanism._prepare(model)
                cells, counts = np.unique(codes[:size], axis=0, return_counts=True)
                records = (cells, counts, cards, mechanism.adjacency)
                search = GraphSearch(given=2, most=10**6)
                if name == "gap":
                    clearness, graphs = graphs_to_choose(*records, search)
                    weights = np.exp((clearness - clearness.max()) / (plan.choice or 1.0))
                else:
                    weights = np.ones(1)
                    graphs = [stable_graph(*records, threshold=0.1, search=search)]
                for weight, (edges, distance) in zip(weights / weights.sum(), graphs, strict=True):
                    noise = np.arange(max(plan.needed - distance + 1, -200), 200)
                    out = min(float(np.exp(plan.law.log_density(noise)).sum()), 1.0)
                    chances += (
                        weight
                        * np.array([out * (edges == true), out * (edges != true), 1 - out])
                        / RUNS
                    )
        for (size, name), chances in told.items():
            shares = " ".join(
                f"{word} {chance:.2f}"
                for word, chance in zip(("right", "wrong", "refused"), chances, strict=True)
            )
            print(
                f"{kind} coupling={coupling} n {size:<7,} threshold={name:4} {shares}", flush=True
            )


def forest_of_threes(k: int, chance: float) -> Callable[[int, np.random.Generator], Drawn]:
    """Eight threes, each sharing one variable with those before: the sum of each is a multiple of k more often."""

    def draw(size: int, rng: np.random.Generator) -> Drawn:
        graph = nx.empty_graph(17)
        codes = rng.integers(0, k, (size, 17))
        for one in range(1, 17, 2):
            three = (int(rng.integers(one)), one, one + 1)
            alike = rng.random(size) < chance
            codes[:, three[2]] = np.where(
                alike, -codes[:, three[:2]].sum(axis=1) % k, codes[:, three[2]]
            )
            graph.add_edges_from(combinations(three, 2))
        return graph, codes

    return draw


def mixed(coupling: float) -> Callable[[int, np.random.Generator], Drawn]:
    """A ring of 15 variables coupled in pairs, and five threes of neighbours two apart, exp(coupling x x' x'')."""

    def draw(size: int, rng: np.random.Generator) -> Drawn:
        order = rng.permutation(15)
        cliques = [(order[v], order[v - 1]) for v in range(15)]
        cliques += [tuple(order[[v, (v + 1) % 15, (v + 2) % 15]]) for v in range(0, 15, 3)]
        size_of = {clique: coupling * rng.choice([-1, 1]) for clique in cliques}
        spins = rng.choice(np.array([-1, 1], dtype=np.int8), (15, size))
        for _ in range(SWEEPS):
            for v in range(15):
                pull = sum(
                    c * np.prod([spins[u] for u in clique if u != v], axis=0)
                    for clique, c in size_of.items()
                    if v in clique
                )
                spins[v] = np.where(rng.random(size) < 1 / (1 + np.exp(-2 * pull)), 1, -1)
        graph = nx.empty_graph(15)
        graph.add_edges_from(
            pair for clique in cliques for pair in combinations(map(int, clique), 2)
        )
        return graph, ((spins + 1) // 2).T

    return draw


def threes(kind: str) -> None:
    """Graphs of threes at order 3, beside order 2."""
    draw, k, sizes = {
        "forest": (forest_of_threes(2, 0.5), 2, [1_400, 2_000, 2_800, 4_000]),
        "states": (forest_of_threes(3, 0.5), 3, [2_800, 4_000, 5_600]),
        "mixed": (mixed(0.4), 2, [4_000, 8_000, 16_000]),
        "blocks": (forest_of_threes(2, 0.5), 2, [32_000, 64_000]),
    }[kind]
    rules: list[dict[str, Any]] = [{"order": 3}]
    if kind != "blocks":
        rules += [{"order": 3, "given": 1}, {"order": 2}]
    if kind == "blocks":
        certified = BlockStructure
    else:
        certified = StableStructure
    for rule in rules:
        mechanism = certified(**PROMISE, structure="graph", **rule)
        shown(f"threes, {kind}", mechanism, sizes, draw, k=k, told=f" {rule}")


def halves(path: str) -> None:
    """The graph of one half of a survey, released, against that of the other half, which is looked at as it is."""
    codes = np.loadtxt(path, delimiter=",", skiprows=1, dtype=np.int64)
    variables = declared(codes.shape[1], 2)
    rules: list[dict[str, Any]] = [{"structure": "tree"}]
    rules += [
        {"structure": "graph", "threshold": size}
        for size in (0.05, 0.08, 0.1, 0.125, 0.15, 0.18, "gap")
    ]
    for epsilon in (1.0, 4.0):
        for rule in rules:
            scores = []
            edges = []
            distances = []
            mechanism = StableStructure(epsilon=epsilon, delta=1e-6, **rule)
            open_ = StableStructure(epsilon=200.0, delta=0.5, **rule)  # lets out all but ties
            for seed in range(RUNS):
                order = np.random.default_rng(seed).permutation(len(codes))
                one, other = np.array_split(codes[order], 2)
                found = mechanism.release(variables, frame(one), rng=seed)
                truth = open_.release(variables, frame(other), rng=seed)
                distances.append(found.details["noisy_distance"])
                if not found.is_refusal and not truth.is_refusal:
                    a = set(found.edges)
                    b = set(truth.edges)
                    scores.append(2 * len(a & b) / max(len(a) + len(b), 1))
                    edges.append(len(a))
            if scores:
                told = f"F1 {np.mean(scores):.3f}, edges {np.mean(edges):.1f}"
            else:
                told = "no F1"
            middle = f"median noisy distance {np.median(distances):.0f}"
            print(
                f"epsilon {epsilon} {rule}: {len(scores)} of {RUNS} released, {middle}; {told}",
                flush=True,
            )


def wide(given: str) -> None:
    p = 1_000
    size = 10_000
    rng = np.random.default_rng(1)
    graph, codes = regular(p, 0.3)(size, rng)
    right = {frozenset((f"v{a}", f"v{b}")) for a, b in graph.edges}
    rules: list[dict[str, Any]] = [
        {"structure": "tree"},
        {"structure": "graph", "given": int(given)},
    ]
    for settings in rules:
        begin = time.perf_counter()
        cpu = time.process_time()
        found = StableStructure(**PROMISE, **settings).release(declared(p, 2), frame(codes), rng=1)
        if found.is_refusal:
            told = "refused"
        else:
            told = f"right: {set(map(frozenset, found.edges)) == right}"
        print(
            f"p = {p:,}, n = {size:,}, {settings}: {time.perf_counter() - begin:.1f} s, "
            f"{time.process_time() - cpu:.1f} s of one core; {told}",
            flush=True,
        )


if __name__ == "__main__":
    parts: dict[str, Callable[..., None]] = {
        "trees": trees,
        "graphs": graphs,
        "others": others,
        "gap": gap,
        "threes": threes,
        "blocks": blocks,
        "halves": halves,
        "wide": wide,
    }
    parts[sys.argv[1]](*sys.argv[2:])
