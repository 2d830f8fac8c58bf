"""Line charts as SVG, side by side in one file."""

import math

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 640, 400, 80, 40, 150, 50


def steps(reach):
    """0, and multiples of 1, 2 or 5 times a power of ten up to the first that is not below `reach`: five to ten
    numbers."""
    power = 10 ** math.floor(math.log10(reach / 4))
    step = power * max(factor for factor in (1, 2, 5) if factor * power <= reach / 4)
    return [i * step for i in range(math.ceil(reach / step - 1e-9) + 1)]


def chart(title, x_label, y_label, curves, x_log=False, y_log=False):
    """The elements of one chart. `curves` holds name, colour, dashes, and points of x, y, low, high. On a
    logarithmic x axis each x of a point is labelled."""
    points = [p for _, _, _, curve in curves for p in curve]
    x_numbers = sorted({x for x, *_ in points}) if x_log else steps(max(x for x, *_ in points) or 1)
    x_min, x_max = x_numbers[0], x_numbers[-1]
    y_values = [y for _, *values in points for y in values]
    y_min = min(y_values) / 1.5 if y_log else 0
    y_max = max(y_values) * 1.1 if y_log else steps(max(y_values) or 1)[-1]

    def sx(x):
        part = math.log(x / x_min) / math.log(x_max / x_min) if x_log else x / x_max
        return LEFT + (WIDTH - LEFT - RIGHT) * part

    def sy(y):
        part = math.log(y / y_min) / math.log(y_max / y_min) if y_log else y / y_max
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * part

    out = [f'<text x="{LEFT}" y="22" font-size="14">{title}</text>']
    ticks = [10 ** e * m for e in range(-3, 9) for m in (1, 2, 5) if y_min <= 10 ** e * m <= y_max] if y_log else steps(y_max)
    for t in ticks:
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{sy(t):.1f}" y2="{sy(t):.1f}" stroke="#ddd"/>'
                   f'<text x="{LEFT - 6}" y="{sy(t) + 4:.1f}" text-anchor="end">{t:,.10g}</text>')
    for x in x_numbers:
        out.append(f'<text x="{sx(x):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{x:,.0f}</text>')
    out.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 10}" text-anchor="middle">{x_label}</text>'
               f'<text x="16" y="{(TOP + HEIGHT - BOTTOM) / 2}" text-anchor="middle" '
               f'transform="rotate(-90 16 {(TOP + HEIGHT - BOTTOM) / 2})">{y_label}</text>')
    for i, (name, colour, dash, curve) in enumerate(curves):
        line = " ".join(f"{sx(x):.1f},{sy(y):.1f}" for x, y, *_ in curve)
        out.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"/>')
        for x, y, low, high in curve:
            out.append(f'<line x1="{sx(x):.1f}" x2="{sx(x):.1f}" y1="{sy(low):.1f}" y2="{sy(high):.1f}" stroke="{colour}"/>'
                       f'<circle cx="{sx(x):.1f}" cy="{sy(y):.1f}" r="3" fill="{colour}"/>')
        y = TOP + 12 + i * 20
        out.append(f'<line x1="{WIDTH - RIGHT + 10}" x2="{WIDTH - RIGHT + 34}" y1="{y}" y2="{y}" stroke="{colour}" '
                   f'stroke-width="2" stroke-dasharray="{dash}"/><text x="{WIDTH - RIGHT + 40}" y="{y + 4}">{name}</text>')
    return "\n".join(out)


def svg(charts, columns=1):
    """A file of charts, `columns` per row."""
    width, height = WIDTH * min(columns, len(charts)), HEIGHT * math.ceil(len(charts) / columns)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
           f'<rect width="{width}" height="{height}" fill="white"/>']
    for i, one in enumerate(charts):
        x, y = i % columns * WIDTH, i // columns * HEIGHT
        out.append(f'<g transform="translate({x} {y})">\n{one}\n</g>' if x or y else one)
    return "\n".join([*out, "</svg>\n"])
