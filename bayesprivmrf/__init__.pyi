from . import analysis, network, queries, readers, sequences
from .citation import citation
from .evaluation import compare, holdout_log_likelihood, kl_divergence
from .inference import (
    CGM,
    LatentCounts,
    NaiveMLE,
    NoiseAwareMAP,
    Posterior,
    Solution,
    Status,
    combine_estimates,
    load_posterior,
    uniform_solution,
)
from .model import CliqueTables, Domain, ModelSpecification, declare, markov_chain
from .privacy import Adjacency, PrivacyGuarantee, compose
from .release import Measurement, NoisyStatistics, load_release

__all__ = [
    "CGM",
    "Adjacency",
    "CliqueTables",
    "Domain",
    "LatentCounts",
    "Measurement",
    "ModelSpecification",
    "NaiveMLE",
    "NoiseAwareMAP",
    "NoisyStatistics",
    "Posterior",
    "PrivacyGuarantee",
    "Solution",
    "Status",
    "analysis",
    "citation",
    "combine_estimates",
    "compare",
    "compose",
    "declare",
    "holdout_log_likelihood",
    "kl_divergence",
    "load_posterior",
    "load_release",
    "markov_chain",
    "network",
    "queries",
    "readers",
    "sequences",
    "uniform_solution",
]

__version__: str
