"""Errors, each with one sentence: with the file, the line where there is one, and what to do."""

from __future__ import annotations

import os
from typing import Optional


class RunError(Exception):
    """A run directory, or a file of it, cannot be read.

    `path` is the file, `line` the line counted from 1 (None where the file as a whole is meant), `why` the reason.
    """

    def __init__(self, path: "os.PathLike[str] | str", why: str, line: Optional[int] = None) -> None:
        self.path = os.fspath(path)
        self.line = line
        self.why = why
        place = printable(self.path) if line is None else f"{printable(self.path)}, line {line}"
        super().__init__(f"{place}: {why}")


class MissingLibraryError(ImportError):
    """A required optional library is not installed."""

    def __init__(self, library: str, extra: str) -> None:
        super().__init__(f"{library} is not installed: pip install 'straingauge[{extra}]'")


class MissingProgramError(FileNotFoundError):
    """The straingauge program was not found; the message says where it was looked for."""


class RunWarning(UserWarning):
    """Something cannot be read and was left out: a run of a folder, lines or columns of a watch."""


def printable(text: str, limit: int = 200) -> str:
    """Makes untrusted text fit for a message: no control characters, bounded length."""
    shown = "".join(char if char.isprintable() else "?" for char in text[: limit + 1])
    return shown if len(shown) <= limit else shown[:limit] + "..."
