"""What journal and decisions say of pages, in columns: their URL's digest, their cluster, and what policies
look at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from stream.fingerprint.row import NO_DIGEST
from stream.judge.batch import Decided, pages_of
from stream.judge.log_time import log_times
from stream.judge.misfits import invalid, refuse_other_records
from stream.messages.byte_strings import StringColumn
from stream.messages.decision import NOT_ADMITTED
from stream.messages.journal import Genesis, columns_of
from stream.messages.verdict import Verdict

NO_CLUSTER: Final = -1
_OWN_DIGEST: Final = 1
"""First word of the digest of a page without a URL key, which no other page has. The second is its id."""


@dataclass(frozen=True, slots=True, eq=False)
class JudgedPages:
    """n pages that could be read, in the order of judgement."""

    page: NDArray[np.int64]
    """Packed ids."""
    digest: NDArray[np.uint8]
    """(n, 16): digest of the URL's key, never zeros."""
    cluster: NDArray[np.int64]
    """Page of the cluster's anchor; NO_CLUSTER for a page that is too short."""
    length: NDArray[np.uint32]
    fetched_at: NDArray[np.int64]
    quality: NDArray[np.float64]
    url: StringColumn
    seen: NDArray[np.int64]
    """Log time of each page's record."""
    last: tuple[int, int] | None
    """Id of the last page that was judged, rejected or not, and its log time; None if none was."""
    time: int
    """Log time after all records."""

    def __len__(self) -> int:
        return len(self.page)

    @classmethod
    def of(cls, decided: Sequence[Decided], genesis: Genesis, time: int) -> Self:
        """Raises StateError if decisions do not fit their records. `time` is the log time before them."""
        for each in decided:
            refuse_other_records(each.entries, each.decisions, genesis)
        clusters = [_clusters(each) for each in decided]
        entries = [entry for each in decided for entry in each.entries]
        rows = [entry.rows for entry in entries]
        sizes = np.array([len(each) for each in rows], np.int64)
        pages = pages_of(entries)
        verdict = _joined([each.decisions.verdict for each in decided], np.uint8)
        times, time = _log_times(decided, time)
        judged = np.flatnonzero(verdict != NOT_ADMITTED)
        keep = np.flatnonzero((verdict != NOT_ADMITTED) & (verdict != Verdict.REJECTED))
        last = None
        seen = np.repeat(times, sizes)
        if len(judged):
            last = int(pages[judged[-1]]), int(seen[judged[-1]])

        def column(name: str, kind: Any) -> NDArray[Any]:
            return _joined([getattr(each, name) for each in rows if len(each)], kind)[keep]

        digest = column("url_digest", np.uint8).reshape(-1, len(NO_DIGEST))
        page = pages[keep]
        _name_pages_without_url(digest, page)
        return cls(
            page=page,
            digest=digest,
            cluster=_joined(clusters, np.int64)[keep],
            length=column("length", np.uint32),
            fetched_at=column("fetched_at", np.int64),
            quality=column("quality", np.float64),
            url=columns_of([each.strings for each in rows]).url.take(keep) if rows else StringColumn.none(0),
            seen=seen[keep],
            last=last,
            time=time,
        )


def _log_times(decided: Sequence[Decided], time: int) -> tuple[NDArray[np.int64], int]:
    """Return the log time after each record, and that after all decisions, which may end with a turn. `time`
    is the log time before them."""
    parts = [np.zeros(0, np.int64)]
    for each in decided:
        if each.entries:
            appended = [entry.time for entry in each.entries]
            parts.append(log_times(time, appended, each.decisions.cap))
            time = int(parts[-1][-1])
        else:
            time = max(time, each.decisions.time)
    return np.concatenate(parts), time


def _joined(columns: Sequence[NDArray[Any]], kind: Any) -> NDArray[Any]:
    return np.concatenate(columns) if columns else np.zeros(0, kind)


def _name_pages_without_url(digest: NDArray[np.uint8], page: NDArray[np.int64]) -> None:
    words = digest.view(">u8")
    without = np.flatnonzero(~words.any(axis=1))
    words[without, 0], words[without, 1] = _OWN_DIGEST, page[without]


def _clusters(decided: Decided) -> NDArray[np.int64]:
    """The cluster of each row (N,); arbitrary for rows that are not admitted or rejected."""
    decisions, pages = decided.decisions, pages_of(decided.entries)
    cluster = decisions.clusters_of(pages)
    cluster[decisions.verdict == Verdict.INSUFFICIENT] = NO_CLUSTER
    if ((cluster > pages) | (cluster < NO_CLUSTER)).any() and len(cluster):
        raise invalid(decisions, "a cluster that begins after one of its pages")
    return cluster
