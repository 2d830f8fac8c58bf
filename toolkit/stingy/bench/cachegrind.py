"""Cache misses of user space per request, simulated (valgrind's cachegrind): D1 32 KiB 8-way, LL = the L2
cache, 16-way.

The difference of two runs of different length, divided by their difference in requests, excludes the
start. The client sends requests in rounds, so that the server handles its connections in turn; the
server's clock is slowed down like the server (slowclock.c). Times are not measured, so this needs no
quiet machine, and two runs can share it."""

import os
import re
import shutil
import signal
import subprocess
import tempfile
import time

import versions

COLUMNS = ["round", "connections", "version", "l2_bytes", "requests", "instructions", "i1", "lli", "d1", "lld"]
LAYER_COLUMNS = ["connections", "version", "layer", "instructions", "d1", "lld"]
CACHES = ["--I1=32768,8,64", "--D1=32768,8,64"]
FIELDS = {"instructions": r"I\s+refs", "i1": r"I1\s+misses", "lli": "LLi misses", "d1": r"D1\s+misses", "lld": "LLd misses"}

# The layer of a source file: the first one with a matching part of the path.
LAYERS = [("/lwip/source/", "lwIP"), ("/tux/lwip/", "sockets and packets"), ("stingy_gen.c", "libstingy"), ("/servers/", "server"),
          ("/toolkit/stingy/", "libstingy"), ("", "C library")]


def by_layer(path):
    """The sums in cachegrind's output file."""
    out = {name: {"instructions": 0, "d1": 0, "lld": 0} for _, name in LAYERS}
    with open(path, encoding="utf-8") as file:
        for line in file:
            kind, _, rest = line.partition("=" if line.startswith("f") else ": ")
            if kind == "events":
                events = rest.split()
            elif kind == "fl":
                layer = next(out[name] for part, name in LAYERS if part in rest)
            elif line[0].isdigit():
                counts = dict(zip(events, map(int, line.split()[1:])))
                layer["instructions"] += counts.get("Ir", 0)
                for name, reads, writes in (("d1", "D1mr", "D1mw"), ("lld", "DLmr", "DLmw")):
                    layer[name] += counts.get(reads, 0) + counts.get(writes, 0)
    return out


def trials(options):
    # cachegrind simulates neither the kernel nor prefetching; stock against stock shows the remaining scatter.
    order = sorted(options.connections, key=lambda connections: (connections != 2500, connections))
    return [(connections, version) for connections in order for version in options.versions if (options.server, version) not in (("lighttpd", "edge"), ("tux", "loop"))]


def trial_seconds(options, trial):
    return (10 + trial[0] * 3.2e-3) / 2


def counted(options, connections, version, requests, documents):
    # lwIP's ring keeps packets in the order of arrival, so every connection is served in turn even without
    # rounds. In rounds, the client's kernel waits for a slow server and would acknowledge each answer in a
    # separate packet.
    how = "keep" if options.server == "tux-lwip" else "rounds"
    with tempfile.TemporaryDirectory() as scratch:
        log = os.path.join(scratch, "log")
        options.isolation.new_network(options.server)
        if options.server == "tux-lwip":
            # The answers come late because the server is slow, not because packets were lost, so the client must not
            # retransmit.
            subprocess.run(["ip", "route", "change", "10.199.0.0/24", "dev", "tux0", "rto_min", "100s"], check=True)
        server = versions.Server(options.server, version, documents, ["setpriv", "--pdeathsig", "KILL", "valgrind", "--tool=cachegrind", "--cache-sim=yes", *CACHES, f"--LL={options.l2},16,64",
                                                                      f"--cachegrind-out-file={scratch}/out", f"--log-file={log}"], ["slowclock.so"])
        try:
            server.wait_until_it_accepts()
            # A running measurement may end a little late.
            left_s = max(options.until - time.monotonic(), 0) + 20
            done = subprocess.run(["setpriv", "--pdeathsig", "KILL", os.path.join(versions.HERE, "client"), server.place, str(connections), str(requests), how, "/1k.bin"],
                                  capture_output=True, text=True, timeout=left_s, check=False)
            if done.returncode:
                raise RuntimeError(f"{version}, {connections} connections: the client ended early: {done.stderr.strip()}")
            server.wait_for_the_last()
        finally:
            server.end(signal.SIGTERM)
        with open(log, encoding="utf-8") as file:
            text = file.read().replace(",", "")
        layers = by_layer(f"{scratch}/out")
    return {"layers": layers} | {name: int(re.search(pattern + r":\s+(\d+)", text).group(1)) for name, pattern in FIELDS.items()}


def measure(options, trial, documents):
    connections, version = trial
    first, more = 2 * connections + 1000, max(4000, 2 * connections)
    try:
        low, high = (counted(options, connections, version, requests, documents) for requests in (first, first + more))
    except RuntimeError as error:
        options.say(f"{options.server} {error}")
        return None
    return {"connections": connections, "version": version, "l2_bytes": options.l2, "requests": more,
            "layers": [{"layer": layer, **{name: f"{(counts[name] - low['layers'][layer][name]) / more:.3f}" for name in counts}} for layer, counts in high["layers"].items() if counts["instructions"]],
            **{name: f"{(high[name] - low[name]) / more:.3f}" for name in FIELDS}}


def line(row):
    return f"LL data {row['lld']}, D1 {row['d1']}, instructions {row['instructions']}"


def why_not():
    return None if shutil.which("valgrind") else "valgrind is not installed (apt-get install valgrind)"


def table(rows, options):
    out = []
    for l2 in sorted({row["l2_bytes"] for row in rows}):
        out += [f"\n#### LL {l2 >> 10} KiB, 16-way\n", "| connections | version | LL data | against stock | D1 data | LL instruction | instructions |", "|---|---|---|---|---|---|---|"]
        for connections in sorted({row["connections"] for row in rows}):
            last = {row["version"]: row for row in rows if row["connections"] == connections and row["l2_bytes"] == l2}
            for version in (version for version in versions.VERSIONS[options.server] if version in last):
                row = last[version]
                stock = float(last["stock"]["lld"]) if "stock" in last else 0
                less = f"{(float(row['lld']) / stock - 1) * 100:+.0f} %" if stock >= 0.5 else "-"
                out.append(f"| {connections} | {version} | {float(row['lld']):.1f} | {less} | {float(row['d1']):.1f} | {float(row['lli']):.2f} | {float(row['instructions']):.0f} |")
    out += ["\n#### By layer\n", "| connections | version | layer | LL data | D1 data | instructions |", "|---|---|---|---|---|---|"]
    last = {(row["connections"], [*versions.VERSIONS[options.server]].index(row["version"]), row["layer"]): row for row in options.layers.rows}
    out += [f"| {row['connections']} | {row['version']} | {row['layer']} | {float(row['lld']):.1f} | {float(row['d1']):.1f} | {float(row['instructions']):.0f} |"
            for _, row in sorted(last.items())]
    return "\n".join(["### Misses by the request, user space, simulated (one difference of two runs each; `control` is stock once more)", *out]) + "\n"
