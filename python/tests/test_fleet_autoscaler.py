"""Tests `straingauge fleet` on a cluster that Ray's autoscaler grows and shrinks. Its fake provider starts nodes
on this machine."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Iterator

import pytest
from conftest import free_port
from fleet_rig import Fleet, Nginx, command_lines, finish, kill_all_that_name, missing, wait_until
from test_fleet_ray import find, workers_by_point

WHY_NOT = missing()
pytestmark = [pytest.mark.program, pytest.mark.long, pytest.mark.skipif(WHY_NOT is not None, reason=WHY_NOT or "")]

#: CPUs of each node. A worker needs fewer, so that several bundles of a worker's size fit on one node.
CPUS = 2
LONG = ["--budget", "900s", "--duration", "5s", "--repeats", "100"]
#: Maximum number of nodes besides the head.
ADDED = 3
#: The simulated nodes of earlier versions look for their head at Ray's default port, and version 2 was not usable
#: yet.
IS_OLD = WHY_NOT is None and tuple(int(part) for part in version("ray").split(".")[:2]) < (2, 10)
HEAD_ID = "fffffffffffffffffffffffffffffffffffffffffffffffffff00000"


class AutoscalingCluster:
    """A head with room for a worker, and an autoscaler that adds at most three nodes and removes nodes
    that are idle for six seconds.

    ray.cluster_utils.AutoscalingCluster is not used, because it ends every Ray on this machine when it
    starts and ends.


    """

    def __init__(self, autoscaler: int) -> None:
        port = 6379 if IS_OLD else free_port()
        # A short path, because it holds sockets.
        folder = Path(tempfile.mkdtemp(prefix="sg-auto-"))
        self.address, self.autoscaler, self._folder = f"127.0.0.1:{port}", autoscaler, folder
        size = {"CPU": CPUS, "object_store_memory": 80 << 20}
        config = {
            "cluster_name": "fake", "max_workers": ADDED, "idle_timeout_minutes": 0.1, "upscaling_speed": 1.0,
            # All nodes on one machine have one address. The provider is named by its module, because not all Ray
            # packages contain the file that Ray reads for its name.
            "provider": {
                "type": "external", "module": "ray.autoscaler._private.fake_multi_node.node_provider.FakeMultiNodeProvider",
                "gcs_address": self.address, "use_node_id_as_ip": True, "disable_node_updaters": True,
                "disable_launch_config_check": True, **({"launch_multiple": True, "head_node_id": HEAD_ID} if autoscaler == 2 else {}),
            },
            "auth": {}, "docker": {}, "file_mounts": {}, "cluster_synced_files": [], "file_mounts_sync_continuously": False,
            "initialization_commands": [], "setup_commands": [], "head_setup_commands": [], "worker_setup_commands": [],
            "head_start_ray_commands": [], "worker_start_ray_commands": [],
            "head_node_type": "ray.head.default",
            "available_node_types": {
                "ray.head.default": {"resources": {"CPU": CPUS}, "node_config": {}, "max_workers": 0},
                "client": {
                    "resources": {**size, "load": 1}, "labels": {"zone": "b"}, "node_config": {}, "min_workers": 0, "max_workers": ADDED,
                },
            },
        }
        (folder / "config.json").write_text(json.dumps(config))
        start = [
            sys.executable, "-m", "ray.scripts.scripts", "start", "--head", f"--port={port}", f"--num-cpus={CPUS}",
            f"--object-store-memory={80 << 20}", "--include-dashboard=false",
            # It serves Ray's clients only with gRPC, and its port may be taken.
            *([f"--ray-client-server-port={free_port()}"] if find_spec("grpc") else []),
            f"--dashboard-agent-listen-port={free_port()}", f"--autoscaling-config={folder / 'config.json'}", f"--temp-dir={folder}",
            "--node-ip-address=127.0.0.1", "--disable-usage-stats",
        ]
        environment = {**os.environ, "RAY_FAKE_CLUSTER": "1", "AUTOSCALER_UPDATE_INTERVAL_S": "1", "RAY_TMPDIR": str(folder)}
        # The second version identifies a node by its name in the cloud, which here is the node's given name.
        newer = {"RAY_enable_autoscaler_v2": "1", "RAY_CLOUD_INSTANCE_ID": HEAD_ID, "RAY_OVERRIDE_NODE_ID_FOR_TESTING": HEAD_ID}
        environment.update(newer if autoscaler == 2 else {})
        done = subprocess.run(start, env=environment, capture_output=True, text=True, timeout=120)
        if done.returncode != 0:
            self.close()
            pytest.fail(done.stdout + done.stderr)

    def nodes(self) -> int:
        """Each node runs one raylet."""
        return sum(1 for _, line in command_lines() if "/raylet/raylet " in line and str(self._folder) in line)

    def close(self) -> None:
        kill_all_that_name(self._folder)
        shutil.rmtree(self._folder, ignore_errors=True)


@pytest.fixture(scope="module", params=[1, 2], ids=["v1", "v2"])
def cluster(request: pytest.FixtureRequest) -> Iterator[AutoscalingCluster]:
    """With the first version of Ray's autoscaler, and with the second, which KubeRay and Anyscale use."""
    if IS_OLD and request.param == 2:
        pytest.skip("this version of Ray has the first autoscaler only")
    made = AutoscalingCluster(request.param)
    yield made
    made.close()


def test_a_find_starts_on_the_existing_nodes_and_uses_those_that_the_autoscaler_adds(
        cluster: AutoscalingCluster, fleet: Fleet, nginx: Nginx) -> None:
    wait_until("the head is the only node", lambda: cluster.nodes() == 1, 60)
    kept, everyone = fleet.folder / "run", set(range(1, 1 + ADDED + 1))
    # More nodes than allowed, of which the second version adds none. Long enough for all to come.
    child = fleet.start(find(nginx.url, kept, *LONG), "--workers", "1..20")
    wait_until("a point is kept", lambda: any(kept.glob("points/*")), 120)
    wait_until("all send load", lambda: workers_by_point(kept)[-1:] == [everyone], 120)
    child.send_signal(signal.SIGINT)
    finish(child).exits_with(130)
    assert workers_by_point(kept)[0] == {1}, "it begins with what is there"
    wait_until("the nodes that were added are gone", lambda: cluster.nodes() == 1, 120)


def test_a_helper_that_is_killed_leaves_no_request(cluster: AutoscalingCluster, fleet: Fleet, nginx: Nginx) -> None:
    what = find(nginx.url, fleet.folder / "run", *LONG)
    child = fleet.start(what, "--workers", "1..3")
    wait_until("the autoscaler has added nodes", lambda: cluster.nodes() == 3, 120)
    lines = dict(command_lines())
    helper = [pid for pid in fleet.processes() if "-m straingauge.fleet" in lines.get(pid, "")]
    assert len(helper) == 1
    os.kill(helper[0], signal.SIGKILL)
    finish(child).exits_with(1)
    wait_until("the nodes that were added are gone", lambda: cluster.nodes() == 1, 120)
