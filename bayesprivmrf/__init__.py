"""Markov random fields from sensitive data: declare, release once, infer with honest uncertainty."""
