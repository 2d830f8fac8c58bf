"""Holds cold connections, which are established and idle. For each number on a line of stdin it opens this many
more and prints "ready"."""
import resource
import socket
import sys

port = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
held = []
for line in sys.stdin:
    for _ in range(int(line)):
        i = len(held)
        s = socket.socket()
        s.settimeout(10)
        s.bind((f"127.0.{1 + i // 200 % 200}.{1 + i % 200}", 0))
        s.connect(("127.0.0.1", port))
        held.append(s)
    print("ready", flush=True)
