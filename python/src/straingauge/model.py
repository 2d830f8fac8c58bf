"""The parts of a run: its record, its points, their figures and doubts; checked when they are read.

Fields may be added within a schema, so unknown ones are passed over; the whole JSON stays at hand as `raw`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from .bounded import JsonFile, Key
from .owner import Owner

#: The newest schema of run.json that is read. From 2 on a run that loaded no server (watch, simulate) has no URL and no
#: load plan.
RECORD_SCHEMA = 2
#: The newest schema of point.json.
POINT_SCHEMA = 1
#: The outcomes of a request, and the counts of connections (docs/run-directory.md).
OUTCOMES = (
    "sent", "carried_in", "ok", "non_2xx", "refused", "reset", "timed_out", "connect_timed_out", "truncated", "closed_early",
    "malformed", "local_limit", "tls_failed", "other_error", "unfinished", "connects", "connects_slow", "connects_failed",
    "connections_used", "connections_silent", "closed_unused",
)
_U64 = 1 << 64


@dataclass(frozen=True)
class Figure:
    """One number with its unit, sample count and origin; or why it was not measured."""

    value: Optional[float]
    unit: str
    n: Optional[int] = None
    #: counted, timed, sampled, simulated or modelled
    origin: Optional[str] = None
    not_measured: Optional[str] = None


@dataclass(frozen=True)
class Doubt:
    """A stated reason not to trust a number, with its remedy. `severity` is note, warning or invalid."""

    kind: str
    severity: str
    what: str
    remedy: str


@dataclass(frozen=True)
class Point:
    """One load point (points/NNN/point.json). Of `outcomes`, a count that an older straingauge did not keep is 0."""

    index: int
    #: single, connections, unloading, rate, axis or yardstick
    sweep: str
    repeat: int
    connections: int
    #: requests per second of an open loop's schedule; None in a closed loop
    offered_per_sec: Optional[float]
    started_unix_ms: int
    warmup_ns: int
    duration_ns: int
    outcomes: Mapping[str, int]
    figures: Mapping[str, Figure]
    connection_states: Mapping[str, Figure]
    doubts: Sequence[Doubt]
    #: the varied quantity of `find --axis` and `profile --axis`, as `in-flight`; None in other runs
    axis: Optional[str] = None
    #: its value, in requests, connections, sockets, 1/s or (delay, slow-down) ns
    axis_value: Optional[float] = None
    raw: Mapping[str, Any] = field(repr=False, default_factory=dict)

    def value(self, name: str) -> Optional[float]:
        """A figure's value, None where it is absent or was not measured."""
        figure = self.figures.get(name)
        return None if figure is None else figure.value


@dataclass(frozen=True)
class RunRecord:
    """run.json: the settings, the machine, how the run ended."""

    schema: int
    #: running, complete or interrupted
    status: str
    started_unix_ms: int
    writer_pid: int
    name: str
    #: the URL as typed; `:8080` of a watch; empty of a simulation
    url: str
    scenario: Mapping[str, Any] = field(repr=False)
    machine: Mapping[str, Any] = field(repr=False)
    server_facts: Mapping[str, str] = field(repr=False)
    doubts: Sequence[Doubt]
    ended_by: Optional[str]
    #: the process that writes it; None in older runs, which have its number only
    writer: Optional[Owner] = None


class _Fields:
    """The fields of one JSON object, each taken with its type checked."""

    def __init__(self, file: JsonFile, keys: Tuple[Key, ...], value: Any) -> None:
        if not isinstance(value, dict):
            raise file.refuse(keys, "is not an object")
        self.file, self.keys, self.value = file, keys, value

    def _take(self, name: str, kinds: Any, words: str, is_needed: bool = True) -> Any:
        value = self.value.get(name)
        if value is None and not is_needed:
            return None
        if name not in self.value:
            raise self.file.refuse((*self.keys, name), "is missing")
        if not isinstance(value, kinds) or isinstance(value, bool):
            raise self.file.refuse((*self.keys, name), f"is not {words}")
        return value

    def text(self, name: str) -> str:
        return str(self._take(name, str, "a string"))

    def text_or_none(self, name: str) -> Optional[str]:
        value = self._take(name, str, "a string", False)
        return None if value is None else str(value)

    def count(self, name: str) -> int:
        value = int(self._take(name, int, "a whole number"))
        if not 0 <= value < _U64:
            raise self.file.refuse((*self.keys, name), "is outside the 64-bit range")
        return value

    def count_or_none(self, name: str) -> Optional[int]:
        return None if self.value.get(name) is None else self.count(name)

    def number_or_none(self, name: str) -> Optional[float]:
        value = self._take(name, (int, float), "a number", False)
        return None if value is None else float(value)

    def fields(self, name: str, is_needed: bool = True) -> "_Fields":
        value = self.value.get(name)
        if value is None:
            if is_needed:
                raise self.file.refuse((*self.keys, name), "is missing")
            value = {}
        return _Fields(self.file, (*self.keys, name), value)

    def doubts(self) -> List[Doubt]:
        value = self.value.get("doubts", [])
        if not isinstance(value, list):
            raise self.file.refuse((*self.keys, "doubts"), "is not a list")
        entries = [_Fields(self.file, (*self.keys, "doubts", place), entry) for place, entry in enumerate(value)]
        return [Doubt(one.text("kind"), one.text("severity"), one.text("what"), one.text("remedy")) for one in entries]

    def figures(self, name: str, is_needed: bool) -> Dict[str, Figure]:
        fields = self.fields(name, is_needed)
        return {key: fields.fields(key).figure() for key in fields.value}

    def figure(self) -> Figure:
        return Figure(self.number_or_none("value"), self.text("unit"), self.count_or_none("n"),
                      self.text_or_none("origin"), self.text_or_none("not_measured"))

    def schema(self, newest: int) -> int:
        found = self.count("schema")
        if found > newest:
            raise self.file.refuse((*self.keys, "schema"),
                                   f"is {found}, this package reads up to {newest}; install a newer straingauge")
        if found < 1:
            raise self.file.refuse((*self.keys, "schema"), "is 0; straingauge's schemas begin with 1")
        return found


def _url(scenario: _Fields) -> str:
    command = scenario.text_or_none("command")
    if command == "simulate":
        return ""
    if command == "watch" and "url" not in scenario.value:
        return f":{scenario.count('port')}"
    return scenario.text("url")


def read_record(path: Path) -> RunRecord:
    """Reads run.json."""
    file = JsonFile(path)
    top = _Fields(file, (), file.value)
    schema = top.schema(RECORD_SCHEMA)
    writer = top.fields("writer") if top.value.get("writer") is not None else None
    scenario, facts = top.fields("scenario"), top.fields("server_facts", False)
    status = top.text("status")
    if status not in ("running", "complete", "interrupted"):
        raise file.refuse(("status",), "is none of running, complete, interrupted")
    return RunRecord(
        schema=schema, status=status, started_unix_ms=top.count("started_unix_ms"), writer_pid=top.count("writer_pid"),
        name=scenario.text("name"), url=_url(scenario), scenario=scenario.value,
        machine=top.fields("machine").value, server_facts={key: facts.text(key) for key in facts.value},
        doubts=top.doubts(), ended_by=top.text_or_none("ended_by"),
        writer=None if writer is None else Owner(writer.count("pid"), writer.count("start_ticks"), writer.count("place")),
    )


def read_point(path: Path, index: int) -> Point:
    """Reads point.json of the folder with this index."""
    file = JsonFile(path)
    top = _Fields(file, (), file.value)
    top.schema(POINT_SCHEMA)
    if top.count("index") != index:
        raise file.refuse(("index",), f"is {top.count('index')}, but the folder's number is {index}")
    pace = top.fields("pace")
    loop = pace.text("loop")
    if loop not in ("open", "closed"):
        raise file.refuse(("pace", "loop"), "is neither open nor closed")
    offered = pace.number_or_none("rate_per_sec") if loop == "open" else None
    if loop == "open" and offered is None:
        raise file.refuse(("pace", "rate_per_sec"), "is missing")
    outcomes, axis = top.fields("outcomes"), top.fields("axis", False)
    return Point(
        index=index, sweep=top.text("sweep"), repeat=top.count("repeat"), connections=top.count("connections"),
        offered_per_sec=offered, started_unix_ms=top.count("started_unix_ms"), warmup_ns=top.count("warmup_ns"),
        duration_ns=top.count("duration_ns"),
        outcomes={name: outcomes.count_or_none(name) or 0 for name in OUTCOMES},
        figures=top.figures("figures", True), connection_states=top.figures("connection_states", False),
        doubts=top.doubts(), axis=axis.text_or_none("axis"), axis_value=axis.number_or_none("value"), raw=file.value,
    )
