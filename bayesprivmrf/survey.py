"""Fair's survey of extramarital affairs: the default data, real and sensitive, read without a download."""

from __future__ import annotations

import warnings
from importlib.resources import files
from typing import TYPE_CHECKING

from bayesprivmrf.model.declaration_file import Declaration, read_declaration
from bayesprivmrf.records import recode

if TYPE_CHECKING:
    import pandas as pd
    from pgmpy.models import DiscreteMarkovNetwork

__all__ = ["fair_survey_declaration", "fair_survey_records", "load_fair_survey"]


def fair_survey_declaration() -> Declaration:
    """Declaration of the survey: nine variables and nine cliques, as its code book and Fair (1978) suggest.

    References
    ----------
    R. C. Fair, "A Theory of Extramarital Affairs", Journal of Political Economy 86(1), 1978, 45-61.
    """
    return read_declaration(str(files("bayesprivmrf") / "data" / "fair_survey.toml"))


def fair_survey_records() -> pd.DataFrame:
    """Answers of 6,366 women, one row each, with the labels that the declaration declares.

    The numbers come with statsmodels (``statsmodels.datasets.fair``), by permission of the author.
    """
    with warnings.catch_warnings(action="ignore"):  # statsmodels' own deprecation notices at import
        from statsmodels.datasets import fair

        numbers = fair.load_pandas().data
    return recode(fair_survey_declaration(), numbers)


def load_fair_survey() -> tuple[DiscreteMarkovNetwork, pd.DataFrame]:
    """Fair's survey: the declared network, and the answers as labels.

    Returns
    -------
    network : DiscreteMarkovNetwork
        Nine variables, nine cliques (one of them of three variables), unit factors.
    data : DataFrame
        Shape (6366, 9); the states are text.

    Examples
    --------
    >>> network, data = load_fair_survey()
    >>> data.shape, len(network.nodes)
    ((6366, 9), 9)
    """
    return fair_survey_declaration().network, fair_survey_records()
