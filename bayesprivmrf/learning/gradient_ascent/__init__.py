"""Noisy ascent of the likelihood by clipped gradients."""
