"""Chooses the nodes of a Ray cluster and brings straingauge to them."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import socket
import time
import zlib
from typing import Any, Callable, Dict, List, Optional, Set, Tuple

from . import growth, node
from .order import FleetError, Order

PROBE_S = 5.0
STOP_S = 5.0
#: The first version that can also ask an autoscaler for nodes with labels.
LABELS_SINCE = (2, 51)
#: A worker on a node that joined later may take this long to start.
JOIN_S = 30.0


class Member:
    """A node that takes part, with its name for messages and the actor that holds its worker."""

    def __init__(self, name: str, actor: Any) -> None:
        self.name = name
        self._actor = actor

    def write(self, data: bytes) -> Any:
        """Awaitable that sends bytes to the worker. Calls of one kind keep their order."""
        return self._actor.write.options(concurrency_group="write").remote(data)

    def read(self) -> Any:
        """Awaitable that returns bytes from the worker, or no bytes and the reason why it ended."""
        return self._actor.read.options(concurrency_group="read").remote()

    def stop(self, timeout_s: float) -> Any:
        """Awaitable that ends the worker."""
        return self._actor.stop.options(concurrency_group="stop").remote(timeout_s)

    def is_there(self) -> Any:
        """Awaitable that completes when the worker is running."""
        return self._actor.is_there.remote()

    def kill(self, ray: Any) -> None:
        """Ends the actor."""
        ray.kill(self._actor)


class Cluster:
    """The part of a Ray cluster that one fleet uses: one worker on each of several nodes. `close` gives it back."""

    def __init__(self, order: Order, tell: Callable[[str], None], is_over: Callable[[], bool]) -> None:
        self._order = order
        self._tell = tell
        self._is_over = is_over
        self._ray = _ray()
        self._group: Optional[Any] = None
        self._request = growth.Request()
        self._size = growth.Size(order.most_workers or 0)
        self._actor: Any = None
        self._program: Tuple[str, List[Any]] = ("", [])
        #: Number of workers that were ever started. The name of a worker that was just killed may still be taken.
        self._hired = 0
        #: Ray's identifiers of the nodes that were considered.
        self._seen: Set[str] = set()
        self.members: List[Member] = []

    @property
    def may_grow(self) -> bool:
        """Whether nodes that join the cluster later may take part."""
        return self._order.may_grow

    def open(self) -> None:
        """Connects, reserves nodes and starts the workers. A FleetError holds the reason in one sentence."""
        until = time.monotonic() + self._order.wait_s
        if self._order.labels:
            self._check_labels_are_known()
        self._connect()
        self._set_aside(until)
        self._start(until)

    def _check_labels_are_known(self) -> None:
        version, since = str(self._ray.__version__), LABELS_SINCE
        if tuple(int(part) for part in version.split(".")[:2]) < since:
            raise FleetError(
                f"--worker-label needs Ray {since[0]}.{since[1]} or later, and this is Ray {version}: --worker-resource works with every one")

    def _connect(self) -> None:
        address = self._order.address or os.environ.get("RAY_ADDRESS") or "auto"
        self._tell(f"connecting to Ray ({address})")
        _probe(address)
        try:
            self._ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        except Exception as why:  # each error of Ray is the reason why there is no fleet
            if address == "auto":
                raise FleetError(
                    "no Ray cluster is found on this machine: start one (ray start --head), or name it with --address HOST:6379"
                ) from None
            raise FleetError(f"cannot join the Ray cluster at {address}: {sentence(why)}") from None

    def _set_aside(self, until: float) -> None:
        from ray.util.placement_group import placement_group

        order = self._order
        count = order.workers or len(self._able())
        if count == 0:
            raise FleetError(f"no node of the Ray cluster has {order.wanted()}: it has {_listed(self._alive(), order)}")
        self._ask_for_nodes()
        self._tell(f"setting {count} nodes aside")
        # A bundle must not be empty.
        bundle = {"CPU": max(order.worker_cpus, 0.001), **order.resources}
        where = {"bundle_label_selector": [order.labels] * count} if order.labels else {}
        self._group = placement_group([bundle] * count, strategy="STRICT_SPREAD", **where)
        while not self._group.wait(min(0.5, max(0.0, until - time.monotonic()))):
            if time.monotonic() >= until or self._is_over():
                raise FleetError(
                    f"{count} workers need {count} nodes with {order.wanted('free ')} each, and within {order.wait_s:g} s the Ray "
                    f"cluster did not have them: it has {_listed(self._alive(), order)}{self._taken()}"
                )

    def _taken(self) -> str:
        """Describes the share of the cluster that other work uses, if any."""
        free, all_cpus = (resources().get("CPU", 0.0) for resources in (self._ray.available_resources, self._ray.cluster_resources))
        return f"; {all_cpus - free:g} of {all_cpus:g} CPUs are taken, by another fleet or job" if free < all_cpus else ""

    def _start(self, until: float) -> None:
        from ray.util.placement_group import placement_group_table
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        ray, order = self._ray, self._order
        assert self._group is not None
        digest, packed = _packed(order.binary)
        # In a list it travels to a node only when the node requests it.
        self._program = (digest, [ray.put(packed)])
        # The nodes need only Ray. The program travels to them.
        ray.cloudpickle.register_pickle_by_value(node)
        self._actor = ray.remote(concurrency_groups={"write": 1, "read": 1, "stop": 1})(node.WorkerNode)
        places: Dict[int, str] = placement_group_table(self._group)["bundles_to_node_id"]
        addresses = {one["NodeID"]: one["NodeManagerAddress"] for one in self._alive()}
        for index in range(len(places)):
            self._hire(places[index], addresses.get(places[index], "?"),
                       PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=index))
        self._tell(f"sending straingauge to {len(self.members)} nodes and starting it")
        waiting = {member.is_there(): member for member in self.members}
        while waiting:
            done, _ = ray.wait(list(waiting), timeout=0.5)
            for reference in done:
                member = waiting.pop(reference)
                try:
                    ray.get(reference)
                except Exception as why:
                    raise FleetError(f"the worker on node {member.name} cannot be started: {sentence(why)}") from None
            if waiting and (time.monotonic() >= until or self._is_over()):
                names = ", ".join(member.name for member in waiting.values())
                raise FleetError(f"no worker within {order.wait_s:g} s on {names}: is the node reachable?")

    def _hire(self, place: str, address: str, strategy: Any) -> Member:
        """A worker on the node with this identifier."""
        order = self._order
        digest, shipped = self._program
        self._hired += 1
        number = self._hired
        options = self._actor.options(
            name=f"straingauge client {number}", num_cpus=order.worker_cpus, resources=order.resources, max_restarts=0,
            scheduling_strategy=strategy)
        handle = options.remote(number, order.prefix_of(number), order.arguments, digest, shipped)
        # Addresses may be shared: several nodes on a machine.
        member = Member(f"{address} {place[:6]}", handle)
        self._seen.add(place)
        self.members.append(member)
        return member

    def join(self) -> List[Member]:
        """Starts a worker on each node that has joined since the last call. One that cannot be started is left
        out, and not tried again."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        ray, order = self._ray, self._order
        self._ask_for_nodes()
        came = [one for one in self._able() if one["NodeID"] not in self._seen] if order.may_grow else []
        room = len(came) if order.most_workers is None else max(0, order.most_workers - len(self.members))
        joined = [
            self._hire(one["NodeID"], one["NodeManagerAddress"], NodeAffinitySchedulingStrategy(one["NodeID"], soft=False))
            for one in came[:room]
        ]
        started = {member.is_there(): member for member in joined}
        there, _ = ray.wait(list(started), num_returns=len(started), timeout=JOIN_S) if started else ([], [])
        usable = []
        for reference, member in started.items():
            try:
                if reference not in there:
                    raise TimeoutError
                ray.get(reference)
                usable.append(member)
            except Exception:  # Ray raises many kinds of errors: the load continues without that node
                self.members.remove(member)
                member.kill(ray)
        return usable

    def _ask_for_nodes(self) -> None:
        """Asks an autoscaler to add nodes up to the maximum."""
        order = self._order
        if order.most_workers is not None:
            address, able = str(self._ray.get_runtime_context().gcs_address), self._able()
            count = self._size.next(len(able), growth.refused(address))
            self._request.ask(growth.bundles(able, count, order.worker_cpus, order.resources), order.labels, address)

    def _able(self) -> List[Dict[str, Any]]:
        return [one for one in self._alive() if self._order.fits(one)]

    def _alive(self) -> List[Dict[str, Any]]:
        return [one for one in self._ray.nodes() if one["Alive"]]

    def close(self) -> None:
        """Ends the workers and leaves the cluster, even one that is only partly set up."""
        ray = self._ray
        if not ray.is_initialized():
            return
        try:
            stopped = [member.stop(STOP_S) for member in self.members]
            if stopped:
                # A node that is cut off does not answer. Its worker has ended with the driver's lease.
                ray.wait(stopped, num_returns=len(stopped), timeout=STOP_S + 1)
            for member in self.members:
                member.kill(ray)
            self._request.withdraw()
            if self._group is not None:
                from ray.util.placement_group import remove_placement_group

                remove_placement_group(self._group)
        except Exception:  # the cluster has ended, and the workers with it
            pass
        finally:
            ray.shutdown()


def _ray() -> Any:
    # Keeps Ray's question about usage statistics out of a helper's output.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError as why:
        raise FleetError(
            f"Ray is missing in this Python ({sentence(why)}): pip install 'straingauge[fleet]' (python/), or name another with --python"
        ) from None
    return ray


def _probe(address: str) -> None:
    """Reports a cluster that does not answer, without the minutes that Ray would wait."""
    host, colon, port = address.rpartition(":")
    if not colon or "://" in address or not port.isdigit():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=PROBE_S).close()
    except (OSError, OverflowError) as why:
        raise FleetError(f"no Ray cluster answers at {address} ({why}): is its head running there (ray start --head)?") from None


def _packed(binary: str) -> Tuple[str, bytes]:
    """The program's SHA-256, and the program compressed."""
    try:
        with open(binary, "rb") as file:
            program = file.read()
    except OSError as why:
        raise FleetError(f"straingauge cannot be read to be sent to the nodes: {why}") from None
    return hashlib.sha256(program).hexdigest(), zlib.compress(program, 1)


def _listed(nodes: List[Dict[str, Any]], order: Order) -> str:
    """Lists the nodes, each with its amounts of the resources that a worker needs."""
    def has(one: Dict[str, Any]) -> str:
        amounts = [f"{one['Resources'].get(name, 0.0):g} {word}" for name, word in [("CPU", "CPUs"), *((own, own) for own in order.resources)]]
        labels = one.get("Labels") or {}
        return ", ".join([*amounts, *(f"{key}={labels[key]}" if key in labels else f"no {key}" for key in order.labels)])

    words = [f"{one['NodeManagerAddress']} ({has(one)})" for one in nodes]
    more = f" and {len(words) - 8} more" if len(words) > 8 else ""
    return f"{len(words)} nodes: {', '.join(words[:8])}{more}" if words else "no node"


def sentence(why: BaseException) -> str:
    """The cause in Ray's message, as one line of limited length without the place where it was raised."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(why))
    raised = list(re.finditer(r"^[\w.]*(?:Error|Exception|Exit|Interrupt): ", text, re.M))
    text = " ".join(text[raised[-1].start():].split() if raised else text.split()) or type(why).__name__
    return text if len(text) <= 300 else text[:300] + "..."
