from .answers import AnswersPerRecord, FittedPotentials, answers_per_record
from .cgm import CGM
from .evidence import Evidence
from .given_releases import gather
from .interval_frame import Mark, RowStatus, interval_frame
from .joint_estimate import JointEstimate, TableFunction
from .limits import Limits, limits_of_draws, standard_limits
from .naive_mle import NaiveMLE
from .noise_aware.estimator import NoiseAwareMAP
from .posterior.latent_counts import LatentCounts
from .posterior.results.draws import combine_estimates
from .posterior.results.loading import load_posterior
from .posterior.results.posterior import Posterior
from .result import Result
from .solution import Solution, Status, uniform_solution
from .transition_rows import TransitionRows
from .transition_sums import NoisySums

__all__ = [
    "CGM",
    "AnswersPerRecord",
    "Evidence",
    "FittedPotentials",
    "JointEstimate",
    "LatentCounts",
    "Limits",
    "Mark",
    "NaiveMLE",
    "NoiseAwareMAP",
    "NoisySums",
    "Posterior",
    "Result",
    "RowStatus",
    "Solution",
    "Status",
    "TableFunction",
    "TransitionRows",
    "answers_per_record",
    "combine_estimates",
    "gather",
    "interval_frame",
    "limits_of_draws",
    "load_posterior",
    "standard_limits",
    "uniform_solution",
]
