"""The helper of `straingauge fleet`: workers on the nodes of a Ray cluster, their bytes on sockets of this machine.

`straingauge fleet` starts `python3 -m straingauge.fleet` and tells it on its input what is wanted; the helper answers with a
socket for each worker, and ends when its input ends. What goes over the sockets is the worker protocol
(docs/worker-protocol.md), which is not looked at here: shares, clocks, sums and records are the driver's.

Read next: `node` (what runs on a node), `cluster` (which nodes, and how straingauge comes there), `growth` (what an
autoscaler is asked for), `relay` (the bytes).
"""

from .order import FleetError, Order

__all__ = ["FleetError", "Order"]
