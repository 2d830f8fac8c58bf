#!/usr/bin/env python3
"""Draws a run of bench/fleet: CPU time, memory and merge time over the number of workers on logarithmic axes, as medians
with their range, each with a line of slope 1 through its first median. `run` calls it; a kept run can be drawn again
from its rows.

usage: bench/fleet/drawing.py RUN-FOLDER     writes scale.svg there
"""
import json
import math
import os
import statistics
import sys

sys.dont_write_bytecode = True
sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import chart  # noqa: E402
import harness  # noqa: E402

QUANTITIES = (("cpu_s", 1, "driver's CPU time", "s"), ("memory_bytes", 1e-6, "driver's memory", "MB"), ("merge_s", 1, "last result to end", "s"))


def svg(rows):
    """`rows` holds one measurement each, with `workers` and the three quantities."""
    return chart.svg([one_chart(rows, *quantity) for quantity in QUANTITIES], 3)


def one_chart(rows, name, scale, words, unit):
    of_size = {}
    for row in rows:
        of_size.setdefault(row["workers"], []).append(row[name] * scale)
    measured = [(size, statistics.median(values), min(values), max(values)) for size, values in sorted(of_size.items())]
    (first, low, *_), last = measured[0], measured[-1][0]
    linear = [(size, value, value, value) for size, value in ((first, low), (last, low * last / first))]
    curves = [("measured", "#2a6f97", "", measured), ("slope 1", "#999", "5 4", linear)]
    return chart.chart(f"{words}: slope {slope(measured):.2f}, n = {len(rows) // len(of_size)}", "workers (log)", f"{unit} (log)", curves, True, True)


def slope(measured):
    """Slope of the least-squares line through the logarithms of the medians. A slope below 1 is less than linear."""
    points = [(math.log(size), math.log(median)) for size, median, *_ in measured]
    mean_x, mean_y = (statistics.mean(axis) for axis in zip(*points))
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / sum((x - mean_x) ** 2 for x, _ in points)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with open(os.path.join(sys.argv[1], "rows.json")) as file:
        rows = json.load(file)
    harness.write(sys.argv[1], "scale.svg", svg(rows))


if __name__ == "__main__":
    main()
