"""Printing: aligned tables, strict JSON, and progress that stays off standard output."""

from __future__ import annotations

import enum
import json
import math
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bayesprivmrf.cards import printable
from bayesprivmrf.errors import ArgumentError, ReleaseFileError

if TYPE_CHECKING:
    from rich.progress import Progress

# Said before anything is spent
NO_KERNEL = (
    "This noise has no `kernel`: of this library's estimators naive-mle alone takes it "
    "(`fit --method naive-mle`)."
)


def remark(text: str) -> None:
    """Print a remark to the person at the terminal, beside the result."""
    print(text, file=sys.stderr)


def refuse_to_replace(target: Path, *sources: str | None) -> None:
    """Raise an ArgumentError where writing to a path would destroy what is read from another."""
    for source in sources:
        if source is not None and target.exists() and Path(source).exists() and target.samefile(source):
            raise ArgumentError(
                f"`--out` must not write to {str(target)!r}, which is read from; choose another name."
            )


def claim_folder(out: str, own: Sequence[str], *, sources: Sequence[str | None], force: bool = True) -> Path:
    """Folder of ``--out``, made; before the work, not after it.

    Parameters
    ----------
    out
        The option's value, as it was given.
    own
        Patterns of the files that the command writes there.
    sources
        The files that are read: none of them may be among the command's own files.
    force
        Whether the folder may hold files.
    """
    folder = Path(out)
    if folder.exists() and not folder.is_dir():
        raise ArgumentError(f"`--out` must name a folder, got the file {out!r}; choose another name.")
    for pattern in own:
        for path in folder.glob(pattern):
            refuse_to_replace(path, *sources)
    if folder.is_dir() and any(folder.iterdir()) and not force:
        raise ArgumentError(
            f"`--out` must name a new or an empty folder, got {out!r}, which holds files; choose another name, or "
            "pass --force."
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArgumentError(f"the folder `--out` {out!r} cannot be made: {error.strerror}.") from None
    return folder


def claim_file(out: str, suffix: str = "", *, force: bool, sources: Sequence[str | None]) -> Path:
    """File of ``--out``, not made yet; checked before the work, not after it.

    Parameters
    ----------
    out
        The option's value, as it was given.
    suffix
        How its name must end, where that matters.
    force
        Whether the file may exist.
    sources
        The files that are read: the file must be none of them.
    """
    from bayesprivmrf.release.file import require_no_unfinished_save, require_writable

    target = Path(out)
    if suffix and (target.suffix != suffix or target.is_dir()):
        raise ArgumentError(f"`--out` must name a file that ends in {suffix}, got {out!r}.")
    refuse_to_replace(target, *sources)
    if target.exists() and not force:
        raise ArgumentError(f"`--out` {out!r} exists already; choose another name, or pass --force.")
    try:
        require_no_unfinished_save(require_writable(target))
    except ReleaseFileError as error:
        raise ReleaseFileError(str(error).replace("`path`", "`--out`", 1)) from None
    return target


def promised(release: Any) -> dict[str, Any]:
    """Return a release's guarantee as JSON shows it, and whether its noise was seeded."""
    return {**release.guarantee.as_dict(), "simulated": release.provenance.simulated}


def clear_folder(folder: Path, own: Sequence[str]) -> None:
    """Remove what an earlier run of the same command wrote, and nothing else."""
    for pattern in own:
        for path in folder.glob(pattern):
            path.unlink()


def column(values: Sequence[float]) -> list[str]:
    """Numbers of one column: whole, or with decimals that give its smallest three digits, six at most; NaN a dash."""
    shown = [abs(value) for value in values if value and math.isfinite(value)]
    if all(value == round(value) for value in shown):
        return [_none_dashed(f"{value:,.0f}") for value in values]
    decimals = min(max(2 - math.floor(math.log10(min(shown))), 0), 6) if shown else 0
    return [_none_dashed(f"{value:,.{decimals}f}") for value in values]


def _none_dashed(text: str) -> str:
    return "-" if text == "nan" else text


def memory(size: float) -> str:
    """Bytes as a person reads them."""
    if size >= 1024**6:
        return f"10^{math.log10(size):.0f} bytes"
    for unit in ("bytes", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024:
            return f"{size:,.3g} {unit}"
        size /= 1024
    return f"{size:,.3g} PiB"


def number(value: Any, digits: int = 4) -> str:
    """Short text of a number; a dash where there is none."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "-"
    return f"{value:,.{digits}g}" if isinstance(value, float) else str(value)


def aligned(header: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> str:
    """Plain table: the first `left` columns and the last flush left, the others flush right."""
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
    """JSON without NaN or infinity: a number that is not finite is null."""
    return json.dumps(_plain(value), indent=2, allow_nan=False)


def _plain(value: Any) -> Any:
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
    return value if value is None or isinstance(value, str | int | bool) else str(value)


@contextmanager
def progress(*, has_forecast: bool = False) -> Iterator[Progress]:
    """Bars on standard error, only where that is a terminal, gone when done.

    With a forecast, a task's field `until` is the time, by `time.monotonic`, when all will be done; it is shown in
    seconds to go, unless it is NaN.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns: tuple[Any, ...] = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    if has_forecast:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), _to_go())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        yield bar


def _to_go() -> Any:
    from rich.progress import ProgressColumn
    from rich.text import Text

    class ToGo(ProgressColumn):
        """Seconds to the forecast end."""

        def render(self, task: Any) -> Text:
            left = task.fields.get("until", math.nan) - time.monotonic()
            return Text("" if math.isnan(left) else f"about {max(left, 1):.0f} s to go")

    return ToGo()
