"""BibTeX references for the library and the methods behind results."""

from __future__ import annotations

import functools
from typing import Any

__all__ = ["citation"]

# Entries of data/references.bib for each mechanism
_REFERENCES = {
    "LaplaceStatistics": ("opendp", "laplace", "geometric"),
    "GaussianStatistics": ("opendp", "gaussian", "zcdp"),
    "ObjectivePerturbation": ("opendp", "prising", "objective"),
    "SelectMeasure": ("opendp", "gaussian", "zcdp", "select", "topk", "range"),
    "PrivateFrankWolfe": ("zcdp", "learning", "lasso", "range"),
    "PrivateLogisticRegression": ("zcdp", "learning", "lasso", "range"),
    "ParityQueries": ("opendp", "gaussian", "zcdp", "learning"),
    "StableStructure": ("opendp", "geometric", "propose", "separation", "learning"),
    "DPSGD": ("opendp", "gaussian", "dpsgd", "accountant"),
    "DPSGDSearch": ("opendp", "gaussian", "dpsgd", "accountant"),
}


def citation(*results: Any) -> str:
    """Return BibTeX entries for this library and for the methods behind results.

    Parameters
    ----------
    results
        Any number of releases, network estimates, solutions and posteriors. Without results, only the library is
        cited. A solution's `references` are short names of entries in ``data/references.bib``, or whole entries that
        begin with ``@``.

    Returns
    -------
    str
        BibTeX entries, without repetition.

    Examples
    --------
    >>> print(citation().splitlines()[0])
    @software{bayesprivmrf,
    """
    from importlib.metadata import version

    # loads NumPy, which the package's import does not
    from bayesprivmrf.checks import (
        kind_of,
        require,
    )

    known = _entries()
    keys = ["bayesprivmrf"]
    for result in results:
        must = "be releases, estimates, solutions or posteriors"
        seen = kind_of(result)
        is_result = hasattr(result, "provenance") or hasattr(result, "references")
        require(is_result and not isinstance(result, type), "results", must, seen)
        provenance = getattr(result, "provenance", None)
        keys.extend(_REFERENCES.get(getattr(provenance, "mechanism", ""), ()))
        keys.extend(getattr(result, "references", ()))
    entries = [known.get(key, key) for key in dict.fromkeys(keys)]
    return "\n\n".join(entry for entry in entries if entry.startswith("@")).replace(
        "VERSION", version("bayesprivmrf")
    )


@functools.cache
def _entries() -> dict[str, str]:
    """Return the entries of the bibliography by their short names."""
    import re
    from importlib.resources import files

    written = (files("bayesprivmrf") / "data" / "references.bib").read_text(encoding="utf-8")
    return dict(re.findall(r"^% (\S+)\n(@.*?^})", written, re.MULTILINE | re.DOTALL))
