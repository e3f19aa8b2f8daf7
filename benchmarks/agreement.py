"""Posterior means of two versions on the same releases, in Monte Carlo errors of their difference.

``OMP_NUM_THREADS=1 uv run python benchmarks/agreement.py --other ../other``

The releases are those of the packaged survey with Laplace noise. Each version draws in its own interpreter, so both
need an environment. A faster sampler must not move any mean by more than four errors.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

EPSILONS = (0.1, 1.0, 10.0)
DRAWS, CHAINS = 5000, 4  # 20,000 draws in all
RELEASE_SEED, FIT_SEED = 5, 11
MOST_ERRORS = 4.0


def draw(epsilon: float, target: Path) -> None:
    """Write the posterior mean of each number and its Monte Carlo error."""
    import arviz as az
    import xarray as xr

    from bayesprivmrf import LatentCounts
    from bayesprivmrf.mechanisms import LaplaceStatistics
    from bayesprivmrf.survey import fair_survey_declaration, fair_survey_records

    model = fair_survey_declaration().specification
    rng = np.random.default_rng(RELEASE_SEED)
    release = LaplaceStatistics(epsilon=epsilon).release(model, fair_survey_records(), rng=rng)
    posterior = LatentCounts().fit(
        release, rng=FIT_SEED, draws=DRAWS, chains=CHAINS, progress_bar=False
    )
    found = {}
    for name, values in posterior.tree["posterior"].to_dataset().data_vars.items():
        numbers = values.values.reshape(*values.shape[:2], -1)
        errors = az.mcse(
            xr.Dataset({"value": (("chain", "draw", "number"), numbers)}), method="mean"
        )
        found[f"{name}, mean"] = numbers.mean(axis=(0, 1))
        found[f"{name}, error"] = errors["value"].values
    np.savez(target, **found)


def compared(first: Path, second: Path) -> tuple[int, float, float]:
    """Return how many numbers there are, the largest difference in errors, and the root mean square of all."""
    ours = np.load(first)
    theirs = np.load(second)
    differences = []
    for key in ours.files:
        if not key.endswith(", mean"):
            continue
        error = key.replace(", mean", ", error")
        both = np.hypot(ours[error], theirs[error])
        varies = both > 0
        differences.append((ours[key] - theirs[key])[varies] / both[varies])
    every = np.concatenate(differences)
    return every.size, float(np.abs(every).max()), float(np.sqrt(np.mean(every**2)))


def main() -> int:
    """Print one row for each epsilon; the exit status is 1 if a mean moved."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--other", type=Path, help="root of the other checkout, with an environment in .venv"
    )
    parser.add_argument("--draw", nargs=2, metavar=("EPSILON", "FILE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.draw is not None:
        draw(float(options.draw[0]), Path(options.draw[1]))
        return 0
    has_moved = False
    print("| epsilon | numbers | largest difference | root mean square |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for epsilon in EPSILONS:
            files = []
            for name, root in (
                ("this", Path(__file__).parents[1]),
                ("other", options.other.resolve()),
            ):
                files.append(Path(folder) / f"{name}-{epsilon}.npz")
                if name == "this":
                    python = sys.executable
                else:
                    python = str(root / ".venv" / "bin" / "python")
                command = [python, __file__, "--draw", str(epsilon), str(files[-1])]
                subprocess.run(command, check=True, cwd=root)
            size, largest, spread = compared(*files)
            has_moved |= largest > MOST_ERRORS
            print(f"| {epsilon:g} | {size:,} | {largest:.2f} | {spread:.2f} |", flush=True)
    return int(has_moved)


if __name__ == "__main__":
    sys.exit(main())
