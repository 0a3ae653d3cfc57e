"""Suggestions for mistyped names, appended to error messages."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the most similar known word, ignoring case, or None if none is similar."""
    by_folded = {each.casefold(): each for each in known}
    found = get_close_matches(word.casefold(), by_folded, n=1, cutoff=0.7)
    return by_folded[found[0]] if found else None


def meant(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean x?` for the nearest known word, or an empty string."""
    found = nearest(word, known)
    return f"; did you mean {found}?" if found else ""
