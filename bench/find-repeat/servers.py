"""The servers, with the quantities that `find` looks for, the truth, and how each is started."""
import json
import os
import shutil
import subprocess

import harness
from harness import ROOT

TRUTH = os.path.join(ROOT, "testbed/truth/build/truth")
FAULTY = os.path.join(ROOT, "testbed/faults/build/faulty")
PORT = 18290

# A sweep in the output of `find --json`: our name and its member. The value of a peak has another name.
POINTS = {"yield": "yield_point", "knee": "knee", "failure": "failure_point", "capacity": "capacity"}
QUANTITIES = [(sweep, name) for sweep in ("connections", "rate") for name in (*POINTS, "peak")]
# Members of the truth with another name.
TRUTH_NAMES = {("connections", "peak"): "peak_per_sec"}


class Server:
    """A server, its sweep, and the quantities that the certificate may use: it uses the first that `find` has."""

    def __init__(self, name, sweep, quantities, needs=None):
        self.name, self.sweep, self.quantities, self.needs = name, sweep, quantities, needs

    def why_not(self):
        return f"{self.needs} is not installed" if self.needs and not shutil.which(self.needs) else None


# The truth is defined over connections for a server that waits, and over rate for a busy one or a bucket.
ELASTIC = [("connections", "knee"), ("connections", "yield")]
TRUTHS = [
    Server("bucket", "rate", [("rate", "failure")]),
    Server("thread", "rate", [("rate", "yield")]),
    Server("workers", "connections", ELASTIC),
    Server("growing", "connections", ELASTIC),
    Server("exponential", "connections", ELASTIC),
]
# Measured only on request, because its answers depend on earlier load.
METASTABLE = Server("metastable", "connections", ELASTIC)
REAL = [
    Server("nginx", "connections", ELASTIC, "nginx"),
    Server("haproxy", "connections", ELASTIC, "haproxy"),
    # Answers over HTTP from memory, as memcached does.
    Server("memory", "connections", ELASTIC),
]
SERVERS = {server.name: server for server in [*TRUTHS, METASTABLE, *REAL]}
GROUPS = {"truth": [server.name for server in TRUTHS], "real": [server.name for server in REAL]}


def is_truth(name):
    return name in GROUPS["truth"] or name == METASTABLE.name


def words(name, draw, sealed, folder, counts=None):
    """The command of a server. For a server of known truth also the file for its counts."""
    at = ["--port", str(PORT), "--address", "0.0.0.0"]
    if is_truth(name):
        server = [TRUTH, name, "--sealed", sealed, "--draw", str(draw), *at]
        return ["sh", "-c", 'exec "$@" > "$0"', counts, *server, "--count"] if counts else server
    if name == "memory":
        return [FAULTY, "none", *at]
    return harness.serve_command(name, PORT, os.path.join(folder, name), "--address", "0.0.0.0")


def url(name):
    return f"http://127.0.0.1:{PORT}/{'1k.bin' if name in ('nginx', 'haproxy') else ''}"


def opened(name, draw, sealed, away_us):
    """The truth of a drawn server: its parameters, and the value of each quantity (None if it has none).

    In a closed loop whose requests take D at the server and Z on their way, k workers are busy from k (1 + Z/D)
    connections on.

    """
    command = [TRUTH, name, "--sealed", sealed, "--draw", str(draw), "--truth"]
    truth = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    values = {quantity: truth[quantity[0]].get(TRUTH_NAMES.get(quantity, quantity[1])) for quantity in QUANTITIES}
    for quantity in ELASTIC:
        if values[quantity] and away_us:
            values[quantity] *= 1 + away_us * 1e3 / truth["parameters"]["time_ns"]
    return truth["parameters"], values


def away_us(counts):
    """Mean time from the due time of an answer to the next request on its connection, by the server's clock; "" if
    none was counted."""
    with open(counts, encoding="ascii") as file:
        counted = json.load(file)
    return f"{counted['away_ns'] / counted['away'] / 1e3:.1f}" if counted["away"] else ""


def estimates(findings):
    """Estimate, low and high of each quantity in the output of `find --json`; None for missing ones.

    A yield point is either where a doubling of the connections gains too little, or the knee, where two lines
    meet. Its reason says which; they have different truths.

    """
    found = {}
    for sweep, name in QUANTITIES:
        of_sweep = findings.get(sweep) or {}
        point = of_sweep.get("peak" if name == "peak" else POINTS[name]) or {}
        if name == "yield" and "the plateau" in point.get("reason", ""):
            found[sweep, "knee"] = (point["estimate"], point["low"], point["high"])
            point = {}
        elif name == "knee" and (sweep, "knee") in found:
            continue
        found[sweep, name] = (point.get("per_sec" if name == "peak" else "estimate"), point.get("low"), point.get("high"))
    return found
