"""A file of lines that is being written: what is complete is returned once, what is incomplete is kept for later."""

from __future__ import annotations

import os
import stat
from collections import deque
from pathlib import Path
from typing import Deque, List, Tuple

from .errors import RunError

#: A watch writes no longer line.
_MAX_LINE_BYTES = 4 << 20
_STEP_BYTES = 4 << 20


class LineTail:
    """The lines that are appended to a file, each returned once, and only when it is complete.

    A file that does not exist yet has no lines. A file that became shorter was replaced, and is read from its start.
    """

    def __init__(self, path: "os.PathLike[str] | str") -> None:
        self.path = Path(path)
        self._read = 0
        self._line = 0
        self._torn = b""
        self._is_too_long = False
        self._waiting: "Deque[Tuple[int, bytes]]" = deque()

    @property
    def torn(self) -> bytes:
        """The last line as far as it is written, without an end."""
        return self._torn

    def lines(self) -> "List[Tuple[int, str]]":
        """New lines with their numbers, counted from 1. At most 4 MiB at a call: call again until none comes. A line that
        is not UTF-8 or has more than 4 MiB raises `RunError` once; the lines before and after it come by calls of their
        own."""
        while not self._waiting and self._read_on():
            pass
        found: "List[Tuple[int, str]]" = []
        while self._waiting:
            number, content = self._waiting[0]
            why = None
            try:
                text = content.decode("utf-8").rstrip("\r")
            except UnicodeDecodeError:
                why = "it is not UTF-8 text"
            if len(content) > _MAX_LINE_BYTES:
                why = f"a line has more than {_MAX_LINE_BYTES} bytes"
            if why and found:
                break
            self._waiting.popleft()
            if why:
                raise RunError(self.path, why, number)
            found.append((number, text))
        return found

    def _read_on(self) -> bool:
        """Takes in what is written next; False where there is nothing more."""
        flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
        try:
            descriptor = os.open(self.path, flags)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise RunError(self.path, f"it cannot be read ({error.strerror})") from error
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            os.close(descriptor)
            raise RunError(self.path, "it is not a regular file")
        with os.fdopen(descriptor, "rb") as file:
            if status.st_size < self._read:
                self._read, self._line, self._torn, self._is_too_long = 0, 0, b"", False
            file.seek(self._read)
            new = file.read(_STEP_BYTES)
        self._read += len(new)
        *whole, self._torn = (self._torn + new).split(b"\n")
        if self._is_too_long and whole:  # its end; its beginning has been reported
            del whole[0]
            self._is_too_long = False
        if self._is_too_long:
            self._torn = b""
        if len(self._torn) > _MAX_LINE_BYTES:
            whole.append(self._torn)
            self._torn, self._is_too_long = b"", True
        for content in whole:
            self._line += 1
            self._waiting.append((self._line, content))
        return bool(new)
