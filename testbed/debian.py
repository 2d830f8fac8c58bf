"""Where this machine has Debian's packages from, and root file systems made of them."""

from __future__ import annotations

import hashlib
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


def kept(name: str, packages: list[str]) -> Path:
    """Where such a root file system is; another place for other packages."""
    return KEPT / f"{name}-{hashlib.sha256(' '.join(packages).encode()).hexdigest()[:8]}"


def unpacked(name: str, release: str, where: str, packages: list[str]) -> str | None:
    """Makes a minimal root file system with these packages, unless it is there; why not, where it cannot be had."""
    root = kept(name, packages)
    part = root.with_name(f"{root.name}.part")
    if root.is_dir():
        return None
    if shutil.which("debootstrap") is None:
        return "debootstrap is not installed (setup/install test-long)"
    # Those of the same name with other packages, or with half of them.
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
