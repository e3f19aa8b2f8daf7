"""Output of the command line: aligned tables, strict JSON, target files, and progress on standard error."""

from __future__ import annotations

import enum
import itertools
import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bayesprivmrf.checks import require
from bayesprivmrf.errors import ArgumentError, ReleaseFileError
from bayesprivmrf.escapes import printable
from bayesprivmrf.files import Json

if TYPE_CHECKING:
    from rich.progress import Progress

# rows of a table, or names of a list, that are printed of a learned model; the file has all
SHOWN = 10
# remark before the budget is spent
NO_KERNEL_REMARK = (
    "This noise has no `kernel`; of this library's estimators only naive-mle can use it "
    "(`fit --method naive-mle`)."
)


def show(text: object) -> None:
    """Print a result on standard output, with escapes for control characters of names from a forged file."""
    print(printable(str(text), keeps_lines=True))


def remark(text: str) -> None:
    """Print a remark on standard error, apart from the result, with the same escapes."""
    print(printable(text, keeps_lines=True), file=sys.stderr)


def refuse_to_replace(target: Path, sources: Sequence[str | None]) -> None:
    """Raise an ArgumentError if `target` is one of the files that the command reads."""
    own = [
        source
        for source in sources
        if source is not None and Path(source).exists() and target.exists()
    ]
    is_source = any(target.samefile(source) for source in own)
    must = "not be a file that the command reads"
    require(not is_source, "--out", must, repr(str(target)), "choose another name")


def claim_folder(
    out: str, own: Sequence[str], *, sources: Sequence[str | None], force: bool = True
) -> Path:
    """Create and return the folder of ``--out``; call this before the work, so that errors come early.

    Parameters
    ----------
    out
        Value of the option.
    own
        Patterns of the files that the command writes to the folder.
    sources
        Files that the command reads, which must not match the patterns.
    force
        True if the folder may have files in it.
    """
    folder = Path(out)
    is_file = folder.exists() and not folder.is_dir()
    require(not is_file, "--out", "name a folder", f"the file {out!r}", "choose another name")
    for path in itertools.chain.from_iterable(map(folder.glob, own)):
        refuse_to_replace(path, sources)
    is_free = force or not folder.is_dir() or not any(folder.iterdir())
    seen = f"{out!r}, which has files in it"
    require(
        is_free,
        "--out",
        "name a new or an empty folder",
        seen,
        "choose another name, or pass --force",
    )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArgumentError(
            f"the folder `--out` {out!r} cannot be created: {error.strerror}."
        ) from None
    return folder


def claim_file(out: str, suffix: str = "", *, force: bool, sources: Sequence[str | None]) -> Path:
    """Check and return the path of the file ``--out``; call this before the work, so that errors come early.

    Parameters
    ----------
    out
        Value of the option.
    suffix
        Required end of the name, or an empty text.
    force
        True if the file may exist already.
    sources
        Files that the command reads, which must not be this file.
    """
    from bayesprivmrf.release.file import require_no_unfinished_save, require_writable

    target = Path(out)
    is_named = not suffix or (target.suffix == suffix and not target.is_dir())
    require(
        is_named, "--out", f"name a file that ends in {suffix}", repr(out), "choose another name"
    )
    refuse_to_replace(target, sources)
    if target.exists() and not force:
        raise ArgumentError(
            f"`--out` {out!r} exists already; choose another name, or pass --force."
        )
    try:
        require_no_unfinished_save(require_writable(target))
    except ReleaseFileError as error:
        raise ReleaseFileError(str(error).replace("`path`", "`--out`", 1)) from None
    return target


def promised(release: Any) -> dict[str, Json]:
    """Return a release's guarantee for JSON, with a flag for simulated releases."""
    return {**release.guarantee.as_dict(), "simulated": release.provenance.simulated}


def column(values: Sequence[float]) -> list[str]:
    """Return the numbers of one column as text, with a dash for NaN.

    Whole numbers have no decimals. Otherwise all have the decimals, at most six, that show three digits of the
    smallest.
    """
    shown = [abs(value) for value in values if value and math.isfinite(value)]
    decimals = 0
    if any(value != round(value) for value in shown):
        decimals = min(max(2 - math.floor(math.log10(min(shown))), 0), 6)
    return ["-" if math.isnan(value) else f"{value:,.{decimals}f}" for value in values]


def memory(size: float) -> str:
    """Return a number of bytes as text with a unit."""
    if size >= 1024**6:
        return f"10^{math.log10(size):.0f} bytes"
    power = max(int(size).bit_length() - 1, 0) // 10
    return f"{size / 1024**power:,.3g} {('bytes', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB')[power]}"


def number(value: Any, digits: int = 4) -> str:
    """Return a number as short text, or a dash for None and NaN."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "-"
    if isinstance(value, float):
        return f"{value:,.{digits}g}"
    return str(value)


def counted(count: int, what: str) -> str:
    """Return a number with its noun, in the singular or the plural."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def listed(names: Sequence[str]) -> str:
    """Return the first names as a list, with the number of the others."""
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more:,} more" if more > 0 else "")


def aligned(header: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> str:
    """Return a plain table with the first `left` columns and the last flush left, and the others flush right."""
    lines = [[*map(printable, line)] for line in (header, *rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    last = len(header) - 1

    def set_line(line: Sequence[str]) -> str:
        cells = [
            text.ljust(width) if column < left or column == last else text.rjust(width)
            for column, (text, width) in enumerate(zip(line, widths, strict=True))
        ]
        return "  ".join(cells).rstrip()

    rule = "  ".join("-" * width for width in widths)
    return "\n".join([set_line(lines[0]), rule, *map(set_line, lines[1:])])


def json_text(value: Any) -> str:
    """Return a value as strict JSON, in which a number that is not finite is null."""
    return json.dumps(_plain(value), indent=2, allow_nan=False)


def _plain(value: Any) -> Any:
    """Return a value as types that JSON has."""
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | int | bool):
        return value
    return str(value)


@contextmanager
def progress() -> Iterator[Progress]:
    """Show progress bars on standard error while the context lasts, if that is a terminal."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        yield bar
