"""CPU time per request and throughput in a closed loop in which every connection has a request in flight."""

import os
import subprocess

import record
import versions

COLUMNS = ["round", "connections", "version", "line_before_ns", "line_after_ns", "requests", "errors", "seconds", "server_ns", "waited_ns", "user_ticks", "system_ticks", "client_s"]
WINDOW_S = {False: 0.4, True: 0.2}
SATURATED = 0.95


def trials(options):
    return [(connections, version) for connections in options.connections for version in options.versions]


def trial_seconds(options, trial):
    return 0.35 + trial[0] * 90e-6 + WINDOW_S[options.is_quick]


def measure(options, trial, documents):
    connections, version = trial
    options.isolation.new_network(options.server)
    server = versions.Server(options.server, version, documents, options.isolation.words(versions.SERVER_CPU))
    try:
        server.wait_until_it_accepts()
        warm_up = 2 * connections + 2000
        done = subprocess.run([*options.isolation.words(versions.CLIENT_CPU), os.path.join(versions.HERE, "client"), server.place, str(connections), str(warm_up), "keep",
                               "/1k.bin", str(server.process.pid), str(WINDOW_S[options.is_quick])], capture_output=True, text=True, timeout=120, check=False)
    finally:
        server.end()
    if not done.stdout:
        options.say(f"{options.server} {version}, {connections} connections: the client ended early: {done.stderr.strip()}")
        return None
    told = dict(word.split("=") for word in done.stdout.split())
    return {"connections": connections, "version": version, **told}


def line(row):
    return f"{float(row['server_ns']) / float(row['requests']) / 1000:.2f} us, {float(row['requests']) / float(row['seconds']):.0f}/s"


def cpu_us(row):
    return float(row["server_ns"]) / float(row["requests"]) / 1000


def per_sec(row):
    return float(row["requests"]) / float(row["seconds"])


def busy(row):
    return float(row["server_ns"]) / 1e9 / float(row["seconds"])


def user_us(rows, version):
    """Computes user time from clock ticks of all rounds together, because ticks are coarse."""
    own = [row for row in rows if row["version"] == version]
    ticks = sum(row["user_ticks"] + row["system_ticks"] for row in own)
    return sum(cpu_us(row) for row in own) / len(own) * sum(row["user_ticks"] for row in own) / max(1, ticks)


def table(rows, options):
    out = []
    for connections in sorted({row["connections"] for row in rows}):
        own = [row for row in rows if row["connections"] == connections]
        known = [version for version in versions.VERSIONS[options.server] if any(row["version"] == version for row in own)]
        cpu, cpu_control, why = record.against_stock(own, cpu_us, known)
        throughput, throughput_control, why_not = record.against_stock(own, per_sec, known)
        rounds = len({(row["run"], row["round"]) for row in own})
        waited = sum(float(row["waited_ns"]) for row in own) / sum(float(row["seconds"]) * 1e9 for row in own)
        out += [f"\n#### {connections} connections, {rounds} rounds\n", "| version | CPU us/request | of it user | CPU, ratio to stock | requests/s | ratio to stock | server busy |", "|---|---|---|---|---|---|---|"]
        for version in known:
            used = record.middle(own, busy, version)
            limit = "" if used >= SATURATED else " (the client's limit)"
            out.append(f"| {version} | {record.middle(own, cpu_us, version):.2f} | {user_us(own, version):.2f} | {cpu[version]} | {record.middle(own, per_sec, version):.0f} | {throughput[version]} | {used:.2f}{limit} |")
        out.append(f"\nA/A, stock against stock: CPU {cpu_control}, requests/s {throughput_control}{'; **no ratio is given: ' + (why or why_not) + '**' if why or why_not else ''}. "
                   f"The server waited {waited * 100:.1f} % of the time for its CPU. Measurements: {record.places(own)}.\n")
        if not why:
            out += ["Where the CPU time went:\n", *record.sources(own, cpu_us, versions.SOURCES[options.server])]
    return "\n".join([f"### {versions.network(options.server)}, closed loop, keep-alive, 1 KiB (medians of the more frequent place; ratios with 95 % intervals, the A/A's with 99 %, from a fit of version, round and place)", *out]) + "\n"
