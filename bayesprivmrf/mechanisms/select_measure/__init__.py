"""SelectMeasure: marginals chosen and measured in rounds under a zCDP budget."""

from bayesprivmrf.mechanisms.select_measure.mechanism import SelectMeasure

__all__ = ["SelectMeasure"]
