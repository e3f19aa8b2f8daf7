"""Empirical lower bounds on the privacy loss: what a statistical test can prove against a mechanism."""

from bayesprivmrf.audit.curves import PrivacyLoss, gaussian_epsilon, privacy_loss
from bayesprivmrf.audit.empirical import AuditResult, audit
from bayesprivmrf.audit.tables import audit_noise
from bayesprivmrf.audit.whole import audit_releases
from bayesprivmrf.audit.worst_case import Choices, Sums, audit_draws, exact_cost

__all__ = [
    "AuditResult",
    "Choices",
    "PrivacyLoss",
    "Sums",
    "audit",
    "audit_draws",
    "audit_noise",
    "audit_releases",
    "exact_cost",
    "gaussian_epsilon",
    "privacy_loss",
]
