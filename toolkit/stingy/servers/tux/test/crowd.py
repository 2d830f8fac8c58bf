#!/usr/bin/env python3
"""Ten thousand connections at once: idle, slow and aborting clients among them. usage: crowd.py LABEL CONNECTIONS TUX [OPTION...]"""

import resource
import select
import socket
import sys
import tempfile
import time

from rig import PATIENCE_S, Server, documents, get, run_with, split

SERVER, CONNECTIONS = None, 0
ANSWER = b"hello\n"


def connect_all(count):
    """In groups, because the backlog is bounded."""
    clients = []
    for i in range(count):
        clients.append(SERVER.connect())
        if i % 500 == 499:
            time.sleep(0.05)
    return clients


def read_answers(clients, answers):
    """Reads `answers` answers on each connection, in any order; returns the number of connections that
    failed."""
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


def everyone_is_answered():
    """First a tenth sends requests while the others, established and silent, wait for their turn; then all, in two orders."""
    clients = connect_all(CONNECTIONS)
    for _ in range(5):
        for client in clients[::10]:
            client.sendall(get("/a.txt"))
        assert read_answers(clients[::10], 1) == 0
    for order, requests in ((clients, 2), (clients[::-1], 1)):
        for client in order:
            client.sendall(get("/a.txt") * requests)
        failed = read_answers(clients, requests)
        assert failed == 0, f"{failed} of {CONNECTIONS} connections were not answered"
    for client in clients:
        client.close()


def slow_clients_do_not_hold_up_the_others():
    """A tenth of the clients sends half a head, and a tenth does not read its response; the others must
    get theirs meanwhile."""
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


def run_crowd(label, wanted, start):
    """Runs the tests on the server of `start(folder, connections)`, with fewer connections where descriptors are limited."""
    global CONNECTIONS
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    # lighttpd takes twice as many descriptors as connections.
    CONNECTIONS = min(wanted, hard // 2)
    if CONNECTIONS < wanted:
        print(f"{CONNECTIONS} connections, not {wanted}: the limit of descriptors is {hard}")
    folder = tempfile.mkdtemp(prefix="crowd-test-")
    documents(folder)

    def begin():
        global SERVER
        SERVER = start(folder, CONNECTIONS)
        return SERVER
    return run_with(begin, [everyone_is_answered, slow_clients_do_not_hold_up_the_others, aborts_leave_a_server_that_answers],
                    f"{label}, {CONNECTIONS} connections", folder)


if __name__ == "__main__":
    sys.exit(run_crowd(sys.argv[1], int(sys.argv[2]), lambda folder, _: Server(sys.argv[3:], "--timeout", "120", folder=folder)))
