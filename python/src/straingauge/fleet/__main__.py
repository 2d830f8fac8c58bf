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
from typing import Any, BinaryIO, Dict, List

from .cluster import Cluster, Member, sentence
from .order import FleetError, Order
from .relay import Relay

MAX_ORDER_BYTES = 1 << 20
#: Ending the workers takes at most STOP_S, and leaving the cluster a moment.
LEAVE_S = 10.0


class Driver:
    """The straingauge process at the other end of input and output. It has ended when the input ends or a
    signal comes."""

    def __init__(self) -> None:
        # All other prints go to standard error: standard output carries the driver's protocol.
        self._out: BinaryIO = os.fdopen(os.dup(1), "wb", buffering=0)
        os.dup2(2, 1)
        self._gone = threading.Event()
        self._asked = threading.Event()
        self.order_line = sys.stdin.buffer.readline(MAX_ORDER_BYTES).decode(errors="replace")
        threading.Thread(target=self._listen, daemon=True).start()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: self._gone.set())

    def _listen(self) -> None:
        # Bytes after the order request nodes that have joined the cluster.
        while os.read(0, 4096):
            self._asked.set()
        self._gone.set()

    def is_gone(self) -> bool:
        return self._gone.is_set()

    def asks(self) -> bool:
        """Whether the driver has requested nodes since the last call."""
        has_asked = self._asked.is_set()
        self._asked.clear()
        return has_asked

    def say(self, **message: Any) -> None:
        try:
            self._out.write(json.dumps(message).encode() + b"\n")
        except OSError:
            self._gone.set()


async def serve(driver: Driver, cluster: Cluster, folders: List[str]) -> None:
    """Carries bytes until the driver ends."""
    relays: List[Relay] = []

    async def take(members: List[Member]) -> List[Dict[str, str]]:
        folders.append(new_folder())
        relays.append(Relay(folders[-1], members))
        paths = await relays[-1].listen()
        return [{"name": member.name, "socket": path} for member, path in zip(members, paths)]

    async def look() -> List[Dict[str, str]]:
        try:
            joined = await asyncio.to_thread(cluster.join)
            return await take(joined) if joined else []
        except Exception as why:  # Ray raises many kinds: existing nodes continue the load
            driver.say(type="failed", why=f"no node could join: {type(why).__name__}: {sentence(why)}")
            return []

    driver.say(type="nodes", nodes=await take(list(cluster.members)), joins=cluster.may_grow)
    while not driver.is_gone():
        if driver.asks():
            driver.say(type="joined", nodes=await look())
        await asyncio.sleep(0.05)
    for relay in relays:
        await relay.close()


def new_folder() -> str:
    # The name is short, because a socket's path may have 107 bytes.
    return tempfile.mkdtemp(prefix="straingauge-fleet-")


def main() -> None:
    driver = Driver()
    folders: List[str] = []
    cluster, code = None, 1
    try:
        order = Order.read(driver.order_line)
        cluster = Cluster(order, lambda what: driver.say(type="progress", what=what), driver.is_gone)
        cluster.open()
        asyncio.run(serve(driver, cluster, folders))
        code = 0
    except FleetError as why:
        driver.say(type="failed", why=str(why))
    except Exception as why:  # each error of Ray is the reason why there is no fleet
        driver.say(type="failed", why=f"the fleet's helper failed: {type(why).__name__}: {sentence(why)}")
    finally:
        # A cluster without a head does not answer, so do not wait for it.
        threading.Timer(LEAVE_S, leave_at_once, [folders]).start()
        if cluster is not None:
            cluster.close()
        leave_at_once(folders, code)


def leave_at_once(folders: List[str], code: int = 1) -> None:
    """Ends the process, even while Ray is still running in it."""
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
    os._exit(code)


if __name__ == "__main__":
    main()
