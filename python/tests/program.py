"""The straingauge program, for tests that run it: they are marked `program`, and .ci/suites.mk starts them after the build."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Optional

REPOSITORY = Path(__file__).parent.parent.parent


def straingauge_path() -> Optional[Path]:
    """straingauge: the one that the environment names, or the newest that was built here."""
    named = os.environ.get("STRAINGAUGE_BINARY")
    if named:
        return Path(named)
    built = [REPOSITORY / "target" / kind / "straingauge" for kind in ("debug", "release")]
    there = [path for path in built if path.is_file()]
    return max(there, key=lambda path: path.stat().st_mtime) if there else None


def missing() -> Optional[str]:
    """Why it cannot be run."""
    return None if straingauge_path() else "straingauge is not built: cargo build, or name it with STRAINGAUGE_BINARY"
