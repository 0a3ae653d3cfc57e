"""Reads what a turn needs of a state: which pages expire, and which of them are carried (rule 23)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from stream.fingerprint.row import NO_DIGEST
from stream.judge.state.page_log import HAS_OLDER, LoggedPages
from stream.judge.state.page_numbers import PageNumbers
from stream.judge.state.pages_ahead import PagesAhead
from stream.judge.state.reader import StateReader
from stream.judge.state.references import ANCHOR, DUPLICATE, each_of, references_to
from stream.judge.state.window import Window
from stream.messages.decision import NO_LONGER_LIVE, Turn
from stream.tables.arrays import I64, distinct
from stream.tables.tables import Tables


@dataclass(frozen=True, slots=True, eq=False)
class Carried:
    """The pages that a turn carries."""

    turn: Turn
    anchor_numbers: I64
    duplicate_numbers: I64
    anchors: LoggedPages
    duplicates: LoggedPages
    references: dict[bytes, bytes]
    """Digest of a URL -> references to its baselines, as far as these were read."""

    @property
    def oldest(self) -> PageNumbers:
        """The numbers of the first anchor and the first duplicate that do not expire."""
        return PageNumbers(*self.turn.oldest)

    @property
    def next(self) -> PageNumbers:
        """The numbers that the first carried anchor and the first carried duplicate get."""
        return PageNumbers(*self.turn.next)


class TurnReader:
    """Reads for turns of one state, which has no batch ahead of its store meanwhile. One thread uses it."""

    def __init__(self, state: StateReader, window: Window, tables: Tables) -> None:
        self._state, self.window, self._tables = state, window, tables
        self._anchors, self._duplicates = state.page_logs
        self._ahead: Final = PagesAhead()
        self._decided: Carried | None = None
        """Of the turn that was decided, until it is applied."""

    def decide(self, time: int, next_: PageNumbers) -> Turn:
        """Return the turn at a log time: which pages expire, and which of them are carried. `next_` are the
        numbers of the next anchor and the next duplicate."""
        window, first = self.window, self._state.first
        end = window.oldest_after(time)
        numbers = window.hit_duplicates.between(first.duplicates, end.duplicates)
        duplicates = self._ahead.pages(self._duplicates, numbers)
        references = self._state.stored_references(list(dict.fromkeys(duplicates.url_digests())))
        some = np.flatnonzero(_are_among(references, numbers, duplicates))
        fitting = window.carried_at_once(duplicates.url_bytes[some])
        if fitting < len(some):
            end = end._replace(duplicates=int(numbers[some[fitting]]))
        numbers, duplicates = numbers[some[:fitting]], duplicates.take(some[:fitting])
        hit = window.hit_anchors.between(first.anchors, end.anchors)
        of_anchors = distinct(np.append(hit, self._state.cluster_anchors(duplicates)))
        of_anchors = of_anchors[(of_anchors >= first.anchors) & (of_anchors < end.anchors)]
        of_anchors = of_anchors[self._tables.is_alive(of_anchors)]
        anchors = self._ahead.pages(self._anchors, of_anchors)
        fitting = window.carried_at_once(anchors.url_bytes)
        if fitting < len(of_anchors):
            end = end._replace(anchors=int(of_anchors[fitting]))
        of_anchors, anchors = of_anchors[:fitting], anchors.take(np.arange(fitting))
        turn = Turn(
            oldest=end,
            next=next_,
            anchors=of_anchors.astype("<i8").tobytes(),
            duplicates=numbers.astype("<i8").tobytes(),
        )
        self._decided = Carried(turn, of_anchors, numbers, anchors, duplicates, references)
        return turn

    def carried(self, turn: Turn) -> Carried:
        """Return the pages that a turn carries, which are read unless it is the one that was just decided."""
        read, self._decided = self._decided, None
        if read is not None and read.turn is turn:
            return read
        anchors, duplicates = (
            np.frombuffer(each, "<i8").astype(np.int64) for each in (turn.anchors, turn.duplicates)
        )
        of_anchors = self._ahead.pages(self._anchors, anchors)
        of_duplicates = self._ahead.pages(self._duplicates, duplicates)
        return Carried(turn, anchors, duplicates, of_anchors, of_duplicates, {})

    def begin(self) -> None:
        """Start to read what the next turn will carry, as far as it was hit."""
        window, first = self.window, self._state.first
        end = window.oldest_after(window.turned + window.slot)
        anchors = window.hit_anchors.between(first.anchors, end.anchors)
        self._ahead.begin(self._anchors, anchors[self._tables.is_alive(anchors)])
        duplicates = window.hit_duplicates.between(first.duplicates, end.duplicates)
        self._ahead.begin(self._duplicates, duplicates)

    def anchors_after(self, carried: Carried) -> I64:
        """Return the number, after the turn, of the anchor of the cluster of each carried duplicate (m,);
        NO_LONGER_LIVE if that was superseded or expires."""
        anchors = self._state.cluster_anchors(carried.duplicates)
        live = self._tables.is_alive(anchors) & (anchors >= carried.oldest.anchors)
        place = np.searchsorted(carried.anchor_numbers, anchors)
        again = np.append(carried.anchor_numbers, NO_LONGER_LIVE)[place] == anchors
        again &= anchors != NO_LONGER_LIVE
        return np.where(again, carried.next.anchors + place, np.where(live, anchors, NO_LONGER_LIVE))

    def references_after(self, carried: Carried) -> dict[bytes, bytes]:
        """Return digest of a URL -> references to its baselines after the turn, for the URLs of carried
        pages."""
        anchors, duplicates, next_ = carried.anchor_numbers, carried.duplicate_numbers, carried.next
        of_anchors, of_duplicates = carried.anchors.url_digests(), carried.duplicates.url_digests()
        anchors_again = references_to(ANCHOR, np.arange(next_.anchors, next_.anchors + len(anchors)))
        duplicates_again = references_to(
            DUPLICATE, np.arange(next_.duplicates, next_.duplicates + len(duplicates))
        )
        # A live anchor is the newest baseline of its URL, and most are the only one: these are not read.
        after = dict(zip(of_anchors, anchors_again, strict=True))
        behind = np.flatnonzero(carried.anchors.words[:, 1] & HAS_OLDER).tolist()
        renamed = dict(zip(references_to(DUPLICATE, duplicates), duplicates_again, strict=True))
        renamed |= {
            references_to(ANCHOR, anchors[place : place + 1])[0]: anchors_again[place] for place in behind
        }
        urls = dict.fromkeys([*of_duplicates, *(of_anchors[place] for place in behind)])
        urls.pop(NO_DIGEST, None)
        references = {url: carried.references[url] for url in urls if url in carried.references}
        references |= self._state.stored_references([url for url in urls if url not in references])
        again = {
            url: renamed.get(value) or b"".join(renamed.get(each, each) for each in each_of(value))
            for url, value in references.items()
        }
        after |= self._state.unexpired(again, carried.oldest)
        after.pop(NO_DIGEST, None)
        return after

    def close(self) -> None:
        """Wait for what is being read."""
        self._ahead.close()


def _are_among(references: dict[bytes, bytes], numbers: I64, duplicates: LoggedPages) -> list[bool]:
    """Whether each of these duplicates is among the baselines of its URL (m,), given references to these."""
    return [
        value == own or (len(value) > len(own) and own in each_of(value))
        for value, own in zip(
            (references.get(url, b"") for url in duplicates.url_digests()),
            references_to(DUPLICATE, numbers),
            strict=True,
        )
    ]
