"""`straingauge fleet` on a Ray cluster of three nodes on this machine, against nginx."""

from __future__ import annotations

import os
import random
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Iterator, List, Optional

import pytest
from conftest import ENDS
from fleet_rig import (
    MARK, NODES, Fleet, Namespaces, Nginx, RayCluster, command_lines, finish, free_port, is_v2, missing, wait_until
)

import straingauge
from straingauge import histogram

WHY_NOT = missing()
pytestmark = [pytest.mark.program, pytest.mark.skipif(WHY_NOT is not None, reason=WHY_NOT or "")]

#: Ten in bench/fleet/repeats.
REPEATS = int(os.environ.get("STRAINGAUGE_FLEET_REPEATS", "2"))
#: 200 by hand.
KILLS = int(os.environ.get("STRAINGAUGE_FLEET_KILLS", "6"))
QUIET = ["--quiet", "--json", "--warmup", "0s", "--threads", "1"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    made = RayCluster()
    yield made
    made.close()
    assert not made.processes(), "processes of Ray are left"


def load(url: str, duration: str, *more: str) -> List[str]:
    return ["load", url, "--connections", "6", "--rate", "600", "--duration", duration, *QUIET, *more]


@pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")
def test_totals_of_nodes_in_namespaces_are_those_of_the_log_and_histograms_are_added_whole(fleet: Fleet) -> None:
    namespaces = Namespaces(NODES)
    try:
        server = Nginx(Namespaces.server_address, namespaces.server)
        try:
            inside = f"ip netns exec {namespaces.client(1)[:-1]}{{number}}"
            kept = fleet.folder / "run"
            what = load(server.url(), "700ms", "--allow-target", server.address, "--out", str(kept))
            json = fleet.run(what, ["--source-interface", "up0"], inside).exits_with(0).json()
            outcomes = json["point"]["outcomes"]
            assert outcomes["ok"] > 0 and outcomes["sent"] == outcomes["ok"] + outcomes["unfinished"], outcomes
            logged = server.end_and_count_ok()
            assert outcomes["ok"] <= logged <= outcomes["ok"] + outcomes["unfinished"]
        finally:
            server.close()
    finally:
        namespaces.close()
    # What each worker sent, decoded here, against what the driver made of it: bucket by bucket.
    run = straingauge.open_run(kept)
    merged = run.histograms(0)["response"]
    by_value: "dict[int, int]" = {}
    for number in range(1, NODES + 1):
        (result,) = fleet.messages(number, "result")
        encoded = dict(result["latencies"])["response"]["v2"]
        assert is_v2(encoded) and result["outcomes"]["ok"] > 0
        for item in histogram.decode(encoded).get_recorded_iterator():
            by_value[item.value_iterated_to] = by_value.get(item.value_iterated_to, 0) + item.count_added_in_this_iter_step
    assert by_value == {item.value_iterated_to: item.count_added_in_this_iter_step for item in merged.get_recorded_iterator()}
    figures = run.points[0].figures
    for number in range(1, NODES + 1):
        offset = figures[f"worker.{number}.clock_offset_us"].value
        uncertain = figures[f"worker.{number}.clock_uncertainty_us"].value
        # One machine has one clock: the offset is within what its estimate says of itself.
        assert offset is not None and uncertain is not None and abs(offset) <= uncertain + 1


@pytest.mark.long
def test_a_log_of_the_driver_and_cold_connections_are_divided_over_nodes(fleet: Fleet, nginx: Nginx) -> None:
    log = fleet.folder / "access.log"
    lines = [
        f'10.0.0.{number % 12} - - [01/May/2015:10:00:{number // 40:02} +0000] "GET /1k.bin HTTP/1.1" 200 1024\n' for number in range(360)
    ]
    log.write_text("".join(lines))
    json = fleet.run(["load", nginx.url(""), "--trace", str(log), "--speed", "10", "--cold", "30", *QUIET]).exits_with(0).json()
    assert json["point"]["outcomes"]["ok"] == len(lines), json
    assert json["point"]["workload"]["replay"]["lines"] == len(lines)
    assert json["point"]["figures"]["client.cold_connections"]["value"] == 30
    # Each node has some of the clients, and none has those of another.
    by_node = [sum(result["outcomes"]["ok"] for result in fleet.messages(number, "result")) for number in range(1, NODES + 1)]
    assert sum(by_node) == len(lines) and all(count % 30 == 0 for count in by_node), by_node
    assert nginx.end_and_count_ok() == len(lines)


def test_a_worker_killed_in_the_middle_ends_the_run_with_its_node(fleet: Fleet, nginx: Nginx) -> None:
    child = fleet.start(load(nginx.url(), "30s"))
    fleet.wait_until_running(2)
    os.kill(fleet.worker_pid(2), signal.SIGKILL)
    said = finish(child).exits_with(1).complains_of("client 2 (node ", "was lost", "it ended")
    assert "worker-lost" in said.doubts()


@pytest.mark.long
def test_with_go_on_the_other_nodes_measure_to_the_end(fleet: Fleet, nginx: Nginx) -> None:
    child = fleet.start(load(nginx.url(), "6s", "--on-worker-loss", "go-on"))
    fleet.wait_until_running(1)
    # Ray's own process on the node: the worker ends with its input.
    os.kill(actor_of(fleet.worker_pid(1)), signal.SIGKILL)
    said = finish(child).exits_with(0)
    assert "worker-lost" in said.doubts()
    figures = said.json()["point"]["figures"]
    assert "Ray has lost its process" in figures["worker.1.throughput_per_sec"]["not_measured"], figures
    assert figures["worker.2.throughput_per_sec"]["value"] > 0


def actor_of(worker: int) -> int:
    """The process that started a worker: over its shell, which keeps what it says."""
    def parent(pid: int) -> int:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])

    at = worker
    while "ray::" not in Path(f"/proc/{at}/cmdline").read_text():
        at = parent(at)
    return at


def test_a_driver_killed_outright_leaves_no_load_and_no_helper(fleet: Fleet, nginx: Nginx) -> None:
    child = fleet.start(load(nginx.url(), "300s"))
    for number in range(1, NODES + 1):
        fleet.wait_until_running(number)
    child.kill()
    child.communicate()
    fleet.leaves_nothing()


@pytest.mark.long
def test_ctrl_c_keeps_what_the_nodes_measured(fleet: Fleet, nginx: Nginx) -> None:
    child = fleet.start(load(nginx.url(), "300s"))
    for number in range(1, NODES + 1):
        fleet.wait_until_running(number)
    child.send_signal(signal.SIGINT)
    said = finish(child).exits_with(130)
    assert said.json()["point"]["outcomes"]["ok"] > 0


@pytest.mark.long
def test_find_works_over_a_fleet_as_it_does_alone(fleet: Fleet, nginx: Nginx) -> None:
    kept = fleet.folder / "run"
    what = ["find", nginx.url(), "--sweep", "connections", "--duration", "300ms", "--warmup", "100ms", "--repeats", "1",
            "--max-connections", "16", "--budget", "8s", "--profile", "never", "--quiet", "--json", "--out", str(kept)]
    fleet.run(what, ["--workers", "2"]).exits_with(0)
    run = straingauge.open_run(kept)
    points = run.sweep("connections")
    assert run.record.status == "complete"
    # A load of one connection is one worker's; larger ones are shared.
    shared = [point for point in points if point.connections >= 2]
    assert shared and all(point.figures[f"worker.{number}.throughput_per_sec"].value for point in shared for number in (1, 2))
    assert "fleet" in str(run.record.scenario["repeat_command"])


def find(url: str, kept: Path, budget: str, duration: str = "300ms") -> List[str]:
    return ["find", url, "--sweep", "connections", "--duration", duration, "--warmup", "0s", "--min-connections", "4", "--max-connections",
            "16", "--budget", budget, "--profile", "never", "--quiet", "--json", "--out", str(kept)]


def workers_by_point(kept: Path) -> "List[set[int]]":
    """Those that had a part of each point; a point with one more than the point before it says so."""
    found: "List[set[int]]" = []
    for point in straingauge.open_run(kept).points:
        shares = {number: figure.value for number in range(1, NODES + 2) if (figure := point.figures.get(f"worker.{number}.share"))}
        assert abs(sum(share or 0.0 for share in shares.values()) - 1.0) < 1e-9, shares
        sent = sum(point.figures[f"worker.{number}.throughput_per_sec"].value or 0.0 for number in shares)
        assert abs(sent - (point.figures["client.throughput_per_sec"].value or 0.0)) <= 0.05 * sent, "the parts are the whole"
        is_more = bool(found) and len(shares) > len(found[-1])
        assert any("joined the cluster" in doubt.what for doubt in point.doubts) == is_more, point.doubts
        found.append(set(shares))
    return found


def test_more_nodes_than_it_began_with_send_from_the_next_point_on(fleet: Fleet, nginx: Nginx) -> None:
    kept = fleet.folder / "run"
    fleet.run(find(nginx.url(), kept, "40s"), ["--workers", f"2..{NODES}"]).exits_with(0)
    workers = workers_by_point(kept)
    assert workers[0] == {1, 2} and workers[-1] == set(range(1, NODES + 1)), workers


@pytest.mark.long
def test_a_node_that_comes_late_joins_a_find_that_runs(cluster: RayCluster, fleet: Fleet, nginx: Nginx) -> None:
    kept = fleet.folder / "run"
    child = fleet.start(find(nginx.url(), kept, "60s"))
    fleet.wait_until_running(NODES)
    late = cluster.add()
    try:
        finish(child).exits_with(0)
    finally:
        cluster.cluster.remove_node(late)
    workers = workers_by_point(kept)
    assert workers[0] == set(range(1, NODES + 1)) and workers[-1] == set(range(1, NODES + 2)), workers


def test_workers_land_only_on_nodes_with_the_resources_and_the_labels(cluster: RayCluster, fleet: Fleet, nginx: Nginx) -> None:
    def nodes(*options: str) -> "set[int]":
        """The raylets under which a worker ran."""
        kept = fleet.folder / "raylets"
        kept.write_text("")
        fleet.run(load(nginx.url(), "200ms"), list(options), f"sh -c 'echo $RAY_RAYLET_PID >> {kept}; exec \"$@\"' sh").exits_with(0)
        return {int(line) for line in kept.read_text().split()}

    in_a, in_b = (int(node.all_processes["raylet"][0].process.pid) for node in cluster.loaders)
    assert nodes("--worker-resource", "load=1") == {in_a, in_b}
    assert nodes("--worker-resource", "load=0.5", "--worker-label", "zone=b") == {in_b}
    one_second = load(nginx.url(), "1s")
    fleet.run(one_second, ["--worker-resource", "load=1", "--worker-label", "zone=c"]).exits_with(1).complains_of(
        "no node of the Ray cluster has 1 CPUs, 1 load, the label zone=c", "(1 CPUs, 0 load, no zone)", "(1 CPUs, 1 load, zone=a)")
    fleet.run(one_second, ["--workers", "2", "--worker-label", "zone=b", "--node-timeout", "2s"]).exits_with(1).complains_of(
        "2 workers need 2 nodes with 1 free CPUs, the label zone=b each", "(1 CPUs, zone=b)")
    fleet.leaves_nothing()


def test_a_fleet_that_cannot_be_is_one_sentence(fleet: Fleet, nginx: Nginx) -> None:
    many = [*load(nginx.url(), "1s")]
    fleet.run(many, ["--workers", str(NODES + 1), "--node-timeout", "2s"]).exits_with(1).complains_of(
        f"{NODES + 1} workers need {NODES + 1} nodes", f"{NODES} nodes")
    fleet.run(many, inside="no-such-program-here").exits_with(1).complains_of(
        "(node ", "cannot be used", "no-such-program-here")
    fleet.run(load("http://192.0.2.99/", "1s")).exits_with(2).complains_of("--allow-target 192.0.2.99")
    assert nginx.end_and_count_ok() == 0


def test_a_second_fleet_on_the_same_nodes_is_refused_and_does_not_disturb_the_first(
        cluster: RayCluster, fleet: Fleet, nginx: Nginx, tmp_path: Path) -> None:
    (tmp_path / "second").mkdir()
    second = Fleet(cluster.address, tmp_path / "second")
    # Longer than the second one can take to find the nodes taken.
    child = fleet.start(load(nginx.url(), "300s"))
    fleet.wait_until_running(NODES)
    second.run(load(nginx.url(), "1s"), ["--node-timeout", "1s"]).exits_with(1).complains_of(
        f"{NODES} workers need {NODES} nodes", f"{NODES} of {NODES} CPUs are taken, by another fleet or job")
    second.leaves_nothing()
    second.close()
    child.send_signal(signal.SIGINT)
    said = finish(child).exits_with(130)
    outcomes = said.json()["point"]["outcomes"]
    logged = nginx.end_and_count_ok()
    assert "worker-lost" not in said.doubts() and 0 < outcomes["ok"] <= logged <= outcomes["ok"] + outcomes["unfinished"], outcomes


def part_of(fleet: Fleet, victim: str, cluster: RayCluster) -> Optional[int]:
    """A process of a fleet or of its cluster; None while there is none of that kind."""
    if victim == "raylet":
        node = next(iter(cluster.cluster.worker_nodes))
        return int(node.all_processes["raylet"][0].process.pid)
    lines = dict(command_lines())
    with_mark = [(pid, lines.get(pid, "")) for pid in fleet.processes()]
    if victim == "driver":
        return next((pid for pid, line in with_mark if " fleet --python" in line and "straingauge.fleet" not in line), None)
    if victim == "helper":
        return next((pid for pid, line in with_mark if "-m straingauge.fleet" in line), None)
    workers = [pid for pid, line in with_mark if line.endswith("load --worker ") and not line.startswith(("sh ", "env "))]
    if not workers or victim == "worker":
        return workers[0] if workers else None
    try:
        return actor_of(workers[0])
    except (OSError, IndexError):
        return None


@pytest.mark.long
def test_whoever_is_killed_and_whenever_the_load_ends_and_what_was_measured_is_kept(
        cluster: RayCluster, tmp_path: Path, nginx: Nginx) -> None:
    seed = int(os.environ.get("STRAINGAUGE_FLEET_SEED", str(time.time_ns() % 100_000)))
    draw, killed = random.Random(seed), 0
    for attempt in range(KILLS):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        fleet, kept = Fleet(cluster.address, folder), folder / "run"
        victim, after_s, is_find = draw.choice(["worker", "actor", "helper", "raylet", "driver"]), draw.uniform(0, 8), draw.random() < 0.5
        case = f"seed {seed}, attempt {attempt}: {victim} after {after_s:.2f} s of {'find' if is_find else 'load'}"
        child = fleet.start(find(nginx.url(), kept, "8s") if is_find else load(nginx.url(), "6s", "--out", str(kept)))
        time.sleep(after_s)
        pid = part_of(fleet, victim, cluster)
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
            killed += 1
        said = finish(child)
        assert said.code in ((0, 1, -signal.SIGKILL) if victim == "driver" else (0, 1)), f"{case}: {said.code}\n{said.err}"
        sentences = [line for line in said.err.splitlines() if line.startswith("straingauge: ")]
        assert len(sentences) == (1 if said.code == 1 else 0) and "Traceback" not in said.err, f"{case}:\n{said.err}"
        time.sleep(5.5)
        requests = nginx.log.stat().st_size
        time.sleep(0.5)
        assert nginx.log.stat().st_size == requests, f"{case}: load goes on"
        fleet.leaves_nothing()
        fleet.close()
        if (kept / "run.json").exists():
            run = straingauge.open_run(kept)
            for point in run.points:
                counts, times = point.outcomes, run.histograms(point.index)["response"]
                assert counts["sent"] + counts["carried_in"] == sum(counts[end] for end in ENDS), f"{case}: {counts}"
                assert times.get_total_count() == counts["ok"] + counts["non_2xx"], f"{case}: {counts}"
            assert is_find or said.code != 0 or run.points[0].outcomes["ok"] > 0, case
            assert (run.record.status == "complete") <= (said.code == 0), case
        if victim == "raylet":
            cluster.cluster.remove_node(next(iter(cluster.cluster.worker_nodes)), allow_graceful=False)
            cluster.add()
            cluster.cluster.wait_for_nodes(timeout=120)
    assert killed >= KILLS // 2, f"seed {seed}: {killed} of {KILLS} were there to be killed"


@pytest.mark.long
def test_repeated_runs_leave_no_process_and_no_folder(fleet: Fleet, nginx: Nginx) -> None:
    for _ in range(REPEATS):
        fleet.run(load(nginx.url(), "200ms")).exits_with(0)
        fleet.leaves_nothing()
        # Ray keeps idle processes for later, but none that holds a worker.
        wait_until("no actor is left", lambda: not [line for _, line in command_lines() if line.startswith("ray::WorkerNode")], 60)
    names = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout
    assert f"sgt{os.getpid()}" not in names


@pytest.mark.long
def test_without_its_head_a_run_ends_and_no_load_goes_on(tmp_path: Path, nginx: Nginx) -> None:
    own = RayCluster(2)
    try:
        fleet = Fleet(own.address, tmp_path)
        child = fleet.start(load(nginx.url(), "300s"))
        for number in (1, 2):
            fleet.wait_until_running(number)
        own.cluster.remove_node(own.cluster.head_node, allow_graceful=False)
        said = finish(child).exits_with(1)
        assert "was lost" in said.err, said.err
        fleet.leaves_nothing()
        fleet.close()
    finally:
        own.close()


@pytest.mark.long
def test_a_job_of_the_cluster_ends_as_its_command_does_and_a_stopped_one_leaves_no_load(tmp_path: Path, nginx: Nginx) -> None:
    pytest.importorskip("aiohttp_cors", reason="jobs need Ray's dashboard: pip install 'ray[default]'")
    port = free_port()
    own = RayCluster(1, dashboard_port=port)
    try:
        fleet = Fleet(own.address, tmp_path)

        def job(what: str, *words: str) -> "subprocess.CompletedProcess[str]":
            ray = [sys.executable, "-m", "ray.scripts.scripts", "job", what, "--address", f"http://127.0.0.1:{port}"]
            return subprocess.run([*ray, *words], capture_output=True, text=True, timeout=120)

        def script(name: str, what: List[str]) -> List[str]:
            file = tmp_path / f"{name}.sh"
            file.write_text(f"export {MARK}={fleet.mark} TMPDIR={fleet.temporary}\n{shlex.join(fleet.command(what))}\n")
            return ["--", "sh", str(file)]

        def dashboard_answers() -> Any:
            return job("list").returncode == 0

        wait_until("Ray's dashboard answers", dashboard_answers)
        good = job("submit", *script("good", load(nginx.url(), "500ms")))
        assert good.returncode == 0 and '"outcomes"' in good.stdout, good.stdout + good.stderr
        bad = job("submit", *script("bad", load("http://127.0.0.1:1/", "200ms")))
        assert bad.returncode == 1 and "refused the connection" in bad.stdout, bad.stdout + bad.stderr
        for number in fleet.spoken.iterdir():
            number.unlink()
        job("submit", "--no-wait", "--submission-id", "stopped", *script("long", load(nginx.url(), "300s")))
        fleet.wait_until_running(1)
        stopped = job("stop", "stopped")
        assert stopped.returncode == 0, stopped.stdout + stopped.stderr
        fleet.leaves_nothing()
        fleet.close()
    finally:
        own.close()
