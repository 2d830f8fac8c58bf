"""Finds this machine's source of Debian packages, makes root file systems from them, and tests in these."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KEPT = ROOT / "target" / "userlands"


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


class Count:
    """Runs tests and counts their results."""

    def __init__(self) -> None:
        self.passed = self.failed = self.skipped = 0

    def test(self, name: str, body: Callable[[], None]) -> None:
        try:
            body()
        except (AssertionError, OSError, ValueError, LookupError, subprocess.SubprocessError) as why:
            print(f"{why}\nFAILED {name}", flush=True)
            self.failed += 1
        else:
            print(f"ok {name}", flush=True)
            self.passed += 1

    def skip(self, name: str, why: str) -> None:
        print(f"SKIPPED {name}: {why}", flush=True)
        self.skipped += 1

    def sum_up(self) -> int:
        print(f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped")
        return 1 if self.failed else 0


def run(*words: str) -> str:
    """Returns the program's output. An error has the end of it."""
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(f"{' '.join(words)}: exit code {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    return done.stdout


def in_namespaces(script: str, given: object) -> list[str]:
    """The command that runs `script --inside GIVEN` in a mount and a network namespace that end with it."""
    return ["unshare", "--mount", "--net", "--propagation", "private", sys.executable, script, "--inside", json.dumps(given)]


@contextmanager
def sandbox(name: str, port: int) -> Iterator[Path]:
    """A directory in memory for mounts, which no process outside the namespace sees, and a small server on loopback."""
    run("ip", "link", "set", "lo", "up")
    place = Path(tempfile.mkdtemp(prefix=f"straingauge-{name}-"))
    server = subprocess.Popen([sys.executable, str(ROOT / "testbed/python/stalling.py"), "--port", str(port), "--every", "3600", "--stall", "0"])
    try:
        run("mount", "-t", "tmpfs", "-o", "mode=755", name, str(place))
        time.sleep(1)
        yield place
    finally:
        server.terminate()
        server.wait()
        subprocess.run(["umount", "--recursive", "--lazy", str(place)], check=False)
        place.rmdir()
