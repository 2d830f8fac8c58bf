"""Runs memcached under the trace with requests: memcached.py SERVER TRACE.SO TRACE-FILE"""
import os
import signal
import socket
import subprocess
import sys
import time

server, library, trace = sys.argv[1:4]
with socket.socket() as probe:
    probe.bind(("127.0.0.1", 0))
    port = probe.getsockname()[1]
environment = dict(os.environ, LD_PRELOAD=library, TRACE_FILE=trace)
command = [server, "-l", "127.0.0.1", "-p", str(port), "-U", "0", "-t", "2", "-u", "root", "-m", "16"]
process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
try:
    for attempt in range(600):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            break
        except OSError:
            time.sleep(0.1)
    connections = [socket.create_connection(("127.0.0.1", port), 60) for _ in range(40)]
    for i, connection in enumerate(connections):
        file = connection.makefile("rwb")

        def ask(line, end):
            file.write(line)
            file.flush()
            while True:
                answer = file.readline()
                if not answer or answer.startswith(end):
                    return

        for size in (1, 100, 3000, 200_000):
            ask(b"set k%d 0 0 %d\r\n" % (i, size) + b"x" * size + b"\r\n", b"STORED")
            ask(b"get k%d\r\n" % i, b"END")
        ask(b"get " + b" ".join(b"k%d" % n for n in range(100)) + b"\r\n", b"END")
        ask(b"mg k%d v t s\r\n" % i, (b"HD", b"EN", b"VA"))
        ask(b"stats\r\n", b"END")
        ask(b"stats items\r\n", b"END")
        ask(b"incr k%d 1\r\n" % i, (b"CLIENT_ERROR", b"NOT_FOUND"))
        ask(b"delete k%d\r\n" % i, b"DELETED")
        ask(b"nonsense\r\n", b"ERROR")
        if i % 3 == 0:
            connection.sendall(b"set half 0 0 100\r\nabc")
        connection.close()
finally:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
