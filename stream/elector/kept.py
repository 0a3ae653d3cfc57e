"""Answers which page is kept of the cluster that a URL is in, from a state."""

from __future__ import annotations

from math import isnan

import msgspec

from stream.elector.layout import Version
from stream.elector.state import State
from stream.errors import PageError, SettingsError, StateError
from stream.fingerprint.seed import url_hasher
from stream.judge.ids import parse, show
from stream.messages.best import KeptPage
from stream.messages.journal import Genesis
from stream.messages.row_columns import NO_TIME
from stream.pages.times import rfc3339
from stream.text.url import url_key


class Answer(msgspec.Struct, frozen=True):
    """The state of a cluster."""

    cluster: str
    best: KeptPage | None
    members: int
    elect: str
    as_of: str
    """The last page that the state knows."""


def find_kept(state: State, genesis: Genesis, named: str) -> Answer | None:
    """Answer for a URL, or for a cluster by its id; None if there is no such cluster, or the URL is in none.
    Raises SettingsError for what is neither, StateError for a state of another journal."""
    if state.meta.journal != genesis.journal:
        raise StateError(f"state directory {state.store.path} belongs to journal {state.meta.journal}")
    if name := parse(named):
        if name.journal != genesis.journal[:8]:
            raise SettingsError(f"{named}: a page of another journal than {genesis.journal[:8]}")
        cluster = name.page
    else:
        try:
            digest = url_hasher(genesis.seed)(url_key(named, genesis.scheme.url_rules))
        except PageError as error:
            raise SettingsError(f"{named}: neither a URL nor the id of a cluster ({error})") from None
        version = state.versions([digest])[0]
        if version is None:
            return None
        cluster = version.cluster
    if (kept := state.kept(cluster)) is None:
        return None
    page, members = kept
    best = None if page is None else kept_page(page, genesis.journal)
    shown, as_of = (show(genesis.journal, each) for each in (cluster, max(0, state.meta.page)))
    return Answer(shown, best, members, state.meta.elect, as_of)


def kept_page(version: Version, journal: str) -> KeptPage:
    """The newest version of a URL as records have it."""
    return KeptPage(
        url=version.url.decode(),
        id=show(journal, version.page),
        length=version.length,
        quality=None if isnan(version.quality) else version.quality,
        fetched_at=None if version.fetched_at == NO_TIME else rfc3339(version.fetched_at),
    )
