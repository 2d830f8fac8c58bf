#!/usr/bin/env python3
"""Soak with churn: soak.py [SECONDS [SERVER ...]]   (1800 seconds, haproxy and lighttpd by default)

HAProxy and lighttpd under the library, each with keep-alive and closing load while cold connections come and go.
Fails if a request fails to be answered in 5 s, if descriptors or memory grow, or if the library reports a lost hint."""
import json
import os
import random
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import time

import run


def facts(pid):
    status = dict(line.split(":", 1) for line in open(f"/proc/{pid}/status") if ":" in line)
    return len(os.listdir(f"/proc/{pid}/fd")), int(status["VmRSS"].split()[0])


def ask(port):
    with socket.create_connection(("127.0.0.1", port), 5) as s:
        s.settimeout(5)
        s.sendall(b"GET /f.html HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        got = b""
        while chunk := s.recv(65536):
            got += chunk
    if b" 200 " not in got[:20]:
        raise RuntimeError(f"port {port}: {got[:40]}")


def soak(name, seconds, scratch):
    server = run.Server(name, "scaled", scratch)
    held, samples, asked = [], [], 0
    end, next_drive = time.time() + seconds, 0.0
    load = None
    i = 0
    while time.time() < end:
        for _ in range(random.randrange(60)):
            i += 1
            s = socket.socket()
            s.bind((f"127.0.{1 + i // 200 % 200}.{1 + i % 200}", 0))
            s.connect(("127.0.0.1", server.port))
            held.append(s)
        random.shuffle(held)
        for s in held[1500:]:
            s.close()
        del held[random.randrange(1000, 1501):]
        if load is None or load.poll() is not None:
            keep = random.random() < 0.5
            load = subprocess.Popen([os.path.join(run.HERE, "drive"), str(server.port), "20", "1.5", "0", "keep" if keep else "close",
                                     run.PAGE if keep else run.PAGE_CLOSE], stdout=subprocess.DEVNULL)
        ask(server.port)
        asked += 1
        if time.time() > next_drive:
            next_drive = time.time() + max(seconds / 40, 1)
            while len(held) > 1000:
                held.pop().close()
            time.sleep(0.2)
            samples.append(facts(server.process.pid))
    load.wait()
    for s in held:
        s.close()  # a server that waits for its connections to end writes its report
    stats = [json.loads(line) for line in server.stop().replace("} {", "}\n{").split("\n") if line]
    half = len(samples) // 2
    fds = max(f for f, _ in samples[half:]) - max(f for f, _ in samples[:half])
    memory_kib = max(m for _, m in samples[half:]) - max(m for _, m in samples[:half])
    lost = sum(s["lost"] for s in stats)
    missed = sum(s["missed_closes"] for s in stats)
    print(f"{name}: {seconds} s, {asked} probes answered, {sum(s['calls'] for s in stats)} scaled calls, "
          f"{sum(s['added'] for s in stats)} registrations, lost {lost}, missed closes {missed}; "
          f"second half against first: descriptors {fds:+d}, resident memory {memory_kib:+d} KiB", flush=True)
    return lost == 0 and fds <= 200 and memory_kib < 4096


def main():
    seconds = int(sys.argv[1]) if len(sys.argv) > 1 else 1800
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    subprocess.run(["gcc", "-O2", "-o", os.path.join(run.HERE, "drive"), os.path.join(run.HERE, "drive.c")], check=True)
    r = run.Run(tempfile.mkdtemp(), "soak")
    ok = all([soak(name, seconds, r.scratch) for name in sys.argv[2:] or ("haproxy", "lighttpd")])
    shutil.rmtree(r.scratch)
    shutil.rmtree(os.path.dirname(r.out))
    sys.exit(0 if ok else 1)


if __name__ == "__main__":
    main()
