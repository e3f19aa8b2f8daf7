"""Empirical lower bounds on the privacy loss: what a statistical test can prove against a mechanism."""

from bayesprivmrf.audit.curves import PrivacyLoss, gaussian_epsilon, privacy_loss
from bayesprivmrf.audit.empirical import AuditResult, audit
from bayesprivmrf.audit.tables import audit_noise
from bayesprivmrf.audit.whole import audit_releases

__all__ = [
    "AuditResult",
    "PrivacyLoss",
    "audit",
    "audit_noise",
    "audit_releases",
    "gaussian_epsilon",
    "privacy_loss",
]
