#!/usr/bin/env python3
"""Client CPU time per completed request: straingauge's engine against wrk, ab, h2load and oha, side by side.

Every round runs every tool once, for the same time, on CPU 0, against one server on CPU 1. A tool's cost is what the
kernel charged its process (user and system), connecting and start-up included, over its completed requests; its ratio is
that cost over wrk's *in the same round*. Printed: the median over the rounds, with [smallest..largest].

    bench/load-vs-peers/compare.py                      all cells, 5 rounds: about 12 minutes
    bench/load-vs-peers/compare.py --cells sink-50 --rounds 9 --tools engine,wrk
    bench/load-vs-peers/compare.py --write bench/runs/2026-11-21-load-vs-peers

Needs: cc, nginx, wrk, ab (apache2-utils), h2load (nghttp2-client), oha (cargo install oha), and `cargo build --release
-p straingauge -p straingauge-load --examples`. A tool or server that is missing is named and left out.

Rows: `engine` is crates/load alone (its example closed_loop), `straingauge` the whole command, which also watches the
server while it measures.
"""

import argparse
import csv
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release"
PORTS = {"sink": 18081, "nginx": 18082}
TOOLS = ["engine", "straingauge", "wrk", "ab", "h2load", "oha"]
# The goals that this project has set itself, as ratios to wrk (lower is better).
GOALS = {"sink-50": 0.80, "sink-500": 0.80, "sink-5000": 0.62, "sink-10000": 0.62,
         "nginx-50": 0.80, "nginx-500": 0.80, "nginx-5000": 0.62, "nginx-10000": 0.62,
         "sink-50-close": 0.85, "nginx-50-close": 0.85}


def seconds(cell):
    """Opening the connections counts: a longer round keeps its share small where there are many."""
    return 4 if int(cell.split("-")[1]) >= 5000 else 2


def command(tool, cell):
    server, connections, *close = cell.split("-")
    url = f"http://127.0.0.1:{PORTS[server]}/"
    time_s = seconds(cell)
    if tool == "engine":
        return [TARGET / "examples/closed_loop", f"127.0.0.1:{PORTS[server]}", connections, time_s,
                1 if close else 0]
    if tool == "straingauge":
        return [TARGET / "straingauge", "load", url, "--connections", connections, "--duration",
                f"{time_s}s", "--warmup", "0s", "--threads", 1, "--quiet", "--json"] + (
                    ["--requests-per-connection", 1] if close else [])
    if tool == "wrk":
        return ["wrk", "-t1", f"-c{connections}", f"-d{time_s}s", url] + (["-H", "Connection: close"] if close else [])
    if tool == "ab":
        # -t resets -n, so -n comes behind it. ab closes unless -k.
        return ["ab", "-q"] + ([] if close else ["-k"]) + ["-c", connections, "-t", time_s, "-n", 100000000, url]
    if tool == "h2load":
        # Counts connections that end: no run without keep-alive.
        return None if close else ["h2load", "--h1", "-t1", f"-c{connections}", "-D", time_s, url]
    return ["oha", "--no-tui", "-z", f"{time_s}s", "-c", connections, "--output-format", "json", "--http-version", "1.1",
            url] + (["--disable-keepalive"] if close else [])


def completed(tool, text):
    if tool == "engine":
        return int(re.search(r"\bok: (\d+)", text)[1])
    if tool == "straingauge":
        return json.loads(text)["point"]["outcomes"]["ok"]
    if tool == "wrk":
        return int(re.search(r"(\d+) requests in", text)[1])
    if tool == "ab":
        return int(re.search(r"Complete requests:\s+(\d+)", text)[1])
    if tool == "h2load":
        return int(re.search(r"(\d+) succeeded", text)[1])
    return json.loads(text)["statusCodeDistribution"]["200"]


def on_cpu_0():
    os.sched_setaffinity(0, {0})
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def measure(tool, cell):
    """One run: (user us, system us, requests), or a sentence."""
    argv = command(tool, cell)
    if argv is None:
        return "has no mode without keep-alive"
    out = tempfile.TemporaryFile("w+")
    child = subprocess.Popen([str(part) for part in argv], stdout=out, stderr=subprocess.DEVNULL, preexec_fn=on_cpu_0)
    deadline = time.monotonic() + 40 + 4 * seconds(cell)
    while True:
        pid, status, usage = os.wait4(child.pid, os.WNOHANG)
        if pid:
            child.returncode = os.waitstatus_to_exitcode(status)
            break
        if time.monotonic() > deadline:
            child.kill()
            os.wait4(child.pid, 0)
            child.returncode = -9
            return "did not end"
        time.sleep(0.02)
    out.seek(0)
    try:
        requests = completed(tool, out.read())
    except (TypeError, KeyError, ValueError):
        return f"exit {child.returncode}, no result"
    if requests == 0:
        return "completed nothing"
    return usage.ru_utime * 1e6, usage.ru_stime * 1e6, requests


def start_server(name, folder):
    if name == "sink":
        binary = folder / "sink"
        subprocess.run(["cc", "-O2", "-o", binary, HERE / "sink.c"], check=True)
        child = subprocess.Popen([binary, str(PORTS["sink"]), "1"])
    else:
        (folder / "www").mkdir(exist_ok=True)
        (folder / "tmp").mkdir(exist_ok=True)
        (folder / "www/index.html").write_text("x" * 128)
        for path in [folder, folder / "www", folder / "tmp"]:
            path.chmod(0o755)
        child = subprocess.Popen(["nginx", "-p", folder, "-c", HERE / "nginx.conf"], stderr=subprocess.DEVNULL)
    for _ in range(100):
        time.sleep(0.05)
        with socket.socket() as attempt:
            if attempt.connect_ex(("127.0.0.1", PORTS[name])) == 0:
                return child
    sys.exit(f"{name} does not listen on port {PORTS[name]}")


def stop_server(child):
    child.send_signal(signal.SIGTERM)
    try:
        child.wait(5)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def spread(values):
    return f"{statistics.median(values):.2f} [{min(values):.2f}..{max(values):.2f}]"


def run_cell(cell, tools, rounds, folder, rows):
    """Interleaved rounds of one cell; returns its table."""
    server = start_server(cell.split("-")[0], folder)
    costs, notes = {tool: [] for tool in tools}, {}
    try:
        for number in range(rounds):
            # Another order each round: nobody always runs behind the same neighbour.
            for tool in tools[number % len(tools):] + tools[:number % len(tools)]:
                got = measure(tool, cell)
                if isinstance(got, str):
                    notes[tool] = got
                    continue
                user, system, requests = got
                costs[tool].append((number, (user + system) / requests, user / requests, requests))
                rows.append([cell, number, tool, round(user), round(system), requests])
                time.sleep(0.2)
    finally:
        stop_server(server)
    wrk = {number: cost for number, cost, _, _ in costs.get("wrk", [])}
    lines = []
    for tool in tools:
        if not costs[tool]:
            lines.append((tool, "-", "-", "-", "-", notes.get(tool, "")))
            continue
        ratios = [cost / wrk[number] for number, cost, _, _ in costs[tool] if number in wrk]
        median = statistics.median(cost for _, cost, _, _ in costs[tool])
        user = statistics.median(share for _, _, share, _ in costs[tool])
        rate = statistics.median(requests for _, _, _, requests in costs[tool]) / seconds(cell)
        remark = ""
        if tool in ("engine", "straingauge") and ratios and cell in GOALS:
            met = statistics.median(ratios) <= GOALS[cell]
            remark = f"goal {GOALS[cell]:.2f}: {'met' if met else 'NOT met'}"
        lines.append((tool, f"{median:.2f}", f"{user:.2f}", f"{rate:.0f}", spread(ratios) if ratios else "-", remark))
    return lines


def table(cell, lines):
    head = ("client", "CPU us/request", "of it user", "requests/s", "CPU ratio to wrk", "")
    text = [f"### {cell}", "", "| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    text += ["| " + " | ".join(line) + " |" for line in lines]
    return "\n".join(text) + "\n"


def memory(folder):
    """User memory a connection: the slope of the peak resident size from 100 to 10,000 connections."""
    server = start_server("sink", folder)
    found = {}
    try:
        for tool in ("engine", "wrk"):
            peak = {}
            for connections in (100, 10000):
                argv = command(tool, f"sink-{connections}")
                child = subprocess.Popen([str(part) for part in argv], stdout=subprocess.DEVNULL, preexec_fn=on_cpu_0)
                peak[connections] = 0
                while child.poll() is None:
                    try:
                        status = pathlib.Path(f"/proc/{child.pid}/status").read_text()
                        peak[connections] = int(re.search(r"VmHWM:\s+(\d+)", status)[1]) * 1024
                    except (OSError, TypeError):
                        pass
                    time.sleep(0.02)
            found[tool] = (peak[10000] - peak[100]) / 9900
    finally:
        stop_server(server)
    return found


def versions():
    def first(argv, pick=0):
        try:
            done = subprocess.run(argv, capture_output=True, text=True)
            return (done.stdout + done.stderr).strip().splitlines()[pick]
        except (OSError, IndexError):
            return "missing"
    model = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    return [f"CPU: {model[1] if model else '?'}, {os.cpu_count()} CPUs", f"kernel: {os.uname().release}",
            f"load average at the start: {os.getloadavg()[0]:.1f}",
            f"wrk: {first(['wrk', '-v'])}", f"ab: {first(['ab', '-V'])}", f"h2load: {first(['h2load', '--version'])}",
            f"oha: {first(['oha', '--version'])}", f"nginx: {first(['nginx', '-v'])}",
            f"straingauge: {first(['git', '-C', str(ROOT), 'describe', '--always', '--dirty'])}"]


def keep(folder, facts, rows, text):
    """Writes what there is so far, if a folder was asked for."""
    if folder is None:
        return
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "raw.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["cell", "round", "client", "user_us", "system_us", "completed"])
        writer.writerows(rows)
    (folder / "summary.md").write_text("\n".join(f"- {fact}" for fact in facts) + "\n\n" + "\n".join(text))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", default=",".join(GOALS))
    parser.add_argument("--tools", default=",".join(TOOLS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--write", type=pathlib.Path, help="keep raw.csv and summary.md in this folder")
    parser.add_argument("--lock", help="hold this lock file during each cell, on a machine that is shared")
    parser.add_argument("--no-memory", action="store_true")
    options = parser.parse_args()
    if (os.cpu_count() or 1) < 2:
        sys.exit("needs two CPUs: one for the client, one for the server")
    tools = [tool for tool in options.tools.split(",") if shutil.which(str(command(tool, "sink-50")[0]))]
    for tool in set(options.tools.split(",")) - set(tools):
        print(f"left out: {tool} is not installed or built")
    # A server that never sleeps must not outlive this script.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM; finished cells are kept"))
    rows, text = [], []
    facts = versions()
    print("\n".join(facts) + "\n")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        folder.chmod(0o755)
        for cell in options.cells.split(","):
            if cell.startswith("nginx") and not shutil.which("nginx"):
                print(f"left out: {cell}: nginx is not installed")
                continue
            lock = os.open(options.lock, os.O_RDWR | os.O_CREAT) if options.lock else None
            if lock is not None:
                import fcntl
                fcntl.flock(lock, fcntl.LOCK_EX)
            text.append(table(cell, run_cell(cell, tools, options.rounds, folder, rows)))
            if lock is not None:
                os.close(lock)
            print(text[-1], flush=True)
            keep(options.write, facts, rows, text)
        if not options.no_memory:
            for tool, slope in memory(folder).items():
                text.append(f"User memory per connection, {tool}: {slope:.0f} bytes (VmHWM from 100 to 10,000)\n")
                print(text[-1])
            keep(options.write, facts, rows, text)


if __name__ == "__main__":
    main()
