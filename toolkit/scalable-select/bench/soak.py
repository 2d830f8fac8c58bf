#!/usr/bin/env python3
"""Soak with churn: soak.py OUT [SECONDS [SERVER ...]]   (1800 seconds, haproxy and lighttpd by default, all at once)

Each server runs under the library. A thousand cold connections come and go, some with half a request; 20 hot ones are
kept, and others are opened for one request. The rate is low, so that other work can run at the same time. Appends the
server's descriptors and memory to OUT/soak.csv twice a minute, and writes OUT/soak.json with the library's report.

Fails if a request is not answered in 5 s, if descriptors or memory grow from the second quarter to the last, or if the
library reports a lost hint. A lost hint would also show as a slow answer, because the watchdog finds it within a second."""
import csv
import json
import multiprocessing
import os
import random
import shutil
import socket
import sys
import time

import servers

REQUEST = b"GET /f.html HTTP/1.1\r\nHost: a\r\n%s\r\n"
COLD = 1000
PORTS = {"haproxy": 8151, "lighttpd": 8152, "python": 8153}  # different from the ports of the benchmark
HOT = 20
FIELDS = ["server", "seconds", "requests", "connections_opened", "cold", "descriptors", "rss_kib", "slowest_ms"]


def facts(pid):
    status = dict(line.split(":", 1) for line in open(f"/proc/{pid}/status") if ":" in line)
    return len(os.listdir(f"/proc/{pid}/fd")), int(status["VmRSS"].split()[0])


class Clients:
    def __init__(self, port):
        self.port, self.opened, self.requests, self.slowest_s = port, 0, 0, 0.0
        self.cold = []
        self.hot = [self.connect() for _ in range(HOT)]

    def connect(self):
        self.opened += 1
        s = socket.socket()
        s.settimeout(5)
        s.bind((f"127.0.{50 + self.opened // 200 % 100}.{1 + self.opened % 200}", 0))
        s.connect(("127.0.0.1", self.port))
        return s

    def ask(self, s, closes):
        start = time.monotonic()
        s.sendall(REQUEST % (b"Connection: close\r\n" if closes else b""))
        got = s.recv(65536)
        while len(got) < 1259 or closes:
            more = s.recv(65536)
            if not more:
                break
            got += more
        if b" 200 " not in got[:20] or b"x" * 1259 not in got:
            raise RuntimeError(f"port {self.port}: {got[:60]}")
        self.requests += 1
        self.slowest_s = max(self.slowest_s, time.monotonic() - start)

    def turn(self):
        for s in random.sample(self.hot, random.randint(1, HOT)):
            self.ask(s, False)
        if random.random() < 0.3:
            i = random.randrange(HOT)
            self.hot[i].close()
            self.hot[i] = self.connect()
        for _ in range(random.randint(0, 3)):
            s = self.connect()
            self.ask(s, True)
            s.close()
        for _ in range(random.randint(0, 12)):
            s = self.connect()
            if random.random() < 0.1:
                s.sendall(b"GET /half")
            self.cold.append(s)
        for _ in range(random.randint(0, 8 if len(self.cold) < COLD else 16)):
            self.cold.pop(random.randrange(len(self.cold))).close()
        if random.random() < 0.2:  # a cold connection sends a request
            s = self.cold.pop(random.randrange(len(self.cold)))
            s.sendall(b" HTTP/1.1\r\nHost: a\r\n\r\n")
            s.close()


def soak(name, seconds, scratch, out, verdicts):
    server = servers.Server(name, "scaled", scratch, PORTS[name])
    clients = Clients(server.port)
    while len(clients.cold) < COLD:
        clients.cold.append(clients.connect())
    rows, start, due = [], time.monotonic(), 0.0
    while (now := time.monotonic() - start) < seconds:
        clients.turn()
        if now >= due:
            due += 30
            fds, rss = facts(server.process.pid)
            row = dict(zip(FIELDS, [name, round(now), clients.requests, clients.opened, len(clients.cold), fds, rss,
                                    round(clients.slowest_s * 1000, 1)]))
            clients.slowest_s = 0.0
            rows.append(row)
            is_new = not os.path.exists(path := os.path.join(out, "soak.csv"))
            with open(path, "a", newline="") as f:  # harness.Rows is not used, because several processes write
                writer = csv.DictWriter(f, FIELDS)
                if is_new:
                    writer.writeheader()
                writer.writerow(row)
        time.sleep(random.uniform(0.02, 0.1))
    for s in clients.cold + clients.hot:
        s.close()  # a server that waits for its connections to end writes its report
    stats = [json.loads(line) for line in server.stop().replace("} {", "}\n{").split("\n") if line]
    quarter = max(len(rows) // 4, 1)
    grown = {f: max(r[f] for r in rows[-quarter:]) - max(r[f] for r in rows[quarter:2 * quarter] or rows)
             for f in ("descriptors", "rss_kib")}
    result = {"server": name, "seconds": seconds, "requests": clients.requests, "connections_opened": clients.opened,
              "slowest_ms": max(r["slowest_ms"] for r in rows), "descriptors_grown": grown["descriptors"],
              "rss_kib_grown": grown["rss_kib"], "library": stats}
    result["passed"] = bool(stats) and sum(s["calls"] for s in stats) > 0 and sum(s["lost"] for s in stats) == 0 and \
        grown["descriptors"] <= 200 and grown["rss_kib"] < 4096
    verdicts.put(result)


def main():
    if len(sys.argv) < 2:
        sys.exit("usage: soak.py OUT [SECONDS [SERVER ...]]")
    out, seconds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1800
    servers.harness.all_descriptors()
    os.makedirs(out, exist_ok=True)
    scratch = servers.make_scratch()
    names = sys.argv[3:] or ["haproxy", "lighttpd"]
    verdicts = multiprocessing.Queue()
    workers = [multiprocessing.Process(target=soak, args=(name, seconds, scratch, out, verdicts)) for name in names]
    for w in workers:
        w.start()
    results = []
    while len(results) < len(names) and any(w.is_alive() for w in workers) or not verdicts.empty():
        try:
            results.append(verdicts.get(timeout=1))
        except Exception:  # the queue is still empty
            pass
    for w in workers:
        w.join()
    shutil.rmtree(scratch)
    servers.harness.write(out, "soak.json", json.dumps(results, indent=1))
    print(json.dumps(results, indent=1))
    sys.exit(0 if len(results) == len(names) and all(x["passed"] for x in results) else 1)


if __name__ == "__main__":
    main()
