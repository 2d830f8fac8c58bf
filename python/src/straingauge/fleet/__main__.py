"""`python3 -m straingauge.fleet`, started by `straingauge fleet`."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
import tempfile
import threading
from typing import Any, BinaryIO

from .cluster import Cluster
from .order import FleetError, Order
from .relay import Relay

MAX_ORDER_BYTES = 1 << 20
#: Ending the workers takes STOP_S at most, leaving the cluster a moment.
LEAVE_S = 10.0


class Driver:
    """straingauge at the other end of the input and output. It has ended when the input ends, or at a signal."""

    def __init__(self) -> None:
        # All other prints go to standard error: standard output carries the driver's protocol.
        self._out: BinaryIO = os.fdopen(os.dup(1), "wb", buffering=0)
        os.dup2(2, 1)
        self._gone = threading.Event()
        self.order_line = sys.stdin.buffer.readline(MAX_ORDER_BYTES).decode(errors="replace")
        threading.Thread(target=self._listen, daemon=True).start()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: self._gone.set())

    def _listen(self) -> None:
        while os.read(0, 4096):
            pass
        self._gone.set()

    def is_gone(self) -> bool:
        return self._gone.is_set()

    def say(self, **message: Any) -> None:
        try:
            self._out.write(json.dumps(message).encode() + b"\n")
        except OSError:
            self._gone.set()


async def serve(driver: Driver, cluster: Cluster, folder: str) -> None:
    """Carries bytes until the driver ends."""
    relay = Relay(folder, cluster.members)
    paths = await relay.listen()
    names = [member.name for member in cluster.members]
    driver.say(type="nodes", nodes=[{"name": name, "socket": path} for name, path in zip(names, paths)])
    while not driver.is_gone():
        await asyncio.sleep(0.05)
    await relay.close()


def main() -> None:
    driver = Driver()
    # Short, as a socket's path may have 107 bytes.
    folder = tempfile.mkdtemp(prefix="straingauge-fleet-")
    cluster, code = None, 1
    try:
        order = Order.read(driver.order_line)
        cluster = Cluster(order, lambda what: driver.say(type="progress", what=what), driver.is_gone)
        cluster.open()
        asyncio.run(serve(driver, cluster, folder))
        code = 0
    except FleetError as why:
        driver.say(type="failed", why=str(why))
    finally:
        # A cluster without a head does not answer; do not wait for it.
        threading.Timer(LEAVE_S, leave_at_once, [folder]).start()
        if cluster is not None:
            cluster.close()
        leave_at_once(folder, code)


def leave_at_once(folder: str, code: int = 1) -> None:
    """Ends the process, even while Ray still runs in it."""
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(code)


if __name__ == "__main__":
    main()
