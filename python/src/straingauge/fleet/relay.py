"""Carries bytes between the driver's sockets and the workers on the nodes without examining them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from typing import Any, Coroutine, List

from .cluster import STOP_S, Member, sentence

CHUNK_BYTES = 1 << 18


class Relay:
    """A Unix socket for each worker, in a directory that only this user can enter. Each accepts one driver once."""

    def __init__(self, folder: str, members: List[Member]) -> None:
        self._folder = folder
        self._members = members
        self._servers: List[asyncio.AbstractServer] = []
        self._tasks: "set[asyncio.Task[None]]" = set()

    async def listen(self) -> List[str]:
        """Paths of the sockets, in the order of the members."""
        paths = []
        for number, member in enumerate(self._members, start=1):
            path = os.path.join(self._folder, str(number))
            self._servers.append(await asyncio.start_unix_server(self._taker(member, path), path))
            paths.append(path)
        return paths

    def _taker(self, member: Member, path: str) -> Any:
        async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            # A second driver finds no socket. The last one removes the directory, so that a killed helper leaves no
            # files.
            with contextlib.suppress(OSError):
                os.unlink(path)
                os.rmdir(self._folder)
            task = asyncio.current_task()
            assert task is not None
            self._tasks.add(task)
            try:
                await carry(member, reader, writer)
            finally:
                self._tasks.discard(task)

        return take

    async def close(self) -> None:
        """Stops carrying bytes."""
        for server in self._servers:
            server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def carry(member: Member, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Carries bytes until one side ends. Then the worker ends, and the driver gets the reason if it still reads.

    A caller that cancels this must end all workers.

    """
    async def carried(way: Coroutine[Any, Any, str]) -> str:
        try:
            return await way
        except OSError:
            return ""
        except Exception as why:
            return loss(why)

    ways = [asyncio.ensure_future(carried(way)) for way in (_to_worker(member, reader), _from_worker(member, writer))]
    try:
        done, _ = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        why = next(iter(done)).result()
        if why:
            with contextlib.suppress(OSError):
                writer.write(json.dumps({"type": "gone", "why": why}).encode() + b"\n")
                await writer.drain()
    finally:
        for way in ways:
            way.cancel()
        with contextlib.suppress(Exception):
            writer.close()
    with contextlib.suppress(Exception):
        await member.stop(STOP_S)


async def _to_worker(member: Member, reader: asyncio.StreamReader) -> str:
    while data := await reader.read(CHUNK_BYTES):
        if not await member.write(data):
            # The end of the worker's output holds the reason.
            await asyncio.sleep(STOP_S)
            return "it takes no more messages"
    return ""


async def _from_worker(member: Member, writer: asyncio.StreamWriter) -> str:
    while True:
        data, ended = await member.read()
        if ended is not None:
            return str(ended)
        writer.write(data)
        # A worker that sends more than the driver reads must wait.
        await writer.drain()


def loss(why: Exception) -> str:
    """Ray's error for an ended actor, in straingauge's terms."""
    text = sentence(why)
    if "node has died" in text or "node died" in text:
        return "its node is gone from the Ray cluster"
    if type(why).__name__ in ("ActorDiedError", "RayActorError", "ActorUnavailableError"):
        return "Ray has lost its process on the node"
    return f"Ray cannot reach it: {text}"
