"""The process that writes a run, and whether it still runs: crates/record/src/owner.rs in Python, on Linux's /proc."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

_PROC = Path("/proc")
#: A clock may have been set between the start of a process and that of its run.
_CLOCK_STEP_MS = 60_000


@dataclass(frozen=True)
class Owner:
    """A process: its number, when it started (clock ticks since boot), and a hash of the place where the two hold."""

    pid: int
    start_ticks: int
    place: int

    def has_ended(self) -> bool:
        """It ran here, and runs no more. Of a process of another boot, container or machine nothing is known: False."""
        return self.place == this_place() and start_ticks(self.pid) != self.start_ticks


def this_place() -> int:
    """The hash (FNV-1a) of this boot and this process-id namespace."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        boot = ""
    try:
        namespace = os.stat(_PROC / "self/ns/pid").st_ino
    except OSError:
        namespace = 0
    place = 0x811C_9DC5
    for byte in f"{boot}{namespace}".encode():
        place = (place ^ byte) * 0x0100_0193 & 0xFFFF_FFFF
    return place


def start_ticks(pid: int) -> Optional[int]:
    """When a process started, in clock ticks since boot; None where there is none, or it is a zombie."""
    try:
        stat = (_PROC / str(pid) / "stat").read_text(errors="replace")
        # The command, in parentheses, may itself hold spaces and parentheses.
        state, *fields = stat.rpartition(") ")[2].split(" ")
        return None if state in ("Z", "X") else int(fields[18])
    except (OSError, ValueError, IndexError):
        return None


def has_ended_by_number(pid: int, run_started_unix_ms: int) -> bool:
    """The same of a run that names its writer by number only: a later process may have the same number."""
    if not (_PROC / "self").exists():
        return False
    ticks = start_ticks(pid)
    try:
        lines = (_PROC / "stat").read_text().splitlines()
        booted_s = next(int(line[len("btime "):]) for line in lines if line.startswith("btime "))
    except (OSError, ValueError, StopIteration):
        return True
    return ticks is None or booted_s * 1000 + ticks * 1000 // os.sysconf("SC_CLK_TCK") > run_started_unix_ms + _CLOCK_STEP_MS
