"""Relaxed counts: densities over real-valued counts, which NUTS samples."""
