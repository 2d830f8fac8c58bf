"""A folder of runs."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Iterator, List, Tuple, Union

from .errors import RunError, RunWarning
from .model import read_record
from .run import Run, open_run

#: More folders than this are refused: their records are read before the first run is opened.
MAX_RUNS = 10_000
#: Runs that are named in warnings; the others are counted.
MAX_WARNINGS = 20


def runs(folder: "Union[os.PathLike[str], str]") -> Iterator[Run]:
    """The runs in a folder (`runs/`), newest first. Each is opened when the iteration reaches it.

    A run that cannot be read is left out with a `RunWarning`, of which there are at most 20 and one for the rest; a point
    that cannot be read is left out with a doubt, as in `open_run(damaged="leave out")`. Entries without a run.json and
    symbolic links are passed over. A folder that cannot be read, or is a run itself, is a `RunError`.
    """
    left_out = 0

    def leave_out(error: RunError) -> None:
        nonlocal left_out
        left_out += 1
        if left_out <= MAX_WARNINGS:
            # The place in the caller: behind this function and the generator.
            warnings.warn(f"a run was left out: {error}", RunWarning, stacklevel=3)

    found, unreadable = _newest_first(Path(folder))
    for error in unreadable:
        leave_out(error)
    for path in found:
        try:
            run = open_run(path, damaged="leave out")
        except RunError as error:
            leave_out(error)
            continue
        yield run
    if left_out > MAX_WARNINGS:
        warnings.warn(f"{left_out - MAX_WARNINGS} more runs cannot be read", RunWarning, stacklevel=2)


def _newest_first(folder: Path) -> "Tuple[List[Path], List[RunError]]":
    """The runs' folders, and why the records of others cannot be read."""
    found: "List[Tuple[int, Path]]" = []
    unreadable: List[RunError] = []
    for path in _folders(folder):
        try:
            found.append((read_record(path / "run.json").started_unix_ms, path))
        except RunError as error:
            unreadable.append(error)
    # Of runs that began in the same millisecond the last by name comes first.
    return [path for _, path in sorted(found, reverse=True)], unreadable


def _folders(folder: Path) -> List[Path]:
    found: List[Path] = []
    try:
        if (folder / "run.json").exists():
            raise RunError(folder, "it is a run itself: open_run opens it")
        with os.scandir(folder) as entries:
            for entry in entries:
                path = Path(entry.path)
                if entry.is_dir(follow_symlinks=False) and os.path.lexists(path / "run.json"):
                    found.append(path)
                    if len(found) > MAX_RUNS:
                        raise RunError(folder, f"it has more than {MAX_RUNS} runs")
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise RunError(folder, f"it cannot be read ({why})") from error
    return found
