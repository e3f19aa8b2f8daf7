"""Adaptive rounds of `SelectMeasure`: merged states, candidate tables, and the fit, from noisy answers alone."""
