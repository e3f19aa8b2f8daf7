"""Sources of the figures: networks drawn from a seed, and data in the user's files."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesprivmrf.errors import ArgumentError

from .network_data import NetworkData, icpsr_22140, political_blogs
from .panels import PanelFile
from .registry import DataName, NetworkName

if TYPE_CHECKING:
    from bayesprivmrf.chains.heat_bath import Moves
    from bayesprivmrf.network import IsingNetwork

LABELS = {"erdos-renyi": "Erdős-Rényi", "hiv": "HIV network", "blogs": "political blogs"}
FILES: dict[DataName, str] = {
    "blogs": "the political blogs' polblogs.gml",
    "hiv": "table DS0002 of ICPSR 22140, as text",
    "msnbc": "UCI's msnbc990928.seq",
    "biofam": "TraMineR's biofam as a table of states (biofam in its name)",
}
_POSITIVE = {"blogs": ("conservative", "liberal"), "hiv": (1, 0)}
_TABLES = (".tsv", ".csv", ".txt")


@dataclass(frozen=True, slots=True, kw_only=True)
class ErdosRenyi:
    r"""A random graph on n nodes with edge probability :math:`p = n^{-\alpha}`, coupling A/(np).

    Parameters
    ----------
    nodes
        n.
    exponent
        alpha.
    seed
        One seed, n and alpha give one graph.
    """

    nodes: int
    exponent: float
    seed: int

    @property
    def name(self) -> str:
        """Short name, as in tables."""
        return "erdos-renyi"

    @property
    def moves(self) -> Moves:
        """How outcomes are simulated: as in the paper."""
        return "heat-bath"

    def settings(self) -> dict[str, Any]:
        """Return what the graph depends on."""
        return {"network": self.name} | asdict(self)

    def network(self) -> IsingNetwork:
        """Return the model; n p, not the mean degree that came out, divides."""
        from scipy import sparse

        from bayesprivmrf.network import IsingNetwork

        n = self.nodes
        p = self.nodes**-self.exponent
        rng = np.random.default_rng([self.seed, n, round(self.exponent * 1e6)])
        ends = [(np.flatnonzero(rng.random(n - 1 - i) < p) + i + 1) for i in range(n)]
        rows = np.repeat(np.arange(n), [end.size for end in ends])
        columns = np.concatenate(ends)
        half = sparse.coo_array((np.ones(rows.size), (rows, columns)), shape=(n, n)).tocsr()
        return IsingNetwork.from_graph(
            sparse.csr_array(half + half.T), "mean-degree", mean_degree=n * p
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """Network from the user's file, with coupling D^-1/2 A D^-1/2.

    Parameters
    ----------
    name
        ``"blogs"`` or ``"hiv"``.
    path
        Its file.
    digest
        Digest of the file's bytes: results are kept for these bytes, wherever the file lies.
    """

    name: NetworkName
    path: str
    digest: str

    @property
    def moves(self) -> Moves:
        """How outcomes are simulated: the heat bath alone does not mix on a network of blocs."""
        return "swendsen-wang"

    def settings(self) -> dict[str, Any]:
        """Return what the network depends on."""
        return {"network": self.name, "digest": self.digest}

    def read(self, *, keep_isolated: bool = False) -> NetworkData:
        """Return graph and outcomes, unprotected.

        Raises
        ------
        DataError
            The file is not what it should be.
        """
        if self.name == "hiv":
            return icpsr_22140(self.path)
        return political_blogs(self.path, keep_isolated=keep_isolated)

    def network(self) -> IsingNetwork:
        """Return the model; of the blogs with the isolated nodes, as in the authors' simulations."""
        from bayesprivmrf.network import IsingNetwork

        return IsingNetwork.from_graph(self.read(keep_isolated=True).graph, "degree-normalised")

    def spins(self) -> np.ndarray:
        """Return the real outcomes as -1 and +1, unprotected, in the order of the network's nodes."""
        return network_of(self).spins(self.read(keep_isolated=True).outcomes, *_POSITIVE[self.name])


type Source = ErdosRenyi | Published


@functools.lru_cache(maxsize=4)
def network_of(source: Source) -> IsingNetwork:
    """Return the source's network, made once in each process."""
    return source.network()


def find_networks(paths: Sequence[str | Path]) -> dict[DataName, Any]:
    """Return the published networks and sequences that files hold, by their names' endings.

    Parameters
    ----------
    paths
        Files, or folders to be searched for ``*.gml`` (the blogs), ``*.seq`` (MSNBC), tables with biofam in
        their name, and tables with 0002 in it (the HIV network; any other table that is named by itself, too).

    Raises
    ------
    ArgumentError
        A path does not exist, or holds none of them.
    """
    found: dict[DataName, Any] = {}
    for given in paths:
        path = Path(given)
        if not path.exists():
            raise ArgumentError(
                f"`--data` must name a file or a folder that exists, got {str(given)!r}."
            )
        if path.is_file():
            files = [path]
        else:
            files = sorted(entry for entry in path.rglob("*") if entry.is_file())
        known: list[tuple[DataName, Path]] = []
        for file in files:
            kind = _kind(file, alone=path.is_file())
            if kind is not None:
                known.append((kind, file))
        if not known:
            raise ArgumentError(
                f"`--data` must hold {', or '.join(FILES.values())}, but {str(given)!r} holds none of them; tables "
                f"end in {', '.join(_TABLES)}."
            )
        for kind, file in known:
            digest = hashlib.sha256(file.read_bytes()).hexdigest()[:16]
            made: Any = Published if kind in LABELS else PanelFile
            found.setdefault(kind, made(name=kind, path=str(file), digest=digest))
    return found


def _kind(file: Path, *, alone: bool) -> DataName | None:
    suffix = file.suffix.lower()
    if suffix == ".gml":
        return "blogs"
    if suffix == ".seq":
        return "msnbc"
    if suffix in _TABLES and "biofam" in file.stem:
        return "biofam"
    if suffix in _TABLES and (alone or "0002" in file.stem):
        return "hiv"
    return None
