"""Replay of logs of two lengths against the plain closed loop: memory and requests per second, interleaved.

Usage: run.py STRAINGAUGE OUT_DIR [--rounds 3] [--small-mb 20] [--large-mb 400] [--seconds 4]
"""
import argparse
import csv
import json
import os
import platform
import random
import socket
import statistics
import subprocess
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))


def make_log(path, megabytes):
    """20,000 clients, 200 lines a second, all of them for /1k.bin."""
    random.seed(7)
    when, written, lines = 1_400_000_000, 0, 0
    with open(path, "w") as out:
        while written < megabytes * 1_000_000:
            stamp = time.strftime("%d/%b/%Y:%H:%M:%S +0000", time.gmtime(when))
            second = "".join('10.%d.%d.9 - - [%s] "GET /1k.bin HTTP/1.1" 200 1024 "http://www.example.org/a/page" "Mozilla/5.0 (X11; Linux x86_64)"\n'
                             % (random.randrange(100), random.randrange(200), stamp) for _ in range(200))
            out.write(second)
            written += len(second)
            lines += 200
            when += 1
    return lines


def run(command):
    """(largest resident memory in bytes, JSON)."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit("%s failed" % command)
    return usage.ru_maxrss * 1024, json.loads(output)["point"]


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("straingauge")
    arguments.add_argument("out_dir")
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--small-mb", type=int, default=20)
    arguments.add_argument("--large-mb", type=int, default=400)
    arguments.add_argument("--seconds", type=int, default=4)
    options = arguments.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        os.chmod(scratch, 0o755)
        logs = {}
        for name, megabytes in [("small", options.small_mb), ("large", options.large_mb)]:
            path = os.path.join(scratch, name + ".log")
            logs[name] = (path, make_log(path, megabytes))
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        server = subprocess.Popen([os.path.join(HERE, "../../testbed/serve"), "nginx", "--port", str(port), "--state", os.path.join(scratch, "nginx")])
        try:
            for _ in range(1000):
                try:
                    socket.create_connection(("127.0.0.1", port)).close()
                    break
                except OSError:
                    time.sleep(0.01)
            base = [options.straingauge, "load", "--json", "--quiet", "--threads", "1", "--connections", "100", "--duration", "%ds" % options.seconds]
            sides = {
                "closed loop": base + ["--warmup", "0s", "--requests-per-connection", "1", "http://127.0.0.1:%d/1k.bin" % port],
                "replay, small log": base + ["http://127.0.0.1:%d/" % port, "--trace", logs["small"][0], "--speed", "max"],
                "replay, large log": base + ["http://127.0.0.1:%d/" % port, "--trace", logs["large"][0], "--speed", "max"],
            }
            for number in range(options.rounds):
                for side, command in sides.items():
                    memory, point = run(command)
                    assert point["outcomes"]["ok"] == point["outcomes"]["sent"] - point["outcomes"]["unfinished"], point["outcomes"]
                    replay = point.get("workload", {}).get("replay") or {}
                    rows.append((number, side, memory, point["figures"]["client.throughput_per_sec"]["value"], replay.get("lines", 0), replay.get("is_whole", False)))
        finally:
            server.terminate()
            server.wait()
    with open(os.path.join(options.out_dir, "raw.csv"), "w", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(["round", "side", "max_resident_bytes", "requests_per_sec", "lines_read", "is_whole"])
        writer.writerows(rows)
    with open(os.path.join(options.out_dir, "summary.txt"), "w") as out:
        print("%s; logs of %d and %d MB (%d and %d lines); 1 engine thread, 100 connections, %d s, %d rounds interleaved" % (
            platform.platform(), options.small_mb, options.large_mb, logs["small"][1], logs["large"][1], options.seconds, options.rounds), file=out)
        plain = {number: rate for number, side, _, rate, _, _ in rows if side == "closed loop"}
        for side in sides:
            mine = [row for row in rows if row[1] == side]
            ratios = [row[3] / plain[row[0]] for row in mine]
            print("%-18s resident at most %.1f MB; %.0f requests/s (median; %.0f to %.0f), %.2f of the closed loop (%.2f to %.2f); up to %d lines read" % (
                side, max(row[2] for row in mine) / 1e6, statistics.median(row[3] for row in mine), min(row[3] for row in mine),
                max(row[3] for row in mine), statistics.median(ratios), min(ratios), max(ratios), max(row[4] for row in mine)), file=out)
    print(open(os.path.join(options.out_dir, "summary.txt")).read(), end="")


main()
