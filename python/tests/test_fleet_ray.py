"""Tests `straingauge fleet` on a Ray cluster of two nodes on this machine, against nginx."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Iterator, List, Set

import pytest
from fleet_rig import Fleet, Nginx, RayCluster, finish, missing

import straingauge

WHY_NOT = missing()
pytestmark = [pytest.mark.program, pytest.mark.skipif(WHY_NOT is not None, reason=WHY_NOT or "")]
NODES = 2
QUIET = ["--quiet", "--json", "--warmup", "0s"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    made = RayCluster()
    yield made
    made.close()


def load(url: str, duration: str, *more: str) -> List[str]:
    return ["load", url, "--connections", "6", "--rate", "600", "--threads", "1", "--duration", duration, *QUIET, *more]


def find(url: str, kept: Path, *more: str) -> List[str]:
    return ["find", url, "--sweep", "connections", "--set", "find.min-connections=4", "--max-connections", "16", "--profile", "never",
            *QUIET, "--out", str(kept), *more]


def workers_by_point(kept: Path) -> List[Set[int]]:
    """The workers that took part in each point. The driver reports a point with one more than the point
    before."""
    found: List[Set[int]] = []
    for point in straingauge.open_run(kept).points:
        shares = {number: point.value(f"worker.{number}.share") or 0.0 for number in range(1, 8) if f"worker.{number}.share" in point.figures}
        assert abs(sum(shares.values()) - 1.0) < 1e-9, shares
        is_more = bool(found) and len(shares) > len(found[-1])
        assert any("joined the cluster" in doubt.what for doubt in point.doubts) == is_more, point.doubts
        found.append(set(shares))
    return found


def test_the_nodes_share_a_load_and_the_sum_equals_the_servers_log(fleet: Fleet, nginx: Nginx) -> None:
    point = fleet.run(load(nginx.url, "700ms")).exits_with(0).json()["point"]
    outcomes = point["outcomes"]
    assert outcomes["ok"] > 0 and outcomes["sent"] == outcomes["ok"] + outcomes["unfinished"], outcomes
    by_node = [fleet.messages(number, "result")[0]["outcomes"]["ok"] for number in (1, 2)]
    assert sum(by_node) == outcomes["ok"] and all(by_node), by_node
    assert outcomes["ok"] <= nginx.end_and_count_ok() <= outcomes["ok"] + outcomes["unfinished"]


@pytest.mark.long
def test_a_killed_worker_ends_the_run_with_its_node(fleet: Fleet, nginx: Nginx) -> None:
    child = fleet.start(load(nginx.url, "300s"))
    fleet.wait_until_running(2)
    os.kill(fleet.worker_pid(2), signal.SIGKILL)
    said = finish(child).exits_with(1).complains_of("client 2 (node ", "was lost", "it ended")
    assert "worker-lost" in said.doubts()


@pytest.mark.long
def test_with_go_on_the_other_nodes_measure_until_the_end(fleet: Fleet, nginx: Nginx) -> None:
    child = fleet.start(load(nginx.url, "6s", "--set", "fleet.on-worker-loss=go-on"))
    fleet.wait_until_running(1)
    # The parent of the shells is Ray's process on the node. The worker ends with its input.
    at = fleet.worker_pid(1)
    while "ray::" not in Path(f"/proc/{at}/cmdline").read_text():
        at = int(Path(f"/proc/{at}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(at, signal.SIGKILL)
    figures = finish(child).exits_with(0).json()["point"]["figures"]
    assert "Ray has lost its process" in figures["worker.1.throughput_per_sec"]["not_measured"], figures
    assert figures["worker.2.throughput_per_sec"]["value"] > 0


@pytest.mark.long
def test_a_killed_driver_leaves_no_load_and_no_helper(fleet: Fleet, nginx: Nginx) -> None:
    child = fleet.start(load(nginx.url, "300s"))
    for number in range(1, NODES + 1):
        fleet.wait_until_running(number)
    child.kill()
    child.communicate()
    fleet.leaves_nothing()


@pytest.mark.long
def test_nodes_that_join_later_send_from_the_next_point_on(fleet: Fleet, nginx: Nginx) -> None:
    kept = fleet.folder / "run"
    fleet.run(find(nginx.url, kept, "--budget", "40s", "--duration", "300ms"), "--workers", f"1..{NODES}").exits_with(0)
    workers = workers_by_point(kept)
    assert workers[0] == {1} and workers[-1] == {1, 2}, workers


@pytest.mark.long
def test_workers_run_only_on_nodes_with_the_resources_and_labels(fleet: Fleet, nginx: Nginx) -> None:
    for place in (["--worker-resource", "load=1"], ["--worker-label", "zone=b"]):
        figures = fleet.run(load(nginx.url, "200ms"), *place).exits_with(0).json()["point"]["figures"]
        assert "worker.1.share" in figures and "worker.2.share" not in figures
    what = load(nginx.url, "1s")
    fleet.run(what, "--worker-resource", "load=1", "--worker-label", "zone=c").exits_with(1).complains_of(
        "no node of the Ray cluster has 1 CPUs, 1 load, the label zone=c", "(1 CPUs, 0 load, no zone)", "(1 CPUs, 1 load, zone=b)")
    fleet.run(what, "--workers", "2", "--worker-label", "zone=b", "--node-timeout", "2s").exits_with(1).complains_of(
        "2 workers need 2 nodes with 1 free CPUs, the label zone=b each", "(1 CPUs, zone=b)")


@pytest.mark.long
def test_a_second_fleet_on_the_same_nodes_is_refused(cluster: RayCluster, fleet: Fleet, nginx: Nginx, tmp_path: Path) -> None:
    (tmp_path / "second").mkdir()
    second = Fleet(fleet.binary, cluster.address, tmp_path / "second")
    # It lasts longer than the second fleet needs to find that the nodes are taken.
    child = fleet.start(load(nginx.url, "300s"))
    fleet.wait_until_running(NODES)
    second.run(load(nginx.url, "1s"), "--node-timeout", "1s").exits_with(1).complains_of(
        f"{NODES} workers need {NODES} nodes", f"{NODES} of {NODES} CPUs are taken, by another fleet or job")
    second.leaves_nothing()
    second.close()
    child.send_signal(signal.SIGINT)
    assert "worker-lost" not in finish(child).exits_with(130).doubts()


@pytest.mark.long
def test_without_the_head_the_run_ends_and_no_load_continues(binary: Path, tmp_path: Path, nginx: Nginx) -> None:
    own = RayCluster()
    try:
        fleet = Fleet(binary, own.address, tmp_path)
        child = fleet.start(load(nginx.url, "300s"))
        fleet.wait_until_running(1)
        own.cluster.remove_node(own.cluster.head_node, allow_graceful=False)
        assert "was lost" in finish(child).exits_with(1).err
        fleet.leaves_nothing()
        fleet.close()
    finally:
        own.close()
