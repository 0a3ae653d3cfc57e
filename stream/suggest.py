"""Suggestions for mistyped names, appended to error messages."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(word: str, names: Iterable[str]) -> str | None:
    """Return the most similar known word, ignoring case, or None if none is similar."""
    by_folded = {each.casefold(): each for each in names}
    matches = get_close_matches(word.casefold(), by_folded, n=1, cutoff=0.7)
    return by_folded[matches[0]] if matches else None


def meant(word: str, names: Iterable[str]) -> str:
    """Return `; did you mean x?` for the nearest known word, or an empty string."""
    name = nearest(word, names)
    return f"; did you mean {name}?" if name else ""
