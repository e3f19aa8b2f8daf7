"""Network data: readers of two published networks, whose files the user must have, and a simulated network."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesprivmrf.checks import file_path, finite, generator, truth, whole_number
from bayesprivmrf.errors import DataError
from bayesprivmrf.network.ising import IsingNetwork

if TYPE_CHECKING:
    import networkx as nx
    import pandas as pd

# states of the outcomes by the value in Newman's GML file
_LEANINGS = {0: "liberal", 1: "conservative"}
# columns of DS0002 that are read
_HIV_COLUMNS = ("STUDYNUM", "TIETYPE", "DYADTYPE", "ID1", "ID2", "HIV1", "HIV2")


@dataclass(frozen=True, kw_only=True, eq=False)
class NetworkData:
    """A network with one unprotected outcome per node.

    Parameters
    ----------
    graph
        Undirected simple networkx graph.
    outcomes
        Series of states, indexed by node in graph order. They have no privacy guarantee.
    """

    graph: nx.Graph
    outcomes: pd.Series

    def __repr__(self) -> str:
        nodes = self.graph.number_of_nodes()
        edges = self.graph.number_of_edges()
        return f"NetworkData({nodes} nodes, {edges} edges; outcomes unprotected)"


def political_blogs(
    path: str | Path, *, largest_degree: int | None = 50, keep_isolated: bool = False
) -> NetworkData:
    """Read the political blogs of Adamic and Glance (2005) from Newman's GML file.

    The network is cleaned as in Chakraborty, Chatterjee and Dalal (2024), section 4.2.2. The directed multigraph
    (65 arcs are repeated, 3 are loops) becomes an undirected simple graph. Its largest component is kept (1,222
    nodes). Nodes with a degree above `largest_degree` are dropped, and then nodes without neighbors. The result has
    815 nodes, 382 ``"liberal"`` and 433 ``"conservative"``, and 2,345 edges in 11 components.

    Parameters
    ----------
    path
        Path of ``polblogs.gml``.
    largest_degree
        Largest degree of a node that is kept, in the largest component; ``None`` keeps all nodes.
    keep_isolated
        True to keep the 196 nodes that lose all their neighbors, so that the network has 1,011 nodes.

    Raises
    ------
    DataError
        The file cannot be read as that GML file, or the `value` of a node is not 0 or 1.
    ArgumentError
        An argument has the wrong type.

    Examples
    --------
    >>> blogs = political_blogs("polblogs.gml")  # doctest: +SKIP
    """
    import networkx as nx
    import pandas as pd

    file = file_path("path", path)
    if largest_degree is not None:
        largest_degree = whole_number("largest_degree", largest_degree)
    keep_isolated = truth("keep_isolated", keep_isolated)
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except (OSError, ValueError) as error:  # a ValueError: no file can have this name
        reason = getattr(error, "strerror", None) or "no file can have this name"
        raise DataError(
            f"`path` must be the blogs' GML file, but {str(path)!r} cannot be read: {reason}."
        ) from None
    leaning, arcs = _read_gml(text)
    graph = nx.Graph()
    graph.add_nodes_from(leaning)
    graph.add_edges_from((a, b) for a, b in arcs if a != b)
    if graph.number_of_edges() == 0 or any(leaning.get(node) not in _LEANINGS for node in graph):
        raise DataError(
            "`path` must be the blogs' GML file with arcs, and a `value` of 0 or 1 for each node, but some are "
            "missing; pass polblogs.gml as Newman distributes it."
        )
    largest = max(nx.connected_components(graph), key=len)
    graph = graph.subgraph([node for node in graph if node in largest]).copy()
    if largest_degree is not None:
        graph.remove_nodes_from([node for node, degree in graph.degree if degree > largest_degree])
    if not keep_isolated:
        graph.remove_nodes_from(list(nx.isolates(graph)))
    outcomes = pd.Series(
        {node: _LEANINGS[leaning[node]] for node in graph}, name="leaning", dtype=object
    )
    return NetworkData(graph=graph, outcomes=outcomes)


def _read_gml(text: str) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Return the values of the nodes by label, and the arcs with repetitions.

    networkx's reader is slow, and refuses repeated arcs unless the file says `multigraph`.
    """
    labels: dict[str, str] = {}
    leaning: dict[str, int] = {}
    arcs: list[tuple[str, str]] = []
    text = re.sub(r'"[^"]*"', _plain, text)
    for kind, block in re.findall(r"\b(node|edge)\s*\[([^\[\]]*)\]", text):
        entry = {
            key: value.strip('"') for key, value in re.findall(r'(\w+)\s+("[^"]*"|\S+)', block)
        }
        try:
            if kind == "node":
                labels[entry["id"]] = entry["label"]
                leaning[entry["label"]] = int(entry["value"])
            else:
                arcs.append((labels[entry["source"]], labels[entry["target"]]))
        except (KeyError, ValueError) as error:
            raise DataError(
                "`path` must be the blogs' GML file, but a node or an arc in it lacks a part."
            ) from error
    if len(leaning) != len(labels):
        raise DataError("`path` must be the blogs' GML file, but two nodes in it have one label.")
    return leaning, arcs


def _plain(text: re.Match[str]) -> str:
    """Return quoted text with parentheses in place of brackets, which delimit blocks."""
    return text[0].replace("[", "(").replace("]", ")")


def simulated_blogs(
    rng: int | np.random.Generator | None = None, *, beta: float = 1.5
) -> NetworkData:
    """Simulate a network like the political blogs, with outcomes drawn at a known beta.

    The network has two blocs of 500 nodes and 2,400 links, 7 % of them between the blocs. The ends of links are
    drawn in proportion to a lognormal popularity. Repeated links, loops and nodes without a link are dropped, which
    leaves about 830 nodes and 2,330 edges. Outcomes are drawn from ``IsingNetwork.from_graph(graph,
    "degree-normalised")`` at `beta`. They depend on the blocs only through the links.

    Parameters
    ----------
    rng
        A seed or a generator, for the graph and the outcomes.
    beta
        Inverse temperature.

    Warns
    -----
    SamplingWarning
        The simulation of the outcomes has not mixed, which happens for a beta of about 2 or more.

    Raises
    ------
    ArgumentError
        `beta` is not finite.

    Examples
    --------
    >>> simulated_blogs(1)
    NetworkData(846 nodes, 2352 edges; outcomes unprotected)
    """
    import networkx as nx
    import pandas as pd

    beta = finite("beta", beta)
    random = generator(rng)
    # nodes of each bloc, links, and the share of links between the blocs: about those of the political blogs
    size = 500
    count = 2400
    across = 0.07
    # popularity of the nodes; its bound of 8 gives hubs of about thirty links
    popularity = np.minimum(np.exp(random.normal(0.0, 1.2, (2, size))), 8.0)
    popularity /= popularity.sum(axis=1, keepdims=True)
    # the bloc of each end of a link, then the node within the bloc
    first = random.integers(0, 2, count)
    second = np.where(random.random(count) < across, 1 - first, first)
    drawn = [
        np.stack([random.choice(size, count, p=popularity[bloc]) for bloc in (0, 1)])
        for _ in range(2)
    ]
    links = np.arange(count)
    ends = [
        bloc * size + nodes[bloc, links] for bloc, nodes in zip((first, second), drawn, strict=True)
    ]
    graph = nx.Graph()
    graph.add_edges_from(
        (a, b) for a, b in zip(*(end.tolist() for end in ends), strict=True) if a != b
    )
    network = IsingNetwork.from_graph(graph, "degree-normalised")
    spins = network.sample(beta, rng=random)[0]
    leanings = [_LEANINGS[int(spin > 0)] for spin in spins]
    return NetworkData(
        graph=graph, outcomes=pd.Series(leanings, index=list(graph), name="leaning", dtype=object)
    )


def icpsr_22140(path: str | Path, *, study: int = 1) -> NetworkData:
    """Read the HIV network of Colorado Springs from table DS0002 of ICPSR 22140.

    Users obtain the table from ICPSR under its terms. Each row is a tie between two people, with the HIV status of
    both. A tie is kept if it belongs to the study (``STUDYNUM`` 1), is social (``TIETYPE`` 1), is between
    respondents (``DYADTYPE`` 0), and has two known statuses (``HIV1`` and ``HIV2`` 0 or 1). A tie that is listed
    several times is one edge, and ties of a person with herself are dropped. A person is positive if any kept row
    says so.

    Parameters
    ----------
    path
        Path of the table as text, separated by tabs or commas, with columns STUDYNUM, TIETYPE, DYADTYPE, ID1, ID2,
        HIV1 and HIV2. Other columns are ignored.
    study
        Value of STUDYNUM.

    Returns
    -------
    NetworkData
        Outcomes are 0 and 1; nodes are the table's identifiers, in order of first appearance.

    Raises
    ------
    DataError
        A column is missing, or no tie is left.

    Examples
    --------
    >>> ties = icpsr_22140("22140-0002-Data.tsv")  # doctest: +SKIP
    """
    import networkx as nx
    import pandas as pd

    table = _table(file_path("path", path))
    numbers: dict[str, Any] = {
        name: pd.to_numeric(table[name], errors="coerce")
        for name in _HIV_COLUMNS
        if name[:2] != "ID"
    }
    keep = (
        (numbers["STUDYNUM"] == study)
        & (numbers["TIETYPE"] == 1)
        & (numbers["DYADTYPE"] == 0)
        & numbers["HIV1"].isin([0, 1])
        & numbers["HIV2"].isin([0, 1])
        & table["ID1"].notna()
        & table["ID2"].notna()
    )
    ties = table.loc[keep, ["ID1", "ID2"]]
    status: dict[Any, int] = {}
    for end in "12":
        for node, value in zip(
            ties[f"ID{end}"], numbers[f"HIV{end}"][keep].astype(int), strict=True
        ):
            status[node] = max(status.get(node, 0), value)
    graph = nx.Graph()
    graph.add_edges_from((a, b) for a, b in ties.itertuples(index=False) if a != b)
    if graph.number_of_edges() == 0:
        raise DataError(
            "the table must have ties of the study with two known statuses, but none is left; check `study`."
        )
    return NetworkData(
        graph=graph, outcomes=pd.Series({node: status[node] for node in graph}, name="HIV")
    )


def _table(path: Path) -> pd.DataFrame:
    """Return the table DS0002 with upper-case column names."""
    import pandas as pd

    try:
        table = pd.read_csv(path, sep=None, engine="python").rename(columns=str.upper)
    except (OSError, ValueError, csv.Error) as error:  # a ValueError: the file is not text
        raise DataError(
            f"`path` must be a table as text, but {str(path)!r} cannot be read as one."
        ) from error
    missing = [name for name in _HIV_COLUMNS if name not in table.columns]
    if missing:
        raise DataError(f"the table must be DS0002 of ICPSR 22140, but lacks {', '.join(missing)}.")
    return table
