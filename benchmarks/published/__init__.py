"""Measurements of fits to tables that agencies protected by rounding and similar rules."""
