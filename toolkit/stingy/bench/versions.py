"""The versions of each server, and how to start one: always on the same port, in a separate network namespace, on a separate CPU."""

import ctypes
import errno
import fcntl
import os
import re
import resource
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time

import harness
from harness import ROOT

HERE = os.path.dirname(os.path.abspath(__file__))
TUX = os.path.join(HERE, "../servers/tux/build")
LIGHTTPD = os.path.join(HERE, "../servers/lighttpd/build")
REQUESTS = re.compile(r"STINGY_REQUESTS = (\d+)")
SERVER_CPU, CLIENT_CPU = 0, 1

LIGHTTPD_CONFIGURATION = """
server.document-root = "{documents}"
server.bind = "127.0.0.1"
server.port = {port}
server.max-fds = {descriptors}
server.max-connections = {connections}
server.listen-backlog = 4096
server.max-keep-alive-requests = 100000000
server.max-keep-alive-idle = 600
server.max-read-idle = 600
server.modules = ( "mod_access", "mod_expire", "mod_setenv" )
mimetype.assign = ( ".bin" => "application/octet-stream" )
"""

# Version: program, environment, preload library, description. The others are compared with the first; `control` is the same again, and
# shows the ratio of equal versions on this machine.
VERSIONS = {
    "tux": {
        "stock": ("tux", {}, None, "as it is"),
        "control": ("tux", {}, None, "stock once more"),
        "slab": ("tux-slab", {}, None, "allocations in the slab, scheduled as stock"),
        "loop": ("tux-stingy", {"STINGY_OFF": "1", "STINGY_ADMIT": "0", "STINGY_PREFETCH": "0"}, None,
                 "memory from malloc; stage scheduler and cold connections, no admission, no prefetch"),
        "room": ("tux-stingy", {"STINGY_OFF": "1"}, None, "memory from malloc; stage scheduler, admits as many requests as the slab would hold"),
        "both": ("tux-stingy", {}, None, "slab, stage scheduler, admission by room"),
        "prefetch": ("tux-stingy", {"STINGY_ADMIT": "0"}, None, "slab, stage scheduler with prefetch on election, no admission"),
    },
    # tux with its network stack in its own address space. What has come is taken from the wire at once, or, with the stage scheduler, as many
    # packets as its batches have.
    "tux-lwip": {
        "stock": ("tux-lwip", {}, None, "as it is"),
        "control": ("tux-lwip", {}, None, "stock once more"),
        "list": ("tux-lwip-list", {}, None, "as it is, but lwIP looks for a packet's connection in the list of all, as it does by itself"),
        "batch": ("tux-lwip", {"TUX_RECEIVE": "64"}, None, "as it is, but takes 64 packets at a time from the wire"),
        "slab": ("tux-lwip-slab", {}, None, "allocations in the slab, scheduled as stock"),
        "loop": ("tux-lwip-stingy", {"STINGY_OFF": "1", "STINGY_ADMIT": "0", "STINGY_PREFETCH": "0", "TUX_RECEIVE": "64"}, None,
                 "memory from malloc; stage scheduler and cold connections, 64 packets at a time, no admission, no prefetch"),
        "both": ("tux-lwip-stingy", {"TUX_RECEIVE": "64"}, None, "slab, stage scheduler, admission by room, 64 packets at a time"),
    },
    "lighttpd": {
        "stock": ("stock", {}, None, "as it is"),
        "control": ("stock", {}, None, "stock once more"),
        "edge": ("stock", {}, "edge.so", "as it is, but epoll is edge-triggered (edge.c)"),
        "slab": ("slab", {}, None, "allocations in the slab, scheduled as stock"),
        "room": ("stingy", {"STINGY_OFF": "1"}, None, "memory from malloc; connections between requests are cold, ready ones are answered one after another"),
        "both": ("stingy", {}, None, "slab and cold connections"),
        "prefetch": ("stingy", {"STINGY_COLD": "0"}, None, "slab, connections stay as they are, the structure of the next ready one is fetched ahead"),
    },
}

# Causes of a gain: (name, the two versions, their difference).
SOURCES = {
    "tux": [("allocator", "slab", "stock", "slab in place of malloc, stock's loop"),
            ("batching", "loop", "stock", "stage scheduler and cold connections; includes what edge-triggered epoll saves the kernel"),
            ("admission", "room", "loop", "admits as many requests as there is room for"),
            ("allocator after that", "both", "room", "slab in place of malloc, with that loop"),
            ("slab and prefetch", "prefetch", "loop", "in place of admission")],
    "tux-lwip": [("lookup by list", "list", "stock", "what lwIP's own search costs"),
                 ("batches of packets", "batch", "stock", "64 at a time"),
                 ("allocator", "slab", "stock", "slab in place of malloc, stock's loop"),
                 ("stage scheduler", "loop", "batch", "stage scheduler and cold connections"),
                 ("slab and admission", "both", "loop", "with that loop")],
    "lighttpd": [("allocator", "slab", "stock", "slab in place of malloc, stock's loop"),
                 ("edge-triggered epoll", "edge", "stock", "the kernel's part alone"),
                 ("cold connections", "room", "stock", "admission to structures: one is used again and again"),
                 ("allocator after that", "both", "room", "slab in place of malloc, with cold connections"),
                 ("prefetch", "prefetch", "slab", "in place of cold connections")],
}


def network(server):
    return "lwIP in the server's process" if server == "tux-lwip" else "Kernel sockets"


def admitted():
    with open(os.path.join(TUX, "steps", "gen", "stingy_gen.h"), encoding="ascii") as file:
        return REQUESTS.search(file.read()).group(1)


def build(server):
    """The server's versions, the clients, the preload libraries."""
    if server in ("tux", "tux-lwip"):
        subprocess.run(["make", "-s", "-C", os.path.dirname(TUX), "lwip" if server == "tux-lwip" else "all"], check=True, stdout=subprocess.DEVNULL)
    elif not os.path.exists(os.path.join(LIGHTTPD, "stingy", "src", "lighttpd")):
        subprocess.run(["make", "-s", "-C", os.path.dirname(LIGHTTPD), "servers"], check=True)
    for program in ("client", "ramp", "line"):
        harness.compiled(os.path.join(HERE, program + ".c"), os.path.join(HERE, program), "-pthread")
    for library in ("nullnet", "slowclock", "edge"):
        harness.compiled(os.path.join(HERE, library + ".c"), os.path.join(HERE, library + ".so"))


class Isolation:
    """Keeps other work away from a measurement where permitted: a network namespace for each, real-time priority
    on both CPUs."""

    def __init__(self, is_wanted):
        self.is_new_network = is_wanted and os.geteuid() == 0
        self.is_first = is_wanted and shutil.which("chrt") and subprocess.run(["chrt", "-f", "1", "true"], check=False, stderr=subprocess.DEVNULL).returncode == 0

    def words(self, cpu):
        """Words before a command that set its CPU and its priority, and that end it together with this program,
        even if this is killed."""
        return ["setpriv", "--pdeathsig", "KILL", *(["chrt", "-f", "1"] if self.is_first else []), "taskset", "-c", str(cpu)]

    def line_ns(self):
        """Returns the smallest of three results of line.c, because every disturbance adds to the time."""
        command = ["setpriv", "--pdeathsig", "KILL", *(["chrt", "-f", "1"] if self.is_first else []), os.path.join(HERE, "line"), str(SERVER_CPU), str(CLIENT_CPU)]
        told = [subprocess.run(command, capture_output=True, text=True, check=False).stdout for _ in range(3)]
        return min((int(text) for text in told if text.strip().isdigit()), default=0)

    def describe(self):
        return (f"server on CPU {SERVER_CPU}, client on CPU {CLIENT_CPU}; "
                + ("first-in-first-out priority 1: ordinary work waits for both" if self.is_first else "ordinary priority: other work takes its share")
                + ("; each measurement in a new network namespace" if self.is_new_network else "; in this machine's network namespace"))

    def new_network(self, kind):
        """A new namespace has no traces of the previous measurement: no TIME_WAIT, no cached metrics, no queue."""
        if not self.is_new_network:
            if kind == "tux-lwip":
                raise OSError(errno.EPERM, "tux-lwip needs network namespaces, that is root, and not --ordinary")
            return
        libc = ctypes.CDLL(None, use_errno=True)
        clone_newnet = 0x40000000
        if libc.unshare(clone_newnet) != 0:
            raise OSError(ctypes.get_errno(), "unshare")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            get_flags, set_flags, up = 0x8913, 0x8914, 1
            request = bytearray(fcntl.ioctl(probe, get_flags, struct.pack("16sH14s", b"lo", 0, b"")))
            struct.pack_into("H", request, 16, struct.unpack_from("H", request, 16)[0] | up)
            fcntl.ioctl(probe, set_flags, bytes(request))
        for name, value in (("core/somaxconn", "4096"), ("ipv4/tcp_max_syn_backlog", "4096"), ("ipv4/ip_local_port_range", "10000 65000")):
            with open(f"/proc/sys/net/{name}", "w", encoding="ascii") as file:
                file.write(value)
        if kind == "tux-lwip":
            subprocess.run([os.path.join(os.path.dirname(TUX), "lwip", "link")], check=True)


def network_counters():
    """Returns this namespace's counters of connections and of SYNs that found the listener's queue full."""
    with open("/proc/thread-self/net/netstat", encoding="ascii") as file:
        lines = file.read().splitlines()
    names, values = (next(line.split() for line in lines[first:] if line.startswith("TcpExt:")) for first in (0, 1))
    counters = dict(zip(names, values))
    return {name: int(counters[key]) for name, key in (("queue_overflows", "ListenOverflows"), ("queue_drops", "ListenDrops"))}


class Server:
    """One version of a server, running until end()."""

    def __init__(self, kind, version, documents, before=(), preload=(), extra=None, stdout=subprocess.DEVNULL):
        self.port = 8080 if os.geteuid() == 0 else harness.free_port()
        self.scratch = tempfile.TemporaryDirectory()
        program, environment, own_preload, _ = VERSIONS[kind][version]
        self.address = "10.199.0.2" if kind == "tux-lwip" else "127.0.0.1"
        self.place = f"{self.address}:{self.port}"
        words = self.lighttpd(program, documents) if kind == "lighttpd" else self.tux(program, documents)
        environment = dict(os.environ, **environment, **({"TUX_DEVICE": "tux1"} if kind == "tux-lwip" else {}), **(extra or {}))
        if kind == "tux" and version == "room":
            environment["STINGY_ADMIT"] = admitted()
        libraries = [os.path.join(HERE, name) for name in (*preload, *([own_preload] if own_preload else []))]
        if libraries:
            environment["LD_PRELOAD"] = ":".join(libraries)
        self.name = f"{kind} {version}"
        self.process = subprocess.Popen([*before, *words], env=environment, stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.DEVNULL)

    def wait_until_it_accepts(self):
        harness.wait_for(self.port, self.process, self.name, self.address)

    def tux(self, program, documents):
        return [os.path.join(TUX, program), "--address", self.address, "--port", str(self.port), "--documents", documents, "--timeout", "600"]

    def lighttpd(self, folder, documents):
        path = os.path.join(self.scratch.name, "lighttpd.conf")
        descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        with open(path, "w", encoding="utf-8") as file:
            file.write(LIGHTTPD_CONFIGURATION.format(documents=documents, port=self.port, descriptors=descriptors, connections=descriptors // 2))
        return [os.path.join(LIGHTTPD, folder, "src", "lighttpd"), "-D", "-f", path]

    def wait_for_the_last(self):
        """Waits until no connection is left. The server's end closes the rest in another way, and their number
        varies by chance. The kernel does not count lwIP's connections: there this waits until the server is
        idle."""
        until, used = time.monotonic() + 20, -1
        while (used != self.ticks() if self.address != "127.0.0.1" else self.sockets() > 1) and time.monotonic() < until:
            used = self.ticks()
            time.sleep(0.3)

    def ticks(self):
        with open(f"/proc/{self.process.pid}/stat", encoding="ascii") as file:
            return sum(map(int, file.read().rpartition(")")[2].split()[11:13]))

    def sockets(self):
        """Returns the number of the server's sockets, including its listener."""
        folder, count = f"/proc/{self.process.pid}/fd", 0
        for name in os.listdir(folder):
            try:
                count += os.readlink(os.path.join(folder, name)).startswith("socket:")
            except FileNotFoundError:
                pass
        return count

    def end(self, how=signal.SIGKILL):
        self.process.send_signal(how)
        self.process.wait(120)
        self.scratch.cleanup()
