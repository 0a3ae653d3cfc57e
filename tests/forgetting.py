"""Requests that pages be forgotten, decided by a judge without Kafka."""

from __future__ import annotations

import numpy as np

from stream.fingerprint.seed import host_hasher
from stream.judge.forgetting import Search
from stream.judge.judge import Judge
from stream.judge.state.state import State
from stream.messages.decision import Decisions, Forgotten, decode_decisions, encode_decisions
from stream.messages.requests import ForgetRequest, What
from tests.url_digests import digest_of_url


def request(judge: Judge, what: What, name: str) -> ForgetRequest:
    digest = digest_of_url(name) if what == "url" else host_hasher(judge.genesis.seed)(name)
    return ForgetRequest(journal=judge.genesis.journal, forget=what, digest=digest.hex())


def forget(judge: Judge, search: Search, decided: int) -> list[Decisions]:
    """Let a judge forget all that a search finds, and return the records as they are read."""
    records, is_last = list[Decisions](), False
    while not is_last:
        record = decode_decisions(encode_decisions(search.record()), 0)
        assert record.forgotten is not None
        judge.apply_apart(record, decided + len(records))
        is_last = search.note_forgotten(record.forgotten)
        records.append(record)
    return records


def erase(state: State) -> None:
    """Erase what was forgotten, if that is not done."""
    if state.meta.forgetting.erased < state.meta.forgetting.decided:
        while state.blank():
            pass
        state.compact()
        state.note_erased(state.erasable)
        assert state.meta.forgetting.is_erased
        state.flush()


def ids_of(state: State, forgotten: Forgotten) -> set[int]:
    """The ids of forgotten pages, which are erased last."""
    return {
        page
        for log, numbers in zip(state.page_logs, forgotten.numbers, strict=True)
        for page in log.pages(numbers).words[:, 0].astype(np.int64).tolist()
    }
