"""NUTS: sampling a compiled or a PyMC density, by nutpie or by PyMC."""
