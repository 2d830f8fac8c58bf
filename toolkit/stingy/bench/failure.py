"""The load at failure and at recovery, from ramp.c's open loop, over kept connections and over new ones."""

import csv
import io
import math
import os
import subprocess

import record
import versions

COLUMNS = ["round", "connections", "version", "line_before_ns", "line_after_ns", "rises", "failure_per_sec", "recovery_per_sec", "over_offered_per_sec", "over_served_per_sec",
           "most_under_way", "server_busy", "void_client", "void_cpu", "void_idle", "queue_overflows", "queue_drops", "wrong"]
STEP_COLUMNS = ["round", "connections", "version", "phase", "per_sec", "verdict", "seconds", "due", "answered", "wrong", "p99_us", "worst_us", "most_under_way", "waiting_at_the_end",
                "server_busy", "server_waited_ms", "client_still_ms"]
KEPT, FRESH, CALLS, MOST_FRESH = "2500 kept", "new", 5, 8000
FIRST_PER_SEC = 10000
PASSES = 5  # maximum that ramp.c makes


def trials(options):
    wanted = [version for version in options.versions if version not in ("edge", "loop")]
    return [(arm, version) for arm in (KEPT, FRESH) if arm.split()[-1] in options.arms for version in wanted]


def trial_seconds(options, trial):
    return 3.0 if options.is_quick else 3.6


def measure(options, trial, documents):
    arm, version = trial
    step_ms, most_s = ("40", "8") if options.is_quick else ("60", "10")
    options.isolation.new_network(options.server)
    server = versions.Server(options.server, version, documents, options.isolation.words(versions.SERVER_CPU))
    try:
        server.wait_until_it_accepts()
        shape = [arm.split()[0], "0"] if arm == KEPT else [str(MOST_FRESH), str(CALLS)]
        done = subprocess.run([*options.isolation.words(versions.CLIENT_CPU), os.path.join(versions.HERE, "ramp"), server.place, str(server.process.pid), "/1k.bin", *shape,
                               str(FIRST_PER_SEC), step_ms, most_s], capture_output=True, text=True, timeout=120, check=False)
        counters = versions.network_counters() if options.isolation.is_new_network else {}
    finally:
        server.end()
    steps = list(csv.DictReader(io.StringIO(done.stdout)))
    if done.returncode != 0 or not steps:
        options.say(f"{options.server} {version} {arm}: the client ended early: {done.stderr.strip()}")
        return None
    for step in steps:
        options.steps.add({"round": options.round, "connections": arm, "version": version, **step})
    return {"connections": arm, "version": version, **counters, **summary(steps)}


def summary(steps):
    """A ramp's results: the rates at failure and recovery, the rate served above them, and the number of void steps."""
    failures, recoveries = [], []
    for number in range(1, PASSES + 1):
        rise = [step for step in steps if step["phase"] == f"rise{number}"]
        held = [float(step["per_sec"]) for step in rise if step["verdict"] == "held"]
        if held and rise[-1]["verdict"] == "failed":
            failures.append(held[-1])
        fall = [step for step in steps if step["phase"] == f"fall{number}" and step["verdict"] in ("held", "failed")]
        if len(fall) >= 2 and all(float(step["answered"]) >= float(step["per_sec"]) * float(step["seconds"]) * 0.995 for step in fall[-2:]):
            recoveries.append(float(fall[-1]["per_sec"]))
    # Disturbances can only lower these rates.
    out = {"rises": len(failures), "failure_per_sec": f"{max(failures):.0f}" if failures else "", "recovery_per_sec": f"{max(recoveries):.0f}" if recoveries else ""}
    over = next((step for step in steps if step["phase"] == "over" and step["verdict"] in ("held", "failed")), None)
    if over:
        out["over_offered_per_sec"] = over["per_sec"]
        out["over_served_per_sec"] = f"{float(over['answered']) / float(over['seconds']):.0f}"
    failed = [step for step in steps if step["phase"].startswith("rise") and step["verdict"] == "failed"]
    out["server_busy"] = f"{sum(float(step['server_busy']) for step in failed) / len(failed):.3f}" if failed else ""
    out["most_under_way"] = max(int(step["most_under_way"]) for step in steps)
    out["wrong"] = sum(int(step["wrong"]) for step in steps)
    for reason in ("client", "cpu", "idle"):
        out[f"void_{reason}"] = sum(step["verdict"] == reason for step in steps)
    return out


def line(row):
    return f"failure {row.get('failure_per_sec')}, recovery {row.get('recovery_per_sec')}, over {row.get('over_served_per_sec')} ({row.get('rises')} rises)"


def of(name):
    return lambda row: float(row[name]) if row.get(name) not in ("", None) else math.nan


FIGURES = [("load at failure", of("failure_per_sec")), ("load at recovery", of("recovery_per_sec")), ("served at 1.5 times the load at failure", of("over_served_per_sec"))]


def total(rows, name):
    return sum(int(row[name]) for row in rows if row.get(name) not in ("", None))


def limits(own):
    """Limits other than the server's CPU that may have ended a ramp."""
    busy = [float(row["server_busy"]) for row in own if row["server_busy"] not in ("", None)]
    share = f"{sum(busy) / len(busy):.2f} of its CPU" if busy else "not measured: no step failed"
    return (f"\nWhere it fails the server uses {share}. Accept queue full: {total(own, 'queue_overflows')} times; requests that went wrong: {total(own, 'wrong')}; most under way "
            f"{max(int(row['most_under_way']) for row in own)}. Void steps: {total(own, 'void_client')} for the client, {total(own, 'void_cpu')} for the server's CPU, {total(own, 'void_idle')} for an idle server. Measurements: {record.places(own)}.\n")


def table(rows, options):
    out = []
    for arm in (KEPT, FRESH):
        own = [row for row in rows if row["connections"] == arm]
        if not own:
            continue
        known = [version for version in versions.VERSIONS[options.server] if any(row["version"] == version for row in own)]
        rounds = len({(row["run"], row["round"]) for row in own})
        title = "2,500 kept connections" if arm == KEPT else f"new connections, {CALLS} requests each, at most {MOST_FRESH:,} open"
        out += [f"\n#### {title}, {rounds} rounds\n", "| version | " + " | ".join(f"{name} (requests/s) | ratio" for name, _ in FIGURES) + " |", "|---|" + "---|---|" * len(FIGURES)]
        controls, cells = [], {version: [] for version in known}
        for name, read in FIGURES:
            whole = [row for row in own if not math.isnan(read(row))]
            ratios, control, why = record.against_stock(whole, read, known)
            controls.append(f"{name} {control}" + (f", **no ratio is given: {why}**" if why else ""))
            for version in known:
                cells[version] += [f"{record.middle(whole, read, version):.0f}", ratios[version]]
        out += [f"| {version} | {' | '.join(cells[version])} |" for version in known]
        out.append("\nA/A, stock against stock: " + "; ".join(controls) + ".")
        out.append(limits(own))
    return "\n".join([f"### {versions.network(options.server)}: load at failure, open loop at even distances (medians of the more frequent place; ratios with 95 % intervals, the A/A's with 99 %, from a fit of version, round and place)", *out]) + "\n"
