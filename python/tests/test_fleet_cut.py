"""`straingauge fleet` on Ray nodes with networks of their own, of which one is cut without a word to either side."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Iterator, List

import pytest
from fleet_rig import Fleet, Namespaces, Nginx, command_lines, finish, free_port, missing
from test_fleet_ray import load

WHY_NOT = missing() or (None if os.geteuid() == 0 else "network namespaces need root")
pytestmark = [pytest.mark.program, pytest.mark.long, pytest.mark.skipif(WHY_NOT is not None, reason=WHY_NOT or "")]


class ClusterOfNamespaces:
    """A head beside the server, and a node in a namespace of its own. Ray's traffic has a link of its own, so that a node which has lost
    its cluster can go on to send load.
    """

    head = "10.214.0.1"

    def __init__(self) -> None:
        # Short: sockets lie in it.
        self.folder = Path(tempfile.mkdtemp(prefix="sg-cut-"))
        self.namespaces = Namespaces(1)
        try:
            server, client = self.namespaces.server, self.namespaces.client(1)
            for words in (
                    ["-n", server, "addr", "add", f"{self.head}/32", "dev", "lo"],
                    ["-n", client, "link", "add", "ray0", "type", "veth", "peer", "name", "ray1", "netns", server],
                    ["-n", client, "addr", "add", "10.214.1.2/24", "dev", "ray0"], ["-n", client, "link", "set", "ray0", "up"],
                    ["-n", server, "addr", "add", "10.214.1.1/24", "dev", "ray1"], ["-n", server, "link", "set", "ray1", "up"],
                    ["-n", client, "route", "add", f"{self.head}/32", "via", "10.214.1.1"]):
                subprocess.run(["ip", *words], check=True)
            port = free_port()
            self.address = f"{self.head}:{port}"
            self._start(server, "--head", f"--port={port}", f"--node-ip-address={self.head}", "--include-dashboard=false",
                        f"--temp-dir={self.folder}")
            self._start(client, f"--address={self.address}", "--node-ip-address=10.214.1.2")
        except BaseException:
            self.close()
            raise

    def _start(self, namespace: str, *more: str) -> None:
        start = [*inside(namespace), sys.executable, "-m", "ray.scripts.scripts", "start", "--num-cpus=1",
                 f"--object-store-memory={80 << 20}", "--disable-usage-stats", *more]
        done = subprocess.run(start, env={**os.environ, "RAY_TMPDIR": str(self.folder)}, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr

    def cut(self) -> None:
        """Both ends are up, and what they send is lost."""
        subprocess.run(["ip", "-n", self.namespaces.server, "route", "replace", "blackhole", "10.214.1.2/32"], check=True)
        subprocess.run(["ip", "-n", self.namespaces.client(1), "route", "replace", "blackhole", f"{self.head}/32"], check=True)

    def close(self) -> None:
        for pid, line in command_lines():
            if str(self.folder) in line:
                os.kill(pid, signal.SIGKILL)
        self.namespaces.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def inside(namespace: str) -> List[str]:
    return ["ip", "netns", "exec", namespace]


@pytest.fixture
def cluster() -> Iterator[ClusterOfNamespaces]:
    made = ClusterOfNamespaces()
    yield made
    made.close()


def test_a_node_that_is_cut_off_sends_no_load_any_more_and_its_run_ends(cluster: ClusterOfNamespaces, tmp_path: Path) -> None:
    server = Nginx(Namespaces.server_address, cluster.namespaces.server)
    fleet = Fleet(cluster.address, tmp_path)
    fleet.inside = inside(cluster.namespaces.server)
    try:
        child = fleet.start(load(server.url(), "300s", "--allow-target", server.address))
        for number in (1, 2):
            fleet.wait_until_running(number)
        cluster.cut()
        cut_at = time.monotonic()
        # Both sides' leases are 5 s.
        time.sleep(8)
        requests = server.log.stat().st_size
        time.sleep(1)
        assert server.log.stat().st_size == requests, "load goes on"
        said = finish(child).exits_with(1).complains_of("10.214.1.2", "was lost")
        print(f"the driver ended {time.monotonic() - cut_at:.1f} s after the cut: {said.err}")
        assert "worker-lost" in said.doubts()
        fleet.leaves_nothing()
        print(f"nothing was left {time.monotonic() - cut_at:.1f} s after the cut")
    finally:
        fleet.close()
        server.close()
