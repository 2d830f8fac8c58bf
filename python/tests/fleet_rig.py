"""Starts and removes a Ray cluster on this machine, nginx and straingauge for the tests of the fleet."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import pytest
from conftest import REPOSITORY

#: No test judges speed. An action that takes longer than this hangs.
HANGS_AFTER_S = 360.0
#: In the environment of every process of a test's fleet.
MARK = "STRAINGAUGE_FLEET_TEST"
# Ray's default is 15. Next to other tests its workers would get no CPU for seconds.
os.environ["RAY_worker_niceness"] = "0"


def missing() -> Optional[str]:
    """Why no fleet can run here, or None."""
    try:
        import ray.cluster_utils  # noqa: F401
    except ImportError as why:
        return f"Ray is not installed ({why}): pip install 'straingauge[fleet]'"
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    return None if shutil.which("nginx", path=path) else "nginx is not installed (apt-get install nginx)"


def wait_until(what: str, condition: Callable[[], Any], limit_s: float = HANGS_AFTER_S) -> Any:
    """Waits until the condition is true; returns its value."""
    until = time.monotonic() + limit_s
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < until, f"hangs before {what}"
        time.sleep(0.05)


def command_lines() -> Iterator[Tuple[int, str]]:
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                yield int(folder.name), (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue


def kill_all_that_name(folder: Path) -> None:
    def named() -> List[int]:
        return [pid for pid, line in command_lines() if str(folder) in line]

    while found := named():
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass


class RayCluster:
    """A head, and a node with the resource `load` and the label zone=b, in a session directory that is removed
    with them."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        # A short path, because it holds sockets.
        self.folder = Path(tempfile.mkdtemp(prefix="sg-ray-"))
        self._tmpdir_before = os.environ.get("RAY_TMPDIR")
        # Such a cluster also writes its address into the default directory, which does not exist on a fresh machine.
        os.environ["RAY_TMPDIR"] = str(self.folder)
        (self.folder / "ray").mkdir()
        self.cluster = Cluster()
        try:
            self._add(include_dashboard=False)
            self.loader = self._add(resources={"load": 1}, labels={"zone": "b"})
            self.cluster.wait_for_nodes(timeout=HANGS_AFTER_S)
            self.address = str(self.cluster.address)
        except BaseException:
            self.close()
            raise

    def _add(self, **more: Any) -> Any:
        return self.cluster.add_node(wait=False, num_cpus=1, object_store_memory=80 << 20, temp_dir=str(self.folder), **more)

    def close(self) -> None:
        # Does not use Ray's shutdown, which asks the head and waits: its processes have no state to save.
        kill_all_that_name(self.folder)
        os.environ.pop("RAY_TMPDIR")
        if self._tmpdir_before is not None:
            os.environ["RAY_TMPDIR"] = self._tmpdir_before
        shutil.rmtree(self.folder, ignore_errors=True)


class Nginx:
    """The testbed's nginx with an access log."""

    def __init__(self, port: int) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="sg-nginx-"))
        self.folder.chmod(0o755)
        self.url, self.log = f"http://127.0.0.1:{port}/1k.bin", self.folder / "access.log"
        serve = [str(REPOSITORY / "testbed" / "serve"), "nginx", "--port", str(port), "--state", str(self.folder)]
        self._child = subprocess.Popen(
            [*serve, "--access-log", str(self.log)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True)
        wait_until("nginx has opened its log", self.log.exists, 60)

    def end_and_count_ok(self) -> int:
        """Ends it gracefully, so that its log is complete, and returns the number of answers with status
        200."""
        self._child.send_signal(signal.SIGQUIT)
        self._child.wait(60)
        return sum(1 for line in self.log.read_text().splitlines() if line.split()[:1] == ["200"])

    def close(self) -> None:
        try:
            os.killpg(self._child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._child.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


class Said:
    """Output of a finished run."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    def exits_with(self, code: int) -> "Said":
        assert self.code == code, f"exit code {self.code}\n--- out\n{self.out}\n--- err\n{self.err}"
        return self

    def complains_of(self, *words: str) -> "Said":
        """Asserts one sentence with all of these words."""
        (sentence,) = [line for line in self.err.splitlines() if line.startswith("straingauge: ")]
        for word in words:
            assert word in sentence, f"'{word}' is not in: {sentence}"
        return self

    def json(self) -> Any:
        return json.loads(self.out)

    def doubts(self) -> List[str]:
        return [doubt["kind"] for doubt in self.json()["point"]["doubts"]]


class Fleet:
    """straingauge fleet, started as a user would start it. All its processes carry a mark, by which leftovers are
    found."""

    def __init__(self, binary: Path, address: str, folder: Path) -> None:
        self.binary, self.address, self.folder, self.mark = binary, address, folder, uuid.uuid4().hex
        self.spoken = folder / f"spoken-{self.mark[:6]}"
        self.spoken.mkdir()
        # A short path, because it holds sockets.
        self.temporary = Path(tempfile.mkdtemp(prefix="sg-"))

    def start(self, what: List[str], *options: str) -> "subprocess.Popen[str]":
        # Keeps the output of each worker.
        keep = f"env {MARK}={self.mark} sh -c 'exec \"$@\" | tee {self.spoken}/{{number}}' sh"
        command = [str(self.binary), "fleet", "--python", sys.executable, "--address", self.address, "--worker-prefix", keep]
        # Next to other tests Ray may need more than a minute to start its first workers.
        patience = [] if "--node-timeout" in options else ["--node-timeout", "240s"]
        return subprocess.Popen(
            [*command, *patience, *options, *what], env={**os.environ, MARK: self.mark, "TMPDIR": str(self.temporary)},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.folder,
            start_new_session=True)

    def run(self, what: List[str], *options: str) -> Said:
        return finish(self.start(what, *options))

    def messages(self, number: int, kind: str) -> List[Dict[str, Any]]:
        """A worker's messages of one kind so far."""
        path = self.spoken / str(number)
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        return [said for said in (json.loads(line) for line in lines if line.endswith("\n")) if said["type"] == kind]

    def worker_pid(self, number: int) -> int:
        return int(wait_until(f"worker {number} is there", lambda: self.messages(number, "hello"))[0]["pid"])

    def wait_until_running(self, number: int) -> None:
        wait_until(f"worker {number} sends load", lambda: any(one["completed"] for one in self.messages(number, "progress")))

    def processes(self) -> List[int]:
        """The processes that carry the mark."""
        found = []
        for pid, _ in command_lines():
            try:
                if f"{MARK}={self.mark}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                    found.append(pid)
            except OSError:
                continue
        return found

    def leaves_nothing(self) -> None:
        """Asserts that no process and no directory of the fleet is left."""
        wait_until("every process of the fleet has ended", lambda: not self.processes(), 60)
        assert not list(self.temporary.iterdir())

    def close(self) -> None:
        shutil.rmtree(self.temporary, ignore_errors=True)


def finish(child: "subprocess.Popen[str]") -> Said:
    try:
        out, err = child.communicate(timeout=HANGS_AFTER_S)
    except subprocess.TimeoutExpired:
        child.kill()
        out, err = child.communicate()
        pytest.fail(f"hangs; until then it said:\n{out}\n{err}")
    return Said(child.returncode, out, err)
