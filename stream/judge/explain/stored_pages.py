"""Reads pages from the state directory of a judge or an index, for `neardup explain`.

A state directory stores fingerprint, sketch and URL of a page, not its text. The judge may be running; its
last flush is read.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, Self

from stream.errors import PageError, SettingsError, StateError
from stream.fingerprint.parity import ONE
from stream.fingerprint.row import NO_DIGEST, Status
from stream.judge.explain.explain import (
    Candidacy,
    ExplainedPage,
    NearestAnchor,
    Outcome,
    StoredPage,
    StoredPair,
    explain,
    is_same_url,
    verdict_on,
)
from stream.judge.explain.stored_candidates import Candidates, Match, best_match, candidates_of
from stream.judge.ids import parse, show
from stream.judge.rule import Rule
from stream.judge.state.baselines import Baseline
from stream.judge.state.live import CACHE, refuse_other_scheme
from stream.judge.state.meta import stored_meta
from stream.judge.state.reader import StateReader
from stream.messages.verdict_options import VerdictOptions
from stream.page_rows.page_fingerprinter import PageFingerprinter
from stream.tables.store.rocks import Store, state_directory, unflushed_error


class _Verdict(NamedTuple):
    """The verdict on a page, with the page that it names and their similarity, and the candidates for it."""

    verdict: Outcome | None
    named: str | None = None
    similarity: float | None = None
    nearest: NearestAnchor | None = None
    joins: str | None = None
    """Of a recrawl that would be judged again (rule 22): as in `StoredPair`."""
    candidates: Candidates | None = None
    """None if too little is known of the page, or if the verdict follows without them."""


class StoredPages:
    """A state directory opened for reading, as a context manager.

    Raises StateError, and SchemeMismatchError or SettingsError if its scheme or verdict options are not those
    of `fingerprinter` and `options`.
    """

    def __init__(self, path: Path, fingerprinter: PageFingerprinter, options: VerdictOptions) -> None:
        scheme = fingerprinter.scheme
        self._fingerprinter, self._scheme, self._options, self.path = fingerprinter, scheme, options, path
        directory = state_directory(path)
        if directory is None:
            raise StateError(
                f"state directory {path}: contains no state of a judge to look up URLs and ids in; an index"
                " is named with --index, and a page of a file as FILE#3 or FILE#PLACE"
            )
        self._store = Store(directory, CACHE, read_only=True)
        try:
            self._records = StateReader(self._store, scheme)
            meta = stored_meta(self._store)
            if meta is None:
                raise unflushed_error(directory)
            refuse_other_scheme(directory, meta, scheme)
            if meta.options != options.id:
                raise SettingsError(
                    f"state directory {directory}: has other verdict options; pass the same ones"
                    " (--mode, --option)"
                )
            self._journal = meta.journal
        except BaseException:
            self._store.close()
            raise

    def side(self, name: str) -> ExplainedPage | None:
        """Return the page with this id, or the last `unique` or `duplicate` page of this URL, or None."""
        stored: Baseline | None
        if page := parse(name):
            if page.journal != self._journal[:8]:
                raise SettingsError(f"id {name}: belongs to another journal than {self._journal[:8]}")
            stored = self._records.by_page(page.page)
        else:
            stored = next(iter(self._records.baselines(self._digest(name))), None)
        return self._side(name, stored) if stored is not None else None

    def locate(self, side: ExplainedPage) -> ExplainedPage:
        """Return a page that was read elsewhere as the stored one of its URL and content, if there is one."""
        for stored in self._baselines(side):
            if stored.fingerprint == side.fingerprint and _sketch(stored) == side.sketch:
                return replace(side, skipped=stored.skipped, stored_id=stored.page)
        return side

    def pair(self, anchor: ExplainedPage, page: ExplainedPage) -> StoredPair:
        """Return what is stored about two pages, and what counts between them here.

        A page that is a duplicate is not compared with later pages: the anchor of its cluster is.
        """
        stored, own = self._stored(anchor), self._stored(page)
        first, second = anchor.stored_id, page.stored_id
        later = first is not None and second is not None and first > second
        counted, by_cluster = None, None
        if stored and not later and not is_same_url(anchor, page):
            counted = anchor
            if stored.duplicate_of is not None and (head := self.side(stored.cluster)):
                counted = replace(head, name=stored.duplicate_of)
                by_cluster = explain(counted, page, self._scheme, self._options)
        verdict = self._verdict(page, own)
        return StoredPair(
            directory=str(self.path),
            anchor=stored,
            page=own,
            verdict=verdict.verdict,
            named=verdict.named,
            similarity=verdict.similarity,
            joins=verdict.joins,
            nearest=verdict.nearest,
            later=later,
            by_cluster=by_cluster,
            candidacy=self._candidacy(counted, verdict.candidates),
        )

    def _verdict(self, page: ExplainedPage, stored: StoredPage | None) -> _Verdict:
        """Return the verdict that a page has, or would get."""
        rule = Rule(self._options, self._scheme)
        if stored is not None and page.stored_id is not None:
            candidates = candidates_of(page, self._records, rule, page.stored_id)
            return _Verdict(stored.verdict, stored.duplicate_of, candidates=candidates)
        if page.status == Status.INSUFFICIENT:
            return _Verdict("insufficient")
        baselines = self._baselines(page)
        for age, baseline in enumerate(baselines):
            earlier = self._side(baseline.url, baseline)
            if verdict_on(earlier, page, rule) == "recrawl":
                estimated = explain(earlier, page, self._scheme, self._options).estimated_similarity
                verdict = _Verdict("recrawl", baseline.url, None if self._options.strict else estimated)
                is_orphan = age == 0 and not self._records.is_alive(baseline.cluster_anchor)
                return self._judged_again(page, verdict, rule) if is_orphan else verdict
        superseded = baselines[0].anchor if baselines else None
        candidates = candidates_of(page, self._records, rule, superseded=superseded)
        if candidates is None:
            return _Verdict(None)
        match = best_match(page, candidates, self._records, rule)
        if match is None or not match.alike:
            return _Verdict("unique", nearest=self._nearest(page, match, rule), candidates=candidates)
        similarity = rule.published(match.similarity)
        return _Verdict("duplicate", match.anchor.url, similarity, candidates=candidates)

    def _judged_again(self, page: ExplainedPage, verdict: _Verdict, rule: Rule) -> _Verdict:
        """Complete the verdict on a recrawl whose cluster has no live anchor (rule 22)."""
        candidates = candidates_of(page, self._records, rule)
        if candidates is None:
            return verdict
        match = best_match(page, candidates, self._records, rule)
        joins = match.anchor.url if match is not None and match.alike else verdict.named
        return verdict._replace(joins=joins, candidates=candidates)

    def _nearest(self, page: ExplainedPage, match: Match | None, rule: Rule) -> NearestAnchor | None:
        """Return what the verdict on a unique page says of its nearest anchor, and why that is not alike."""
        if match is None or match.similarity < rule.evidence:
            return None
        compared = explain(self._side(match.anchor.url, match.anchor), page, self._scheme, self._options)
        return NearestAnchor(
            url=match.anchor.url,
            id=show(self._journal, match.anchor.page),
            similarity=match.similarity / ONE,
            reason=next(check.reason for check in compared.checks if check.name == "similarity"),
        )

    def _candidacy(self, anchor: ExplainedPage | None, candidates: Candidates | None) -> Candidacy | None:
        """Return how the page that counts stands among candidates."""
        if anchor is None or anchor.stored_id is None or candidates is None:
            return None
        stored = self._records.by_page(anchor.stored_id)
        number = None if stored is None else stored.anchor
        return Candidacy(
            candidates=len(candidates.anchor),
            place=None if number is None else candidates.place_of(number),
            compared=min(len(candidates.anchor), Rule(self._options, self._scheme).compared),
        )

    def _stored(self, side: ExplainedPage) -> StoredPage | None:
        if side.stored_id is None or (stored := self._records.by_page(side.stored_id)) is None:
            return None
        head = stored if stored.anchor is not None else self._records.anchor_of(stored)
        return StoredPage(
            id=show(self._journal, stored.page),
            verdict="duplicate" if stored.anchor is None else "unique",
            cluster=show(self._journal, stored.cluster),
            duplicate_of=head.url if head is not None and stored.anchor is None else None,
            superseded=not self._records.is_alive(stored.cluster_anchor),
            full_buckets=Rule(self._options, self._scheme).full_buckets(stored.skipped),
        )

    def _side(self, name: str, stored: Baseline) -> ExplainedPage:
        return ExplainedPage(
            name=name,
            fingerprint=stored.fingerprint,
            url=stored.url,
            url_digest=stored.url_digest,
            sketch=_sketch(stored),
            skipped=stored.skipped,
            stored_id=stored.page,
        )

    def _baselines(self, page: ExplainedPage) -> list[Baseline]:
        return self._records.baselines(page.url_digest) if page.url_digest != NO_DIGEST else []

    def _digest(self, name: str) -> bytes:
        """Return the digest of a URL; a name in an index that is no URL is its own key."""
        try:
            key = self._fingerprinter.url_key(name)
        except PageError:
            key = name
        return self._fingerprinter.url_digest(key)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._store.close()


def _sketch(stored: Baseline) -> bytes:
    return stored.sketch.astype("<u8").tobytes()
