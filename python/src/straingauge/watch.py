"""watch.jsonl, the recording of `straingauge watch --out`: perhaps of weeks, perhaps still growing."""

from __future__ import annotations

import warnings
from array import array
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from .bounded import NotJson, parse
from .errors import RunError, RunWarning, printable
from .frames import Column
from .lines import LineTail

#: Beyond this many numbers every second reading is left out; counts are cumulative, so only resolution is lost.
MAX_NUMBERS = 1 << 24
MAX_COLUMNS = 4000
_MAX_NAME_CHARS = 300
_MISSING = float("nan")
#: The items of these lists are those of the heading's `classes`, and the phases of a request.
_BY_CLASS = ("classes", "phases", "by_functions", "by_events")
_BY_PHASE = ("elapsed_ns", "cpu_ns", "phase_cpu_ns")
_PHASES = ("parse", "process", "log")


def lines(path: Path) -> "Iterator[Mapping[str, Any]]":
    """The heading, then the readings, each when the iteration reaches it. Without a heading: `RunError`.

    A line that cannot be read is left out with one `RunWarning` for all at the end. A last line without its end is being
    written still, and left for later.
    """
    left_out, first, elapsed_ns = 0, "", -1
    tail, is_first = LineTail(path), True
    while True:
        try:
            new = tail.lines()
        except RunError as error:
            if error.line is None or is_first:
                raise
            left_out, first = left_out + 1, first or str(error)
            continue
        if not new:
            break
        for number, text in new:
            if not text.strip():
                continue
            try:
                line = parse(text)
                if is_first:
                    if line.get("kind") != "watch":
                        raise NotJson("it does not have the settings of a watch")
                else:
                    elapsed_ns = _elapsed_ns(line, elapsed_ns)
            except NotJson as error:
                why = RunError(path, str(error), number)
                if is_first:
                    raise why from None
                left_out, first = left_out + 1, first or str(why)
                continue
            is_first = False
            yield line
    if left_out:
        many = "a line was left out" if left_out == 1 else f"{left_out} lines were left out; the first"
        warnings.warn(f"{many}: {first}", RunWarning, stacklevel=2)


def _elapsed_ns(line: Mapping[str, Any], before: int) -> int:
    """When a reading was taken; NotJson where that is not after the reading before."""
    totals = line.get("totals")
    if line.get("kind") != "reading" or not isinstance(totals, dict):
        raise NotJson("it is not a reading")
    found = totals.get("elapsed_ns", 0)
    if not isinstance(found, int) or found <= before:
        raise NotJson("it is not later than the reading before")
    return found


def columns(path: Path) -> List[Column]:
    """A column for each number of the readings, named by its place (`rates.all.requests_per_sec`)."""
    table = _Table()
    classes: List[Any] = []
    for line in lines(path):
        if line["kind"] == "watch":
            found = line.get("classes")
            classes = [one.get("name") if isinstance(one, dict) else None for one in found] if isinstance(found, list) else []
        else:
            table.add(_numbers(line, classes))
    if table.is_full:
        what = f"{printable(str(path))}: its readings have more than {MAX_COLUMNS} different numbers, or names of more than " \
               f"{_MAX_NAME_CHARS} characters; the first {len(table.columns)} have columns"
        warnings.warn(what, RunWarning, stacklevel=3)
    return table.finished()


def _numbers(line: Mapping[str, Any], classes: Sequence[Any]) -> "Iterator[Tuple[str, float]]":
    waiting: "List[Tuple[str, str, Any]]" = [("", "", line)]
    while waiting:
        place, own, value = waiting.pop()
        if len(place) > _MAX_NAME_CHARS:
            yield place, _MISSING  # has no column, and neither has what lies below it
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            yield place, float(value)
        elif isinstance(value, (dict, list)):
            items = value.items() if isinstance(value, dict) else _named(own, value, classes)
            waiting += [(f"{place}.{name}" if place else name, name, inner) for name, inner in items]


def _named(own: str, items: "List[Any]", classes: Sequence[Any]) -> "List[Tuple[str, Any]]":
    """The items of a list by their names, or else by their positions; of a histogram nothing."""
    if any(isinstance(item, list) for item in items):
        return []
    known = classes if own in _BY_CLASS else _PHASES if own in _BY_PHASE else ()
    names = [*known[:len(items)], *map(_name, items[len(known):])]
    return [(str(name or position), item) for position, (name, item) in enumerate(zip(names, items))]


def _name(item: Any) -> Optional[str]:
    """`nginx-1234` of a process, `cpus` of a limit."""
    if not isinstance(item, dict):
        return None
    if "pid" in item and "processes" in item:
        return "-".join(str(part) for part in (item.get("name"), item["pid"]) if part) or "others"
    return str(item["kind"]) if "kind" in item else None


class _Table:
    """Columns that are filled row by row. Beyond MAX_NUMBERS every second row is dropped, but never the last."""

    def __init__(self) -> None:
        self.columns: "Dict[str, array[float]]" = {}
        self.is_full = False
        self._rows = self._offered = 0
        self._stride = 1
        self._newest: "Optional[Dict[str, float]]" = None

    def add(self, numbers: "Iterator[Tuple[str, float]]") -> None:
        row = dict(numbers)
        self._newest = row
        if self._offered % self._stride == 0:
            self._append(row)
        self._offered += 1
        while self._rows > 2 and self._rows * len(self.columns) > MAX_NUMBERS:
            self.columns = {name: column[::2] for name, column in self.columns.items()}
            self._rows = (self._rows + 1) // 2
            self._stride *= 2

    def _append(self, row: "Dict[str, float]") -> None:
        self._newest = None
        for name, value in row.items():
            column = self.columns.get(name)
            if column is None:
                if len(self.columns) == MAX_COLUMNS or len(name) > _MAX_NAME_CHARS:
                    self.is_full = True
                    continue
                column = self.columns[name] = array("d")
            # Rows in which it was missing.
            column.extend([_MISSING] * (self._rows - len(column)))
            column.append(value)
        self._rows += 1

    def finished(self) -> List[Column]:
        if self._newest is not None:
            self._append(self._newest)
        for column in self.columns.values():
            column.extend([_MISSING] * (self._rows - len(column)))
        return [Column(name, "f64", values) for name, values in sorted(self.columns.items())]
