"""Render packaging/recipe.yaml, and compare its version and requirements with pyproject.toml.

    uv run --no-project --with py-rattler-build python packaging/render_recipe.py

The rendered requirements are printed. The exit status is 1 where the two files differ.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# names that differ between the two package indexes, and requirements that pyproject.toml writes as an extra
RENAMED = {"matplotlib": "matplotlib-base"}
FROM_EXTRAS = {"h5py": ""}


def declared() -> tuple[str, dict[str, str]]:
    """Return the version and the requirements, by their names in the recipe, of the Python package."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    source = (ROOT / "bayesprivmrf" / "__init__.py").read_text("utf-8")
    (version,) = re.findall(r'^__version__ = "(.+)"$', source, re.MULTILINE)
    found = {"python": project["requires-python"]}
    for requirement in project["dependencies"]:
        name, bounds = re.fullmatch(r"([\w-]+)(?:\[\w+\])?(.*)", requirement).groups()
        found[RENAMED.get(name, name)] = bounds
    return version, found | FROM_EXTRAS


def rendered() -> tuple[str, dict[str, str]]:
    """Return the same two of the recipe, rendered without variants."""
    from rattler_build import Stage0Recipe

    (variant,) = Stage0Recipe.from_file(str(ROOT / "packaging" / "recipe.yaml")).render()
    recipe = variant.recipe.to_dict()
    run = [str(requirement).partition(" ") for requirement in recipe["requirements"]["run"]]
    return str(recipe["package"]["version"]), {name: bounds for name, _, bounds in run}


def main() -> None:
    """Compare, and print what was rendered."""
    (version, wanted), (shown, found) = declared(), rendered()
    for name, bounds in found.items():
        print(name, bounds)
    differences = [f"version: {shown} instead of {version}"] if shown != version else []
    differences += [
        f"{name}: {found.get(name)!r} instead of {wanted.get(name)!r}"
        for name in sorted(wanted.keys() | found.keys())
        if wanted.get(name) != found.get(name)
    ]
    if differences:
        sys.exit("packaging/recipe.yaml differs from pyproject.toml:\n" + "\n".join(differences))


if __name__ == "__main__":
    main()
