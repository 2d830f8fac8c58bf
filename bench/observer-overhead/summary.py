#!/usr/bin/env python3
"""Summarises a run of bench/observer-overhead in Markdown: medians of the rounds' differences, with a bootstrapped
95 % interval. `budgeted` is computed: counting always, phases one second in five. `away` is a watch of another
port: its program is called for each read, looks at the port and returns, so no watch by reads can cost less.
`counts - away` is the cost that counting adds."""
import collections
import csv
import os
import random
import statistics
import sys


def interval(values, statistic=statistics.median, draws=2000):
    rng = random.Random(1)
    seen = sorted(statistic(rng.choices(values, k=len(values))) for _ in range(draws))
    return seen[int(0.025 * draws)], seen[int(0.975 * draws)]


def rounds(path):
    found = collections.defaultdict(dict)
    with open(path) as file:
        for row in csv.DictReader(file):
            found[int(row["round"])][row["arm"]] = float(row["cpu_ns_per_request"])
    return [arms for arms in found.values() if {"off", "off2", "counts", "exact"} <= arms.keys()]


def main(out):
    print("# What watching adds to a server's CPU time per request\n\n```")
    print(open(os.path.join(out, "versions.txt")).read().rstrip())
    print("```\n\n`off` against `off2` compares the same version twice: the resolution of the method. Differences in microseconds.\n")
    print("| load | rounds | base us/request | arm | difference us [95 %] | ratio [95 %] |\n|---|---|---|---|---|---|")
    for load, name in (("1k", "nginx, 1 KiB keep-alive"), ("100k", "nginx, 100 KiB keep-alive"), ("close", "nginx, 1 KiB, close each"),
                       ("apache-1k", "Apache event, 1 KiB keep-alive"), ("apache-close", "Apache event, 1 KiB, close each")):
        path = os.path.join(out, load + ".csv")
        if not os.path.exists(path):
            continue
        seen = rounds(path)
        if len(seen) < 5:
            print(f"| {name} | {len(seen)} | not measured: too few rounds | | | |")
            continue
        base = statistics.median((arms["off"] + arms["off2"]) / 2 for arms in seen) / 1e3
        for arm in ("off2", "away", "counts", "counts - away", "exact", "budgeted"):
            pairs = []
            for arms in seen:
                off = arms["off"] if arm == "off2" else (arms["off"] + arms["off2"]) / 2
                if "away" in arm:
                    # Runs that are older than this arm have none.
                    if "away" in arms:
                        base_ns, on = (arms["away"], arms["counts"]) if arm != "away" else (off, arms["away"])
                        pairs.append((on - base_ns, 1 + (on - base_ns) / off))
                    continue
                on = arms["counts"] * 0.8 + arms["exact"] * 0.2 if arm == "budgeted" else arms[arm]
                pairs.append((on - off, on / off))
            if not pairs:
                continue
            delta, ratio = [p[0] / 1e3 for p in pairs], [p[1] for p in pairs]
            (d0, d1), (r0, r1) = interval(delta), interval(ratio)
            print(f"| {name} | {len(seen)} | {base:.2f} | {arm} | {statistics.median(delta):+.3f} [{d0:+.3f}, {d1:+.3f}] "
                  f"| {statistics.median(ratio):.4f} [{r0:.4f}, {r1:.4f}] |")
    print("\n# Cost of a reading of the port's connections\n\nWall time, median of 11. Both ends are on this machine.\n")
    print("| connections | transitions (watch) | sock_diag by port | /proc/net/tcp | scan / transitions |\n|---|---|---|---|---|")
    for connections in (100, 1000, 9000, 10000):
        path = os.path.join(out, f"readings-{connections}.csv")
        if not os.path.exists(path):
            continue
        with open(path) as file:
            cost = {row["method"]: float(row["median_ns"]) for row in csv.DictReader(file)}
        if len(cost) == 3:
            ours, diag, proc = cost["transitions"], cost["sock_diag by port"], cost["/proc/net/tcp"]
            print(f"| {connections} | {ours:.0f} ns | {diag / 1e3:.0f} us | {proc / 1e3:.0f} us | {diag / max(ours, 1):.0f} |")


main(sys.argv[1])
