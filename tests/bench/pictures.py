"""Pictures of the report, as SVG: bars and curves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from pathlib import Path

INK, PALE, OURS, OTHER = "#333333", "#dddddd", "#1f6f8b", "#c26a3d"
FONT = 'font-family="sans-serif" font-size="12"'
WIDTH, ROW, VALUES = 760, 20, 60
LETTER = 6.6
"""Mean width of a letter of labels, with some room."""


def bars(path: Path, title: str, rows: Sequence[tuple[str, float]], mark: float = 1.0) -> None:
    """Horizontal bars on a logarithmic scale, with a line at `mark`; bars beyond it have our colour."""
    least = min(mark, *(value for _, value in rows)) / 1.2
    most = max(mark, *(value for _, value in rows)) * 1.1
    labels = round(LETTER * max(len(label) for label, _ in rows)) + 12
    room = WIDTH - labels - VALUES

    def place(value: float) -> float:
        return labels + room * math.log(value / least) / math.log(most / least)

    height = 34 + ROW * len(rows) + 10
    parts = [_text(labels, 18, title, weight="bold")]
    for number, (label, value) in enumerate(rows):
        top = 34 + ROW * number
        colour = OURS if value >= mark else OTHER
        width = place(value) - labels
        parts += [
            _text(labels - 8, top + 12, label, anchor="end"),
            f'<rect x="{labels}" y="{top}" width="{width:.1f}" height="{ROW - 5}" fill="{colour}"/>',
            _text(labels + width + 5, top + 12, f"{value:,.3g}"),
        ]
    parts.append(_line(place(mark), 28, place(mark), height - 8, INK, dashed=True))
    _write(path, height, parts)


def curve(path: Path, across: str, points: Sequence[float], lines: dict[str, Sequence[float]]) -> None:
    """One panel a line, side by side, each from 0."""
    height, low, top = 240, 200.0, 40.0
    panel = WIDTH / len(lines)
    parts = []
    for number, (name, values) in enumerate(lines.items()):
        left, right = panel * number + 55, panel * (number + 1) - 20
        most_x, most_y = max(points), max(values) * 1.05 or 1.0
        places = [
            (left + (right - left) * x / most_x, low - (low - top) * y / most_y)
            for x, y in zip(points, values, strict=True)
        ]
        parts.append(_text((left + right) / 2, 20, name, anchor="middle", weight="bold"))
        for share in (0.0, 0.5, 1.0):
            y = low - (low - top) * share
            parts += [_line(left, y, right, y, PALE), _text(left - 6, y + 4, _short(most_y * share), "end")]
            x = left + (right - left) * share
            parts.append(_text(x, low + 16, _short(most_x * share), "middle"))
        parts.append(_text((left + right) / 2, low + 32, across, "middle"))
        drawn = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(f'<polyline points="{drawn}" fill="none" stroke="{OURS}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{OURS}"/>' for x, y in places]
    _write(path, height, parts)


def _short(value: float) -> str:
    for size, unit in ((1e6, " M"), (1e3, " k")):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def _text(x: float, y: float, text: str, anchor: str = "start", weight: str = "normal") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}" fill="{INK}">'
        f"{escape(text)}</text>"
    )


def _line(x: float, y: float, to_x: float, to_y: float, colour: str, *, dashed: bool = False) -> str:
    dashes = ' stroke-dasharray="4 3"' if dashed else ""
    return f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}" stroke="{colour}"{dashes}/>'


def _write(path: Path, height: float, parts: list[str]) -> None:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" {FONT}>'
    back = '<rect width="100%" height="100%" fill="#ffffff"/>'
    path.write_text("\n".join([head, back, *parts, "</svg>"]) + "\n", "utf-8")
