"""Fair's survey of extramarital affairs: real, sensitive answers that are shipped as the default data."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING

from bayesprivmrf.model.declaration_file import Declaration, read_declaration
from bayesprivmrf.records import recode

if TYPE_CHECKING:
    import pandas as pd
    from pgmpy.models import DiscreteMarkovNetwork

__all__ = ["fair_survey_declaration", "fair_survey_records", "load_fair_survey"]


def fair_survey_declaration() -> Declaration:
    """Return the survey's declaration: nine variables and nine cliques.

    The states are those of the survey's code book. The cliques follow Fair (1978); they were not selected by how
    well they fit the data, so the declaration is public knowledge.

    References
    ----------
    R. C. Fair, "A Theory of Extramarital Affairs", Journal of Political Economy 86(1), 1978, 45-61.

    Examples
    --------
    >>> fair_survey_declaration().specification.domain.states_of("affairs")
    ('none', 'some')
    """
    return read_declaration(str(files("bayesprivmrf") / "data" / "fair_survey.toml"))


def fair_survey_records() -> pd.DataFrame:
    """Return the answers of 6,366 women, one row each, labeled with the declared states.

    The package ships the answers as ``data/fair_survey.csv.gz``, by the numbers of the code book. The file comes
    from the copy that statsmodels distributes; ``data/LICENSES.md`` has its license.

    Returns
    -------
    DataFrame
        Shape (6366, 9); the states are text.

    Examples
    --------
    >>> fair_survey_records()["affairs"].value_counts().to_dict()
    {'none': 4313, 'some': 2053}
    """
    import pandas as pd

    with (files("bayesprivmrf") / "data" / "fair_survey.csv.gz").open("rb") as file:
        numbers = pd.read_csv(file, compression="gzip")
    return recode(fair_survey_declaration(), numbers)


def load_fair_survey() -> tuple[DiscreteMarkovNetwork, pd.DataFrame]:
    """Return the survey's declared network together with its answers.

    Returns
    -------
    network : DiscreteMarkovNetwork
        Nine variables and nine cliques (one of them of three variables), with unit factors.
    data : DataFrame
        Shape (6366, 9); the states are text.

    Examples
    --------
    >>> network, data = load_fair_survey()
    >>> data.shape, len(network.nodes)
    ((6366, 9), 9)
    """
    return fair_survey_declaration().network, fair_survey_records()
