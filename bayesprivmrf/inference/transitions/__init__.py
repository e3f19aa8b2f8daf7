"""Chains of one transition matrix: estimators of its probabilities."""
