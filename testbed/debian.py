"""Finds this machine's source of Debian packages, and makes root file systems from them."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

KEPT = Path(__file__).resolve().parent.parent / "target" / "userlands"


def mirror() -> str | None:
    """The archive that apt uses on this machine; None if it has no Debian packages."""
    command = ["apt-get", "indextargets", "--format", "$(ORIGIN) $(COMPONENT) $(SUITE) $(REPO_URI)", "Created-By: Packages"]
    listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    for line in listed.splitlines():
        origin, component, suite, place = line.split(maxsplit=3)
        if (origin, component) == ("Debian", "main") and "-" not in suite:
            return place
    return None


def kept(name: str, packages: list[str]) -> Path:
    """Returns the place of such a root file system, which depends on the packages."""
    return KEPT / f"{name}-{hashlib.sha256(' '.join(packages).encode()).hexdigest()[:8]}"


def unpacked(name: str, release: str, where: str, packages: list[str]) -> str | None:
    """Makes a minimal root file system with these packages, unless it exists. Returns the reason if it cannot be
    made."""
    root = kept(name, packages)
    part = root.with_name(f"{root.name}.part")
    if root.is_dir():
        return None
    if shutil.which("debootstrap") is None:
        return "debootstrap is not installed (setup/install test-long)"
    # Removes those with the same name and other packages, and incomplete ones.
    for old in KEPT.glob(f"{name}*"):
        shutil.rmtree(old, ignore_errors=True)
    KEPT.mkdir(parents=True, exist_ok=True)
    command = ["debootstrap", "--variant=minbase", f"--include={','.join(packages)}", release, str(part), where]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip().splitlines() or ["it said nothing"]
        return f"debootstrap cannot have {release}: {said[-1]}"
    part.rename(root)
    return None
