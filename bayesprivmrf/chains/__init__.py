"""Markov chains: Gibbs sampling of pairwise models, heat bath and Swendsen-Wang moves on networks."""
