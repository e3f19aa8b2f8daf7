from .released import ReleasedGraph

__all__ = ["ReleasedGraph"]
