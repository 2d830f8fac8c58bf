"""Runs that are being written: each point is returned once."""

from __future__ import annotations

import os
from collections import deque
from pathlib import Path
from typing import Deque, List, Optional

from .errors import RunError
from .model import Doubt, Point, read_record
from .run import Run, left_out, read_points


class RunFollower:
    """A run that is being written: `new_points()` returns each point once, when it is complete."""

    def __init__(self, path: "os.PathLike[str] | str") -> None:
        self.path = Path(path)
        #: The run with all points so far; None as long as it has not begun.
        self.run: Optional[Run] = None
        self._seen: "set[int]" = set()
        self._points: List[Point] = []
        self._doubts: List[Doubt] = []
        self._errors: "Deque[RunError]" = deque()

    def new_points(self) -> List[Point]:
        """The points that came since the last call; none as long as the run has not begun (no run.json). For a point that
        cannot be read `RunError` is raised once, after those that can; the next call goes on."""
        if self._errors:
            raise self._errors.popleft()
        if self.run is None and not (self.path / "run.json").exists():
            return []
        record, new = read_record(self.path / "run.json"), []
        for index, point in read_points(self.path, self._seen):
            self._seen.add(index)
            if isinstance(point, Point):
                new.append(point)
            else:
                self._errors.append(point)
                self._doubts.append(left_out(point))
        self._points = sorted([*self._points, *new], key=lambda point: point.index)
        self.run = Run(self.path, record, self._points, list(self._doubts))
        if self._errors and not new:
            raise self._errors.popleft()
        return new

    @property
    def is_over(self) -> bool:
        """The run ended by itself, was interrupted or killed; its last points may not have been returned yet."""
        return self.run is not None and (self.run.record.status != "running" or self.run.is_abandoned)
