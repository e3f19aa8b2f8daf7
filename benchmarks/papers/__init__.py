"""The figures of three papers: simulations in cells that can be resumed, their tables, and their pictures.

Run ``uv run python -m benchmarks.papers`` in a clone of the repository. See docs/benchmarks/papers.md.
Everything here is an evaluation. It simulates outcomes, or reads real ones without protection, and says so in what it
writes. Modules import each other relatively, so that a script beside this folder can import `papers` as well.
"""

from .cgm_cells import GraphCell, SequenceCell
from .experiments import SimulationCell
from .registry import FIGURES
from .run import Made, lacking, reproduce
from .sources import ErdosRenyi, find_networks

__all__ = [
    "FIGURES",
    "ErdosRenyi",
    "GraphCell",
    "Made",
    "SequenceCell",
    "SimulationCell",
    "find_networks",
    "lacking",
    "reproduce",
]
