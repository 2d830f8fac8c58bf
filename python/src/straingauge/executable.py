"""The straingauge program. The package reads runs without it and does not contain it; what it computes, it is asked for."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from .errors import MissingProgramError, RunError, printable

#: Names the program, where it is not on PATH.
VARIABLE = "STRAINGAUGE_BINARY"


def program() -> Path:
    """The straingauge program: the file that STRAINGAUGE_BINARY names, or else the first on PATH."""
    named = os.environ.get(VARIABLE)
    if named:
        found = shutil.which(named)
        if found is None:
            raise MissingProgramError(f"{VARIABLE} names {printable(named)}, where there is no program")
        return Path(found)
    found = shutil.which("straingauge")
    if found is None:
        path = printable(os.environ.get("PATH", ""), 400) or "empty"
        raise MissingProgramError(
            f"straingauge is not on PATH ({path}): install it (docs/install.md), or name it with {VARIABLE}"
        )
    return Path(found)


def report(run: Path) -> Any:
    """What `straingauge report RUN --json` prints. No page is written."""
    command = [str(program()), "report", "--json", "--page", os.devnull, "--", str(run)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if done.returncode != 0:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        why = lines[-1] if lines else f"exit code {done.returncode}"
        raise RunError(run, printable(why.replace("straingauge: ", "", 1), 600))
    return json.loads(done.stdout)
