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
