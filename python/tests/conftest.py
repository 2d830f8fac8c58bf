"""The sample run that straingauge measured, and small runs written by hand."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any, Dict, Iterator

import matplotlib
import pytest

matplotlib.use("Agg")

REPOSITORY = Path(__file__).parent.parent.parent
SAMPLE = REPOSITORY / "python" / "examples" / "find-nginx"


@pytest.fixture
def sample() -> Path:
    """A run of `straingauge find` on nginx."""
    return SAMPLE


@pytest.fixture(scope="session")
def binary() -> Path:
    """The program that the environment names, or the newest one that was built here."""
    named = os.environ.get("STRAINGAUGE_BINARY")
    found = [Path(named)] if named else [REPOSITORY / "target" / kind / "straingauge" for kind in ("debug", "release")]
    built = [path for path in found if path.is_file()]
    if not built:
        pytest.skip("straingauge is not built: cargo build, or name it with STRAINGAUGE_BINARY")
    return max(built, key=lambda path: path.stat().st_mtime)


def figure(value: float, unit: str = "1/s") -> Dict[str, Any]:
    return {"value": value, "unit": unit, "n": 7, "origin": "counted"}


class RunWriter:
    """Writes a run as straingauge does: run.json, then one point after another."""

    def __init__(self, path: Path, **changes: Any) -> None:
        self.path, self.count = path, 0
        (path / "points").mkdir(parents=True)
        content = {
            "schema": 1, "status": "running", "started_unix_ms": 1_795_000_000_000, "writer_pid": 1,
            "scenario": {"command": "find", "name": path.name, "url": "http://127.0.0.1:8080/", "load": {}},
            "machine": {"kernel": "6.18"}, "server_facts": {"program": "nginx"},
            "doubts": [{"kind": "drift", "severity": "note", "what": "5 % slower", "remedy": "repeat"}], **changes,
        }
        (path / "run.json").write_text(json.dumps(content, indent=2))

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
            **changes,
        }
        (folder / "point.json").write_text(json.dumps(content, indent=2))
        self.count += 1
        return folder


@pytest.fixture
def writer(tmp_path: Path) -> RunWriter:
    return RunWriter(tmp_path / "run")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def nginx() -> Iterator[Any]:
    from fleet_rig import Nginx

    made = Nginx(free_port())
    yield made
    made.close()


@pytest.fixture
def fleet(binary: Path, cluster: Any, tmp_path: Path) -> Iterator[Any]:
    """straingauge fleet on the `cluster` of the test's file. It must leave no process or file."""
    from fleet_rig import Fleet

    made = Fleet(binary, cluster.address, tmp_path)
    try:
        yield made
        made.leaves_nothing()
    finally:
        made.close()
