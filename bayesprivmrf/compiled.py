"""Compiled code: entry points that numba keeps between processes, and the small tools that kernels share.

numba keeps a compiled function on disk under a key made of its own bytecode and the values it closes over. It
compiles the function again when its own file changes, but not when a file that it calls into does. `kept` closes the
gap: it adds a checksum of every source of this package that the function reaches to the values it closes over.

An entry point that only Python calls is decorated with `kept()`. Functions that other compiled code calls are plain
``njit(**INNER)``: they are compiled into their callers.

numba optimizes each function together with everything that it calls, and translates it to machine code, before its
caller is compiled. A function at the end of a chain of five calls is thus optimized six times. Most of that work is
for nothing, because nobody calls the functions in between by themselves. While an entry point is compiled, the
functions that it calls are therefore only translated and linked (`Part`), and the entry point is optimized as a
whole, once. That halves the time of compilation, and the optimizer sees at least as much as before. It needs
internals of numba, so versions with which it was not tested compile in numba's own way.

Files on disk can be cut short by a full disk, and an older version of this package can have left files that name
classes of its own. numba then fails with an error of `pickle`. Functions of this package are compiled again instead.
"""

from __future__ import annotations

import gc
import sys
import time
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import CellType, CodeType, FunctionType
from typing import Any

import numba
from numba import cfunc, njit, types
from numba.core import caching, cgutils, event
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.dispatcher import Dispatcher
from numba.experimental import structref
from numba.extending import intrinsic, overload
from numba.np.arrayobj import populate_array

from bayesprivmrf.errors import BayesPrivMRFError

# Python calls the entry points alone, so what is inside them is compiled without wrappers, which is quicker
INNER: Any = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}

# top-level name of this package: sources of other packages are not part of a checksum
_PACKAGE = __name__.partition(".")[0]
# Versions of numba with whose internals `Part` and `EntryCompiler` were tested; others compile the usual, slower way
_TESTED_NUMBA = {(0, 68)}
carray: Any = numba.carray  # pyright: ignore[reportPrivateImportUsage]


# entry points


class Part(JITCodeLibrary):
    """Code of a function that other compiled code calls: linked, and neither optimized nor loaded by itself.

    Code that somebody does call by itself, such as that of a function that Python calls as well, is optimized and
    loaded when its address is needed.
    """

    is_loaded = False

    def finalize(self) -> None:
        """Add the code of the functions that this one calls."""
        self._raise_if_finalized()
        for library in dict.fromkeys(self._linking_libraries):
            self._reload_init.update(library._reload_init)
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        self._finalize_dynamic_globals()
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        """Return the address of a function, or 0 if it is not defined here."""
        self._ensure_finalized()
        if not self.is_loaded:
            if all(function.name != name for function in self.get_defined_functions()):
                return 0
            self._optimize_final_module()
            self._finalize_final_module()
        return super().get_pointer_to_function(name)

    def _finalize_final_module(self) -> None:
        """Load the code, which may come from the disk."""
        super()._finalize_final_module()
        self.is_loaded = True

    @property
    def codegen(self) -> Any:
        """The code generator; this object itself while there is no code whose environment could be set."""
        return self._codegen if self.is_loaded else self

    def set_env(self, env_name: str, env: Any) -> None:
        """Do nothing; `EntryCompiler` sets the environments of the functions that it linked."""


class EntryCompiler(Compiler):
    """Compiler of entry points, which leaves the functions that they call to the optimization of the whole."""

    def compile_extra(self, func: Callable[..., Any]) -> Any:
        """Compile a function and everything that it calls; the caller has numba's global lock."""
        codegen = self.state.targetctx.codegen()
        self.state.library = JITCodeLibrary(codegen, func.__qualname__)
        self.state.library.enable_object_caching()
        usual = codegen._library_class
        codegen._library_class = Part
        # the compiler's objects stay, and to look for garbage among them takes a tenth of its time
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            result = super().compile_extra(func)
        finally:
            codegen._library_class = usual
            if was_enabled:
                gc.enable()
        if not self.state.flags.no_compile:
            for env in result._find_referenced_environments():
                codegen.set_env(env.env_name, env)
        return result


# the compiler of `kept` and `kept_c_function`
_ENTRY_COMPILER: Any = EntryCompiler if numba.version_info.short in _TESTED_NUMBA else Compiler


def kept(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator that compiles a function at its first call and keeps it on disk.

    Parameters
    ----------
    **options
        Options of `numba.njit` beside ``cache`` and ``nogil``, which are set.
    """
    how = {"cache": True, "nogil": True, "pipeline_class": _ENTRY_COMPILER, **options}
    return lambda function: njit(**how)(_with_checksum(function))


def kept_c_function(signature: Any) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator that compiles a function for callers in C, or loads it from disk, at once."""
    how = {"cache": True, "pipeline_class": _ENTRY_COMPILER}
    return lambda function: cfunc(signature, **how)(_with_checksum(function))


_cache: Any = caching.Cache
_load_overload = _cache._load_overload


def _load_or_forget(self: Any, *given: Any) -> Any:
    """Load a function that is kept on disk; delete what cannot be read, so that numba compiles it again."""
    try:
        return _load_overload(self, *given)
    except Exception as error:
        if isinstance(error, MemoryError) or not self._py_func.__module__.startswith(
            f"{_PACKAGE}."
        ):
            raise
        try:
            self.flush()
        except OSError:
            raise BayesPrivMRFError(
                f"compiled code in {self.cache_path!r} is damaged and cannot be replaced; delete the folder, or set "
                "NUMBA_CACHE_DIR to a private folder that you can write."
            ) from error
        return None


_cache._load_overload = _load_or_forget
_save_overload = _cache._save_overload


def _save_or_go_on(self: Any, *given: Any) -> None:
    """Save a compiled function in the disk cache; if the disk is full, keep it in memory until the process ends."""
    try:
        _save_overload(self, *given)
    except OSError:
        if not self._py_func.__module__.startswith(f"{_PACKAGE}."):
            raise


_cache._save_overload = _save_or_go_on


def checksum(*functions: Any) -> int:
    """Return a CRC-32 of all sources of this package that some functions reach through their globals.

    The files of the functions and classes they name count, and the values of the numbers that were imported from
    other files. A file that is not there, as in a frozen application, counts as empty.
    """
    files, values = reached_sources(*functions)
    value = zlib.crc32("\n".join(sorted(values)).encode())
    for crc in sorted(map(_crc_of, files)):
        value = zlib.crc32(crc.to_bytes(4, "little"), value)
    return value


def reached_sources(*functions: Any) -> tuple[set[str], set[str]]:
    """Return the files that some functions reach through their globals, and the numbers that they name, as text."""
    files = set()
    values = set()
    waiting = list(functions)
    seen = set()
    while waiting:
        item = waiting.pop()
        if isinstance(item, Dispatcher):
            function = item.py_func
        else:
            function = item
        if id(function) in seen:
            continue
        seen.add(id(function))
        if isinstance(function, FunctionType):
            files.add(function.__code__.co_filename)
            for name in _names(function.__code__):
                found = function.__globals__.get(name)
                if isinstance(found, int | float | tuple):
                    values.add(f"{name} = {found!r}")
                elif isinstance(found, types.ExternalFunction):
                    values.add(f"{name} = {found.symbol}")
                elif str(getattr(found, "__module__", "")).partition(".")[0] == _PACKAGE:
                    waiting.append(found)
        elif (
            module := sys.modules.get(function.__module__)
        ) is not None:  # a class, or an intrinsic of numba
            files.add(str(module.__file__))
    return files, values


def _names(code: CodeType) -> set[str]:
    """Return the global names that a function and the functions inside it use."""
    inner = (one for one in code.co_consts if isinstance(one, CodeType))
    return set(code.co_names).union(*map(_names, inner))


@cache
def _crc_of(file: str) -> int:
    path = Path(file)
    if path.exists():
        return zlib.crc32(path.read_bytes())
    return 0


def _with_checksum(function: Any) -> FunctionType:
    """Return the same function, closed over the checksum of what it reaches: numba's key holds closed-over values."""
    if function.__closure__:
        raise TypeError(f"{function.__qualname__} must not close over variables to be kept.")
    code = function.__code__.replace(co_freevars=("checksum",))
    closed = FunctionType(
        code,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        (CellType(checksum(function)),),
    )
    closed.__qualname__ = function.__qualname__
    closed.__module__ = function.__module__
    closed.__doc__ = function.__doc__
    return closed


# arrays by their addresses, for compiled functions that C code calls


def _as_pointer(typingctx: Any, address: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], cgutils.voidptr_t)

    return types.voidptr(types.intp), codegen


pointer: Any = intrinsic(_as_pointer)
"""An address as a pointer."""


def _arrays_at(typingctx: Any, where: Any, kinds: Any) -> Any:
    found = types.Tuple([kind.instance_type for kind in kinds])

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        numbers = builder.bitcast(args[0], cgutils.intp_t.as_pointer())
        arrays = []
        for k, kind in enumerate(found):
            address, *lengths = (
                builder.load(cgutils.gep_inbounds(builder, numbers, 3 * k + j)) for j in range(3)
            )
            array = context.make_array(kind)(context, builder)
            size = cgutils.intp_t(kind.dtype.bitwidth // 8)
            populate_array(
                array,
                data=builder.inttoptr(address, array.data.type),
                shape=lengths[: kind.ndim],
                strides=[size] if kind.ndim == 1 else [builder.mul(lengths[1], size), size],
                itemsize=size,
                meminfo=None,
            )
            arrays.append(array._getvalue())
        return context.make_tuple(builder, signature.return_type, arrays)

    return found(types.voidptr, kinds), codegen


arrays_at: Any = intrinsic(_arrays_at)
"""Arrays of one or two axes, of given types, from an address of three numbers each: its address and its lengths."""


# copies


@njit(nogil=True, **INNER)
def put(out, values):
    """Copy a vector into another of the same length, number by number.

    An assignment of one array to a part of another would compile the text of an error of shapes as well, and all of
    numba's strings with it: a second or more for each function that does so.
    """
    for k in range(out.size):
        out[k] = values[k]


# named tuples of arrays, handed on as one pointer


@structref.register
class _Structure(types.StructRef):
    """A structure with the fields of a named tuple."""


def by_reference(record):
    """Return the fields of a named tuple as a structure that is handed on by its address.

    numba passes a named tuple by value: seven numbers an array, at each call of each function. A third of the time in
    which samplers are compiled went there. The fields of the structure have the same names and are the same arrays.
    Outside compiled code the tuple itself is returned.
    """
    return record


@overload(by_reference)
def _copied(record):
    """Return the copy's source, one line a field: compiled code cannot loop over fields of different types."""
    if not isinstance(record, types.NamedTuple):
        return None
    given = {
        "__name__": __name__,
        "new": structref.new,
        "structure": _Structure(list(zip(record.fields, record.types, strict=True))),
    }
    fields = "".join(f"    made.{name} = record.{name}\n" for name in record.fields)
    exec(f"def copy(record):\n    made = new(structure)\n{fields}    return made\n", given)  # noqa: S102  names of fields
    return given["copy"]


# announcement


def is_watched() -> bool:
    """Return True at a terminal and in a notebook, where somebody can see remarks and progress bars."""
    return sys.stderr.isatty() or "ipykernel" in sys.modules


@cache
def announce_compiling(silent: float = 1.0) -> None:
    """Announce on standard error, once in a process, that numba compiles functions of this package.

    Functions that numba loads from its cache are not announced, and nor are the first `silent` seconds, which need no
    explanation. Nothing is written unless `is_watched`.
    """

    class Listener(event.Listener):
        begin = spent = 0.0
        is_announced = False

        def on_start(self, event: Any) -> None:
            self.begin = time.perf_counter()

        def on_end(self, event: Any) -> None:
            if self.is_announced or not event.data["module"].startswith("bayesprivmrf."):
                return
            self.spent += time.perf_counter() - self.begin
            if self.spent > silent:
                self.is_announced = True
                if is_watched():
                    time_needed = "about 15 s on an idle core, a minute on a busy machine"
                    what = "compiling the marginals and the sampler, once after installation"
                    print(f"{what} ({time_needed}) ...", file=sys.stderr)

    event.register("numba:run_pass", Listener())
