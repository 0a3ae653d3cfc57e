"""Checks that decisions fit each other, the pages that they are about, and the state before them. Compiled
loops rely on it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream.errors import StateError
from stream.fingerprint.parity import ONE
from stream.judge.batch import Entry
from stream.judge.rule import Rule
from stream.judge.state.page_numbers import own_numbers
from stream.judge.state.state import State
from stream.messages.decision import (
    JUDGED_AGAIN,
    NAMES_NEAREST,
    NO_LONGER_LIVE,
    OF_ANOTHER_CLUSTER,
    Decisions,
)
from stream.messages.journal import Genesis
from stream.messages.verdict import CLUSTERED, Change, Verdict
from stream.tables.arrays import I64, is_among
from stream.tables.reserves.keys import are_possible


def refuse_other_records(entries: Sequence[Entry], decisions: Decisions, genesis: Genesis) -> None:
    """Raise StateError unless decisions are about exactly these records, and have as much of everything as
    their codes say. Records without rows are about none."""
    if entries:
        about, last = (entries[0].offset, entries[-1].offset + 1), entries[-1].digest
    else:
        about, last = (decisions.start, decisions.start), decisions.last
    if (
        decisions.journal != genesis.journal
        or decisions.options != genesis.options.id
        or (decisions.start, decisions.end) != about
        or decisions.last != last
        or len(decisions.codes) != sum(len(entry.rows) for entry in entries)
        or decisions.has_rows != bool(entries)
    ):
        raise StateError(
            f"decisions about journal offsets {decisions.start} to {decisions.end} do not fit the journal"
        )
    if why := _misfit_codes(decisions, strict=genesis.options.strict):
        raise invalid(decisions, why)


def invalid(decisions: Decisions, why: str) -> StateError:
    """The error for decisions that say what cannot be."""
    return StateError(
        f"decisions about journal offsets {decisions.start} to {decisions.end} are invalid: {why}"
    )


def refuse_misfits(decisions: Decisions, pages: I64, state: State, rule: Rule) -> None:
    """Raise StateError if decisions about N rows with these page ids (N,), which `refuse_other_records` lets
    pass, are invalid after a state."""
    why = (
        _misfit_likeness(decisions, rule)
        or _misfit_names(decisions, pages, state)
        or _misfit_anchors(decisions, decisions.stored_as(pages) == Verdict.UNIQUE, state, rule)
    )
    if why:
        raise invalid(decisions, why)


def _misfit_codes(decisions: Decisions, *, strict: bool) -> str | None:
    """Check the codes, and that there is as much of everything as they say."""
    verdict = decisions.verdict
    named, apart, nearest, again = _rows(decisions)
    if verdict.max(initial=0) > max(Verdict):
        return f"unknown verdict {verdict.max()}; the largest is {max(Verdict):d}"
    if (
        (verdict[apart] != Verdict.RECRAWL).any()
        or (verdict[nearest] != Verdict.UNIQUE).any()
        or (decisions.change[again] != Change.UNCHANGED).any()
        or not np.isin(again, apart, assume_unique=True).all()
        or (strict and len(nearest))
    ):
        return "a code that means nothing"
    for name, size, count in (
        ("other", 8, len(named)),
        ("numbers", 8, len(named)),
        ("distance", 1, len(named)),
        ("similarity", 2, 0 if strict else len(named)),
        ("clusters", 8, len(apart)),
        ("anchors", 8, len(apart)),
        ("nearest", 8, len(nearest)),
        ("nearest_numbers", 8, len(nearest)),
        ("nearest_similarity", 2, len(nearest)),
    ):
        if len(getattr(decisions, name)) != size * count:
            return f"{len(getattr(decisions, name)) // size} of {name}, which does not fit the verdicts"
    return None


def _misfit_likeness(decisions: Decisions, rule: Rule) -> str | None:
    """Check that distances and similarities are ones that the rule can find."""
    for name, kind, least, most in (
        ("distance", "u1", 0, rule.options.largest_distance),
        ("similarity", "<u2", 0, ONE),
        ("nearest_similarity", "<u2", rule.evidence, ONE),
    ):
        values = np.frombuffer(getattr(decisions, name), kind)
        if (wrong := values[(values < least) | (values > most)]).size:
            return f"a {name} of {wrong[0]}, which is not from {least} to {most}"
    return None


class _Names(NamedTuple):
    """The pages that m rows name, with their numbers."""

    rows: I64
    page: I64
    number: I64
    kind: NDArray[np.uint8]
    """UNIQUE if the number is that of an anchor, DUPLICATE if it is that of a duplicate."""

    @classmethod
    def of(cls, rows: I64, page: bytes, number: bytes, duplicate: NDArray[np.bool_] | bool = False) -> _Names:
        kind = np.where(duplicate, np.uint8(Verdict.DUPLICATE), np.full(len(rows), Verdict.UNIQUE, np.uint8))
        return cls(rows, np.frombuffer(page, "<i8"), np.frombuffer(number, "<i8"), kind)


def _misfit_names(decisions: Decisions, pages: I64, state: State) -> str | None:
    """Check the pages that rows name, and the numbers of these pages."""
    named, apart, nearest, again = _rows(decisions)
    stored_as = decisions.stored_as(pages)
    own = own_numbers(stored_as, state.next)
    of_another = np.isin(named, apart, assume_unique=True)
    for names in (
        _Names.of(named, decisions.other, decisions.numbers, of_another),
        _Names.of(apart, decisions.clusters, decisions.anchors),
        _Names.of(nearest, decisions.nearest, decisions.nearest_numbers),
    ):
        rows, page, number, kind = names
        if page.min(initial=0) < 0:
            return "a page with a negative id"
        place = np.searchsorted(pages, page).clip(max=len(pages) - 1)
        here = (own[place] == number) & (stored_as[place] == kind) & (place < rows)
        first, end = (np.where(kind == Verdict.UNIQUE, *each) for each in (state.first, state.next))
        before = (number >= first) & (number < end) & (page < pages[:1])
        fits = np.where(pages[place] == page, here, before)
        if rows is apart:
            judged_again = np.isin(apart, again, assume_unique=True)
            fits |= (number == NO_LONGER_LIVE) & ~judged_again
            fits |= (own[rows] == number) & (page == pages[rows]) & judged_again
        if (wrong := np.flatnonzero(~fits)).size:
            at = int(wrong[0])
            return f"row {rows[at]} names page {page[at]} by the number {number[at]}"
    return None


def _misfit_anchors(decisions: Decisions, unique: NDArray[np.bool_], state: State, rule: Rule) -> str | None:
    """Check what happens to anchors. `unique` are the rows that become anchors (N,)."""
    masks = np.array([max(0, mask) for _, mask in decisions.skipped], np.uint64)
    fits = are_possible(masks) if rule.reserves else np.zeros(len(masks), np.bool_)
    for (row, mask), possible in zip(decisions.skipped, fits.tolist(), strict=True):
        if not (0 <= row < len(unique) and unique[row] and possible):
            return f"row {row} skipped buckets {mask:#x}"
    first, anchors = state.first.anchors, state.next.anchors + int(np.count_nonzero(unique))
    for each in decisions.superseded:
        if not (0 <= each.row < len(unique) and first <= each.anchor < anchors):
            return f"row {each.row} supersedes anchor {each.anchor} of {anchors}"
    return None


def _rows(decisions: Decisions) -> tuple[I64, I64, I64, I64]:
    """Return the rows that name a page in `other`, in `clusters` and in `nearest`, and those judged again."""
    codes = np.frombuffer(decisions.codes, np.uint8)
    return (
        np.flatnonzero(is_among(decisions.verdict, CLUSTERED)),
        np.flatnonzero(codes & OF_ANOTHER_CLUSTER),
        np.flatnonzero(codes & NAMES_NEAREST),
        np.flatnonzero(codes & JUDGED_AGAIN),
    )
