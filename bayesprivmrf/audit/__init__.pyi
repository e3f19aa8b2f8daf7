from .curves import PrivacyLoss, gaussian_epsilon, privacy_loss
from .empirical import AuditResult, audit, audit_noise
from .whole import audit_releases
from .worst_case import Choices, StableAnswers, Sums, audit_draws, exact_cost

__all__ = [
    "AuditResult",
    "Choices",
    "PrivacyLoss",
    "StableAnswers",
    "Sums",
    "audit",
    "audit_draws",
    "audit_noise",
    "audit_releases",
    "exact_cost",
    "gaussian_epsilon",
    "privacy_loss",
]
