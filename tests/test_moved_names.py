"""Names that the documentation once gave are still where they were."""

from __future__ import annotations

import importlib
import re
import warnings

DOCUMENTED = """
-: Adjacency CGM CliqueTables Domain LatentCounts ModelSpecification NaiveMLE NoiseAwareMAP NoisyStatistics
  Posterior PrivacyGuarantee Solution Status citation combine_estimates compare compose declare
  holdout_log_likelihood kl_divergence load_release network uniform_solution
audit: AuditResult PrivacyLoss audit audit_noise gaussian_epsilon privacy_loss
citation: citation
cli: main
errors: ArgumentError BayesPrivMRFError ConsistencyWarning DataError DeclarationWarning ForeignFileError ModelError
  ModelTooLargeError NewerFormatError NoiseWarning PrivacyError ReleaseFileError SamplingWarning
  UndeclaredStateError
evaluation: compare holdout_log_likelihood kl_divergence solution_of
inference: CGM LatentCounts NaiveMLE NoiseAwareMAP Posterior Solution Status combine_estimates uniform_solution
inference.posterior: CombinedEstimate LatentCounts Posterior combine_estimates
learning: LearnedIsing LearnedMonomials LearnedNetwork LearnedPairwise LearnedPotentials LearnedRegression
  ReleasedParities
marginals: DEFAULT_MEMORY_LIMIT Forecast MarginalEngine forecast marginal_engine marginal_of sample
mechanisms: DPSGD ExactStatistics GaussianStatistics LaplaceStatistics Ledger Mechanism
  ObjectivePerturbation ParityQueries PrivateFrankWolfe PrivateLogisticRegression SelectMeasure Stamp
  StatisticsMechanism available_mechanisms
mechanisms.calibration: discrete_laplace_laws
model: CliqueTables Domain ModelSpecification declare
model.declaration_file: Declaration RecodingRule read_declaration
network: EstimateLaw IsingNetwork NetworkEstimate PseudoLikelihood
network.intervals: quantile_curves
plots: calibration_ranks edge_marginals holdout_against_epsilon marginal_forest noisy_against_posterior
privacy: Adjacency DiscreteGaussian DiscreteLaplace Gaussian Laplace NoNoise NoiseLaw PrivacyGuarantee compose
  noise_from_dict
privacy.score_lattice: PerturbationConstants perturbation_constants
records: read_records recode
release: NoisyStatistics Provenance load_release
survey: fair_survey_declaration fair_survey_records load_fair_survey
"""
"""What README, guides and reference named at 35d2ecb, by its path below the package; "-" is the package itself."""


def documented():
    """Paths and names."""
    found = re.findall(r"^([\w.-]+): ((?:[^\n]|\n  )*)$", DOCUMENTED, re.MULTILINE)
    return [(path.strip("-"), name) for path, names in found for name in names.split()]


def test_every_name_that_was_once_documented_is_still_where_it_was():
    names, missing = documented(), []
    assert len(names) > 125
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # which says where it is now
        for path, name in names:
            module = ".".join(filter(None, ["bayesprivmrf", path]))
            try:
                getattr(importlib.import_module(module), name)
            except (ImportError, AttributeError):
                missing.append(f"{module}.{name}")
    assert missing == []
