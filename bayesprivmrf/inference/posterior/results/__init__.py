"""Results of a posterior: draws, quantities, checks, files and synthetic records."""
