"""The judge reads ahead of what it is at, and no further."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest

from stream.fingerprint.row import Row, Status
from stream.fingerprint.scheme import Scheme
from stream.judge.batch import Entry
from stream.judge.options import VerdictOptions
from stream.kafka.reader import JournalReader
from stream.messages.journal import Genesis, Rows, SourceRange
from stream.settings import load

FETCHED = 50
"""Rows a fetch brings, in records of one."""


def entry(offset: int, scheme: Scheme) -> Entry:
    row = Row(Status.REJECTED, "http://a/", None, None)
    source = SourceRange("here", "pages", "0" * 32, 0, offset, offset + 1, 1)
    return Entry(offset, 0, b"", Rows.of(scheme, [source], [row], [offset], [None]))


async def test_fetches_larger_than_a_batch_do_not_pile_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheme, fetches = Scheme(), 0
    genesis = Genesis(journal="ab" * 16, scheme=scheme, scheme_id=scheme.id, options=VerdictOptions())
    reader = JournalReader(load(state_dir=tmp_path), "journal", 1, genesis)

    async def fetch(_: float) -> None:
        nonlocal fetches
        found = [entry(fetches * FETCHED + row, scheme) for row in range(FETCHED)]
        fetches += 1
        reader._waiting += found
        reader._rows += len(found)

    monkeypatch.setattr(reader, "_fetch", fetch)
    taken: list[int] = []
    while len(taken) < 20 * FETCHED:
        taken += [each.offset for each in await reader.next_rows(5)]
        for _ in range(3):
            await asyncio.sleep(0)  # as a judge that waits for its transaction
        assert len(reader._waiting) <= FETCHED + 5
    assert taken == np.arange(len(taken)).tolist()
    await reader.__aexit__(None, None, None)
