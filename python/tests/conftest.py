"""A small run written by hand for the tests of reading, and the sample run that straingauge measured."""

from __future__ import annotations

import base64
import json
import os
import struct
import zlib
from pathlib import Path
from typing import Any, Dict, Iterator, List

import matplotlib
import pytest
from fleet_rig import Fleet, Nginx

from straingauge import owner

matplotlib.use("Agg")

SAMPLE = Path(__file__).parent.parent / "examples" / "find-nginx"
#: How a request ends (docs/run-directory.md): each in exactly one of these.
ENDS = ("ok", "non_2xx", "refused", "reset", "timed_out", "connect_timed_out", "truncated", "closed_early", "malformed", "local_limit",
        "tls_failed", "other_error", "unfinished")


@pytest.fixture
def sample() -> Path:
    """A run of `straingauge find` on nginx."""
    return SAMPLE


@pytest.fixture
def fleet(cluster: Any, tmp_path: Path) -> Iterator[Fleet]:
    """straingauge fleet on the `cluster` of the tests' own file, which has an address. Nothing of it may be left."""
    made = Fleet(cluster.address, tmp_path)
    try:
        yield made
        made.leaves_nothing()
    finally:
        made.close()


@pytest.fixture
def nginx() -> Iterator[Nginx]:
    made = Nginx()
    yield made
    made.close()


def figure(value: float, unit: str = "1/s") -> Dict[str, Any]:
    return {"value": value, "unit": unit, "n": 7, "origin": "counted"}


class RunWriter:
    """Writes a run as straingauge does: run.json, then points one after another."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.count = 0
        # This process, so that the run goes on.
        pid = os.getpid()
        self.writer: Dict[str, Any] = {
            "writer_pid": pid, "writer": {"pid": pid, "start_ticks": owner.start_ticks(pid) or 0, "place": owner.this_place()}}
        (path / "points").mkdir(parents=True)
        self.record("running")

    def record(self, status: str) -> None:
        content = {
            "schema": 1, "status": status, "started_unix_ms": 1_795_000_000_000, **self.writer,
            "scenario": {"command": "find", "name": "written", "url": "http://127.0.0.1:8080/", "load": {}},
            "machine": {"kernel": "6.18"}, "server_facts": {"program": "nginx"},
            "doubts": [{"kind": "drift", "severity": "note", "what": "5 % slower", "remedy": "repeat"}],
        }
        (self.path / "run.json").write_text(json.dumps(content, indent=2))

    def point(self, **changes: Any) -> Path:
        folder = self.path / "points" / f"{self.count:03}"
        folder.mkdir()
        content: Dict[str, Any] = {
            "schema": 1, "index": self.count, "sweep": "connections", "repeat": 0, "connections": 2 ** self.count,
            "pace": {"loop": "closed"}, "started_unix_ms": 1_795_000_000_000, "warmup_ns": 0, "duration_ns": 10**9,
            "outcomes": {"sent": 10, "ok": 9, "reset": 1},
            "figures": {
                "client.throughput_per_sec": figure(9.0), "tcp.accept_queue_max": figure(3.0, "connections"),
                "client.lag_p99_us": {"unit": "us", "not_measured": "a closed loop has no schedule"},
            },
            "connection_states": {"established": figure(2.0, "connections")},
            "doubts": [{"kind": "steal", "severity": "warning", "what": "1 %", "remedy": "a machine of your own"}],
        }
        content.update(changes)
        (folder / "point.json").write_text(json.dumps(content, indent=2))
        self.count += 1
        return folder


@pytest.fixture
def writer(tmp_path: Path) -> RunWriter:
    return RunWriter(tmp_path / "run")


def encoded(counts: List[int], figures: int = 3, lowest: int = 1, highest: int = 3_600_000_000_000) -> str:
    """A V2 histogram with these ZigZag numbers, negative ones for gaps."""
    numbers = b""
    for count in counts:
        value = (count << 1) ^ (count >> 63)
        for _ in range(8):
            if value < 0x80:
                break
            numbers += bytes([value & 0x7F | 0x80])
            value >>= 7
        numbers += bytes([value & 0xFF])
    plain = struct.pack(">IIIIQQd", 0x1C849313, len(numbers), 0, figures, lowest, highest, 1.0) + numbers
    compressed = zlib.compress(plain)
    return base64.b64encode(struct.pack(">II", 0x1C849314, len(compressed)) + compressed).decode()


def log_line(histogram: str, tag: str = "response") -> str:
    return f"Tag={tag},0.000,1.000,0.001,{histogram}\n"
