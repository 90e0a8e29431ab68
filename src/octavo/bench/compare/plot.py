"""A line plot as SVG: tokens per second over the number of users, one line for each contender. Written by hand, because
no plotting library is worth a dependency for one picture.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

WIDTH, HEIGHT = 720, 420
LEFT, RIGHT, TOP, BOTTOM = 64, 130, 44, 48
COLOURS = ("#c2410c", "#1d4ed8", "#15803d", "#7e22ce", "#525252")
TICKS = 5
TEXT = 'font-family="sans-serif" font-size="12" fill="#404040"'

Points = Sequence[tuple[int, float]]


def plot_users(title: str, lines: Mapping[str, Points]) -> str:
    """An SVG document. Users are on a logarithmic axis, because they double; every point is marked with its value in a
    tooltip."""
    users = sorted({x for points in lines.values() for x, _ in points})
    top = _round_up(max((y for points in lines.values() for _, y in points), default=1.0))
    parts = [_axes(title, users, top)]
    for index, (name, points) in enumerate(lines.items()):
        colour = COLOURS[index % len(COLOURS)]
        places = [(_x(x, users), _y(y, top)) for x, y in points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for (x, y), (count, rate) in zip(places, points, strict=True):
            tip = f"<title>{escape(name)}, {count} users: {rate:.0f} tok/s</title>"
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}">{tip}</circle>')
        legend = TOP + 18 * index
        parts.append(
            f'<rect x="{WIDTH - RIGHT + 14}" y="{legend}" width="12" height="4" fill="{colour}"/>'
            f'<text x="{WIDTH - RIGHT + 32}" y="{legend + 6}" {TEXT}>{escape(name)}</text>'
        )
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">'
    return "\n".join([head, '<rect width="100%" height="100%" fill="white"/>', *parts, "</svg>", ""])


def _axes(title: str, users: Sequence[int], top: float) -> str:
    parts = [f'<text x="{LEFT}" y="24" {TEXT} font-weight="bold">{escape(title)}</text>']
    for tick in range(TICKS + 1):
        value = top * tick / TICKS
        y = _y(value, top)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#e5e5e5"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end" {TEXT}>{value:g}</text>')
    below = f'y="{HEIGHT - BOTTOM + 18}" text-anchor="middle" {TEXT}'
    parts += [f'<text x="{_x(count, users):.1f}" {below}>{count}</text>' for count in users]
    parts.append(f'<text x="{LEFT}" y="{HEIGHT - 10}" {TEXT}>users at once; output tokens per second in all</text>')
    return "\n".join(parts)


def _x(users: int, all_users: Sequence[int]) -> float:
    span = math.log2(all_users[-1] / all_users[0]) or 1.0
    return LEFT + (WIDTH - LEFT - RIGHT) * math.log2(users / all_users[0]) / span


def _y(rate: float, top: float) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * rate / top


def _round_up(value: float) -> float:
    """The next number of one or two digits and zeros, which makes even ticks."""
    unit = 10.0 ** math.floor(math.log10(value)) / 2
    return math.ceil(value / unit) * unit
