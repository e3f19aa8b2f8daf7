"""Modules by name for joblib's workers, which receive what a script's functions use."""

from __future__ import annotations

import copyreg
import importlib
from collections.abc import Callable
from types import ModuleType


def pickle_by_name(module: ModuleType) -> None:
    """Let cloudpickle send a module, and others of its class, to workers as an import.

    lazy_loader gives a package with a function of its own name, such as ``citation``, a class that no pickler knows.
    Plain modules are known to cloudpickle.
    """
    if type(module) is not ModuleType:
        copyreg.pickle(type(module), _as_import)


def _as_import(module: ModuleType) -> tuple[Callable[[str], ModuleType], tuple[str]]:
    return importlib.import_module, (module.__name__,)
