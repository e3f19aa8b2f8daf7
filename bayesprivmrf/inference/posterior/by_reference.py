"""Named tuples of arrays, handed on in compiled code as one pointer.

numba passes a named tuple by value: seven numbers an array, at each call of each function. What it compiles grows by
that, and a third of the seconds that a sampler takes to compile went there. `by_reference` copies a tuple once into
a structure whose address is handed on; its fields are read by the same names, and are the same arrays.
"""

from __future__ import annotations

from numba import types
from numba.experimental import structref
from numba.extending import overload


@structref.register
class _Structure(types.StructRef):
    """A structure with the fields of a named tuple."""


def by_reference(record):
    """The fields of a named tuple, handed on by their address; outside compiled code the tuple itself."""
    return record


@overload(by_reference)
def _copied(record):
    """The source of the copy: one line a field, for compiled code cannot loop over fields of different types."""
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
