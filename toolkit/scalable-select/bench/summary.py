#!/usr/bin/env python3
"""Prints ratios from RUN/raw.csv as a Markdown table, and draws the paper's Figures 3, 8 and 9 as SVG into FOLDER.

    summary.py RUN [FOLDER]

Ratios are taken within a repeat, where points lie close in time, and their median over repeats is shown with its range:
the machine's speed drifts between repeats."""
import csv
import json
import os
import statistics
import sys
from collections import defaultdict

sys.dont_write_bytecode = True
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../bench"))
import chart  # noqa: E402

VARIANTS = ["stock", "scaled", "floor", "epoll"]
COLOUR = {"stock": "#b5443c", "scaled": "#2c6fa6", "epoll": "#6b7f3a"}


def rows(path):
    with open(os.path.join(path, "raw.csv"), newline="") as f:
        for r in csv.DictReader(f):
            r["cpu_us"] = int(r["cpu_ns"]) / max(int(r["requests"]), 1) / 1000
            r["rps"] = int(r["requests"]) / float(r["seconds"])
            yield r


def spread(values, form="{:.2f}"):
    values = sorted(values)
    if not values:
        return "not measured"
    middle = form.format(statistics.median(values))
    return middle if len(values) == 1 else f"{middle} ({form.format(values[0])}-{form.format(values[-1])})"


def table(data):
    points = defaultdict(lambda: defaultdict(dict))
    for r in data:
        if r["rate"] == "0" and not r["section"].startswith("figure"):
            key = (r["server"], int(r["hot"]), "keep" if r["keep"] == "1" else "close", int(r["cold"]))
            points[key][r["repeat"]][r["variant"]] = r
    for repeats in points.values():
        reports = [json.loads(p["floor"]["stats"]) for p in repeats.values() if p.get("floor", {}).get("stats")]
        # The floor is no lower bound without a report, if it searched the array in more than a tenth of its
        # calls, or if the library was clearly cheaper.
        over = [p["scaled"]["cpu_us"] / p["floor"]["cpu_us"] for p in repeats.values() if "floor" in p and "scaled" in p]
        if not reports or any(10 * r["array_walks"] > r["calls"] for r in reports) or (over and statistics.median(over) < 0.9):
            for p in repeats.values():
                p.pop("floor", None)
    counts = [len(p) for p in points.values()]
    if counts:
        print(f"Medians of {min(counts)} to {max(counts)} repeats, with their range.\n")
    print("`floor`: the program's own cost of its array (floor.c); no library can cost less.\n")
    print("| server | hot | connections | cold | CPU us/request: stock | scaled | floor | epoll | stock/scaled | scaled/epoll | "
          "floor/epoll | scaled/floor | req/s: stock | scaled | epoll |")
    print("|---" * 15 + "|")
    for key in sorted(points):
        repeats = points[key].values()
        cpu = {v: [p[v]["cpu_us"] for p in repeats if v in p] for v in VARIANTS}
        rps = {v: [p[v]["rps"] for p in repeats if v in p] for v in COLOUR}
        ratios = [[p[a]["cpu_us"] / p[b]["cpu_us"] for p in repeats if a in p and b in p]
                  for a, b in (("stock", "scaled"), ("scaled", "epoll"), ("floor", "epoll"), ("scaled", "floor"))]
        cells = list(map(str, key)) + [spread(cpu[v], "{:.1f}") for v in VARIANTS] + [spread(r) for r in ratios]
        print("| " + " | ".join(cells + [spread(rps[v], "{:.0f}") for v in COLOUR]) + " |")
    drops(points)


def drops(points):
    """Throughput at 2,000 cold connections relative to none, in the same repeat."""
    print("\n| server | throughput at 2,000 cold / at 0: stock | scaled | epoll |\n|---|---|---|---|")
    for name, hot, keep, cold in sorted(points):
        if cold != 2000:
            continue
        none, many = points[name, hot, keep, 0], points[name, hot, keep, 2000]
        cells = [spread([many[r][v]["rps"] / none[r][v]["rps"] for r in many if v in many[r] and v in none.get(r, {})]) for v in COLOUR]
        print(f"| {name}, {hot} hot, {keep} | " + " | ".join(cells) + " |")


def lost(data):
    total = calls = 0
    for r in data:
        if r["stats"] and r["variant"] == "scaled":
            for line in r["stats"].replace("} {", "}\n{").split("\n"):
                seen = json.loads(line)
                total += seen["lost"]
                calls += seen["calls"]
    print(f"\nCalls through the library whose reports were kept: {calls:,}; hints lost: {total}.")


def collected(data, x, y):
    values = defaultdict(list)
    for r in data:
        values[x(r)].append(y(r))
    return [(k, statistics.median(v), min(v), max(v)) for k, v in sorted(values.items())]


def draw(path, title, x_label, y_label, curves, y_log=False):
    if any(curve for _, _, _, curve in curves):
        with open(path, "w") as f:
            f.write(chart.svg([chart.chart(title, x_label, y_label, curves, y_log=y_log)]))


def figures(data, folder):
    os.makedirs(folder, exist_ok=True)
    for section, number, server in (("figure-3", 3, "HAProxy"), ("figure-8", 8, "lighttpd")):
        curves = []
        for variant, cold in (("stock", 0), ("stock", 750), ("scaled", 750), ("epoll", 750)):
            mine = [r for r in data if r["section"] == section and r["variant"] == variant and r["cold"] == str(cold)]
            # up to the first rate that was not reached: the saturation throughput
            line = []
            by_rate = defaultdict(list)
            for r in mine:
                by_rate[int(r["rate"])].append(r)
            for rate in sorted(by_rate):
                times = [float(r["mean_us"]) / 1000 for r in by_rate[rate]]
                reached = statistics.median(r["rps"] for r in by_rate[rate])
                line.append((reached, statistics.median(times), min(times), max(times)))
                if reached < 0.9 * rate:
                    break
            colour = "#888" if cold == 0 else COLOUR[variant]
            curves.append((f"{variant}, {cold} cold", colour, "4 3" if cold == 0 else "", line))
        draw(os.path.join(folder, f"scale-figure-{number}.svg"),
             f"After Figure {number}: response time of {server}, 1259-byte answers", "requests/s", "mean response time, ms (log)",
             curves, y_log=True)
    for name, title, y_label, column in (("scale-figure-9", "After Figure 9: throughput of HAProxy at saturation", "requests/s", "rps"),
                                         ("scale-figure-9-cpu", "The same runs: server CPU per request", "us CPU per request", "cpu_us")):
        curves = []
        for variant in COLOUR:
            mine = [r for r in data if r["section"] == "figure-9" and r["variant"] == variant]
            curves.append((variant, COLOUR[variant], "", collected(mine, lambda r: int(r["cold"]), lambda r: r[column])))
        draw(os.path.join(folder, name + ".svg"), title, "cold connections", y_label, curves)


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit("usage: summary.py RUN [FOLDER]")
    data = list(rows(sys.argv[1]))
    table(data)
    lost(data)
    if len(sys.argv) == 3:
        figures(data, sys.argv[2])


if __name__ == "__main__":
    main()
