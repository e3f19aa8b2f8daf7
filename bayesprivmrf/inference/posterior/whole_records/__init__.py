"""Whole records: Gibbs and Metropolis sampling of the exact posterior of the latent counts."""
