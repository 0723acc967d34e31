"""Plots as SVG, by hand: grouped bars with their spread, and lines over a logarithmic axis."""

import math
from html import escape

COLOURS = {"thalweg": "#1b6ca8", "kafka": "#c2571a", "floor-inline": "#7a7a7a", "floor-ring": "#a8a8a8"}
WIDTH, HEIGHT = 760, 360
GROUP_WIDTH = 110
LEFT, RIGHT, TOP, BOTTOM = 80, 20, 50, 70
DASHES = {"p50": "", "p99": "6 3", "p999": "2 3"}


def colour(name):
    """Of a contender, by the first word of its name."""
    return COLOURS.get(name.split(" ")[0], "#444")


def number(value):
    """Three digits, and no powers of ten."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def svg(title, body, width=WIDTH):
    """A whole picture."""
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {HEIGHT}" font-family="sans-serif" '
            f'font-size="11">\n<rect width="{width}" height="{HEIGHT}" fill="white"/>\n'
            f'<text x="{width / 2}" y="20" text-anchor="middle" font-size="14">{escape(title)}</text>\n'
            + "\n".join(body) + "\n</svg>\n")


def nice(most):
    """The least 1, 2 or 5 times a power of ten that is not below."""
    if most <= 0:
        return 1.0
    power = 10 ** math.floor(math.log10(most))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= most * 0.999999)


def text(x, y, words, anchor="middle", extra=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {extra}>{escape(str(words))}</text>'


def line(x1, y1, x2, y2, stroke="#ccc", extra=""):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{stroke}" {extra}/>'


def legend(names):
    """Names with their colours, under the title."""
    body, x = [], LEFT
    for name in names:
        body.append(f'<rect x="{x}" y="30" width="10" height="10" fill="{colour(name)}"/>')
        body.append(text(x + 14, 39, name, "start"))
        x += 30 + 7 * len(name)
    return body


def bars(title, unit, groups):
    """`groups`: name of a group to {contender: (median, least, most)}. The axis is logarithmic where medians differ more
    than fiftyfold."""
    medians = [spread[0] for group in groups.values() for spread in group.values() if spread[0] > 0]
    if not medians:
        return svg(title, [text(WIDTH / 2, HEIGHT / 2, "nothing was measured")])
    most = nice(max(spread[2] for group in groups.values() for spread in group.values()))
    least = min(medians)
    is_log = most / least > 50
    floor = 10 ** math.floor(math.log10(least)) if is_log else 0.0
    if is_log and floor == least:
        floor /= 10  # a bar of no height is not seen

    def y(value):
        if is_log:
            share = math.log(max(value, floor) / floor) / math.log(most / floor)
        else:
            share = value / most
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)
    width = max(WIDTH, LEFT + RIGHT + GROUP_WIDTH * len(groups))
    body = axis_y(unit, ticks(floor, most, is_log), y, width)
    contenders = list(dict.fromkeys(name for group in groups.values() for name in group))
    body += legend(contenders)
    room = (width - LEFT - RIGHT) / len(groups)
    for g, (name, group) in enumerate(groups.items()):
        bar_width = room * 0.8 / len(contenders)
        for c, contender in enumerate(contenders):
            if contender in group:
                x = LEFT + room * g + room * 0.1 + bar_width * c
                body += bar(x, bar_width, group[contender], y, colour(contender))
        body.append(text(LEFT + room * (g + 0.5), HEIGHT - BOTTOM + 14 + 12 * (g % 2), name))
    return svg(title, body, width)


def bar(x, width, spread, y, fill):
    """A bar as high as the median, a whisker from least to most, and the median as text."""
    median, least, most = spread
    bottom, middle = HEIGHT - BOTTOM, x + width * 0.45
    return [
        f'<rect x="{x:.1f}" y="{y(median):.1f}" width="{width * 0.9:.1f}" height="{bottom - y(median):.1f}" fill="{fill}"/>',
        line(middle, y(least), middle, y(most), "#000"),
        text(middle, y(most) - 4, number(median), extra='font-size="9"'),
    ]


def ticks(least, most, is_log):
    """Values to draw lines at."""
    if not is_log:
        return [most * n / 5 for n in range(6)]
    first, last = math.ceil(math.log10(least) - 1e-9), math.floor(math.log10(most) + 1e-9)
    return [10.0 ** n for n in range(first, last + 1)]


def axis_y(unit, values, y, width=WIDTH):
    """Lines across, with their values, and the unit."""
    body = [text(14, (TOP + HEIGHT - BOTTOM) / 2, unit, extra=f'transform="rotate(-90 14 {(TOP + HEIGHT - BOTTOM) / 2})"')]
    for value in values:
        body.append(line(LEFT, y(value), width - RIGHT, y(value)))
        body.append(text(LEFT - 6, y(value) + 4, f"{value:g}", "end"))
    return body


def curves(title, unit_x, unit_y, series):
    """`series`: (contender, percentile) to [(x, y)]; y is logarithmic."""
    points = [point for line_points in series.values() for point in line_points]
    if not points:
        return svg(title, [text(WIDTH / 2, HEIGHT / 2, "nothing was measured")])
    most_x = nice(max(x for x, _ in points))
    least = 10 ** math.floor(math.log10(max(min(y for _, y in points), 0.001)))
    most = 10 ** math.ceil(math.log10(max(y for _, y in points)) + 1e-9)

    def at_x(x):
        return LEFT + x / most_x * (WIDTH - LEFT - RIGHT)

    def at_y(y):
        share = math.log(max(y, least) / least) / math.log(most / least)
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)
    body = axis_y(unit_y, ticks(least, most, True), at_y)
    for n in range(6):
        body.append(text(at_x(most_x * n / 5), HEIGHT - BOTTOM + 16, f"{most_x * n / 5:g}"))
    body.append(text(WIDTH / 2, HEIGHT - BOTTOM + 34, unit_x))
    body += legend(list(dict.fromkeys(contender for contender, _ in series)))
    body.append(text(WIDTH - RIGHT, 39, "solid p50, dashed p99, dotted p99.9", "end"))
    for (contender, percentile), line_points in series.items():
        way = " ".join(f"{at_x(x):.1f},{at_y(y):.1f}" for x, y in sorted(line_points))
        body.append(f'<polyline points="{way}" fill="none" stroke="{colour(contender)}" stroke-width="2" '
                    f'stroke-dasharray="{DASHES[percentile]}"/>')
        body += [f'<circle cx="{at_x(x):.1f}" cy="{at_y(y):.1f}" r="2.5" fill="{colour(contender)}"/>'
                 for x, y in line_points]
    return svg(title, body)
