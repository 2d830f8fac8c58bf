"""A run directory, opened."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Collection, Dict, Iterable, Iterator, List, Mapping, Sequence, Tuple, Union, overload

from . import executable, frames, histogram, watch
from .bounded import MAX_POINTS, MAX_SERIES_BYTES, read_text
from .errors import RunError, printable
from .frames import Column
from .model import Doubt, Point, RunRecord, read_point, read_record
from .owner import has_ended_by_number

if TYPE_CHECKING:
    import pandas
    import polars
    from typing_extensions import Literal


class Run:
    """A run directory: its record, its points, and the files beside them, read when they are used.

    Every `..._frame` takes "pandas" or "polars" and names units in its columns; a number that was not measured is a
    missing value, never 0. Only an outcome that an older straingauge did not count is 0.
    """

    def __init__(self, path: Path, record: RunRecord, points: Sequence[Point], reading_doubts: Sequence[Doubt]) -> None:
        self.path = path
        self.record = record
        self.points = points
        #: Parts that could not be read and were left out (of points only with `damaged="leave out"`).
        self.reading_doubts = reading_doubts

    def __repr__(self) -> str:
        return f"<Run {printable(self.record.name)}: {self.record.status}, {len(self.points)} points>"

    @property
    def is_abandoned(self) -> bool:
        """The record says "running", but its writer has ended: it was killed. False where that cannot be known, as of a
        run on another machine, in another container or before a restart, and without Linux's /proc."""
        record = self.record
        if record.status != "running":
            return False
        if record.writer is None:
            return has_ended_by_number(record.writer_pid, record.started_unix_ms)
        return record.writer.has_ended()

    @property
    def doubts(self) -> "List[Tuple[int | None, Doubt]]":
        """All doubts: of the run (None) and of its points (their index)."""
        found: "List[Tuple[int | None, Doubt]]" = [(None, doubt) for doubt in self.record.doubts]
        found += [(None, doubt) for doubt in self.reading_doubts]
        found += [(point.index, doubt) for point in self.points for doubt in point.doubts]
        return found

    def sweep(self, name: str) -> List[Point]:
        """The points of one sweep: single, connections, unloading, rate, axis or yardstick."""
        return [point for point in self.points if point.sweep == name]

    def point_path(self, index: int) -> Path:
        """The folder of a point."""
        return self.path / "points" / f"{index:03}"

    def histograms(self, index: int) -> "Dict[str, Any]":
        """A point's HdrHistograms of nanoseconds by tag (response, service, lag, ...); empty where it has none."""
        path = self.point_path(index) / "latency.hlog"
        return histogram.read_log(path) if path.exists() else {}

    def merged_histogram(self, tag: str, sweep: "str | None" = None) -> Any:
        """One tag's histogram over all points, or those of one sweep; counts are added, nothing is lost. KeyError where
        there is no such sweep or tag, with those that there are."""
        merged: Any = None
        tags: "Dict[str, None]" = {}
        points = [point for point in self.points if sweep is None or point.sweep == sweep]
        if not points and sweep is not None:
            raise KeyError(f"this run has no sweep {sweep!r}; it has {_words(point.sweep for point in self.points)}")
        for point in points:
            histograms = self.histograms(point.index)
            tags.update(dict.fromkeys(histograms))
            found = histograms.get(tag)
            if found is not None and merged is None:
                merged = found
            elif found is not None:
                merged.add(found)
        if merged is None:
            raise KeyError(f"no point has a histogram of {tag!r}; there are {_words(tags)}")
        return merged

    def findings(self) -> "Mapping[str, Any]":
        """Zones, yield and failure points and verdict: what `straingauge report RUN --json` prints. Needs the program.

        `MissingProgramError` where it is not found, `RunError` where it refuses the run.
        """
        found: "Mapping[str, Any]" = executable.report(self.path)
        return found

    @overload
    def points_frame(self, library: "Literal['pandas']" = "pandas") -> "pandas.DataFrame": ...
    @overload
    def points_frame(self, library: "Literal['polars']") -> "polars.DataFrame": ...
    def points_frame(self, library: frames.Library = "pandas") -> Any:
        """One row a point: its load, its outcomes (`outcome.ok_count`), its figures and connection states.

        `axis` and `axis_value` (in the axis's own unit) are those of `--axis`, missing in other runs.
        """
        return frames.build(frames.points(self.points), library)

    @overload
    def figures_frame(self, library: "Literal['pandas']" = "pandas") -> "pandas.DataFrame": ...
    @overload
    def figures_frame(self, library: "Literal['polars']") -> "polars.DataFrame": ...
    def figures_frame(self, library: frames.Library = "pandas") -> Any:
        """One row a figure of a point: value, unit, n (number of events), origin, not_measured (why)."""
        return frames.build(frames.figures(self.points), library)

    @overload
    def doubts_frame(self, library: "Literal['pandas']" = "pandas") -> "pandas.DataFrame": ...
    @overload
    def doubts_frame(self, library: "Literal['polars']") -> "polars.DataFrame": ...
    def doubts_frame(self, library: frames.Library = "pandas") -> Any:
        """One row a doubt; a missing `index` stands for the run as a whole."""
        return frames.build(frames.doubts(self.doubts), library)

    @overload
    def histogram_frame(self, index: int, tag: str, library: "Literal['pandas']" = "pandas") -> "pandas.DataFrame": ...
    @overload
    def histogram_frame(self, index: int, tag: str, library: "Literal['polars']") -> "polars.DataFrame": ...
    def histogram_frame(self, index: int, tag: str, library: frames.Library = "pandas") -> Any:
        """A histogram's recorded buckets: `value_ns` (upper end), `count`, `cumulative_ratio`. KeyError where there is no
        such point or tag, with those that there are."""
        if all(point.index != index for point in self.points):
            raise KeyError(f"this run has no point {index}; it has {_words(str(point.index) for point in self.points)}")
        found = self.histograms(index)
        if tag not in found:
            raise KeyError(f"point {index} has no histogram of {tag!r}; it has {_words(found)}")
        return frames.build(frames.buckets(histogram.buckets(found[tag])), library)

    @overload
    def series_frame(self, index: int, library: "Literal['pandas']" = "pandas") -> "pandas.DataFrame": ...
    @overload
    def series_frame(self, index: int, library: "Literal['polars']") -> "polars.DataFrame": ...
    def series_frame(self, index: int, library: frames.Library = "pandas") -> Any:
        """The course of a point's window (series.csv); without columns where the point has none."""
        path = self.point_path(index) / "series.csv"
        return frames.build(read_series(path) if path.exists() else [], library)

    def watch_readings(self) -> "Iterator[Mapping[str, Any]]":
        """The lines of watch.jsonl (`straingauge watch --out`): the heading, then a reading each, read when the iteration
        reaches it; none without that file. Lines that cannot be read are left out with one `RunWarning` at the end."""
        return watch.lines(self.path / "watch.jsonl")

    @overload
    def watch_frame(self, library: "Literal['pandas']" = "pandas") -> "pandas.DataFrame": ...
    @overload
    def watch_frame(self, library: "Literal['polars']") -> "polars.DataFrame": ...
    def watch_frame(self, library: frames.Library = "pandas") -> Any:
        """One row a reading of a watch: a column for every number of its totals, rates and headroom, named by its place.

        Items of a list are named by their class, phase or process (`totals.processes.nginx-1234.requests`), or else by
        their position from 0. Histograms are left out: `watch_readings` has them. Of more than 16,777,216 numbers every
        second reading is left out, as often as needed, but not the last; counts are cumulative, so only resolution is
        lost. Of more than 4,000 columns the others are left out with a `RunWarning`.
        """
        return frames.build(watch.columns(self.path / "watch.jsonl"), library)


def _words(names: Iterable[str]) -> str:
    """Each once, for a message."""
    return printable(", ".join(dict.fromkeys(names))) or "none"


def open_run(
    path: "Union[os.PathLike[str], str]", *, damaged: "Literal['refuse', 'leave out']" = "refuse",
    skip: "Collection[int]" = (),
) -> Run:
    """Opens a run directory, also one that is still being written: points appear in it complete or not at all.

    A file that cannot be read is a `RunError` naming it and the line. With `damaged="leave out"` a point like that
    becomes a doubt of kind `unreadable`, as in straingauge itself; run.json must be readable either way. A point whose
    latency.hlog is cut has a doubt of that kind in any case, as its histograms are fewer. Points whose index is in `skip`
    are passed over.
    """
    if damaged not in ("refuse", "leave out"):
        raise ValueError(f"damaged is 'refuse' or 'leave out', not {damaged!r}")
    folder = Path(path)
    record = read_record(folder / "run.json")
    points: List[Point] = []
    doubts: List[Doubt] = []
    for _, point in read_points(folder, skip):
        if isinstance(point, Point):
            points.append(point)
        elif damaged == "refuse":
            raise point
        else:
            doubts.append(left_out(point))
    return Run(folder, record, points, doubts)


def read_points(folder: Path, skip: Collection[int]) -> "Iterator[Tuple[int, Point | RunError]]":
    """The points by their index, ascending; for one that cannot be read, the reason."""
    for index in _point_indices(folder):
        if index not in skip:
            try:
                yield index, _read_point(folder / "points" / f"{index:03}", index)
            except RunError as error:
                yield index, error


def left_out(why: RunError) -> Doubt:
    """The doubt of a run of which a point cannot be read."""
    return Doubt("unreadable", "warning", f"a point was left out: {why}", "measure that point again")


def _read_point(folder: Path, index: int) -> Point:
    """A point, which is complete or absent: a log that is cut was cut later, and gets a doubt."""
    point = read_point(folder / "point.json", index)
    log = folder / "latency.hlog"
    cut = histogram.what_is_cut(log) if log.exists() else None
    if cut is None:
        return point
    what = f"histograms of the point were left out: {printable(str(log))} is cut: {cut}"
    return replace(point, doubts=[*point.doubts, Doubt("unreadable", "warning", what, "measure that point again")])


def _point_indices(folder: Path) -> List[int]:
    """The indices of the points' folders, ascending. Names that are not numbers (a point being written) are passed over."""
    found: List[int] = []
    points = folder / "points"
    try:
        with os.scandir(points) as entries:
            for entry in entries:
                name = entry.name
                if len(name) <= 9 and name.isascii() and name.isdigit() and f"{int(name):03}" == name:
                    found.append(int(name))
                    if len(found) > MAX_POINTS:
                        raise RunError(points, f"it has more than {MAX_POINTS} points")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise RunError(points, f"it cannot be read ({error.strerror})") from error
    return sorted(found)


def read_series(path: Path) -> List[Column]:
    """series.csv as columns of numbers. A last line without its end is being written still, and left for later."""
    lines = histogram.complete_lines(read_text(path, MAX_SERIES_BYTES))
    if not lines:
        return []
    names = lines[0][1].split(",")
    if len(set(names)) != len(names) or any(not name.isidentifier() for name in names) or len(names) > 200:
        raise RunError(path, "its header is not a list of different column names", 1)
    columns: "List[List[float | None]]" = [[] for _ in names]
    for number, line in lines[1:]:
        cells = line.split(",")
        if len(cells) != len(names):
            raise RunError(path, f"it has {len(cells)} columns, the header has {len(names)}", number)
        for column, cell in zip(columns, cells):
            try:
                # float() would take 'nan', 'inf' and '1_0' too.
                if cell.strip("0123456789.-+e"):
                    raise ValueError
                value = float(cell) if cell else None
                if value is not None and not math.isfinite(value):
                    raise ValueError
                column.append(value)
            except ValueError:
                raise RunError(path, f"'{printable(cell, 20)}' is not a number", number) from None
    return [Column(name, "f64", values) for name, values in zip(names, columns)]
