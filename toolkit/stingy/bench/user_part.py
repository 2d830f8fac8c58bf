"""The server's own time on this machine's caches: nullnet.c replaces kernel and clients inside the server's
process."""

import subprocess

import record
import versions

COLUMNS = ["round", "connections", "version", "requests", "ns"]


def trials(options):
    return [(connections, version) for connections in options.connections for version in options.versions if version != "edge"]


def trial_seconds(options, trial):
    return 0.6


def measure(options, trial, documents):
    connections, version = trial
    requests = max(40000 if options.is_quick else 100000, 10 * connections)
    options.isolation.new_network(options.server)
    server = versions.Server(options.server, version, documents, options.isolation.words(versions.SERVER_CPU), ["nullnet.so"],
                             {"NULLNET_CONNECTIONS": str(connections), "NULLNET_REQUESTS": str(requests)}, subprocess.PIPE)
    try:
        text = server.process.communicate(timeout=120)[0].decode()
    finally:
        server.end()
    if "ns=" not in text:
        options.say(f"{options.server} {version}, {connections} connections: ended without a result (code {server.process.returncode})")
        return None
    told = dict(word.split("=") for word in text.split())
    return {"connections": connections, "version": version, "requests": told["requests"], "ns": told["ns"]}


def line(row):
    return f"{float(row['ns']) / 1000:.3f} us"


def table(rows, options):
    out = []
    for connections in sorted({row["connections"] for row in rows}):
        own = [row for row in rows if row["connections"] == connections]
        known = [version for version in versions.VERSIONS[options.server] if any(row["version"] == version for row in own)]
        ratios, control, why = record.against_stock(own, "ns", known)
        rounds = len({(row["run"], row["round"]) for row in own})
        out += [f"\n#### {connections} connections, {rounds} rounds\n", "| version | us/request | ratio to stock |", "|---|---|---|"]
        out += [f"| {version} | {record.middle(own, 'ns', version) / 1000:.2f} | {ratios[version]} |" for version in known]
        out.append(f"\nA/A, stock against stock: {control}{'; **no ratio is given: ' + why + '**' if why else ''}.\n")
        if not why:
            out += record.sources(own, "ns", versions.SOURCES[options.server])
    return "\n".join(["### User part alone, no kernel (medians; ratios with 95 % intervals, the A/A's with 99 %, from a fit of version, round and place)", *out]) + "\n"
