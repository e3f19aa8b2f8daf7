"""Entry points of a package that is installed for one test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from bayesprivmrf.kinds import installed


@contextmanager
def entry_points(folder, monkeypatch, group: str, **classes: type) -> Iterator[None]:
    """Install a package whose entry points, by name, are classes of test modules."""
    package = "_".join([folder.name, *classes])  # of packages with one name, only the first is read
    information = folder / f"{package}-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(f"Name: {package}\nVersion: 1.0\n")
    points = [f"{name} = {each.__module__}:{each.__qualname__}" for name, each in classes.items()]
    (information / "entry_points.txt").write_text("\n".join([f"[{group}]", *points, ""]))
    monkeypatch.syspath_prepend(folder)
    installed.cache_clear()
    try:
        yield
    finally:
        installed.cache_clear()
