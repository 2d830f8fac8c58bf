"""Where this machine has Debian's packages from, and root file systems made of them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

KEPT = Path(__file__).resolve().parent.parent / "target" / "userlands"


def mirror() -> str | None:
    """The archive that apt uses on this machine; None where apt has none of Debian's."""
    command = ["apt-get", "indextargets", "--format", "$(ORIGIN) $(COMPONENT) $(SUITE) $(REPO_URI)", "Created-By: Packages"]
    listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    for line in listed.splitlines():
        origin, component, suite, place = line.split(maxsplit=3)
        if (origin, component) == ("Debian", "main") and "-" not in suite:
            return place
    return None


def unpacked(name: str, release: str, where: str, packages: list[str]) -> str | None:
    """Makes a minimal root file system with these packages, unless it is there; why not, where it cannot be had."""
    root, part = KEPT / name, KEPT / f"{name}.part"
    if root.is_dir():
        return None
    if shutil.which("debootstrap") is None:
        return "debootstrap is not installed (setup/install test-long)"
    KEPT.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(part, ignore_errors=True)
    command = ["debootstrap", "--variant=minbase", f"--include={','.join(packages)}", release, str(part), where]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip().splitlines() or ["it said nothing"]
        return f"debootstrap cannot have {release}: {said[-1]}"
    part.rename(root)
    return None
