"""The figures of the papers, made anew: cells of simulation that can be resumed, tables, pictures.

Everything here is an evaluation: it simulates outcomes, or reads real ones unprotected, and says so in what it
writes. `registry` names the figures without loading anything, `run.reproduce` makes one.
"""

from bayesprivmrf.reproduce.registry import FIGURES

__all__ = ["FIGURES"]
