"""The graph under approximate privacy: scores, their spanning tree, and how far it is from another."""
