"""What the dashboard knows of kept pages."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import structs

from stream.dashboard.answers import Election, Kept
from stream.dashboard.lookup import kept_pages
from stream.dashboard.lookup.kept_pages import KeptPages
from stream.messages.best import ELECT_HEADER, BestRecord, KeptPage, encode_best
from stream.messages.verdict import PageRef
from stream.settings import load

FIRST = PageRef("https://a.example/", "abababab.2.0")
TOLD = BestRecord(
    cluster=FIRST.id,
    best=KeptPage("https://b.example/", "abababab.7.1", 272, None, None),
    was=FIRST,
    because="joined",
    members=2,
    as_of="abababab.7.1",
    decided_at="2026-01-02T03:04:05.000Z",
)


def record(told: BestRecord, **fields: Any) -> Any:
    value = encode_best(structs.replace(told, **fields))
    headers = ((ELECT_HEADER, b"longest"),)
    return SimpleNamespace(value=value, headers=headers, topic="n.best", partition=1, offset=7)


@pytest.fixture
def kept() -> KeptPages:
    return KeptPages(load(namespace="n", elect="longest"))


def test_the_last_record_of_a_cluster_counts(kept: KeptPages) -> None:
    kept._add(record(TOLD))
    kept._add(record(TOLD, as_of="abababab.10.0", because="left", best=None, members=0))
    kept._add(record(TOLD))  # a repetition: 7.1 is before 10.0
    assert kept.of(FIRST.id, FIRST.url) == Kept(None, None, "left", 0, TOLD.decided_at)


def test_without_a_record_the_anchor_is_kept_once_all_were_read(kept: KeptPages) -> None:
    assert kept.election == Election("none")
    assert kept.of(FIRST.id, FIRST.url) is None
    kept._add(record(TOLD))
    kept._state = "following"
    assert kept.election == Election("following", "longest")
    assert kept.of("abababab.3.0", "https://c.example/") == Kept("https://c.example/", "abababab.3.0")


def test_beyond_a_limit_the_largest_clusters_are_known(
    kept: KeptPages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_pages, "MOST_CLUSTERS", 10)
    kept._state = "following"
    for number in range(30):
        kept._add(record(TOLD, cluster=f"abababab.2.{number}", members=1 + number))
    known = [number for number in range(30) if kept.of(f"abababab.2.{number}", FIRST.url)]
    assert known == list(range(known[0], 30))
    assert 5 <= len(known) <= 10
    monkeypatch.setattr(kept_pages, "MOST_CHARACTERS", 100)
    kept._add(record(TOLD, members=100))
    assert list(kept._records) == [TOLD.cluster, "abababab.2.29"]
    assert kept._characters == 2 * len("https://a.example/https://b.example/")
