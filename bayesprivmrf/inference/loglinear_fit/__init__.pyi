from .curvature import DenseCurvature
from .fit import PRIOR_DEVIATION, MomentsFinder, PairFit, closed_form, fit_means, is_narrow
from .moments import (
    Eliminated,
    ExactMoments,
    Listed,
    Moments,
    MomentsMethod,
    Product,
    margin,
    moments_by,
    moments_of,
)
from .priors import FixedPrior, Prior
from .reweighted import NoisyMeans, needs_reweighting, reweighted_fit
from .sampled import NOTHING_FIXED, Fixed, GibbsMoments, Scope, features_of
from .scale_prior import (
    LOCATION,
    SPREAD_BETWEEN_EFFECTS,
    SPREAD_BETWEEN_ORDERS,
    SPREAD_IN_COMMON,
    EffectsPrior,
)
from .search import Descent, Phase, Turn, iterate

__all__ = [
    "LOCATION",
    "NOTHING_FIXED",
    "PRIOR_DEVIATION",
    "SPREAD_BETWEEN_EFFECTS",
    "SPREAD_BETWEEN_ORDERS",
    "SPREAD_IN_COMMON",
    "DenseCurvature",
    "Descent",
    "EffectsPrior",
    "Eliminated",
    "ExactMoments",
    "Fixed",
    "FixedPrior",
    "GibbsMoments",
    "Listed",
    "Moments",
    "MomentsFinder",
    "MomentsMethod",
    "NoisyMeans",
    "PairFit",
    "Phase",
    "Prior",
    "Product",
    "Scope",
    "Turn",
    "closed_form",
    "features_of",
    "fit_means",
    "is_narrow",
    "iterate",
    "margin",
    "moments_by",
    "moments_of",
    "needs_reweighting",
    "reweighted_fit",
]
