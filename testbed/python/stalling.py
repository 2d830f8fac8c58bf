"""A server that answers at once, and every --every seconds stops answering for --stall seconds.

It has one thread with blocking accept and epoll over all connections, so that a stall holds up every
connection, as a garbage collection, a slow disk or a lock does. Its response times are known in
advance.


"""

import argparse
import select
import socket
import time

RESPONSE = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def serve(listener, every_s, stall_s):
    poller = select.epoll()
    poller.register(listener, select.EPOLLIN)
    connections = {}
    stall_at = time.monotonic() + every_s
    while True:
        for descriptor, _ in poller.poll(0.05):
            if descriptor == listener.fileno():
                connection, _ = listener.accept()
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                poller.register(connection, select.EPOLLIN)
                connections[connection.fileno()] = (connection, bytearray())
                continue
            connection, received = connections[descriptor]
            try:
                data = connection.recv(65536)
            except ConnectionError:
                data = b""
            if not data:
                poller.unregister(connection)
                connection.close()
                del connections[descriptor]
                continue
            received += data
            while (end := received.find(b"\r\n\r\n")) >= 0:
                del received[: end + 4]
                try:
                    connection.sendall(RESPONSE)
                except ConnectionError:
                    break
        if time.monotonic() >= stall_at:
            time.sleep(stall_s)
            stall_at = time.monotonic() + every_s


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--address", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--every", type=float, default=2.0, help="seconds between stalls")
    parser.add_argument("--stall", type=float, default=1.0, help="seconds of each stall")
    options = parser.parse_args()
    family = socket.AF_INET6 if ":" in options.address else socket.AF_INET
    with socket.create_server((options.address, options.port), family=family, backlog=1024) as listener:
        serve(listener, options.every, options.stall)


if __name__ == "__main__":
    main()
