"""Bounded reads of files that anyone may have written: regular files only, a limit on the bytes, strict JSON and text.

The limits are those of straingauge's own reader (crates/record/src/run.rs).
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any, List, Optional, Sequence, Tuple, Union

from .errors import RunError, printable

MAX_JSON_BYTES = 16 << 20
MAX_SERIES_BYTES = 64 << 20
MAX_POINTS = 100_000
_MAX_NUMBER_CHARS = 400

Json = Any
Key = Union[str, int]


def read_bytes(path: Path, limit: int) -> bytes:
    """The content of a regular file of at most `limit` bytes."""
    # Not blocking: a named pipe in place of a file must not block the reader.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    try:
        descriptor = os.open(path, flags)
    except (OSError, ValueError) as error:
        raise RunError(path, _reason(error)) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise RunError(path, "it is not a regular file")
    with os.fdopen(descriptor, "rb") as file:
        try:
            content = file.read(limit + 1)
        except OSError as error:
            raise RunError(path, _reason(error)) from error
    if len(content) > limit:
        raise RunError(path, f"it has more than {limit} bytes, so straingauge did not write it")
    return content


def _reason(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "there is no such file; is it a straingauge run directory?"
    if isinstance(error, OSError) and error.strerror:
        return f"it cannot be read ({error.strerror})"
    return f"it cannot be read ({error})"


def read_text(path: Path, limit: int) -> str:
    """The content of a bounded UTF-8 file."""
    content = read_bytes(path, limit)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise RunError(path, "it is not UTF-8 text", content.count(b"\n", 0, error.start) + 1) from None


class _Refused(ValueError):
    pass


def _integer(text: str) -> int:
    # Converting thousands of digits takes quadratic time in older Pythons; 64 bits have at most 20.
    if len(text) > 20:
        raise _Refused(f"the number {printable(text, 20)} does not fit 64 bits")
    return int(text)


def _number(text: str) -> float:
    value = float(text) if len(text) <= _MAX_NUMBER_CHARS else float("inf")
    if value in (float("inf"), float("-inf")):
        raise _Refused(f"the number {printable(text, 20)} is too large")
    return value


def _constant(text: str) -> float:
    raise _Refused(f"{text} is not a number in JSON")


def _object(pairs: "List[Tuple[str, Json]]") -> "dict[str, Json]":
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _Refused("an object has a field twice")
    return found


class JsonFile:
    """A JSON object from a file, with the place of its fields for messages."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.text = read_text(path, MAX_JSON_BYTES)
        try:
            value = json.loads(self.text, parse_int=_integer, parse_float=_number, parse_constant=_constant,
                               object_pairs_hook=_object)
        except json.JSONDecodeError as error:
            raise RunError(path, f"it is not JSON: {error.msg} (column {error.colno})", error.lineno) from None
        except _Refused as error:
            raise RunError(path, f"it is not readable as a run: {error}", self._line_of_refused(str(error))) from None
        except RecursionError:
            raise RunError(path, "it is nested too deeply to be a run", 1) from None
        if not isinstance(value, dict):
            raise RunError(path, "it is not a JSON object", 1)
        self.value: "dict[str, Json]" = value

    def refuse(self, keys: Sequence[Key], why: str) -> RunError:
        """The error for the field at `keys`, with the line of that field."""
        name = ".".join(str(key) for key in keys)
        return RunError(self.path, f"{printable(name)} {why}", self.line_of(keys))

    def line_of(self, keys: Sequence[Key]) -> int:
        """The line on which the field's last key that exists is found, looking for one key after the other."""
        position = 0
        for key in keys:
            found = self.text.find(json.dumps(key), position) if isinstance(key, str) else -1
            position = found if found >= 0 else position
        return self.text.count("\n", 0, position) + 1

    def _line_of_refused(self, why: str) -> Optional[int]:
        for word in why.split():
            if any(char.isdigit() for char in word) or word in ("NaN", "Infinity", "-Infinity"):
                found = self.text.find(word.rstrip("."))
                return self.text.count("\n", 0, found) + 1 if found >= 0 else None
        return None
