from .clipped_gradients import (
    RATE_BITS,
    SMALLEST_CLIP,
    Ascent,
    AscentPath,
    GradientLattice,
    cells_of,
    drawn_noises,
)

__all__ = [
    "RATE_BITS",
    "SMALLEST_CLIP",
    "Ascent",
    "AscentPath",
    "GradientLattice",
    "cells_of",
    "drawn_noises",
]
