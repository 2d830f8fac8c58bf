#!/usr/bin/env python3
"""Stock, scaled and native epoll, interleaved; and the floor under scaled (floor.c). `run.py all OUT [REPEATS [COLD,COLD...]]`,
or one of the sections below, all numbers of cold connections or those named; appends to OUT/raw.csv.

The figure is the server's CPU time (run time of all its threads, /proc/PID/task/*/schedstat) per request; throughput
and response times stand beside it. The server is pinned to CPU 0, the load and the cold connections to CPU 1."""
import csv
import os
import random
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
LIBRARY = os.path.join(ROOT, "native/scalable-select/build/libscalable-select.so")
FLOOR = os.path.join(HERE, "floor.so")
FLOOR_IS_RIGHT = ("haproxy", "memcached", "python")  # lighttpd changes entries in place
PAGE = "GET /f.html HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n"
PAGE_CLOSE = "GET /f.html HTTP/1.1\\r\\nHost: a\\r\\nConnection: close\\r\\n\\r\\n"
FIELDS = ["section", "repeat", "server", "variant", "hot", "cold", "keep", "rate", "requests", "seconds", "errors", "cpu_ns",
          "mean_us", "p50_us", "p99_us", "max_us", "stats"]

PORT = 8101  # and 8111, 8121, 8131
LIMIT = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
# HAProxy wants two descriptors for each of its maxconn; a connection answered by itself takes one.
HAPROXY_MAXCONN = min(12000, LIMIT // 2 - 50)
COLD_MAX = min(10000, HAPROXY_MAXCONN - 100)
HAPROXY = """global
    maxconn %(maxconn)d
    nbthread 1
defaults
    mode http
    timeout client 300s
    timeout server 300s
    timeout connect 5s
    timeout http-request 300s
    timeout http-keep-alive 300s
frontend f
    bind 127.0.0.1:%(port)d
    http-request return status 200 content-type text/plain string "%(body)s"
"""
LIGHTTPD = """server.document-root = "%(dir)s"
server.port = %(port)d
server.bind = "127.0.0.1"
server.max-fds = %(fds)d
server.max-connections = %(connections)d
server.max-keep-alive-requests = 100000000
server.max-keep-alive-idle = 300
server.max-read-idle = 300
server.event-handler = "%(handler)s"
"""


def server(name, variant, scratch, port):
    """Command, environment, port and request; variant is stock, scaled, floor or epoll."""
    is_epoll = variant == "epoll"
    if name.startswith("haproxy"):
        is_select = name == "haproxy-select"
        path = os.path.join(scratch, name + ".cfg")
        with open(path, "w") as f:
            f.write(HAPROXY % {"maxconn": 490 if is_select else HAPROXY_MAXCONN, "body": "x" * 1259, "port": port})
        return ["haproxy"] + ([] if is_epoll else ["-de", "-dp"] if is_select else ["-de"]) + ["-db", "-f", path], {}, port, PAGE
    if name.startswith("lighttpd"):
        handler = "linux-sysepoll" if is_epoll else "select" if name == "lighttpd-select" else "poll"
        path = os.path.join(scratch, f"{name}-{handler}.conf")
        fds = 1000 if name == "lighttpd-select" else min(LIMIT, 24000)  # lighttpd takes half as many connections
        with open(path, "w") as f:
            f.write(LIGHTTPD % {"dir": scratch, "handler": handler, "fds": fds, "connections": fds // 2,
                                "port": port})
        return ["lighttpd", "-D", "-f", path], {}, port, PAGE
    if name == "memcached":
        env = {} if is_epoll else {"EVENT_NOEPOLL": "1"}
        return ["memcached", "-u", "root", "-t", "1", "-c", "14000", "-p", str(port), "-l", "127.0.0.1"], env, port, "get a\\r\\n"
    kind = "epoll" if is_epoll else "select" if name == "python-select" else "poll"
    return [sys.executable, os.path.join(HERE, "selector_server.py"), kind, str(port)], {}, port, PAGE


def cpu_ns(pid):
    total = 0
    for p in [pid] + children(pid):
        for task in os.listdir(f"/proc/{p}/task"):
            try:
                total += int(open(f"/proc/{p}/task/{task}/schedstat").read().split()[0])
            except OSError:
                pass
    return total


def children(pid):
    try:
        return [int(c) for c in open(f"/proc/{pid}/task/{pid}/children").read().split()]
    except OSError:
        return []


class Server:
    def __init__(self, name, variant, scratch, port=None):
        self.name = name
        command, env, self.port, self.request = server(name, variant, scratch, port or PORT)
        self.stats = os.path.join(scratch, f"stats.{time.monotonic_ns()}")
        env = dict(os.environ, **env)
        if variant == "scaled":
            env.update(LD_PRELOAD=LIBRARY, SCALABLE_SELECT_STATS=self.stats)
        elif variant == "floor":
            env.update(LD_PRELOAD=FLOOR, FLOOR_STATS=self.stats)
        self.process = subprocess.Popen(["taskset", "-c", "0"] + command, env=env, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
        self.cold = subprocess.Popen(["taskset", "-c", "1", sys.executable, os.path.join(HERE, "cold.py"), str(self.port)],
                                     stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(500):
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                break
            except OSError:
                time.sleep(0.02)
        time.sleep(0.2)

    def add_cold(self, n):
        if n:
            self.cold.stdin.write(f"{n}\n")
            self.cold.stdin.flush()
            if self.cold.stdout.readline().strip() != "ready":
                raise RuntimeError("cold connections refused")
            self.drive(1, 0.3, 0, True)  # returns when the server has accepted what came before

    def drive(self, hot, seconds, rate, keep):
        request = self.request if keep else PAGE_CLOSE
        before = cpu_ns(self.process.pid)
        out = subprocess.run(["taskset", "-c", "1", os.path.join(HERE, "drive"), str(self.port), str(hot), str(seconds),
                              str(rate), "keep" if keep else "close", request], capture_output=True, text=True)
        used = cpu_ns(self.process.pid) - before
        if out.returncode:
            raise RuntimeError(f"drive: status {out.returncode}")
        f = out.stdout.split()
        return {"requests": int(f[0]), "seconds": float(f[1]), "errors": int(f[2]), "mean_us": f[3], "p50_us": f[4],
                "p99_us": f[5], "max_us": f[6], "cpu_ns": used}

    def stop(self):
        self.cold.kill()
        self.cold.wait()
        for p in children(self.process.pid):
            os.kill(p, signal.SIGTERM)
        # HAProxy has no handler for SIGTERM; only a server that ends by itself writes the library's report
        self.process.send_signal(signal.SIGUSR1 if self.name.startswith("haproxy") else signal.SIGTERM)
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if os.path.exists(self.stats):
            return open(self.stats).read().strip().replace("\n", " ")
        return ""


class Run:
    def __init__(self, out, section, repeats=5, colds=None):
        self.repeats, self.colds = repeats, colds
        self.section, self.out = section, os.path.join(out, "raw.csv")
        os.makedirs(out, exist_ok=True)
        self.scratch = tempfile.mkdtemp()
        os.chmod(self.scratch, 0o755)
        with open(os.path.join(self.scratch, "f.html"), "w") as f:
            f.write("x" * 1259)

    def next_repeats(self):
        """Numbers that go on where an earlier run into the same folder ended."""
        done = -1
        if os.path.exists(self.out):
            done = max([int(r["repeat"]) for r in csv.DictReader(open(self.out)) if r["section"] == self.section], default=-1)
        return range(done + 1, done + 1 + self.repeats)

    def record(self, **row):
        is_new = not os.path.exists(self.out)
        with open(self.out, "a", newline="") as f:
            writer = csv.DictWriter(f, FIELDS)
            if is_new:
                writer.writeheader()
            writer.writerow(dict({"section": self.section, "stats": ""}, **row))
        cpu = row["cpu_ns"] / max(row["requests"], 1) / 1000
        print(f"{row['server']:16} {row['variant']:7} hot={row['hot']:<3} cold={row['cold']:<6} "
              f"{'keep' if row['keep'] else 'close'} rate={row['rate']:<6} {row['requests'] / row['seconds']:9.0f} req/s "
              f"{cpu:8.1f} us CPU/req  p50 {row['p50_us']} us", flush=True)

    def table(self, names, colds, hot=20, keep=True):
        """The servers of a point run side by side and are loaded in turn, in short windows and random order: the machine's
        speed changes within seconds, and ratios are taken within a turn."""
        turns = self.next_repeats()
        points = [(n, c) for n in names for c in self.colds or colds]
        random.shuffle(points)
        for name, cold in points:
            variants = ["stock", "scaled", "epoll"] + ["floor"] * (keep and cold >= 750 and name in FLOOR_IS_RIGHT)
            servers = {}
            try:
                for i, variant in enumerate(list(variants)):
                    servers[variant] = Server(name, variant, self.scratch, PORT + 10 * i)
                    try:
                        servers[variant].add_cold(cold)
                        servers[variant].drive(hot, 0.3, 0, keep)
                    except RuntimeError:
                        if variant != "floor":
                            raise
                        variants.remove("floor")  # the array changed in place unseen: it is no floor here
                rows = []
                for turn in turns:
                    random.shuffle(variants)
                    for variant in variants:
                        rows.append(dict(servers[variant].drive(hot, 0.35, 0, keep), repeat=turn, server=name, variant=variant,
                                         hot=hot, cold=cold, keep=int(keep), rate=0))
            except RuntimeError as e:
                print(f"{name} cold={cold}: not measured: {e}", flush=True)
                rows = []
            stats = {variant: s.stop() for variant, s in servers.items()}
            for row in reversed(rows):
                row["stats"] = stats.pop(row["variant"], "")  # in the last row of the variant
            for row in rows:
                self.record(**row)

    def response_times(self, name, rates):
        """Figures 3 and 8: response time by request rate, without and with 750 cold connections."""
        for repeat in self.next_repeats():
            curves = [("stock", 0), ("stock", 750), ("scaled", 750), ("epoll", 750)]
            random.shuffle(curves)
            for variant, cold in curves:
                s = Server(name, variant, self.scratch)
                s.add_cold(cold)
                for rate in rates:
                    self.record(repeat=repeat, server=name, variant=variant, hot=50, cold=cold, keep=1, rate=rate,
                                **s.drive(50, 0.9, rate, True))
                s.stop()

    def throughput_by_cold(self, name, colds):
        """Figure 9: saturation throughput by number of cold connections."""
        for repeat in self.next_repeats():
            variants = ["stock", "scaled", "epoll"]
            random.shuffle(variants)
            for variant in variants:
                s = Server(name, variant, self.scratch)
                held = 0
                for cold in colds:
                    s.add_cold(cold - held)
                    held = cold
                    self.record(repeat=repeat, server=name, variant=variant, hot=50, cold=cold, keep=1, rate=0,
                                **s.drive(50, 1.2, 0, True))
                s.stop()


SECTIONS = {
    "haproxy": lambda r: r.table(["haproxy"], [0, 750, 2000, COLD_MAX]),
    "lighttpd": lambda r: r.table(["lighttpd"], [0, 750, 2000, COLD_MAX]),
    "select": lambda r: r.table(["haproxy-select", "lighttpd-select", "python-select"], [0, 400]),
    "memcached": lambda r: r.table(["memcached"], [0, 750, 2000, COLD_MAX]),
    "python": lambda r: r.table(["python"], [0, 750, 2000, COLD_MAX]),
    "one-hot": lambda r: r.table(["haproxy"], [0, 750, 2000, COLD_MAX], hot=1),
    "close": lambda r: r.table(["haproxy"], [0, 750, 2000, COLD_MAX], keep=False),
    "figure-3": lambda r: r.response_times("haproxy", [500, 2000, 4000, 8000, 12000, 16000, 20000, 25000, 30000]),
    "figure-8": lambda r: r.response_times("lighttpd", [500, 2000, 4000, 8000, 12000, 16000, 20000, 25000, 30000]),
    "figure-9": lambda r: r.throughput_by_cold("haproxy", [0, 250, 500, 750, 1000, 1500, 2000]),
}


def main():
    if len(sys.argv) not in (3, 4, 5) or (sys.argv[1] != "all" and sys.argv[1] not in SECTIONS):
        sys.exit(f"usage: run.py all|{'|'.join(SECTIONS)} OUT [REPEATS [COLD,...]]")
    if not os.path.exists(LIBRARY):
        sys.exit("no library: make -C native/scalable-select first")
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    subprocess.run(["gcc", "-O2", "-Wall", "-Wextra", "-o", os.path.join(HERE, "drive"), os.path.join(HERE, "drive.c")], check=True)
    subprocess.run(["gcc", "-O2", "-Wall", "-Wextra", "-shared", "-fPIC", "-o", FLOOR, os.path.join(HERE, "floor.c")], check=True)
    for name in SECTIONS if sys.argv[1] == "all" else [sys.argv[1]]:
        run = Run(sys.argv[2], name, int(sys.argv[3]) if len(sys.argv) > 3 else 5,
                  [int(c) for c in sys.argv[4].split(",")] if len(sys.argv) > 4 else None)
        SECTIONS[name](run)
        shutil.rmtree(run.scratch)


if __name__ == "__main__":
    main()
