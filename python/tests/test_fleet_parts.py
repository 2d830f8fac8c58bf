"""Tests the helper's parts without Ray: its order, a worker's pipes, the bytes between sockets and workers."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import types
import zlib
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

import pytest
import yaml

from straingauge.fleet import FleetError, Order, cluster, growth, node
from straingauge.fleet.cluster import Cluster, sentence
from straingauge.fleet.node import WorkerNode
from straingauge.fleet.relay import Relay, loss

ORDER = {"binary": "/bin/sg", "address": None, "workers": 2, "worker_cpus": 1.5, "prefix": "ip netns exec 'a {number}'",
         "arguments": ["load", "--worker"], "wait_s": 60}


def test_an_order_is_read_and_the_prefix_names_the_worker() -> None:
    order = Order.read(json.dumps(ORDER))
    assert (order.binary, order.workers, order.worker_cpus, order.address) == ("/bin/sg", 2, 1.5, None)
    assert order.prefix_of(3) == ["ip", "netns", "exec", "a 3"]
    assert Order.read(json.dumps({**ORDER, "prefix": None, "workers": None})).prefix_of(1) == []
    grows = [Order.read(json.dumps({**ORDER, **more})).may_grow for more in ({}, {"workers": None}, {"most_workers": 5})]
    assert grows == [False, True, True]


@pytest.mark.parametrize("line, words", [
    ("hello", "started by straingauge fleet"), (json.dumps({**ORDER, "prefix": "a 'b"}), "--worker-prefix"),
    (json.dumps({"binary": "/bin/sg"}), "missing .* of one version"), (json.dumps({**ORDER, "taints": {}}), "'taints'.* of one version"),
])
def test_an_invalid_order_is_refused_in_one_sentence(line: str, words: str) -> None:
    with pytest.raises(FleetError, match=words):
        Order.read(line)


def test_a_node_needs_the_resources_and_the_labels() -> None:
    order = Order.read(json.dumps({**ORDER, "resources": {"load": 2}, "labels": {"zone": "b"}}))
    has: Dict[str, Any] = {"Resources": {"CPU": 2.0, "load": 2.0}, "Labels": {"zone": "b", "ray.io/node-id": "1"}}
    assert order.fits(has) and order.wanted("free ") == "1.5 free CPUs, 2 free load, the label zone=b"
    lacking: List[Dict[str, Any]] = [{"Resources": {"CPU": 2.0}}, {"Resources": {"CPU": 2.0, "load": 1.0}}, {"Labels": {"zone": "a"}},
                                     {"Labels": {}}, {"Labels": None}, {"Resources": {"CPU": 1.0, "load": 2.0}}]
    assert [one for one in lacking if order.fits({**has, **one})] == []


def test_the_helper_started_by_hand_explains_itself_and_leaves_no_folder(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-m", "straingauge.fleet"], input="help\n", text=True, capture_output=True,
                          env={**os.environ, "TMPDIR": str(tmp_path)}, timeout=60)
    said = json.loads(done.stdout)
    assert said["type"] == "failed" and "started by straingauge fleet" in said["why"] and done.returncode == 1
    assert list(tmp_path.iterdir()) == []


class Gauges:
    """Replaces Ray's gauges."""

    values: Dict[Tuple[str, str], float] = {}

    def __init__(self, name: str, description: str, tag_keys: Tuple[str, ...]) -> None:
        assert description.endswith(".") and tag_keys == ("client",)
        self._name = name

    def set(self, value: float, tags: Dict[str, str]) -> None:
        self.values[self._name, tags["client"]] = value


class Shipped:
    """A worker's program on its way to a node, fetched when the node lacks it."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.fetched = folder / f"straingauge-worker-{os.getuid()}", 0
        self.script = "#!/bin/sh\ncase $1 in echo) exec cat;; fail) echo 'it is broken' >&2; exit 3;; esac\n"
        monkeypatch.setattr(tempfile, "tempdir", str(folder))
        monkeypatch.setattr(node, "_fetched", self._fetch)

    def _fetch(self, _reference: Any) -> bytes:
        self.fetched += 1
        return zlib.compress(self.script.encode())

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.script.encode()).hexdigest()

    def start(self, prefix: List[str], arguments: List[str]) -> WorkerNode:
        return WorkerNode(1, prefix, arguments, self.digest, [None], Gauges)


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shipped:
    return Shipped(tmp_path, monkeypatch)


def test_a_worker_runs_on_its_node_and_its_output_returns(shipped: Shipped) -> None:
    worker = shipped.start([], ["echo"])
    assert worker.is_there() > 0 and worker.write(b"a line\n")
    assert worker.read() == (b"a line\n", None)
    worker.stop(5.0)
    assert worker.read() == (b"", "it ended (exit status: 0)")
    assert not worker.write(b"more\n")


def test_the_reason_for_a_workers_end_comes_with_its_last_output(shipped: Shipped) -> None:
    worker = shipped.start(["env"], ["fail"])
    assert worker.read() == (b"", "it ended (exit status: 3): it is broken")
    worker.stop(5.0)


def test_a_worker_that_does_not_end_by_itself_is_ended(shipped: Shipped) -> None:
    shipped.script = "#!/bin/sh\nexec <&-\nsleep 600\n"
    worker = shipped.start([], [])
    worker.stop(0.2)
    assert worker.read() == (b"", "it ended (signal: 9)")


def test_a_node_fetches_the_program_once_and_again_if_it_is_damaged_or_missing(shipped: Shipped) -> None:
    for fetched in (1, 1):
        shipped.start([], ["echo"]).stop(5.0)
        assert shipped.fetched == fetched
    (kept,) = shipped.folder.iterdir()
    kept.write_text("#!/bin/sh\necho another\n")
    shipped.start([], ["echo"]).stop(5.0)
    assert shipped.fetched == 2 and kept.read_text() == shipped.script
    kept.unlink()
    shipped.start([], ["echo"]).stop(5.0)
    assert shipped.fetched == 3
    # A program that no fleet has used for a day is removed.
    old = shipped.folder / "old"
    old.touch()
    os.utime(old, (0, 0))
    shipped.start([], ["echo"]).stop(5.0)
    assert [one.name for one in shipped.folder.iterdir()] == [shipped.digest]


def test_a_folder_that_others_can_write_is_refused(shipped: Shipped) -> None:
    shipped.folder.mkdir()
    shipped.folder.chmod(0o777)
    with pytest.raises(RuntimeError, match="only this user writes"):
        shipped.start([], ["echo"])


def test_a_program_that_cannot_be_started_is_one_sentence(shipped: Shipped) -> None:
    with pytest.raises(RuntimeError, match="cannot start the worker: .*no-such-program"):
        shipped.start(["no-such-program"], [])


def test_a_node_of_another_architecture_is_reported(shipped: Shipped, monkeypatch: pytest.MonkeyPatch) -> None:
    # An executable of Linux on ARM (ELF machine 40), which cannot run here.
    shipped.script = "\x7fELF\x01\x01\x01" + "\0" * 9 + "\x02\0\x28\0\x01" + "\0" * 31
    monkeypatch.setattr(node.platform, "machine", lambda: "aarch64")
    with pytest.raises(RuntimeError, match="this node is aarch64, and .* is for another kind of machine: name one for it with --worker-binary"):
        shipped.start([], [])


@pytest.mark.parametrize("said, words", [
    ("The actor died because of an error raised in its creation task, \x1b[36mray::A.__init__()\x1b[39m (pid=1)\n  File \"x.py\", "
     "line 8, in __init__\n    raise FileNotFoundError(1)\n    ^^^\nFileNotFoundError: no such thing: /a/b\nand more",
     "FileNotFoundError: no such thing: /a/b and more"),
    ("\x1b[31mno node\x1b[0m\nis left", "no node is left"), ("", "RuntimeError"), ("a" * 400, "a" * 300 + "..."),
])
def test_a_message_of_ray_is_reduced_to_its_cause(said: str, words: str) -> None:
    assert sentence(RuntimeError(said)) == words


class Echo:
    """A member whose worker repeats its input, then ends."""

    name = "echo"

    def __init__(self, says: Optional[List[Any]] = None) -> None:
        self.said: "asyncio.Queue[Any]" = asyncio.Queue()
        for one in says or []:
            self.said.put_nowait(one)
        self.is_stopped = False

    async def write(self, data: bytes) -> bool:
        await self.said.put((data, None))
        return True

    async def read(self) -> Tuple[bytes, Optional[str]]:
        one = await self.said.get()
        if isinstance(one, Exception):
            raise one
        data, ended = one
        return data, ended

    async def stop(self, _timeout_s: float) -> None:
        self.is_stopped = True


class FakeRay:
    """Replaces Ray with a cluster whose nodes come one by one, and which frees the name of a killed actor late."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count, self.bad, self.names = 0, set(), []  # type: ignore[var-annotated]
        strategies = types.ModuleType("ray.util.scheduling_strategies")
        setattr(strategies, "NodeAffinitySchedulingStrategy", lambda place, soft: place)
        for name in ("ray", "ray.util"):
            monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
        monkeypatch.setitem(sys.modules, strategies.__name__, strategies)
        monkeypatch.setattr(cluster, "_ray", lambda: self)

    def nodes(self) -> List[Dict[str, Any]]:
        return [{"NodeID": f"node{number}", "NodeManagerAddress": "10.0.0.1", "Alive": True,
                 "Resources": {"CPU": 2.0, "load": number % 2}, "Labels": {"zone": "ab"[number // 2 % 2]}}
                for number in range(self.count)]

    def options(self, name: str, scheduling_strategy: str, resources: Dict[str, float], **_: Any) -> "FakeRay":
        self.names.append(name)
        self.resources = resources
        self.place = scheduling_strategy
        return self

    def remote(self, *_: Any) -> Any:
        if self.names[-1] in self.names[:-1]:
            raise ValueError(f"{self.names[-1]} is taken")
        return types.SimpleNamespace(is_there=types.SimpleNamespace(remote=lambda place=self.place: place))

    def wait(self, references: List[str], **_: Any) -> Tuple[List[str], List[str]]:
        return references, []

    def get(self, reference: str) -> None:
        if reference in self.bad:
            raise RuntimeError("no worker starts there")

    def kill(self, _actor: Any) -> None:
        pass


def test_a_node_where_no_worker_starts_does_not_exclude_later_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = FakeRay(monkeypatch)
    fleet = Cluster(Order.read(json.dumps({**ORDER, "prefix": None, "workers": None})), print, lambda: False)
    fleet._actor = ray
    ray.count, ray.bad = 2, {"node1"}
    assert [member.name for member in fleet.join()] == ["10.0.0.1 node0"]
    ray.count = 3
    assert [member.name for member in fleet.join()] == ["10.0.0.1 node2"]
    assert ray.names == ["straingauge client 1", "straingauge client 2", "straingauge client 3"]


def test_a_fleet_that_fits_no_node_reports_the_requested_and_the_existing_resources(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = FakeRay(monkeypatch)
    groups = types.ModuleType("ray.util.placement_group")
    setattr(groups, "placement_group", None)
    monkeypatch.setitem(sys.modules, groups.__name__, groups)
    only = {"resources": {"load": 3}, "labels": {"zone": "b", "rack": "1"}}
    fleet = Cluster(Order.read(json.dumps({**ORDER, "workers": None, **only})), print, lambda: False)
    ray.count = 2
    with pytest.raises(FleetError) as why:
        fleet._set_aside(0.0)
    assert str(why.value) == (
        "no node of the Ray cluster has 1.5 CPUs, 3 load, the label zone=b, the label rack=1: it has 2 nodes: "
        "10.0.0.1 (2 CPUs, 0 load, zone=a, no rack), 10.0.0.1 (2 CPUs, 1 load, zone=a, no rack)")


def test_labels_are_refused_if_ray_does_not_support_them(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = FakeRay(monkeypatch)
    fleet = Cluster(Order.read(json.dumps({**ORDER, "labels": {"zone": "b"}})), print, lambda: False)
    for version in ("2.9.3", "2.48.0", "2.50.1"):
        setattr(ray, "__version__", version)
        with pytest.raises(FleetError, match=f"--worker-label needs Ray 2.51 or later, and this is Ray {version}"):
            fleet.open()
    for version in ("2.51.0", "2.60.0", "3.0.0.dev0"):
        setattr(ray, "__version__", version)
        fleet._check_labels_are_known()


def test_bytes_go_both_ways_and_a_worker_ends_with_its_driver(tmp_path: Path) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str) -> bytes:
        for _ in range(3):
            writer.write(b"x" * 300_000 + b"\n")
        came = await reader.readexactly(900_003)
        assert not os.path.exists(path), "a second driver finds no socket"
        return came

    async def make_and_talk() -> None:
        member = Echo()
        relay = Relay(str(tmp_path), [member])  # type: ignore[list-item]
        (path,) = await relay.listen()
        reader, writer = await asyncio.open_unix_connection(path)
        assert len(await asyncio.wait_for(talk(reader, writer, path), 30)) == 900_003
        writer.close()
        while not member.is_stopped:
            await asyncio.sleep(0.01)
        await relay.close()

    asyncio.run(asyncio.wait_for(make_and_talk(), 60))


@pytest.mark.parametrize("end, words", [((b"", "it ended (signal: 9)"), "signal: 9"), (ValueError("no such actor"), "no such actor")])
def test_a_driver_learns_why_a_worker_has_ended(tmp_path: Path, end: Any, words: str) -> None:
    async def run() -> bytes:
        member = Echo([(b'{"type":"hello"}\n', None), end])
        relay = Relay(str(tmp_path), [member])  # type: ignore[list-item]
        (path,) = await relay.listen()
        reader, writer = await asyncio.open_unix_connection(path)
        text = await asyncio.wait_for(reader.read(), 30)
        writer.close()
        await relay.close()
        return text

    first, last = asyncio.run(run()).splitlines()
    assert json.loads(first)["type"] == "hello"
    gone = json.loads(last)
    assert gone["type"] == "gone" and words in gone["why"]


@pytest.mark.parametrize("size", [1, 60, 100_000])
def test_a_workers_reports_become_metrics_in_any_pieces(size: int) -> None:
    def told(*lines: str) -> List[float]:
        heard, data = node.Progress(3, Gauges), "".join(line + "\n" for line in lines).encode()
        for begin in range(0, len(data), size):
            heard.hear(data[begin:begin + size])
        return [Gauges.values[f"straingauge_client_{name}", "3"] for name in ("requests_per_second", "connections", "failed_requests")]

    progress = '{"type":"progress","connected":5,"completed":40,"failed":2,"throughput_per_sec":812.5}'
    assert told('{"type":"hello"}', progress) == [812.5, 5.0, 2.0]
    assert told(progress, '{"type":"result","outcomes":{}}') == [0.0, 0.0, 0.0], "its load is over"


def test_rays_error_for_a_lost_actor_becomes_a_short_sentence() -> None:
    class ActorDiedError(Exception):
        pass

    assert loss(ActorDiedError("The actor died because its node has died. Node Id: 1")) == "its node is gone from the Ray cluster"
    assert loss(ActorDiedError("The actor died unexpectedly")) == "Ray has lost its process on the node"
    assert "no way" in loss(OSError("no  way"))


def test_an_autoscaler_gets_requests_for_whole_nodes_and_for_the_missing_number() -> None:
    def asked(most: int, *cpus: float, head: float = 0.0) -> List[int]:
        able = [{"Resources": {"CPU": count}} for count in cpus] + [{"Resources": {"CPU": head, growth.HEAD: 1.0}}] * bool(head)
        return [bundle["CPU"] for bundle in growth.bundles(able, most, 1.0, {})]

    assert asked(3) == [1, 1, 1], "nothing is known of the nodes yet"
    assert asked(3, head=4.0) == [4, 4, 4]
    assert asked(4, 16.0, 8.0, head=2.0) == [16, 8, 2, 8], "those that come are no smaller than the smallest that came"
    assert asked(2, 8.0, 8.0, 8.0) == [8, 8], "enough are there: what is asked for adds none"
    assert growth.bundles([], 1, 2.0, {"load": 0.5}) == [{"CPU": 2, "load": 1}], "Ray takes whole numbers"


def test_an_autoscaler_that_refuses_a_request_as_a_whole_adds_all_that_it_may() -> None:
    for most in range(1, 25):
        for room in range(1, 25):
            size, there, refused = growth.Size(most), 1, 0
            for _ in range(20):
                asked = size.next(there, refused)
                assert there <= asked <= max(most, there)
                # Version 2 of Ray's autoscaler behaves like this.
                refused = asked if asked > room else 0
                there = there if refused else max(there, asked)
            assert there == min(most, room), (most, room)
    waiting = growth.Size(9)
    assert [waiting.next(1, 0), waiting.next(2, 0), waiting.next(2, 5)] == [9, 9, 9], "nodes take their time, and others' requests are refused"


CLUSTERS = Path(__file__).parent.parent.parent / "docs" / "cluster"


def test_the_cluster_for_ray_up_fits_rays_schema() -> None:
    util = pytest.importorskip("ray.autoscaler._private.util", reason="Ray is not installed: pip install 'straingauge[fleet]'")
    config = yaml.safe_load((CLUSTERS / "ray-up.yaml").read_text())
    util.validate_config(util.prepare_config(config))
    config["available_node_types"]["client"]["no_such_key"] = 1
    with pytest.raises(Exception, match="no_such_key"):
        util.validate_config(util.prepare_config(config))


def test_the_clusters_for_ray_up_and_kubernetes_use_one_version_of_ray() -> None:
    text = (CLUSTERS / "kuberay.yaml").read_text()
    cluster = yaml.safe_load(text)
    assert (cluster["apiVersion"], cluster["kind"]) == ("ray.io/v1", "RayCluster")
    version = cluster["spec"]["rayVersion"]
    assert f"rayproject/ray:{version}-" in text and f"ray[default]=={version}'" in (CLUSTERS / "ray-up.yaml").read_text()
