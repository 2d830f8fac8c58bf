"""Helper of `straingauge fleet`, which runs workers on the nodes of a Ray cluster and carries their bytes to
sockets on this machine.

`straingauge fleet` starts `python3 -m straingauge.fleet` and writes an order to its input. The helper answers
with a socket for each worker, and ends when its input ends. The sockets carry the worker protocol
(docs/worker-protocol.md), which the helper does not read: the driver computes shares, clocks, sums and records.

Read next: `node` (the program on a node), `cluster` (the choice of nodes and the copying of straingauge),
`growth` (requests to an autoscaler), `relay` (the bytes).

"""

from .order import FleetError, Order

__all__ = ["FleetError", "Order"]
