"""Numbers of things in messages."""

from __future__ import annotations


def quantity(count: int, noun: str) -> str:
    """Return a number of things, such as `1 page` or `1,000 pages`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
