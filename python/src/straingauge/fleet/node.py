"""Runs straingauge as a worker on a node, and makes its pipes available to Ray.

Only the standard library is used, as the module travels to the nodes by value: they need Ray and nothing else.
"""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import tempfile
import threading
from typing import List, Optional, Tuple

PROGRAM = "straingauge"
CHUNK_BYTES = 1 << 20
COMPLAINT_BYTES = 4096


class WorkerNode:
    """One worker. Ray calls `write`, `read` and `stop` on separate threads, so that none waits for another."""

    def __init__(self, prefix: List[str], arguments: List[str]) -> None:
        program = self._program()
        self._complaints = b""
        self._folder: Optional[str]
        try:
            # A separate process group, so that processes started by the prefix end with it.
            self._child = subprocess.Popen(
                [*prefix, program, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                bufsize=0, start_new_session=True,
            )
        except OSError as why:
            raise RuntimeError(f"cannot start the worker: {why}") from None
        self._listener = threading.Thread(target=self._keep_complaints, daemon=True)
        self._listener.start()

    def _program(self) -> str:
        """The program that came with the runtime environment; where its folder cannot be changed, a copy that can run."""
        shipped = os.path.join(os.getcwd(), PROGRAM)
        self._folder = None
        if os.access(shipped, os.X_OK):
            return shipped
        try:
            os.chmod(shipped, os.stat(shipped).st_mode | stat.S_IXUSR)
            return shipped
        except OSError:
            self._folder = tempfile.mkdtemp(prefix="straingauge-worker-")
            copied = shutil.copy(shipped, self._folder)
            os.chmod(copied, 0o700)
            return copied

    def _keep_complaints(self) -> None:
        stderr = self._child.stderr
        assert stderr is not None
        for piece in iter(lambda: stderr.read(COMPLAINT_BYTES), b""):
            self._complaints = (self._complaints + piece)[-COMPLAINT_BYTES:]

    def is_there(self) -> int:
        """The worker's process number, once it runs."""
        return self._child.pid

    def write(self, data: bytes) -> bool:
        """Sends bytes to the worker; False when it takes no more."""
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
        """Waits for bytes of the worker. No bytes: its output ended, and how."""
        assert self._child.stdout is not None
        try:
            data = os.read(self._child.stdout.fileno(), CHUNK_BYTES)
        except (OSError, ValueError):
            data = b""
        return (data, None) if data else (b"", self._ending())

    def _ending(self) -> str:
        try:
            status = self._child.wait(timeout=1.0)
        except subprocess.TimeoutExpired:
            return "its output ended"
        how = f"it ended (signal: {-status})" if status < 0 else f"it ended (exit status: {status})"
        self._listener.join(timeout=0.5)
        last = self._complaints.decode(errors="replace").strip().splitlines()[-1:]
        return f"{how}: {last[0]}" if last and status != 0 else how

    def stop(self, patience_s: float) -> None:
        """Ends the worker: first its input, then, if it still runs, the worker and its children."""
        try:
            if self._child.stdin is not None:
                self._child.stdin.close()
        except OSError:
            pass
        try:
            self._child.wait(timeout=patience_s)
        except subprocess.TimeoutExpired:
            try:
                os.killpg(self._child.pid, signal.SIGKILL)
            except OSError:
                pass
            self._child.wait()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
