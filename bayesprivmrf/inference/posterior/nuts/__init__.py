"""NUTS sampling of relaxed counts, by nutpie or by PyMC."""
