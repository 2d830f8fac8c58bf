#!/usr/bin/env python3
"""Draws RUN/SERVER-cachegrind.csv and RUN/SERVER-user-part.csv as one SVG: L2 misses and user space's time by the request
against connections.

    draw.py RUN FILE.svg"""

import os
import statistics
import sys

sys.dont_write_bytecode = True
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../bench"))
import cachegrind  # noqa: E402
import chart  # noqa: E402
import harness  # noqa: E402
import record  # noqa: E402
import user_part  # noqa: E402

COLOURS = {"stock": "#b5443c", "slab": "#d98c2b", "edge": "#888", "loop": "#6b7f3a", "room": "#6a4c93", "both": "#2c6fa6", "prefetch": "#2a9d8f"}


def of_middle(values):
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else values * 3
    return middle, low, high


def curves(rows, value):
    """Medians with the middle half; stock and control are one version."""
    name = lambda row: "stock" if row["version"] == "control" else row["version"]
    for version, colour in COLOURS.items():
        own = [row for row in rows if name(row) == version]
        values = {connections: [value(row) for row in own if row["connections"] == connections] for connections in sorted({row["connections"] for row in own})}
        if values:
            yield version, colour, "", [(connections, *of_middle(each)) for connections, each in values.items()]


def drawing(run):
    charts = []
    for module, part, what, unit, value in (
            (cachegrind, "cachegrind", "L2 data misses per request, simulated", "misses", lambda row: float(row["lld"])),
            (user_part, "user-part", "time per request in user space", "us", lambda row: float(row["ns"]) / 1000)):
        for server in ("tux", "lighttpd"):
            rows = record.Rows(os.path.join(run, f"{server}-{part}.csv"), module.COLUMNS).rows
            charts.append(chart.chart(f"{server}: {what}", "connections (log)", unit, list(curves(rows, value)), x_log=True))
    return chart.svg(charts, 2)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    run, path = sys.argv[1:]
    harness.write(os.path.dirname(path) or ".", os.path.basename(path), drawing(run))


if __name__ == "__main__":
    main()
