"""Parities of binary variables: how they are measured, and the models fitted to them."""
