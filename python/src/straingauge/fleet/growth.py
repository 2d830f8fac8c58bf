"""Requests of a fleet to the cluster's autoscaler, until the fleet ends.

Without a request an autoscaler adds no node for a fleet that has already begun. A request names resources of
the whole cluster. Ray keeps it until it is replaced, even after its process has ended. So another process
withdraws it if this one is killed.

"""

from __future__ import annotations

import contextlib
import importlib
import math
import subprocess
import sys
from typing import Any, Dict, List, Optional

HEAD = "node:__internal_head__"

#: Waits for the end of its input. If no byte came before the end, the request was not withdrawn. A cluster that is
#: gone does not answer.
GUARD = """
import os, signal, sys
if not os.read(0, 1):
    signal.alarm(60)
    import logging, ray
    from ray.autoscaler.sdk import request_resources
    ray.init(address=sys.argv[1], log_to_driver=False, logging_level=logging.ERROR)
    request_resources(bundles=[])
"""


def bundles(able: List[Dict[str, Any]], most: int, worker_cpus: float, resources: Dict[str, float]) -> List[Dict[str, int]]:
    """Resources for one node each, so that the request means this many nodes. Each is a whole node, because two on
    one node would not add one.

    `able` lists the nodes that can have a worker, as Ray describes them. A node that is still to come is
    assumed to be as large as the smallest of them, ignoring the head if there are others. The request is made
    again when more have come.

    """
    def cpus(nodes: List[Dict[str, Any]]) -> List[int]:
        return sorted((max(1, int(one["Resources"]["CPU"])) for one in nodes), reverse=True)

    there = cpus(able)[:most]
    alike = cpus([one for one in able if HEAD not in one["Resources"]]) or there or [max(1, math.ceil(worker_cpus))]
    # Earlier versions of Ray accept only whole numbers; nodes have whole amounts.
    others = {name: math.ceil(amount) for name, amount in resources.items()}
    return [{"CPU": count, **others} for count in there + [alike[-1]] * (most - len(there))]


def refused(address: str) -> int:
    """Number of bundles in a request that version 2 of the autoscaler cannot meet, and for which it adds no node
    at all; 0 if it can.

    Ray tells this only to its own tools.

    """
    try:
        raylet: Any = importlib.import_module("ray._raylet")
        messages: Any = importlib.import_module("ray.core.generated.autoscaler_pb2")
        reply = messages.GetClusterStatusReply()
        reply.ParseFromString(raylet.GcsClient(address=address).get_cluster_status())
        constraints = reply.autoscaling_state.infeasible_cluster_resource_constraints
        return sum(int(request.count) for constraint in constraints for request in constraint.resource_requests)
    except Exception:  # version 1 adds the nodes that it can, and earlier versions of Ray cannot be asked
        return 0


class Size:
    """Number of nodes to ask for: as many as may take part, or the maximum of the autoscaler if that is lower."""

    def __init__(self, most: int) -> None:
        self._most = self._asked = most
        #: The smallest number that was refused.
        self._refused = most + 1

    def next(self, there: int, refused_now: int) -> int:
        """`there` is the number of nodes that have come; `refused_now` is the number of bundles in a refused
        request, or 0."""
        if self._asked > there:
            if refused_now != self._asked:
                return self._asked
            self._refused = self._asked
        # As many again are tried once these nodes have come.
        self._asked = min(self._most, max(there, (there + self._refused) // 2))
        return self._asked


class Request:
    """The request of one fleet."""

    def __init__(self) -> None:
        self._asked: Optional[List[Dict[str, int]]] = None
        self._guard: Optional["subprocess.Popen[bytes]"] = None

    def ask(self, wanted: List[Dict[str, int]], labels: Dict[str, str], address: str) -> None:
        """Asks for these, on nodes with these labels, instead of the previous request. A cluster without an
        autoscaler keeps its nodes.

        """
        if wanted == self._asked:
            return
        from ray.autoscaler.sdk import request_resources

        with contextlib.suppress(Exception):
            if self._guard is None:
                self._guard = subprocess.Popen(
                    [sys.executable, "-c", GUARD, address], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL, start_new_session=True)
            where: Dict[str, Any] = {"bundle_label_selectors": [labels] * len(wanted)} if labels else {}
            request_resources(bundles=wanted, **where)
            self._asked = wanted

    def withdraw(self) -> None:
        """Withdraws the request, so that the autoscaler may remove unused nodes."""
        if self._guard is None:
            return
        from ray.autoscaler.sdk import request_resources

        # If that fails, the guard tries.
        request_resources(bundles=[])
        guard, self._guard = self._guard, None
        guard.communicate(b".")
