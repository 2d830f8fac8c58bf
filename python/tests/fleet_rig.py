"""What the tests of the fleet start and remove again: a Ray cluster on this machine, namespaces, nginx, straingauge."""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
import warnings
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional

import program
import pytest

REPOSITORY = Path(__file__).parent.parent.parent
#: Nothing is judged by speed: what takes longer than this hangs.
HANGS_AFTER_S = 360.0
NODES = 3
#: In the environment of every process of a test's fleet.
MARK = "STRAINGAUGE_FLEET_TEST"
# Ray's own is 15: beside other tests its workers, and what they carry, would stand still for seconds.
os.environ["RAY_worker_niceness"] = "0"


def missing() -> Optional[str]:
    """Why no fleet can run here."""
    try:
        import ray.cluster_utils  # noqa: F401
    except ImportError as why:
        return f"Ray is not installed ({why}): pip install 'straingauge[fleet]'"
    if program.missing():
        return program.missing()
    if shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin") is None:
        return "nginx is not installed (apt-get install nginx)"
    return None


def wait_until(what: str, condition: Callable[[], Any], limit_s: float = HANGS_AFTER_S) -> Any:
    """The condition's value, once it is true."""
    until = time.monotonic() + limit_s
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < until, f"hangs before {what}"
        time.sleep(0.05)


class RayCluster:
    """Up to three nodes on this machine, in a session folder that goes with them."""

    def __init__(self, nodes: int = NODES, dashboard_port: Optional[int] = None) -> None:
        from ray.cluster_utils import Cluster

        # Short: sockets lie in it.
        self.folder = Path(tempfile.mkdtemp(prefix="sg-ray-"))
        common = {"num_cpus": 1, "object_store_memory": 80 << 20, "temp_dir": str(self.folder)}
        self._common = common
        # A cluster of this kind writes its address into the default folder, too, which is not there on a fresh machine.
        self._tmpdir_before = os.environ.get("RAY_TMPDIR")
        os.environ["RAY_TMPDIR"] = str(self.folder)
        (self.folder / "ray").mkdir()
        self.cluster = Cluster()
        try:
            try:
                self._start(nodes, dashboard_port)
            except Exception as why:
                # Ray itself gives a node 30 s, which do not always do on a machine that is full of other work.
                if "timed out during startup" not in str(why):
                    raise
                warnings.warn(f"Ray is started once more: {why}")
                self._end()
                self.cluster = Cluster()
                self._start(nodes, dashboard_port)
        except BaseException:
            self.close()
            raise

    def _start(self, nodes: int, dashboard_port: Optional[int]) -> None:
        if dashboard_port is None:
            self.add(include_dashboard=False)
        else:
            self.add(include_dashboard=True, dashboard_host="127.0.0.1", dashboard_port=dashboard_port)
        # All but the head can be asked for by name: `load`, and a zone each.
        self.loaders = [self.add(resources={"load": 1}, labels={"zone": zone}) for zone in "ab"[:nodes - 1]]
        self.cluster.wait_for_nodes(timeout=HANGS_AFTER_S)

    @property
    def address(self) -> str:
        return str(self.cluster.address)

    def add(self, **more: Any) -> Any:
        return self.cluster.add_node(wait=False, **self._common, **more)

    def processes(self) -> List[int]:
        return [pid for pid, line in command_lines() if str(self.folder) in line]

    def _end(self) -> None:
        try:
            self.cluster.shutdown()
        except Exception as why:
            # Ray asks the head, which may be gone. Its processes are ended all the same.
            warnings.warn(f"Ray's shutdown failed: {why}")
        until = time.monotonic() + 20
        while self.processes() and time.monotonic() < until:
            time.sleep(0.1)
        for pid in self.processes():
            os.kill(pid, signal.SIGKILL)

    def close(self) -> None:
        self._end()
        if self._tmpdir_before is None:
            os.environ.pop("RAY_TMPDIR", None)
        else:
            os.environ["RAY_TMPDIR"] = self._tmpdir_before
        shutil.rmtree(self.folder, ignore_errors=True)


class Namespaces:
    """A server's network namespace and one for each client, joined by veth, with one address of the server for all."""

    server_address = "10.213.0.1"

    def __init__(self, clients: int) -> None:
        self._tag = f"sgt{os.getpid()}"
        self.names: List[str] = []
        try:
            self.server = self._add("s")
            self._ip(self.server, "addr", "add", f"{self.server_address}/32", "dev", "lo")
            for number in range(1, clients + 1):
                self._join(number)
        except BaseException:
            self.close()
            raise

    def client(self, number: int) -> str:
        return f"{self._tag}c{number}"

    def _add(self, what: str) -> str:
        name = self._tag + what
        subprocess.run(["ip", "netns", "add", name], check=True)
        self.names.append(name)
        self._ip(name, "link", "set", "lo", "up")
        return name

    def _join(self, number: int) -> None:
        client, net = self._add(f"c{number}"), f"10.213.{number}"
        self._ip(client, "link", "add", "up0", "type", "veth", "peer", "name", f"down{number}", "netns", self.server)
        self._ip(client, "addr", "add", f"{net}.2/24", "dev", "up0")
        # A second address, for workers that use every one of the interface.
        self._ip(client, "addr", "add", f"{net}.3/24", "dev", "up0")
        self._ip(client, "link", "set", "up0", "up")
        self._ip(self.server, "addr", "add", f"{net}.1/24", "dev", f"down{number}")
        self._ip(self.server, "link", "set", f"down{number}", "up")
        self._ip(client, "route", "add", "default", "via", f"{net}.1")

    @staticmethod
    def _ip(name: str, *words: str) -> None:
        subprocess.run(["ip", "-n", name, *words], check=True)

    def close(self) -> None:
        for name in reversed(self.names):
            subprocess.run(["ip", "netns", "del", name], check=False)


class Nginx:
    """nginx of the testbed, with an access log."""

    def __init__(self, address: str = "127.0.0.1", namespace: Optional[str] = None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="sg-nginx-"))
        self.folder.chmod(0o755)
        self.address, self.port = address, free_port()
        self.log = self.folder / "access.log"
        inside = ["ip", "netns", "exec", namespace] if namespace else []
        self._inside = inside
        self._child = subprocess.Popen(
            [*inside, str(REPOSITORY / "testbed" / "serve"), "nginx", "--port", str(self.port), "--address", address,
             "--state", str(self.folder), "--access-log", str(self.log)],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )
        wait_until("nginx accepts", self._accepts, 60)

    def _accepts(self) -> bool:
        assert self._child.poll() is None, "nginx ended while starting"
        asked = f"import socket; socket.create_connection(('{self.address}', {self.port}), 1).close()"
        return subprocess.run([*self._inside, sys.executable, "-c", asked], stderr=subprocess.DEVNULL).returncode == 0

    def url(self, document: str = "1k.bin") -> str:
        return f"http://{self.address}:{self.port}/{document}"

    def end_and_count_ok(self) -> int:
        """Ends it politely, so that its log is whole, and counts the answers with status 200."""
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
    """What a finished run said."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    def exits_with(self, code: int) -> "Said":
        assert self.code == code, f"exit code {self.code}\n--- out\n{self.out}\n--- err\n{self.err}"
        return self

    def complains_of(self, *words: str) -> "Said":
        """One sentence, with all of these words."""
        sentences = [line for line in self.err.splitlines() if line.startswith("straingauge: ")]
        assert len(sentences) == 1 and len(sentences[0]) < 600, self.err
        for word in words:
            assert word in sentences[0], f"'{word}' is not in: {sentences[0]}"
        return self

    def json(self) -> Any:
        return json.loads(self.out)

    def doubts(self) -> List[str]:
        return [doubt["kind"] for doubt in self.json()["point"]["doubts"]]


class Fleet:
    """straingauge fleet, started as a person would. Every process of it carries a mark, by which leftovers are found."""

    def __init__(self, address: str, folder: Path) -> None:
        self.address, self.folder, self.mark = address, folder, uuid.uuid4().hex
        self.spoken = folder / f"spoken-{self.mark[:6]}"
        self.spoken.mkdir()
        # Short: sockets lie in it.
        self.temporary = Path(tempfile.mkdtemp(prefix="sg-"))
        #: Words before the command.
        self.inside: List[str] = []

    def command(self, what: List[str], options: Optional[List[str]] = None, inside: str = "") -> List[str]:
        # What each worker says is kept: its histograms as they were sent, its process.
        keep = f"sh -c 'exec \"$@\" | tee {self.spoken}/{{number}}' sh"
        prefix = f"env {MARK}={self.mark} {inside} {keep}"
        # Ray starts its first workers in more than a minute on a machine that is full of other tests.
        patience = [] if "--node-timeout" in (options or []) else ["--node-timeout", "240s"]
        return [
            *self.inside, str(program.straingauge_path()), "fleet", "--python", sys.executable, "--address", self.address, "--worker-prefix", prefix,
            *patience, *(options or []), *what,
        ]

    def start(self, what: List[str], options: Optional[List[str]] = None, inside: str = "") -> "subprocess.Popen[str]":
        environment = {**os.environ, MARK: self.mark, "TMPDIR": str(self.temporary)}
        return subprocess.Popen(
            self.command(what, options, inside), env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, cwd=self.folder, start_new_session=True,
        )

    def run(self, what: List[str], options: Optional[List[str]] = None, inside: str = "") -> Said:
        return finish(self.start(what, options, inside))

    def messages(self, number: int, kind: str) -> List[Dict[str, Any]]:
        """What a worker said of a kind, so far."""
        path = self.spoken / str(number)
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        whole = [json.loads(line) for line in lines if line.endswith("\n")]
        return [message for message in whole if message["type"] == kind]

    def worker_pid(self, number: int) -> int:
        found = wait_until(f"worker {number} is there", lambda: self.messages(number, "hello"))
        return int(found[0]["pid"])

    def wait_until_running(self, number: int) -> None:
        def has_answers() -> bool:
            return any(one["completed"] > 0 for one in self.messages(number, "progress"))

        wait_until(f"worker {number} sends load", has_answers)

    def processes(self) -> List[int]:
        """Those that carry the mark."""
        wanted = f"{MARK}={self.mark}".encode()
        found = []
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                try:
                    environment = (folder / "environ").read_bytes()
                except OSError:
                    continue
                if wanted in environment.split(b"\0"):
                    found.append(int(folder.name))
        return found

    def leaves_nothing(self) -> None:
        """No process of it goes on, no folder of it is left."""
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


def command_lines() -> Iterator["tuple[int, str]"]:
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                line = (folder / "cmdline").read_bytes()
            except OSError:
                continue
            yield int(folder.name), line.replace(b"\0", b" ").decode(errors="replace")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def is_v2(text: str) -> bool:
    return base64.b64decode(text)[:4] == b"\x1c\x84\x93\x14"
