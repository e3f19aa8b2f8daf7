"""Write bayesprivmrf/data/fair_survey.csv.gz from the copy of Fair's survey that statsmodels distributes.

Run it from the repository's root, in an environment with statsmodels (the development group has it):

    uv run python packaging/make_fair_survey.py

Only what the declaration uses is kept: eight answers by the numbers of the code book, and whether any time was
spent in affairs (0 or 1) instead of the measure of that time. The order of the records is that of statsmodels.
"""

from __future__ import annotations

import gzip
from pathlib import Path

from statsmodels.datasets import fair

TARGET = Path(__file__).resolve().parents[1] / "bayesprivmrf" / "data" / "fair_survey.csv.gz"


def fair_survey_csv() -> bytes:
    """Return the text of the shipped file, as CSV."""
    numbers = fair.load_pandas().data
    numbers["affairs"] = (numbers["affairs"] > 0).astype(int)
    return numbers.to_csv(index=False, float_format="%g", lineterminator="\n").encode()


def main() -> None:
    """Compress the records; without a time stamp, so that equal records give an equal file."""
    TARGET.write_bytes(gzip.compress(fair_survey_csv(), compresslevel=9, mtime=0))
    print(TARGET.name, TARGET.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
