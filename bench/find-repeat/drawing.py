"""Draws the finds as SVG: estimates with their intervals around the truth, in a band for each server."""
import html
import math
import statistics

WIDTH, LEFT, RIGHT, TOP, ROW, GAP = 860, 150, 20, 34, 9, 16
TICKS = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.5, 2.0)
COVERED, MISSED, UNKNOWN = "#2a6f97", "#c1121f", "#6c757d"


def svg(bands, title):
    """`bands` holds name and finds of each server. Without a truth, estimates are drawn around their median."""
    shown = [(name, lines_of(finds)) for name, finds in bands]
    shown = [(name, lines) for name, lines in shown if lines]
    ratios = [value for _, lines in shown for line in lines for value in line[:3] if value]
    reach = min(max([abs(math.log(ratio)) for ratio in ratios] + [math.log(1.12)]), math.log(2)) * 1.05
    at = lambda ratio: LEFT + (WIDTH - LEFT - RIGHT) * (max(-reach, min(reach, math.log(ratio))) + reach) / (2 * reach)
    height = TOP + sum(ROW * len(lines) + GAP for _, lines in shown) + 34
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12">',
           f'<title>{html.escape(title)}</title><rect width="{WIDTH}" height="{height}" fill="#fff"/>',
           f'<text x="{LEFT}" y="18" font-weight="bold">{html.escape(title)}</text>']
    for tick in TICKS:
        if abs(math.log(tick)) < reach:
            x = at(tick)
            out.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{height - 34}" stroke="{"#222" if tick == 1 else "#ddd"}"/>')
            out.append(f'<text x="{x:.1f}" y="{height - 18}" text-anchor="middle">{tick:g}</text>')
    out.append(f'<text x="{WIDTH - RIGHT}" y="{height - 3}" text-anchor="end" fill="#555">estimate / truth (grey: / median), with 95 % interval</text>')
    y = TOP + GAP / 2
    for name, lines in shown:
        out.append(f'<text x="{LEFT - 10}" y="{y + ROW * len(lines) / 2 + 4:.1f}" text-anchor="end">{html.escape(name)}</text>')
        for estimate, low, high, colour in lines:
            left, right = at(low) if low else LEFT, at(high) if high else WIDTH - RIGHT
            out.append(f'<line x1="{left:.1f}" x2="{right:.1f}" y1="{y + 4:.1f}" y2="{y + 4:.1f}" stroke="{colour}" stroke-width="2"/>')
            out.append(f'<circle cx="{at(estimate):.1f}" cy="{y + 4:.1f}" r="3" fill="{colour}"/>')
            y += ROW
        y += GAP
    return "\n".join(out) + "\n</svg>\n"


def lines_of(finds):
    """Estimate, low and high as shares of the truth, and the colour."""
    found = [find for find in finds if find.estimate]
    if not found:
        return []
    middle = statistics.median([find.estimate for find in found])
    lines = []
    for find in found:
        by = find.truth or middle
        colour = UNKNOWN if find.truth is None else COVERED if find.covers() else MISSED
        lines.append((find.estimate / by, find.low and find.low / by, find.high and find.high / by, colour))
    return lines
