"""Near-duplicate detection for web crawls. The names listed here are the public API; none of them needs
Kafka.

Fingerprint two texts, and compare the fingerprints by Hamming distance:

>>> from neardup import Fingerprinter
>>> fingerprinter = Fingerprinter()
>>> text = "The harbour authority will repair the old lighthouse at the north pier before the winter storms."
>>> a, b = fingerprinter.text(text), fingerprinter.text(text.upper())
>>> (a.fingerprint ^ b.fingerprint).bit_count()
0

An index stores texts and pages, in memory or in a directory, and finds near-duplicates of earlier ones:

>>> from neardup import Index, Page
>>> pages = [
...     Page(url="http://example.com/news", text=text),
...     Page(url="http://mirror.example/1", html=f"<html><body><p>{text}!</p></body></html>"),
...     Page(url="http://example.com/news#top", text=text),
...     Page(url="http://example.com/empty", text="Loading"),
... ]
>>> with Index() as index:
...     for answer in index.add_all(pages):
...         print(answer.verdict, answer.name)
...     index.near(text)[0].name
unique http://example.com/news
duplicate http://mirror.example/1
recrawl http://example.com/news#top
insufficient http://example.com/empty
'http://example.com/news'

Options decide how texts are fingerprinted (`Scheme`) and when two are near-duplicates (`VerdictOptions`):

>>> from neardup import Scheme, VerdictOptions
>>> with Index(scheme=Scheme(features="ngrams"), options=VerdictOptions(similarity="0.6")) as index:
...     index.add("a", text).verdict, index.add("b", text.replace("storms", "festival")).verdict
('unique', 'duplicate')

`stream.local.scan.scan`, or the command `neardup scan`, does the same in several processes. An `Index` is
built on `Judge` and `State`, which decide batches of rows as a deployment does: see `stream/local/index.py`.
They and the types of their arguments can be imported from here too, but are not public and may change with
any version.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from stream.errors import NeardupError, PageError
    from stream.fingerprint.fingerprinter import Fingerprint, Fingerprinter
    from stream.fingerprint.row import Row as Row
    from stream.fingerprint.row import Status as Status
    from stream.fingerprint.scheme import Scheme
    from stream.judge.batch import Entry as Entry
    from stream.judge.judge import Judge as Judge
    from stream.judge.judged_batch import JudgedBatch as JudgedBatch
    from stream.judge.query import matching_anchors as matching_anchors
    from stream.judge.state.state import State as State
    from stream.local.index import Answer, Index, Near
    from stream.messages.decision import Decisions as Decisions
    from stream.messages.journal import Genesis as Genesis
    from stream.messages.journal import Rows as Rows
    from stream.messages.journal import SourceRange as SourceRange
    from stream.messages.verdict import Change as Change
    from stream.messages.verdict import ClusterRecord as ClusterRecord
    from stream.messages.verdict import Verdict as Verdict
    from stream.messages.verdict import VerdictRecord as VerdictRecord
    from stream.messages.verdict_options import VerdictOptions
    from stream.pages.columns import Columns
    from stream.pages.page import Page
    from stream.pages.page import decode_page as decode_page
    from stream.sources.open import open_source

__all__ = [
    "Answer",
    "Columns",
    "Fingerprint",
    "Fingerprinter",
    "Index",
    "Near",
    "NeardupError",
    "Page",
    "PageError",
    "Scheme",
    "VerdictOptions",
    "open_source",
]
"""The public names, which are stable. The other names in `_HOMES` are internal and may change."""

_HOMES: Final = {
    "stream.errors": ("NeardupError", "PageError"),
    "stream.fingerprint.fingerprinter": ("Fingerprint", "Fingerprinter"),
    "stream.fingerprint.row": ("Row", "Status"),
    "stream.fingerprint.scheme": ("Scheme",),
    "stream.local.index": ("Answer", "Index", "Near"),
    "stream.judge.batch": ("Entry",),
    "stream.judge.judged_batch": ("JudgedBatch",),
    "stream.judge.judge": ("Judge",),
    "stream.messages.verdict_options": ("VerdictOptions",),
    "stream.judge.query": ("matching_anchors",),
    "stream.judge.state.state": ("State",),
    "stream.messages.decision": ("Decisions",),
    "stream.messages.journal": ("Genesis", "Rows", "SourceRange"),
    "stream.pages.columns": ("Columns",),
    "stream.pages.page": ("Page", "decode_page"),
    "stream.messages.verdict": ("Change", "ClusterRecord", "Verdict", "VerdictRecord"),
    "stream.sources.open": ("open_source",),
}
_HOME_OF: Final = {name: home for home, names in _HOMES.items() for name in names}


if not TYPE_CHECKING:  # a type checker that sees `__getattr__` accepts any name

    def __getattr__(name: str) -> object:
        """Import a name on first access (PEP 562), so that `import stream` alone loads nothing."""
        if name not in _HOME_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_HOME_OF[name]), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
