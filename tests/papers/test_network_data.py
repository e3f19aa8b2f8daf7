from __future__ import annotations

import os
from pathlib import Path

import networkx as nx
import pytest
from repeats import few

import bayesprivmrf as bpm
from bayesprivmrf.errors import DataError
from bayesprivmrf.network import IsingNetwork
from benchmarks.papers.network_data import icpsr_22140, political_blogs, simulated_blogs

_PLACES = [folder / "shared/data/polblogs/polblogs.gml" for folder in Path(__file__).parents]
BLOGS = next(
    (path for path in [Path(os.environ.get("POLBLOGS_GML", "")), *_PLACES] if path.is_file()), None
)
with_blogs = pytest.mark.skipif(BLOGS is None, reason="the blogs' GML does not ship")

GML = """graph [
  directed 1
  node [ id 1 label "a[1]" value 0 source "x, y" ]
  node [ id 2 label "b" value 1 source "x" ]
  node [ id 3 label "c" value 1 ]
  node [ id 4 label "d" value 0 ]
  node [ id 5 label "far" value 0 ]
  edge [ source 1 target 2 ]
  edge [ source 1 target 2 ]
  edge [ source 2 target 1 ]
  edge [ source 2 target 2 ]
  edge [ source 2 target 3 ]
  edge [ source 4 target 2 ]
  edge [ source 3 target 4 ]
]
"""


@with_blogs
def test_the_blogs_are_those_of_the_paper():
    data = political_blogs(BLOGS)
    assert data.graph.number_of_nodes() == 815
    assert data.graph.number_of_edges() == 2345
    assert nx.number_connected_components(data.graph) == 11
    assert data.outcomes.value_counts().to_dict() == {"conservative": 433, "liberal": 382}
    network = IsingNetwork.from_graph(data.graph, "degree-normalised")
    spins = network.spins(data.outcomes, "conservative", "liberal")
    assert network.maximum_pseudo_likelihood(spins) == pytest.approx(2.850263, abs=5e-7)
    assert network.row_norms.max() == pytest.approx(3.060765, abs=5e-7)


@with_blogs
def test_isolated_blogs_change_no_estimate():
    data = political_blogs(BLOGS, keep_isolated=True)
    assert data.graph.number_of_nodes() == 1011
    assert nx.number_of_isolates(data.graph) == 196
    network = IsingNetwork.from_graph(data.graph, "degree-normalised")
    spins = network.spins(data.outcomes, "conservative", "liberal")
    assert network.maximum_pseudo_likelihood(spins) == pytest.approx(2.850263, abs=5e-7)
    assert political_blogs(BLOGS, largest_degree=None).graph.number_of_edges() == 16714


def test_the_blogs_file_is_read_as_a_multigraph_with_loops(tmp_path):
    path = tmp_path / "blogs.gml"
    path.write_text(GML)
    data = political_blogs(path)
    assert set(map(frozenset, data.graph.edges)) == {
        frozenset(edge) for edge in [("a(1)", "b"), ("b", "c"), ("b", "d"), ("c", "d")]
    }
    assert data.outcomes.to_dict() == {
        "a(1)": "liberal",
        "b": "conservative",
        "c": "conservative",
        "d": "liberal",
    }
    # b has degree 3; without it a(1) has no neighbor
    assert list(political_blogs(path, largest_degree=2).graph.edges) == [("c", "d")]
    assert political_blogs(path, largest_degree=2, keep_isolated=True).graph.number_of_nodes() == 3
    assert "unprotected" in repr(data)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("value 0", ""),
        ("value 0", "value 2"),
        ('"c"', '"b"'),
        ("target 4", "target 9"),
        ("edge", "arc"),
    ],
)
def test_another_gml_file_is_refused(tmp_path, old, new):
    path = tmp_path / "blogs.gml"
    path.write_text(GML.replace(old, new))
    with pytest.raises(DataError, match="blogs' GML"):
        political_blogs(path)


def test_made_up_blogs_are_two_blocs_of_the_blogs_size_and_a_seed_repeats_them():
    data = simulated_blogs(3)
    nodes, edges = data.graph.number_of_nodes(), data.graph.number_of_edges()
    assert 780 < nodes < 880
    assert 2250 < edges < 2400
    assert nx.number_of_selfloops(data.graph) == nx.number_of_isolates(data.graph) == 0
    across = sum((a < 500) != (b < 500) for a, b in data.graph.edges) / edges
    assert across == pytest.approx(0.07, abs=0.021)  # four standard errors
    assert 20 < max(degree for _, degree in data.graph.degree) < 50
    again = simulated_blogs(3)
    assert list(again.graph.edges) == list(data.graph.edges)
    assert again.outcomes.equals(data.outcomes)
    assert list(data.outcomes.index) == list(data.graph)
    assert not simulated_blogs(4).outcomes.equals(data.outcomes)


@pytest.mark.parametrize("beta", few([1.5, 0.6]))
def test_outcomes_of_made_up_blogs_have_the_law_of_their_beta(beta):
    found = []
    for seed in range(8):
        data = simulated_blogs(seed, beta=beta)
        network = IsingNetwork.from_graph(data.graph, "degree-normalised")
        found.append(network.pseudo_likelihood_estimate(data.outcomes, "conservative", "liberal"))
    # one estimate has a standard deviation of 0.12: the mean of eight is off by 0.17 once in 2e4
    assert sum(found) / len(found) == pytest.approx(beta, abs=0.17)


ROWS = [
    # STUDYNUM TIETYPE DYADTYPE ID1 ID2 HIV1 HIV2
    (1, 1, 0, 30, 10, 0, 1),
    (1, 1, 0, 10, 30, 1, 0),  # the same tie from the other side
    (1, 1, 0, 10, 20, 1, 0),
    (1, 1, 0, 20, 20, 0, 0),  # a loop
    (1, 3, 0, 20, 40, 0, 0),  # another kind of tie
    (1, 1, 1, 20, 50, 0, 0),  # another kind of dyad
    (2, 1, 0, 20, 60, 0, 0),  # another study
    (1, 1, 0, 20, 70, 0, 9),  # status unknown
    (1, 1, 0, 20, 80, 0, ""),
    (1, 1, 0, 0, 20, 0, 0),
]


def written(folder: Path, separator: str, header: str, rows: list[tuple]) -> Path:
    path = folder / "22140-0002-Data.tsv"
    lines = [header.split(), *rows]
    path.write_text("\n".join(separator.join(map(str, line)) for line in lines) + "\n")
    return path


@pytest.mark.parametrize("separator", ["\t", ","])
def test_the_hiv_network_keeps_social_ties_with_known_status(tmp_path, separator):
    rows = [(*row, 7) for row in ROWS]
    path = written(tmp_path, separator, "STUDYNUM TIETYPE DYADTYPE ID1 ID2 HIV1 HIV2 OTHER", rows)
    data = icpsr_22140(path)
    assert set(map(frozenset, data.graph.edges)) == {
        frozenset({30, 10}),
        frozenset({10, 20}),
        frozenset({0, 20}),
    }
    assert data.outcomes.to_dict() == {30: 0, 10: 1, 20: 0, 0: 0}
    network = IsingNetwork.from_graph(data.graph, "degree-normalised")
    assert network.spins(data.outcomes, 1, 0).sum() == -2


def test_another_table_is_refused(tmp_path):
    with pytest.raises(DataError, match="lacks HIV2"):
        icpsr_22140(written(tmp_path, "\t", "STUDYNUM TIETYPE DYADTYPE ID1 ID2 HIV1 X", ROWS))
    with pytest.raises(DataError, match="none is left"):
        icpsr_22140(
            written(tmp_path, "\t", "STUDYNUM TIETYPE DYADTYPE ID1 ID2 HIV1 HIV2", ROWS[6:7])
        )


def test_a_file_that_cannot_be_read_is_said(tmp_path):
    for path in (tmp_path, tmp_path / "none.gml"):
        with pytest.raises(DataError, match="cannot be read"):
            political_blogs(path)


def test_the_package_says_where_the_readers_are_now():
    with pytest.raises(ImportError, match=r"benchmarks/papers/network_data\.py"):
        _ = bpm.network.political_blogs
