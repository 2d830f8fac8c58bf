#!/usr/bin/env python3
"""Ten thousand connections at once on a lighttpd, cold, slow and aborting ones among them. usage: crowd.py LABEL CONNECTIONS LIGHTTPD"""

import resource
import select
import shutil
import socket
import sys
import tempfile
import time

from lighttpd import Lighttpd
from rig import PATIENCE_S, documents, get, run, split

LABEL, WANTED, BINARY = sys.argv[1], int(sys.argv[2]), sys.argv[3]
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
CONNECTIONS = min(WANTED, hard // 2)
FOLDER = tempfile.mkdtemp(prefix="lighttpd-test-")
documents(FOLDER)
SERVER = None
ANSWER = b"hello\n"


def connect_all(count):
    """Some at a time: the backlog is bounded."""
    clients = []
    for i in range(count):
        clients.append(SERVER.connect())
        if i % 500 == 499:
            time.sleep(0.05)
    return clients


def read_answers(clients, answers):
    """Reads `answers` answers on each, in whatever order they come; how many connections failed."""
    poll, data, failed = select.epoll(), {}, 0
    for client in clients:
        poll.register(client, select.EPOLLIN)
        data[client.fileno()] = (client, b"")
    until = time.monotonic() + 2 * PATIENCE_S
    while data and time.monotonic() < until:
        for fd, _ in poll.poll(1):
            client, got = data[fd]
            try:
                more = client.recv(65536)
            except ConnectionResetError:
                more = b""
            data[fd] = (client, got + more)
            if not more or data[fd][1].count(ANSWER) == answers:
                failed += data[fd][1].count(ANSWER) != answers
                poll.unregister(fd)
                del data[fd]
    poll.close()
    return failed + len(data)


def everybody_is_answered():
    """Nine of ten are cold most of the time: they were silent, or wait between requests."""
    clients = connect_all(CONNECTIONS)
    for client in clients[::10]:
        client.sendall(get("/a.txt") * 2)
    assert read_answers(clients[::10], 2) == 0
    for _ in range(5):
        for client in clients[::10]:
            client.sendall(get("/a.txt"))
        assert read_answers(clients[::10], 1) == 0
    for client in reversed(clients):
        client.sendall(get("/a.txt"))
    failed = read_answers(clients, 1)
    assert failed == 0, f"{failed} of {CONNECTIONS} connections were not answered"
    for client in clients:
        client.close()


def slow_clients_do_not_hold_up_the_others():
    """A tenth sends half a head, a tenth does not read what it asked for; the others want their answers meanwhile."""
    clients = connect_all(CONNECTIONS // 2)
    tenth = len(clients) // 10
    half, deaf, quick = clients[:tenth], clients[tenth:2 * tenth], clients[2 * tenth:]
    for client in half:
        client.sendall(get("/a.txt")[:20])
    for client in deaf:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.sendall(get("/big.bin"))
    for client in quick:
        client.sendall(get("/a.txt"))
    assert read_answers(quick, 1) == 0
    for client in half:
        client.sendall(get("/a.txt")[20:])
    assert read_answers(half, 1) == 0
    for client in clients:
        client.close()


def aborts_leave_a_server_that_answers():
    for _ in range(5):
        clients = connect_all(CONNECTIONS // 10)
        for i, client in enumerate(clients):
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            client.sendall(get("/big.bin" if i % 2 else "/a.txt")[:None if i % 3 else 30])
        for client in clients:
            client.close()
    assert split(SERVER.ask(get("/a.txt", "Connection: close")))[2] == ANSWER


if CONNECTIONS < WANTED:
    print(f"{CONNECTIONS} connections, not {WANTED}: the limit of descriptors is {hard}")
try:
    with Lighttpd(BINARY, FOLDER, connections=CONNECTIONS) as SERVER:
        status = run([everybody_is_answered, slow_clients_do_not_hold_up_the_others, aborts_leave_a_server_that_answers], f"{LABEL}, {CONNECTIONS} connections")
except AssertionError as error:
    print(f"  {error}\nFAILED [{LABEL}] the server's end\n0 passed, 1 failed")
    status = 1
finally:
    shutil.rmtree(FOLDER)
sys.exit(status)
