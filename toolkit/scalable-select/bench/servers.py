"""Starts each server of toolkit/scalable-select/bench as a variant, with cold connections, and measures its CPU
time under load."""
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.dont_write_bytecode = True
sys.path.append(os.path.join(HERE, "../../../bench"))
import harness  # noqa: E402
from harness import ROOT  # noqa: E402

LIBRARY = os.path.join(ROOT, "toolkit/scalable-select/build/libscalable-select.so")
FLOOR = os.path.join(HERE, "floor.so")
PAGE = "GET /f.html HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n"
PAGE_CLOSE = "GET /f.html HTTP/1.1\\r\\nHost: a\\r\\nConnection: close\\r\\n\\r\\n"
PORT = 8101  # and 8111, 8121, 8131
LIMIT = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
# HAProxy needs two descriptors for each of its maxconn; a connection that it answers itself uses one.
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


def make_scratch():
    """A folder for configurations and reports, with the page that clients request."""
    scratch = tempfile.mkdtemp()
    os.chmod(scratch, 0o755)
    with open(os.path.join(scratch, "f.html"), "w") as f:
        f.write("x" * 1259)
    return scratch


def server(name, variant, scratch, port):
    """Command, environment, port and request of a server; variant is stock, scaled, floor or epoll."""
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
        harness.wait_for(self.port, self.process, name)
        time.sleep(0.2)

    def add_cold(self, n):
        if n:
            self.cold.stdin.write(f"{n}\n")
            self.cold.stdin.flush()
            if self.cold.stdout.readline().strip() != "ready":
                raise RuntimeError("cold connections refused")
            self.drive(1, 0.3, 0, True)  # returns when the server has accepted all earlier connections

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
        # HAProxy has no handler for SIGTERM, and only a server that exits writes the library's report.
        self.process.send_signal(signal.SIGUSR1 if self.name.startswith("haproxy") else signal.SIGTERM)
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            harness.end(self.process, 0)
        if os.path.exists(self.stats):
            return open(self.stats).read().strip().replace("\n", " ")
        return ""
