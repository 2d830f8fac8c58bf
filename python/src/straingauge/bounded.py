"""Bounded reads of files that anyone may have written: regular files only, a limit on the bytes, strict JSON and text.

The limits are those of straingauge's own reader (crates/record/src/run.rs).
"""

from __future__ import annotations

import json
import os
import re
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


class NotJson(ValueError):
    """Why a text is not a JSON object as straingauge writes it, and the line in it where that is known."""

    def __init__(self, why: str, line: Optional[int] = None) -> None:
        super().__init__(why)
        self.line = line


def parse(text: str) -> "dict[str, Json]":
    """A JSON object of numbers that fit, without NaN, doubled fields and halves of characters; NotJson otherwise."""
    try:
        value = json.loads(text, parse_int=_integer, parse_float=_number, parse_constant=_constant, object_pairs_hook=_object)
    except json.JSONDecodeError as error:
        raise NotJson(f"it is not JSON: {error.msg} (column {error.colno})", error.lineno) from None
    except _Refused as error:
        raise NotJson(f"it is not readable as a run: {error}", _line_of_refused(text, str(error))) from None
    except RecursionError:
        raise NotJson("it is nested too deeply to be a run", 1) from None
    half = next((found.start() for found in _SURROGATES.finditer(text) if len(found.group()) == _HALF), None)
    if half is not None:
        raise NotJson("it has half of a character (a lone surrogate)", text.count("\n", 0, half) + 1)
    if not isinstance(value, dict):
        raise NotJson("it is not a JSON object", 1)
    return value


#: Escapes of UTF-16's surrogates, in pairs or alone; other escapes are matched so that none begins in their middle.
_SURROGATES = re.compile(r"\\u[dD][89abAB]..\\u[dD][c-fC-F]..|\\u[dD][89a-fA-F]..|\\.")
_HALF = len(r"\ud800")


def _line_of_refused(text: str, why: str) -> Optional[int]:
    for word in why.split():
        if any(char.isdigit() for char in word) or word in ("NaN", "Infinity", "-Infinity"):
            found = text.find(word.rstrip("."))
            return text.count("\n", 0, found) + 1 if found >= 0 else None
    return None


_SKIP = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\r\n]*")


def _after_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return at if found is None else found.end()


def _member(text: str, at: int, key: Key) -> "Optional[Tuple[int, int]]":
    """Where a member of the JSON object or list at `at` begins, and where its value; None where it has none."""
    is_object = text[at] == "{"
    if not is_object and text[at] != "[":
        return None
    at, position = _after_space(text, at + 1), 0
    while text[at] not in "}]":
        begin: int = at
        name: Key = position
        if is_object:
            name, at = _SKIP.raw_decode(text, at)
            at = _after_space(text, _after_space(text, at) + 1)
        if name == key:
            return begin, at
        at = _after_space(text, _SKIP.raw_decode(text, at)[1])
        if text[at] == ",":
            at = _after_space(text, at + 1)
        position += 1
    return None


class JsonFile:
    """A JSON object from a file, with the place of its fields for messages."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.text = read_text(path, MAX_JSON_BYTES)
        try:
            self.value = parse(self.text)
        except NotJson as error:
            raise RunError(path, str(error), error.line) from None

    def refuse(self, keys: Sequence[Key], why: str) -> RunError:
        """The error for the field at `keys`, with the line of that field."""
        name = ".".join(str(key) for key in keys)
        return RunError(self.path, f"{printable(name)} {why}", self.line_of(keys))

    def line_of(self, keys: Sequence[Key]) -> int:
        """The line of the field at `keys`, or of the last one on the way to it that exists."""
        begin = at = _after_space(self.text, 0)
        for key in keys:
            found = _member(self.text, at, key)
            if found is None:
                break
            begin, at = found
        return self.text.count("\n", 0, begin) + 1
