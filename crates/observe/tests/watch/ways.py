#!/usr/bin/env python3
"""A server with many ways to accept, read, write and close, and a client that counts.

usage: ways.py server | handler PATH | client

Each line of standard input is a case, as a JSON object, and is answered with a line. A request is two numbers
of four bytes (the lengths of the answer and of an upload) and the upload. The server ends a connection after
`requests` of them in the way `close`.
"""

import ctypes
import json
import os
import signal
import socket
import struct
import sys
import threading
import time

LIBC = ctypes.CDLL(None, use_errno=True)
MPTCP, TCP_FASTOPEN, TCP_DEFER_ACCEPT, TCP_NODELAY = 262, 23, 9, 1
MSG_ERRQUEUE, MSG_ZEROCOPY, MSG_FASTOPEN, SO_TIMESTAMPING, SO_ZEROCOPY = 0x2000, 0x4000000, 0x20000000, 37, 60
ZEROS = bytes(1 << 20)


def exactly(read, count):
    """Calls `read(n)` until `count` bytes have come; returns False at the end of the stream."""
    while count:
        got = read(count)
        if not got:
            return False
        count -= len(got)
    return True


def reader(connection, way):
    file = connection.fileno()

    def recvmmsg(count):
        buffer = ctypes.create_string_buffer(count)
        piece = (ctypes.c_void_p * 2)(ctypes.addressof(buffer), count)
        # struct mmsghdr: a message's address and length, its pieces, control data and flags, then the received
        # length.
        message = (ctypes.c_uint64 * 8)(0, 0, ctypes.addressof(piece), 1)
        taken = LIBC.recvmmsg(file, message, 1, 0, None)
        return buffer.raw[: message[7] & 0xFFFFFFFF] if taken == 1 else b""

    def peek(count):
        connection.recv(count, socket.MSG_PEEK)
        return connection.recv(count)

    def readv(count):
        buffers = [bytearray(count // 2), bytearray(count - count // 2)]
        taken = os.readv(file, buffers)
        return b"".join(buffers)[:taken]

    return {
        "recv": connection.recv,
        "read": lambda count: os.read(file, count),
        "readv": readv,
        "recvmsg": lambda count: connection.recvmsg(count)[0],
        "recvmmsg": recvmmsg,
        "peek": peek,
        "waitall": lambda count: connection.recv(count, socket.MSG_WAITALL),
        "bytewise": lambda count: connection.recv(1 if count < 64 else count),
        "trunc": lambda count: connection.recv(count, socket.MSG_TRUNC if count > 64 else 0),
    }[way]


def writer(connection, way):
    def sendfile(count):
        with open("/dev/shm/straingauge-ways", "a+b") as file:
            os.truncate(file.fileno(), 1 << 20)
            sent = 0
            while sent < count:
                sent += os.sendfile(connection.fileno(), file.fileno(), sent, count - sent)

    def splice(count):
        ends = os.pipe()
        while count:
            put = os.write(ends[1], ZEROS[: min(count, 65536)])
            count -= put
            while put:
                put -= os.splice(ends[0], connection.fileno(), put)
        [os.close(end) for end in ends]

    def pieces(count):
        connection.sendmsg([ZEROS[: count // 2], ZEROS[: count - count // 2]])

    def more(count):
        connection.sendall(ZEROS[: count // 2], socket.MSG_MORE)
        connection.sendall(ZEROS[: count - count // 2])

    def zerocopy(count):
        if connection.proto == MPTCP:
            return connection.sendall(ZEROS[:count])
        connection.setsockopt(socket.SOL_SOCKET, SO_ZEROCOPY, 1)
        connection.sendall(ZEROS[:count], MSG_ZEROCOPY)
        return errors(connection)

    def stamped(count):
        # Software time stamps of transmission and acknowledgement, with the data.
        connection.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPING, 1 << 1 | 1 << 4 | 1 << 9 | 1 << 7)
        connection.sendall(ZEROS[:count])
        time.sleep(0.005)
        errors(connection)

    return {
        "send": lambda count: connection.sendall(ZEROS[:count]),
        "write": lambda count: exactly(lambda left: ZEROS[: os.write(connection.fileno(), ZEROS[:left])], count),
        "writev": pieces,
        "more": more,
        "sendfile": sendfile,
        "splice": splice,
        "zerocopy": zerocopy,
        "stamped": stamped,
    }[way]


def errors(connection):
    """Empties the error queue."""
    try:
        while True:
            connection.recvmsg(4096, 512, MSG_ERRQUEUE | socket.MSG_DONTWAIT)
    except BlockingIOError:
        pass


def drain(connection):
    while connection.recv(65536):
        pass


def burn(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def serve(connection, case):
    if case["family"] != "mptcp":
        connection.setsockopt(socket.IPPROTO_TCP, TCP_NODELAY, 1)
    read, write = reader(connection, case["read"]), writer(connection, case["write"])
    served = 0
    while served < case["requests"]:
        head = b""
        while len(head) < 8:
            got = read(8 - len(head))
            if not got:
                break
            head += got
        if len(head) < 8:
            break
        answer, upload = struct.unpack("<II", head)
        if not exactly(read, upload):
            break
        burn(case["burn_ms"] / 1000)
        write(answer)
        served += 1
    close = case["close"]
    if close == "shutdown":
        # Data that comes now is read and discarded.
        connection.shutdown(socket.SHUT_WR)
        drain(connection)
    elif close == "linger0":
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    elif close in ("client", "reset"):
        try:
            drain(connection)
        except ConnectionResetError:
            pass
    connection.close()


def listen(case):
    family = socket.AF_INET6 if case["family"] == "6" else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, MPTCP if case["listen_mptcp"] else 0)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("::1" if family == socket.AF_INET6 else "127.0.0.1", case["port"]))
    if case["family"] == "tfo":
        listener.setsockopt(socket.IPPROTO_TCP, TCP_FASTOPEN, 100)
    if case["defer"]:
        listener.setsockopt(socket.IPPROTO_TCP, TCP_DEFER_ACCEPT, 5)
    listener.listen(100)
    return listener


def hand_over(connection, case, handler):
    if case["hand"] == "thread":
        thread = threading.Thread(target=serve, args=(connection, case))
        thread.start()
        return [thread]
    if case["hand"] == "scm":
        socket.send_fds(handler, [json.dumps(case).encode()], [connection.fileno()])
        connection.close()
        return []
    if case["hand"] in ("fork", "fork_unwaited"):
        signal.signal(signal.SIGCHLD, signal.SIG_IGN if case["hand"] == "fork_unwaited" else signal.SIG_DFL)
        child = os.fork()
        if not child:
            serve(connection, case)
            os._exit(0)
        connection.close()
        return [child]
    serve(connection, case)
    return []


def server():
    handler = None
    for line in sys.stdin:
        case = json.loads(line)
        if case["hand"] == "scm" and not handler:
            handler = socket.socket(socket.AF_UNIX)
            handler.connect(case["handler"])
        listener = listen(case)
        print("ready", flush=True)
        started = [one for _ in range(case["connections"]) for one in hand_over(listener.accept()[0], case, handler)]
        for one in started:
            if isinstance(one, int):
                try:
                    os.waitpid(one, 0)
                except ChildProcessError:
                    pass
            else:
                one.join()
        if case["hand"] == "scm":
            assert handler.recv(1)
        sys.stdin.readline()
        listener.close()
        print("closed", flush=True)


def handle(path):
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(5)
    print("ready", flush=True)
    while True:
        threading.Thread(target=take_over, args=(listener.accept()[0],), daemon=True).start()


def take_over(server):
    threads = []
    while True:
        data, files, _, _ = socket.recv_fds(server, 4096, 1)
        if not data:
            return
        case = json.loads(data)
        threads.append(threading.Thread(target=serve, args=(socket.socket(fileno=files[0]), case)))
        threads[-1].start()
        if len(threads) == case["connections"]:
            [thread.join() for thread in threads]
            threads = []
            server.send(b"x")


def request(case):
    return struct.pack("<II", case["answer"], case["upload"]) + ZEROS[: case["upload"]]


def connect(case, first):
    family = socket.AF_INET6 if case["family"] == "6" else socket.AF_INET
    address = ("::1" if family == socket.AF_INET6 else "127.0.0.1", case["port"])
    connection = socket.socket(family, socket.SOCK_STREAM, MPTCP if case["family"] == "mptcp" else 0)
    if case["family"] == "tfo":
        # The first request only gets the cookie.
        assert connection.sendto(request(case), MSG_FASTOPEN, address) or first
        return connection, True
    connection.connect(address)
    if case["defer"]:
        # The last acknowledgement of the handshake, which has no data, is delayed.
        time.sleep(0.005)
    return connection, False


def client():
    for line in sys.stdin:
        case = json.loads(line)
        # With a slow device, the following packets wait, so the server reads before the handshake is complete.
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(ZEROS[:1400], ("127.0.0.1", 9))
        count = {"requests": 0, "sent": 0, "received": 0}
        asked = request(case)
        opened = []
        for index in range(case["connections"]):
            opened.append(connect(case, not index))
        for turn in range(case["requests"]):
            is_last = turn + 1 == case["requests"]
            for connection, has_asked in opened:
                extra = ZEROS[:10] if is_last and case["close"] == "unread" else b""
                if turn or not has_asked:
                    connection.sendall(asked + extra)
                elif extra:
                    connection.sendall(extra)
                count["sent"] += len(asked)
                if not exactly(connection.recv, case["answer"]):
                    raise SystemExit(f"the server closed: {case}")
                count["received"] += case["answer"]
                count["requests"] += 1
        if case["close"] == "shutdown":
            for connection, _ in opened:
                connection.sendall(ZEROS[:3000])
                count["sent"] += 3000
        print("open", flush=True)
        sys.stdin.readline()
        for connection, _ in opened:
            if case["close"] == "reset":
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            elif case["close"] != "client":
                try:
                    connection.recv(1)
                except ConnectionResetError:
                    pass
            connection.close()
        print(json.dumps(count), flush=True)


if sys.argv[1] == "handler":
    handle(sys.argv[2])
else:
    {"server": server, "client": client}[sys.argv[1]]()
