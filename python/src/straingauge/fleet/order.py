"""The driver's order to the helper: one JSON object in the first line of its input."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional


class FleetError(Exception):
    """Why there is no fleet, in one sentence."""


@dataclass(frozen=True)
class Order:
    """An order for a fleet."""

    binary: str
    """Path of the straingauge program for the nodes."""
    address: Optional[str]
    """Ray's address as HOST:PORT; None for the cluster that Ray finds."""
    workers: Optional[int]
    """Number of initial workers; None for one on every node, including nodes that join later."""
    worker_cpus: float
    """CPUs that Ray reserves for each worker."""
    arguments: List[str]
    """Words after the program's name."""
    wait_s: float
    """Timeout in seconds for starting nodes and workers."""
    prefix: Optional[str] = None
    """Words in front of the worker's command, split like a shell's. {number} is replaced by the worker's number,
    from 1."""
    most_workers: Optional[int] = None
    """Maximum number of workers, if nodes that join later take part."""
    resources: Dict[str, float] = field(default_factory=dict)
    """Custom resources that Ray reserves for each worker."""
    labels: Dict[str, str] = field(default_factory=dict)
    """Labels that each node must have."""

    @staticmethod
    def read(line: str) -> "Order":
        """Parses the driver's order. Raises FleetError if it is not valid."""
        try:
            order = Order(**json.loads(line))
        except ValueError:
            raise FleetError("the helper of straingauge fleet is started by straingauge fleet, not by hand") from None
        except TypeError as why:
            raise FleetError(f"the helper does not know this order ({why}); are straingauge and its Python package of one version?") from None
        try:
            order.prefix_of(1)
        except ValueError as why:
            raise FleetError(f"--worker-prefix is not a list of words: {why}") from None
        return order

    @property
    def may_grow(self) -> bool:
        """Whether nodes that join the cluster later take part."""
        return self.workers is None or self.most_workers is not None

    def fits(self, one: Dict[str, Any]) -> bool:
        """Whether a node in Ray's list can have a worker."""
        has, labels = one["Resources"], one.get("Labels") or {}
        return (has.get("CPU", 0.0) >= self.worker_cpus
                and all(has.get(name, 0.0) >= amount for name, amount in self.resources.items())
                and all(labels.get(key) == value for key, value in self.labels.items()))

    def wanted(self, free: str = "") -> str:
        """Describes the resources that a worker needs on a node."""
        return ", ".join([f"{self.worker_cpus:g} {free}CPUs", *(f"{amount:g} {free}{name}" for name, amount in self.resources.items()),
                          *(f"the label {key}={value}" for key, value in self.labels.items())])

    def prefix_of(self, number: int) -> List[str]:
        """The words in front of one worker's command."""
        return [word.replace("{number}", str(number)) for word in shlex.split(self.prefix or "")]
