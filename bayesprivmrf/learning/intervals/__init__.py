"""Intervals for what was learned, by simulation from the release."""
