"""The noise-aware mode: one estimate that knows the law of the noise and learns how much to shrink."""
