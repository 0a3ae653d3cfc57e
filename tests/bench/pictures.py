"""The picture of the report, as SVG: bars."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from pathlib import Path

INK, OURS, OTHER = "#333333", "#1f6f8b", "#c26a3d"
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
    parts.append(
        f'<line x1="{place(mark):.1f}" y1="28.0" x2="{place(mark):.1f}" y2="{height - 8:.1f}" stroke="{INK}"'
        ' stroke-dasharray="4 3"/>'
    )
    _write(path, height, parts)


def _text(x: float, y: float, text: str, anchor: str = "start", weight: str = "normal") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}" fill="{INK}">'
        f"{escape(text)}</text>"
    )


def _write(path: Path, height: float, parts: list[str]) -> None:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" {FONT}>'
    back = '<rect width="100%" height="100%" fill="#ffffff"/>'
    path.write_text("\n".join([head, back, *parts, "</svg>"]) + "\n", "utf-8")
