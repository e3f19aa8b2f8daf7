"""Results of a posterior: draws, intervals, diagnostics, files and synthetic data."""
