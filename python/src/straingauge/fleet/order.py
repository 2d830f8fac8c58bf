"""The driver's order to the helper: one JSON object, the first line of its input."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass, fields
from typing import Any, Dict, List, Optional

from ..errors import printable

_ONE_VERSION = "are straingauge and its Python package of one version?"


class FleetError(Exception):
    """Why there is no fleet, in one sentence."""


@dataclass(frozen=True)
class Order:
    """An ordered fleet."""

    binary: str
    """straingauge for the nodes."""
    address: Optional[str]
    """Ray's address, as HOST:PORT; None for the cluster that Ray finds."""
    workers: Optional[int]
    """The number of workers to begin with; None for one on every node, also on those that join later."""
    most_workers: Optional[int]
    """The most, where nodes that join later take part."""
    worker_cpus: float
    """CPUs that Ray reserves for each."""
    resources: Dict[str, float]
    """Custom resources that Ray reserves for each."""
    labels: Dict[str, str]
    """Labels that each node must have."""
    prefix: List[str]
    """Words before the worker's command; {number} is replaced by its number, from 1."""
    arguments: List[str]
    """Words after the program's name."""
    wait_s: float
    """How long nodes and workers may take to start."""

    @staticmethod
    def read(line: str) -> "Order":
        """Parses the driver's order; FleetError if it is not valid."""
        try:
            content = json.loads(line)
        except ValueError:
            raise FleetError("the helper of straingauge fleet is started by straingauge fleet, not by hand") from None
        if not isinstance(content, dict):
            raise FleetError("the helper's order is not an object")
        try:
            prefix = shlex.split(_member(content, "prefix", str, "") or "")
        except ValueError as why:
            raise FleetError(f"--worker-prefix is not a list of words: {why}") from None
        unknown = sorted(set(content) - {one.name for one in fields(Order)})
        if unknown:
            raise FleetError(f"the helper's order has an unknown '{printable(unknown[0], 40)}'; {_ONE_VERSION}")
        workers, most = content.get("workers"), content.get("most_workers")
        return Order(
            binary=_member(content, "binary", str),
            address=_member(content, "address", str, "") or None,
            workers=None if workers is None else _member(content, "workers", int),
            most_workers=None if most is None else _member(content, "most_workers", int),
            worker_cpus=float(_member(content, "worker_cpus", (int, float))),
            resources={name: float(amount) for name, amount in _member(content, "resources", dict, {}).items()},
            labels={key: str(value) for key, value in _member(content, "labels", dict, {}).items()},
            prefix=prefix,
            arguments=[str(word) for word in _member(content, "arguments", list)],
            wait_s=float(_member(content, "wait_s", (int, float))),
        )

    @property
    def may_grow(self) -> bool:
        """Nodes that join the cluster later take part."""
        return self.workers is None or self.most_workers is not None

    def fits(self, one: Dict[str, Any]) -> bool:
        """Whether a node, as Ray lists it, can have a worker."""
        has, labels = one["Resources"], one.get("Labels") or {}
        return (has.get("CPU", 0.0) >= self.worker_cpus
                and all(has.get(name, 0.0) >= amount for name, amount in self.resources.items())
                and all(labels.get(key) == value for key, value in self.labels.items()))

    def wanted(self, free: str = "") -> str:
        """What a node needs for a worker."""
        return ", ".join([f"{self.worker_cpus:g} {free}CPUs", *(f"{amount:g} {free}{name}" for name, amount in self.resources.items()),
                          *(f"the label {key}={value}" for key, value in self.labels.items())])

    def prefix_of(self, number: int) -> List[str]:
        """The words before the command of one worker."""
        return [word.replace("{number}", str(number)) for word in self.prefix]


def _member(content: Any, name: str, kind: Any, absent: Any = None) -> Any:
    value = content.get(name)
    value = absent if value is None else value
    if not isinstance(value, kind):
        raise FleetError(f"the helper's order has no usable '{name}'; {_ONE_VERSION}")
    return value
