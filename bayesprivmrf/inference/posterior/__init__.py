"""The posterior of a release: over marginals, potentials and the latent true counts."""
