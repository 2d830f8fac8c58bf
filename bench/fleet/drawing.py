#!/usr/bin/env python3
"""A run of bench/fleet as a drawing: CPU time, memory and merge time over the workers, logarithmic both ways, each beside a line of
slope 1 through its first median. `run` writes it; a kept run is drawn again from its rows.

usage: bench/fleet/drawing.py RUN-FOLDER     writes scale.svg there
"""
import json
import math
import os
import statistics
import sys

PANELS = (("cpu_s", 1, "driver's CPU time", "s"), ("memory_bytes", 1e-6, "driver's memory", "MB"),
          ("merge_s", 1, "last result to end", "s"))
WIDTH, HEIGHT, LEFT, TOP, SIDE = 900, 330, 52, 44, 230
PANEL = 296
MEASURED, LINEAR = "#2a6f97", "#999"


def svg(rows):
    """`rows`: a measurement each, with `workers` and the three quantities."""
    rounds = len(rows) // len({row["workers"] for row in rows})
    title = f"The driver of many workers: median, range and each of {rounds} rounds; dashed: slope 1"
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
           f'<title>{title}</title><rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
           f'<text x="{LEFT}" y="16" font-weight="bold">{title}</text>']
    for number, (name, scale, words, unit) in enumerate(PANELS):
        of_size = {}
        for row in rows:
            of_size.setdefault(row["workers"], []).append(row[name] * scale)
        out += panel(LEFT + number * PANEL, sorted(of_size.items()), words, unit)
    return "\n".join(out) + "\n</svg>\n"


def panel(left, sizes, words, unit):
    medians = [(size, statistics.median(values)) for size, values in sizes]
    linear = medians[-1][0] / medians[0][0] * medians[0][1]
    values = [value for _, of_size in sizes for value in of_size] + [linear]
    across, up = axis(medians[0][0], medians[-1][0], left, SIDE), axis(min(values), max(values), TOP + SIDE, -SIDE)
    exponent = slope(medians)
    out = [f'<text x="{left}" y="{TOP - 8}">{words}, {unit}; slope {exponent:.2f}</text>',
           f'<rect x="{left}" y="{TOP}" width="{SIDE}" height="{SIDE}" fill="none" stroke="#222"/>']
    for size in powers(medians[0][0], medians[-1][0]):
        out.append(f'<line x1="{across(size):.1f}" x2="{across(size):.1f}" y1="{TOP}" y2="{TOP + SIDE}" stroke="#ddd"/>')
        out.append(f'<text x="{across(size):.1f}" y="{TOP + SIDE + 16}" text-anchor="middle">{size:,}</text>')
    for value in powers(min(values), max(values)):
        out.append(f'<line x1="{left}" x2="{left + SIDE}" y1="{up(value):.1f}" y2="{up(value):.1f}" stroke="#ddd"/>')
        out.append(f'<text x="{left - 6}" y="{up(value) + 4:.1f}" text-anchor="end">{value:g}</text>')
    out.append(f'<text x="{left + SIDE / 2}" y="{TOP + SIDE + 34}" text-anchor="middle">workers</text>')
    (first, low), last = medians[0], medians[-1][0]
    out.append(f'<line x1="{across(first):.1f}" x2="{across(last):.1f}" y1="{up(low):.1f}" y2="{up(linear):.1f}" stroke="{LINEAR}" '
               'stroke-width="1.5" stroke-dasharray="5 4"/>')
    line = " ".join(f"{across(size):.1f},{up(value):.1f}" for size, value in medians)
    out.append(f'<polyline points="{line}" fill="none" stroke="{MEASURED}" stroke-width="2"/>')
    for size, of_size in sizes:
        x = across(size)
        out.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{up(min(of_size)):.1f}" y2="{up(max(of_size)):.1f}" stroke="{MEASURED}"/>')
        out += [f'<circle cx="{x:.1f}" cy="{up(value):.1f}" r="2" fill="{MEASURED}" opacity="0.6"/>' for value in of_size]
    out += [f'<circle cx="{across(size):.1f}" cy="{up(value):.1f}" r="4" fill="{MEASURED}"/>' for size, value in medians]
    return out


def axis(least, most, begin, length):
    """Where a value stands on a logarithmic axis of this length, with some room at both ends."""
    low, high = math.log(least) - 0.15, math.log(most) + 0.15
    return lambda value: begin + length * (math.log(value) - low) / (high - low)


def powers(least, most):
    """Powers of ten, or their halves where there are fewer than two."""
    decades = [10.0 ** power for power in range(-6, 12)]
    found = [value for value in decades if least * 0.87 <= value <= most * 1.15]
    if len(found) < 2:
        found = [value for ten in decades for value in (ten, 2 * ten, 5 * ten) if least * 0.87 <= value <= most * 1.15]
    return [int(value) if value >= 1 else value for value in found]


def slope(medians):
    """Of the least-squares line through the logarithms: below 1 is less than linear."""
    points = [(math.log(size), math.log(value)) for size, value in medians]
    mean_x, mean_y = (statistics.mean(axis) for axis in zip(*points))
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / sum((x - mean_x) ** 2 for x, _ in points)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = sys.argv[1]
    with open(os.path.join(folder, "rows.json")) as file:
        rows = json.load(file)
    with open(os.path.join(folder, "scale.svg"), "w") as file:
        file.write(svg(rows))


if __name__ == "__main__":
    main()
