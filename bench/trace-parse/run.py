"""Log parsing: straingauge's reader against goaccess and webalizer, interleaved, in bytes per second of CPU time.

Usage: run.py TRACE_PARSE OUT_DIR [--mib 96] [--rounds 5] [--log LOG]
  TRACE_PARSE  target/release/examples/trace_parse (cargo build --release -p straingauge-workload --example trace_parse)
  OUT_DIR      gets raw.csv and summary.txt
Without --log a combined-format log is made (seeded; line lengths like a real site's, about 230 bytes).

What is compared: goaccess and webalizer parse AND count (hosts, pages, agents); straingauge's reader only parses, which is
all that a replay needs. `wc -l` stands for the floor: finding line ends, nothing else.
"""
import argparse
import csv
import os
import platform
import random
import re
import shutil
import statistics
import subprocess
import tempfile
import time

AGENTS = [
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/124.0.0.0 Safari/537.36",
    "Mozilla/5.0 (X11; Linux x86_64; rv:125.0) Gecko/20100101 Firefox/125.0",
    "Mozilla/5.0 (compatible; examplebot/2.1; +http://example.org/bot.html)",
]


def make_log(path, mib):
    random.seed(20261121)
    when = 1_400_000_000
    clients = ["198.51.%d.%d" % (random.randrange(100), random.randrange(256)) for _ in range(5000)]
    with open(path, "w") as out:
        written = 0
        while written < mib << 20:
            when += random.random() < 0.1
            stamp = time.strftime("%d/%b/%Y:%H:%M:%S +0000", time.gmtime(when))
            target = "/%s/%s-%d.html" % (random.choice(["articles", "images", "projects/tools", "blog/2014"]), random.choice(["index", "a-longer-name-of-a-page", "x"]), random.randrange(2000))
            line = '%s - - [%s] "GET %s HTTP/1.1" %d %d "http://www.example.org/%s" "%s"\n' % (
                random.choice(clients), stamp, target, random.choice([200, 200, 200, 304, 404]),
                int(random.lognormvariate(9.3, 1.3)), random.choice(["", "search?q=strain+gauge"]), random.choice(AGENTS))
            out.write(line)
            written += len(line)


def cpu_of(command):
    """Runs a command; (CPU seconds, wall seconds, output)."""
    start = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    output = process.stdout.read().decode(errors="replace")
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit("%s failed: %s" % (command[0], output[-500:]))
    return usage.ru_utime + usage.ru_stime, time.monotonic() - start, output


def version(command):
    found = subprocess.run(command, capture_output=True, text=True)
    return (found.stdout + found.stderr).strip().splitlines()[0]


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("trace_parse")
    arguments.add_argument("out_dir")
    arguments.add_argument("--mib", type=int, default=96)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--log")
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        log = options.log or os.path.join(scratch, "access.log")
        if not options.log:
            make_log(log, options.mib)
        size = os.path.getsize(log)
        with open(log, "rb") as text:
            lines = sum(1 for _ in text)
        sides = {"straingauge": [options.trace_parse, log], "wc -l": ["wc", "-l", log]}
        versions = ["straingauge: this tree", version(["wc", "--version"])]
        if shutil.which("goaccess"):
            sides["goaccess"] = ["goaccess", log, "--log-format=COMBINED", "--no-global-config", "--no-progress", "--no-term-resolver", "-o", os.path.join(scratch, "g.json")]
            versions.append(version(["goaccess", "--version"]))
        if shutil.which("webalizer"):
            sides["webalizer"] = ["webalizer", "-Q", "-F", "clf", "-c", "/dev/null", "-o", scratch, log]
            versions.append(version(["webalizer", "-V"]))
        rows = []
        for round_number in range(options.rounds):
            for side, command in sides.items():
                cpu_s, wall_s, output = cpu_of(command)
                if side == "straingauge":
                    entries = int(re.search(r"entries=(\d+)", output)[1])
                    assert entries == lines, "%d of %d lines read" % (entries, lines)
                rows.append((round_number, side, cpu_s, wall_s, size / cpu_s / 1e9))
    os.makedirs(options.out_dir, exist_ok=True)
    with open(os.path.join(options.out_dir, "raw.csv"), "w", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(["round", "side", "cpu_s", "wall_s", "gb_per_cpu_s"])
        writer.writerows((n, side, "%.4f" % cpu, "%.4f" % wall, "%.4f" % rate) for n, side, cpu, wall, rate in rows)
    ours = {n: cpu for n, side, cpu, _, _ in rows if side == "straingauge"}
    with open(os.path.join(options.out_dir, "summary.txt"), "w") as out:
        print("%s, %d bytes, %d lines, %d rounds interleaved; %s" % (platform.platform(), size, lines, options.rounds, "; ".join(versions)), file=out)
        for side in sides:
            rates = [rate for _, name, _, _, rate in rows if name == side]
            ratios = [cpu / ours[n] for n, name, cpu, _, _ in rows if name == side]
            print("%-12s %.3f GB/s of CPU time (median; %.3f to %.3f), %.2f M lines/s; CPU time %.1f times straingauge's (%.1f to %.1f)" % (
                side, statistics.median(rates), min(rates), max(rates), statistics.median(rates) * 1e9 / size * lines / 1e6, statistics.median(ratios), min(ratios), max(ratios)), file=out)
    print(open(os.path.join(options.out_dir, "summary.txt")).read(), end="")


main()
