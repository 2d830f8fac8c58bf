"""Runs memcached under the trace, gives it work, and compares with memwalk's bounds: memcached.py SERVER TRACE.SO MEM.JSON"""
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time

server, library, memory = sys.argv[1:4]
with socket.socket() as probe:
    probe.bind(("127.0.0.1", 0))
    port = probe.getsockname()[1]
trace = tempfile.NamedTemporaryFile()
environment = dict(os.environ, LD_PRELOAD=library, TRACE_FILE=trace.name)
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

found = json.load(open(memory))
lines = open(trace.name).read().split("\n")
stacks = [int(line.split()[1]) for line in lines if line.startswith("stack ")]
allocations = [line.split()[1:] for line in lines if line.startswith("alloc ")]
bound = max(stage["stack"]["bytes"] for stage in found["stages"])
bad = 0
if not stacks or not allocations:
    print("the trace is empty: the server did not end by itself")
    bad = 1
elif max(stacks) > bound:
    print(f"a thread's stack got {max(stacks)} bytes deep, memwalk's largest bound is {bound}")
    bad = 1
addresses = [hex(int(address, 16) - 1) for address, _ in allocations]
places = subprocess.run(["addr2line", "-e", server, *addresses], capture_output=True, text=True).stdout.split("\n")
largest = {}
for place, (_, size) in zip(places, allocations):
    file, _, line = place.split(" ")[0].rpartition(":")
    if line.isdigit():
        key = (os.path.basename(file), int(line))
        largest[key] = max(largest.get(key, 0), int(size))
compared = 0
for item in found["objects"] + found["shared_objects"]:
    most = item["size"]["max_bytes"]
    for site in item["alloc"] + item["realloc"]:
        size = largest.get((os.path.basename(site["file"]), site["line"]))
        if size is None:
            continue
        compared += 1
        if most is not None and size > most:
            print(f"{site['file']}:{site['line']}: {size} bytes of {item['id']}, memwalk says at most {most}")
            bad = 1
if compared < 3:
    print(f"only {compared} places that allocate were seen at run time; the comparison says little")
    bad = 1
print(f"deepest stack {max(stacks, default=0)} of at most {bound} bytes ({len(stacks)} threads); {compared} places compared")
sys.exit(bad)
