"""Runs straingauge as a worker on a node, and makes its pipes available to Ray.

The module uses only the standard library, because it travels to the nodes by value, so they need only Ray.

"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import platform
import signal
import stat
import subprocess
import tempfile
import threading
import time
import zlib
from typing import Any, List, Optional, Tuple

TRIES = 3
#: The next fleet removes a program that no fleet has used for a day.
KEPT_S = 86_400.0
CHUNK_BYTES = 1 << 20
STDERR_BYTES = 4096
#: Metrics by their names in a worker's progress reports.
METRICS = {
    "throughput_per_sec": ("straingauge_client_requests_per_second", "Complete responses per second."),
    "connected": ("straingauge_client_connections", "Established connections."),
    "failed": ("straingauge_client_failed_requests", "Failed requests of the load that runs, non-2xx included."),
}


class Progress:
    """A worker's reports about its load as Ray metrics for each client. Ray's dashboard and Prometheus show them."""

    def __init__(self, number: int, gauge: Any) -> None:
        self._tags = {"client": str(number)}
        self._gauges = {word: gauge(name, description=what, tag_keys=("client",)) for word, (name, what) in METRICS.items()}
        self._rest = b""

    def hear(self, data: bytes) -> None:
        """Takes bytes from the worker as they arrive."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if line.startswith((b'{"type":"progress"', b'{"type":"result"')):
                # The result ends the load.
                progress = json.loads(line) if line.startswith(b'{"type":"progress"') else {}
                for word, gauge in self._gauges.items():
                    gauge.set(float(progress.get(word, 0)), tags=self._tags)


class WorkerNode:
    """One worker. Ray calls `write`, `read` and `stop` on separate threads, so that none waits for another."""

    def __init__(self, number: int, prefix: List[str], arguments: List[str], digest: str, shipped: List[Any], gauge: Any = None) -> None:
        self._stderr_end = b""
        self._progress = Progress(number, gauge or _gauge())
        self._child = self._start(prefix, arguments, digest, shipped)
        self._listener = threading.Thread(target=self._keep_stderr, daemon=True)
        self._listener.start()

    @staticmethod
    def _start(prefix: List[str], arguments: List[str], digest: str, shipped: List[Any]) -> "subprocess.Popen[bytes]":
        for attempt in range(TRIES):
            program = _kept(digest, shipped)
            try:
                # A separate process group, so that processes started by the prefix end with it.
                return subprocess.Popen(
                    [*prefix, program, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                    bufsize=0, start_new_session=True,
                )
            except OSError as why:
                # The directory was cleaned up meanwhile, or another process was forked while the file was open.
                if why.errno == errno.ENOEXEC:
                    raise RuntimeError(
                        f"this node is {platform.machine()}, and the straingauge that was sent is for another kind of machine: name one for it with "
                        "--worker-binary, or leave such nodes out with --worker-label or --worker-resource") from None
                is_passing = why.errno == errno.ETXTBSY or not os.path.exists(program)
                if not is_passing or attempt + 1 == TRIES:
                    raise RuntimeError(f"cannot start the worker: {why}") from None
                time.sleep(0.2)
        raise AssertionError("the last try returns or raises")

    def _keep_stderr(self) -> None:
        stderr = self._child.stderr
        assert stderr is not None
        for piece in iter(lambda: stderr.read(STDERR_BYTES), b""):
            self._stderr_end = (self._stderr_end + piece)[-STDERR_BYTES:]

    def is_there(self) -> int:
        """The worker's process id, once it is running."""
        return self._child.pid

    def write(self, data: bytes) -> bool:
        """Sends bytes to the worker. Returns False when it takes no more."""
        stdin = self._child.stdin
        assert stdin is not None
        try:
            view = memoryview(data)
            while view:
                view = view[stdin.write(view):]
        except (OSError, ValueError):
            return False
        return True

    def read(self) -> Tuple[bytes, Optional[str]]:
        """Waits for bytes from the worker. When its output has ended, returns no bytes and the reason why
        it ended."""
        assert self._child.stdout is not None
        try:
            data = os.read(self._child.stdout.fileno(), CHUNK_BYTES)
        except (OSError, ValueError):
            data = b""
        self._progress.hear(data)
        return (data, None) if data else (b"", self._ending())

    def _ending(self) -> str:
        try:
            status = self._child.wait(timeout=1.0)
        except subprocess.TimeoutExpired:
            return "its output ended"
        how = f"it ended (signal: {-status})" if status < 0 else f"it ended (exit status: {status})"
        self._listener.join(timeout=0.5)
        last = self._stderr_end.decode(errors="replace").strip().splitlines()[-1:]
        return f"{how}: {last[0]}" if last and status != 0 else how

    def stop(self, timeout_s: float) -> None:
        """Ends the worker: first its input, then, if it is still running, the worker and its children."""
        try:
            if self._child.stdin is not None:
                self._child.stdin.close()
        except OSError:
            pass
        try:
            self._child.wait(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            try:
                os.killpg(self._child.pid, signal.SIGKILL)
            except OSError:
                pass
            self._child.wait()


def _kept(digest: str, shipped: List[Any]) -> str:
    """The program's path on this node. It is kept under its digest for later fleets, in a directory that only this
    user can write."""
    folder = os.path.join(tempfile.gettempdir(), f"straingauge-worker-{os.getuid()}")
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        pass
    state = os.lstat(folder)
    if not stat.S_ISDIR(state.st_mode) or state.st_uid != os.getuid() or state.st_mode & 0o022:
        raise RuntimeError(f"{folder} is not a folder that only this user writes: remove it")
    path = os.path.join(folder, digest)
    if not _is_whole(path, digest):
        program = zlib.decompress(_fetched(shipped[0]))
        # Several nodes may be on one machine. Each writes a separate file, and the last rename counts.
        handle, made = tempfile.mkstemp(dir=folder)
        with os.fdopen(handle, "wb") as file:
            file.write(program)
        os.chmod(made, 0o700)
        os.rename(made, path)
    os.utime(path)
    for name in os.listdir(folder):
        # A file of an older version, or of a fleet that was killed while it wrote.
        other = os.path.join(folder, name)
        try:
            if name != digest and time.time() - os.lstat(other).st_mtime > KEPT_S:
                os.remove(other)
        except OSError:
            pass
    return path


def _gauge() -> Any:
    from ray.util.metrics import Gauge

    return Gauge


def _fetched(reference: Any) -> bytes:
    import ray

    packed: bytes = ray.get(reference)
    return packed


def _is_whole(path: str, digest: str) -> bool:
    try:
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest() == digest
    except OSError:
        return False
