"""Run directories (docs/run-directory.md): points, figures, doubts, histograms and recordings of a watch.

An unreadable run.json raises `RunError`. Any other damaged file or line is left out with a `RunWarning` that
names it.

"""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import warnings
from array import array
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple, Type, TypeVar, Union

from hdrh.histogram import HdrHistogram

#: The newest supported schemas of run.json and point.json. Fields may be added within a schema.
RECORD_SCHEMA, POINT_SCHEMA = 1, 1

T = TypeVar("T")
PathLike = Union[str, "os.PathLike[str]"]


class RunError(Exception):
    """A file in a run directory cannot be read. `path` and `line` (from 1; None for the whole file) name
    the place, and `why` is the reason."""

    def __init__(self, path: PathLike, why: str, line: Optional[int] = None) -> None:
        self.path, self.why, self.line = os.fspath(path), why, line
        super().__init__(f"{self.path}{'' if line is None else f', line {line}'}: {why}")


class RunWarning(UserWarning):
    """A run, a point or a line cannot be read and was left out."""


@dataclass(frozen=True)
class Figure:
    """One number with its unit, sample count and origin, or the reason why it was not measured."""

    value: Optional[float]
    unit: str
    n: Optional[int] = None
    #: counted, timed, sampled, simulated or modelled
    origin: Optional[str] = None
    not_measured: Optional[str] = None


@dataclass(frozen=True)
class Doubt:
    """A reason not to trust a number, with its remedy. `severity` is note, warning or invalid."""

    kind: str
    severity: str
    what: str
    remedy: str


@dataclass(frozen=True)
class Point:
    """One load point (points/NNN/point.json)."""

    index: int
    #: single, connections, unloading, rate, axis or yardstick
    sweep: str
    repeat: int
    connections: int
    #: requests per second of an open loop's schedule; None in a closed loop
    offered_per_sec: Optional[float]
    #: the varied quantity of `--axis`, such as `in-flight`, and its value in its unit; None in other runs
    axis: Optional[str]
    axis_value: Optional[float]
    started_unix_ms: int
    warmup_ns: int
    duration_ns: int
    outcomes: Mapping[str, int]
    figures: Mapping[str, Figure]
    connection_states: Mapping[str, Figure]
    doubts: Sequence[Doubt]
    #: contents of point.json
    raw: Mapping[str, Any] = field(repr=False)

    def value(self, name: str) -> Optional[float]:
        """A figure's value; None if it is absent or was not measured."""
        return self.figures[name].value if name in self.figures else None


@dataclass(frozen=True)
class RunRecord:
    """run.json: the settings, the machine, and how the run ended."""

    #: running (also for a killed run), complete or interrupted
    status: str
    started_unix_ms: int
    name: str
    #: the URL as typed; `:8080` for a watch; empty for a run without a server
    url: str
    scenario: Mapping[str, Any] = field(repr=False)
    machine: Mapping[str, Any] = field(repr=False)
    server_facts: Mapping[str, str] = field(repr=False)
    doubts: Sequence[Doubt]
    ended_by: Optional[str]


class Run:
    """A run directory: its record, its points, and the files next to them, which are read when they are used.

    Each `..._frame` takes "pandas" or "polars". Columns of numbers name their unit. A number that was not
    measured is a missing value, never 0.

    """

    def __init__(self, path: Path, record: RunRecord, points: Sequence[Point], unreadable: Sequence[Doubt]) -> None:
        self.path = path
        self.record = record
        self.points = points
        #: One doubt for each point that could not be read.
        self.unreadable = unreadable

    def __repr__(self) -> str:
        return f"<Run {self.record.name!r}: {self.record.status}, {len(self.points)} points>"

    @property
    def doubts(self) -> List[Tuple[Optional[int], Doubt]]:
        """All doubts. Those about the run have None, those about a point its index."""
        found: List[Tuple[Optional[int], Doubt]] = [(None, doubt) for doubt in (*self.record.doubts, *self.unreadable)]
        return found + [(point.index, doubt) for point in self.points for doubt in point.doubts]

    def sweep(self, name: str) -> List[Point]:
        """The points of one sweep: single, connections, unloading, rate, axis or yardstick."""
        return [point for point in self.points if point.sweep == name]

    def point_path(self, index: int) -> Path:
        """Directory of a point."""
        return self.path / "points" / f"{index:03}"

    def histograms(self, index: int) -> Dict[str, Any]:
        """A point's HdrHistograms (`hdrh.histogram.HdrHistogram`) of nanoseconds by tag: response, service, lag, ..."""
        found: Dict[str, Any] = {}
        for tag, histogram in _read_lines(self.point_path(index) / "latency.hlog", _tagged_histogram):
            if tag in found:
                found[tag].add(histogram)
            else:
                found[tag] = histogram
        return found

    def merged_histogram(self, tag: str, sweep: Optional[str] = None) -> Any:
        """The sum of a tag's histograms over all points, or over one sweep. Raises KeyError if no point has one."""
        merged = None
        for point in self.points if sweep is None else self.sweep(sweep):
            found = self.histograms(point.index).get(tag)
            if merged is None:
                merged = found
            elif found is not None:
                merged.add(found)
        if merged is None:
            sweeps = ", ".join(dict.fromkeys(point.sweep for point in self.points))
            raise KeyError(f"no point of {sweep or 'this run'} has a histogram {tag!r} (sweeps of this run: {sweeps})")
        return merged

    def findings(self) -> Mapping[str, Any]:
        """Zones, yield and failure points and verdict, as `straingauge report RUN --json` prints them."""
        command = [str(program()), "report", "--json", "--page", os.devnull, "--", str(self.path)]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RunError(self.path, done.stderr.strip() or f"straingauge report: exit code {done.returncode}")
        found: Mapping[str, Any] = json.loads(done.stdout)
        return found

    def points_frame(self, library: str = "pandas") -> Any:
        """One row per point: its load, outcomes (`outcome.ok_count`), figures and connection states (`state....`)."""
        columns = {name: (kind, [getattr(point, name) for point in self.points]) for name, kind in _LOAD.items()}
        columns["doubts_count"] = (int, [len(point.doubts) for point in self.points])
        for name in dict.fromkeys(name for point in self.points for name in point.outcomes):
            columns[f"outcome.{name}_count"] = (int, [point.outcomes.get(name) for point in self.points])
        for prefix, rows in ("", [point.figures for point in self.points]), \
                ("state.", [point.connection_states for point in self.points]):
            for name, unit in sorted({(name, figure.unit) for row in rows for name, figure in row.items()}):
                values = [row[name].value if name in row else None for row in rows]
                columns[prefix + _with_unit(name, unit)] = (float, values)
        return _frame(columns, library)

    def figures_frame(self, library: str = "pandas") -> Any:
        """One row per figure of a point: value, unit, n (number of events), origin, not_measured (the reason)."""
        rows = [(point, name, figure) for point in self.points for name, figure in point.figures.items()]
        rows += [(point, f"state.{name}", figure) for point in self.points for name, figure in point.connection_states.items()]
        loads = ("index", "sweep", "repeat", "connections", "offered_per_sec", "axis", "axis_value")
        columns = {name: (_LOAD[name], [getattr(point, name) for point, _, _ in rows]) for name in loads}
        columns["name"] = (str, [name for _, name, _ in rows])
        for name, kind in {"value": float, "unit": str, "n": int, "origin": str, "not_measured": str}.items():
            columns[name] = (kind, [getattr(figure, name) for _, _, figure in rows])
        return _frame(columns, library)

    def doubts_frame(self, library: str = "pandas") -> Any:
        """One row per doubt. A doubt without an `index` is about the run as a whole."""
        rows = [{"index": index, **asdict(doubt)} for index, doubt in self.doubts]
        kinds: Dict[str, type] = {"index": int, "kind": str, "severity": str, "what": str, "remedy": str}
        return _frame({name: (kind, [row[name] for row in rows]) for name, kind in kinds.items()}, library)

    def histogram_frame(self, index: int, tag: str, library: str = "pandas") -> Any:
        """A histogram's recorded buckets: `value_ns` (upper end), `count`, `cumulative_ratio`."""
        found = buckets(self.histograms(index)[tag])
        seen, ratios = 0, []
        for _, count in found:
            seen += count
            ratios.append(seen / sum(count for _, count in found))
        values, counts = [value for value, _ in found], [count for _, count in found]
        return _frame({"value_ns": (int, values), "count": (int, counts), "cumulative_ratio": (float, ratios)}, library)

    def series_frame(self, index: int, library: str = "pandas") -> Any:
        """Time series of a point's window (series.csv)."""
        rows = list(_read_lines(self.point_path(index) / "series.csv", _SeriesLine()))
        return _frame({name: (float, [row[name] for row in rows]) for name in (rows[0] if rows else ())}, library)

    def watch_readings(self) -> Iterator[Mapping[str, Any]]:
        """The lines of watch.jsonl (`straingauge watch --out`): the heading, then each reading when it is
        requested."""
        return _read_lines(self.path / "watch.jsonl", json.loads)

    def watch_frame(self, library: str = "pandas") -> Any:
        """One row per reading of a watch, with a column for each number, named by its path
        (`rates.all.requests_per_sec`).

        Items of a list are named by their class, phase or process (`totals.processes.nginx-1234.requests`), or
        by their position from 0. Histograms are left out; `watch_readings` returns them.

        """
        columns: "Dict[str, array[float]]" = {}
        classes: List[Any] = []
        rows = 0
        for line in self.watch_readings():
            if line.get("kind") == "watch":
                classes = [one["name"] for one in line.get("classes", ())]
                continue
            for name, number in _numbers(line, "", "", classes):
                column = columns.setdefault(name, array("d"))
                column.extend([math.nan] * (rows - len(column)))
                column.append(number)
            rows += 1
        for column in columns.values():
            column.extend([math.nan] * (rows - len(column)))
        return _frame({name: (float, column) for name, column in sorted(columns.items())}, library)


def open_run(path: PathLike) -> Run:
    """Opens a run directory. It may still be written: each point appears in it complete or not at all.

    An unreadable run.json raises `RunError`. A point that cannot be read is left out with a `RunWarning` and a
    doubt of kind `unreadable`, as in straingauge.

    """
    folder = Path(path)
    record = _read_json(folder / "run.json", RECORD_SCHEMA, _record)
    points: List[Point] = []
    unreadable: List[Doubt] = []
    # A point that is still being written has another name.
    folders = [one for one in (folder / "points").glob("*") if one.name.isdigit()]
    for one in sorted(folders, key=lambda one: int(one.name)):
        try:
            points.append(_read_json(one / "point.json", POINT_SCHEMA, _point))
        except RunError as why:
            warnings.warn(f"a point was left out: {why}", RunWarning, stacklevel=2)
            unreadable.append(Doubt("unreadable", "warning", f"a point was left out: {why}", "measure that point again"))
    return Run(folder, record, points, unreadable)


def runs(folder: PathLike) -> Iterator[Run]:
    """The runs in a directory, newest first, each opened when it is requested. One that cannot be read is left out
    with a `RunWarning`."""
    found: List[Tuple[int, Path]] = []
    for path in Path(folder).iterdir():
        # A link such as `latest` names a run that is already listed.
        if not path.is_symlink() and (path / "run.json").exists():
            try:
                found.append((_read_json(path / "run.json", RECORD_SCHEMA, _record).started_unix_ms, path))
            except RunError as why:
                warnings.warn(f"a run was left out: {why}", RunWarning, stacklevel=2)
    for _, path in sorted(found, reverse=True):
        yield open_run(path)


def program() -> Path:
    """The straingauge program that STRAINGAUGE_BINARY names, or the first on PATH. Only `findings` needs it."""
    found = shutil.which(os.environ.get("STRAINGAUGE_BINARY") or "straingauge")
    if found is None:
        raise FileNotFoundError("straingauge is not on PATH: install it (docs/install.md), or name it with STRAINGAUGE_BINARY")
    return Path(found)


def buckets(histogram: Any) -> List[Tuple[int, int]]:
    """The recorded buckets of a histogram in order, as (upper end in nanoseconds, count)."""
    steps = histogram.get_recorded_iterator()
    return [(int(step.value_iterated_to), int(step.count_added_in_this_iter_step)) for step in steps]


def quantile_ns(histogram: Any, quantile: float) -> Optional[int]:
    """Upper end of the first bucket up to which at least this share (0 to 1) of the values lies; None if empty.

    straingauge's tables show this value. The library's `get_value_at_percentile` rounds the rank to the nearest
    and may return the bucket before. For the values 1, 2 and 3 ms it returns a p80 of 2 ms, and this function 3
    ms.

    """
    if not 0 <= quantile <= 1:
        raise ValueError(f"a quantile is between 0 and 1, such as 0.99; this is {quantile}")
    rank, seen = max(1, math.ceil(quantile * int(histogram.get_total_count()))), 0
    for value, count in buckets(histogram):
        seen += count
        if seen >= rank:
            return value
    return None


def _read_json(path: Path, newest: int, build: Callable[[Any], T]) -> T:
    try:
        content = json.loads(path.read_bytes())
        if content["schema"] > newest:
            raise RunError(path, f"it has schema {content['schema']}, and this package reads up to {newest}: install a newer one")
        return build(content)
    except FileNotFoundError:
        raise RunError(path, "there is no such file; is it a straingauge run directory?") from None
    except OSError as why:
        raise RunError(path, f"it cannot be read ({why.strerror})") from None
    except json.JSONDecodeError as why:
        raise RunError(path, f"it is not JSON: {why.msg} (column {why.colno})", why.lineno) from None
    except UnicodeDecodeError as why:
        raise RunError(path, "it is not UTF-8 text", why.object.count(b"\n", 0, why.start) + 1) from None
    except (AttributeError, KeyError, TypeError, ValueError) as why:
        raise RunError(path, f"a field is missing or of the wrong type ({type(why).__name__}: {why})") from None


def _record(content: Any) -> RunRecord:
    scenario = content["scenario"]
    port = f":{scenario['port']}" if "port" in scenario else ""
    return RunRecord(
        status=content["status"], started_unix_ms=content["started_unix_ms"], name=scenario["name"],
        url=scenario.get("url", port), scenario=scenario, machine=content["machine"],
        server_facts=content.get("server_facts", {}), doubts=_doubts(content), ended_by=content.get("ended_by"))


def _point(content: Any) -> Point:
    axis = content.get("axis") or {}
    plain = ("index", "sweep", "repeat", "connections", "started_unix_ms", "warmup_ns", "duration_ns", "outcomes")
    return Point(
        **{name: content[name] for name in plain}, offered_per_sec=content["pace"].get("rate_per_sec"),
        axis=axis.get("axis"), axis_value=axis.get("value"), figures=_figures(content["figures"]),
        connection_states=_figures(content.get("connection_states", {})), doubts=_doubts(content), raw=content)


def _doubts(content: Any) -> List[Doubt]:
    return [Doubt(one["kind"], one["severity"], one["what"], one["remedy"]) for one in content.get("doubts", ())]


def _figures(content: Any) -> Dict[str, Figure]:
    return {
        name: Figure(one.get("value"), one["unit"], one.get("n"), one.get("origin"), one.get("not_measured"))
        for name, one in content.items()
    }


def _read_lines(path: Path, read: Callable[[str], Optional[T]]) -> Iterator[T]:
    """The values that `read` returns for each line; none if there is no such file."""
    if not path.exists():
        return
    with path.open(encoding="utf-8", errors="replace", newline="\n") as file:
        for number, line in enumerate(file, 1):
            try:
                if not line.endswith("\n"):
                    raise ValueError("it has no end: it was cut, or is still being written")
                found = read(line)
            except Exception as why:  # the histogram library raises many kinds
                warnings.warn(f"{path}, line {number} was left out: {why}", RunWarning, stacklevel=3)
            else:
                if found is not None:
                    yield found


def _tagged_histogram(line: str) -> Optional[Tuple[str, Any]]:
    """Parses a line of an HdrHistogram log: `Tag=response,START,LENGTH,LONGEST,HISTOGRAM`."""
    if line.startswith(("#", '"')):
        return None
    tag, _start, _length, _longest, encoded = line.rstrip().split(",")
    return tag[len("Tag="):], HdrHistogram.decode(encoded)


class _SeriesLine:
    """Reads the header of series.csv, then its rows."""

    names: Optional[List[str]] = None

    def __call__(self, line: str) -> Optional[Dict[str, Optional[float]]]:
        cells = line.rstrip().split(",")
        if self.names is None:
            self.names = cells
            return None
        if len(cells) != len(self.names):
            raise ValueError(f"it has {len(cells)} columns, the header has {len(self.names)}")
        return {name: float(cell) if cell else None for name, cell in zip(self.names, cells)}


#: A point's fields about its load, in the order of the columns.
_LOAD: Dict[str, type] = {
    "index": int, "sweep": str, "repeat": int, "connections": int, "offered_per_sec": float, "axis": str,
    "axis_value": float, "started_unix_ms": int, "warmup_ns": int, "duration_ns": int,
}
#: Name of a unit within a column's name, if it differs from the unit.
_UNIT_WORDS = {"1/s": "per_sec", "bytes/s": "bytes_per_sec", "CPUs": "cpus"}


def _with_unit(name: str, unit: str) -> str:
    """`client.lag_p99_us` already has its unit; `tcp.accept_queue_max` becomes ..._connections."""
    word = _UNIT_WORDS.get(unit, unit)
    has_it = word in name.split(".")[-1].split("_") or name.endswith(word) or f"_{word}_" in name
    return name if has_it or not word else f"{name}_{word}"


def _frame(columns: Mapping[str, Tuple[Type[Any], Iterable[Any]]], library: str) -> Any:
    if library == "pandas":
        import pandas

        # Nullable integers: a missing count must not turn its column into rounded floats.
        kinds = {int: "UInt64", float: "float64", str: "string"}
        return pandas.DataFrame({name: pandas.Series(list(values), dtype=kinds[kind]) for name, (kind, values) in columns.items()})
    if library == "polars":
        import polars

        types = {int: polars.UInt64, float: polars.Float64, str: polars.String}
        series = [polars.Series(name, list(values), dtype=types[kind]) for name, (kind, values) in columns.items()]
        # NaN is a value in polars, unlike in pandas.
        return polars.DataFrame([one.fill_nan(None) if one.dtype == polars.Float64 else one for one in series])
    raise ValueError(f"there are frames of 'pandas' and 'polars', not of {library!r}")


def _numbers(value: Any, place: str, own: str, classes: Sequence[Any]) -> Iterator[Tuple[str, float]]:
    """The numbers in a reading with their paths; `own` is the last part of the path."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        yield place, float(value)
    elif isinstance(value, (dict, list)):
        for name, inner in value.items() if isinstance(value, dict) else _named(value, own, classes):
            yield from _numbers(inner, f"{place}.{name}" if place else name, name, classes)


def _named(items: List[Any], own: str, classes: Sequence[Any]) -> Iterator[Tuple[str, Any]]:
    """The items of a list with their names. A list of lists is a histogram and has none."""
    known: Sequence[Any] = ()
    if own in ("classes", "phases", "by_functions", "by_events"):
        known = classes
    elif own in ("elapsed_ns", "cpu_ns", "phase_cpu_ns"):
        known = ("parse", "process", "log")
    for position, item in enumerate(items):
        if isinstance(item, list):
            continue
        if position < len(known):
            yield str(known[position]), item
        elif isinstance(item, dict) and "pid" in item and "processes" in item:
            yield "-".join(str(part) for part in (item.get("name"), item["pid"]) if part) or "others", item
        else:
            yield str(item.get("kind", position) if isinstance(item, dict) else position), item
