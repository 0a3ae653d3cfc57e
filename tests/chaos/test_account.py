"""The account finds what a driver must find: missing, repeated and different verdicts, and nothing else."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from tests.chaos.checker.account import Account
from tests.chaos.load import SentPage, SentPages

TOPIC = "a" * 32
JOURNAL = "f" * 32


def record(offsets: list[int], *, start: int, opening: bool = False, like: int = 0) -> bytes:
    """A record of one partition's pages; each is unlike the others, and like the one `like` offsets before,
    of which it has the URL."""
    count, pages = len(offsets), [offset - like for offset in offsets]
    urls = [f"http://a.example/{page}".encode() for page in pages]
    return msgspec.msgpack.encode(
        {
            "kind": "rows",
            "version": 6,
            "ranges": [["cluster", "pages", TOPIC, 0, start, offsets[-1] + 1, count, opening, False, 0]],
            "status": bytes(count),
            "length": bytes(4 * count),
            "fingerprint": b"".join((1 << 7 * each).to_bytes(8, "little") for each in range(count)),
            "sketch": b"".join(bytes(240) + bytes([page + 1] * 72) for page in pages),
            "offset": b"".join(each.to_bytes(8, "little") for each in offsets),
            "url": b"".join(len(url).to_bytes(4, "little") for url in urls),
            "url_digest": b"".join((page + 1).to_bytes(16, "little") for page in pages),
            "key": (-1).to_bytes(4, "little", signed=True) * count,
            "strings": b"".join(urls),
        }
    )


def decided(account: Account, end: int, requests: int | None = None) -> None:
    """Let the journal be decided up to an offset, or requests at that offset."""
    forgotten = None if requests is None else {"requests": requests}
    content = {"version": 4, "end": end, "turn": None, "forgotten": forgotten}
    account.take_decision(msgspec.msgpack.encode(content))


def journal(account: Account, value: bytes, offset: int) -> None:
    """Let the account take a record that is decided."""
    account.take_journal(value, offset)
    decided(account, offset + 1)


def verdict(offset: int, **other: Any) -> bytes:
    """What is right for a page of the first record."""
    name = f"ffffffff.1.{offset}"
    right = {
        "id": name, "url": f"http://a.example/{offset}", "verdict": "unique", "change": "new",
        "cluster": name, "duplicate_of": None, "distance": None, "similarity": None,
        "source": {"topic_id": TOPIC, "partition": 0, "offset": offset},
    }  # fmt: skip
    return json.dumps(right | other).encode()


@pytest.fixture
def sent() -> SentPages:
    """Three pages."""
    sent = SentPages()
    for offset in range(3):
        sent.give((TOPIC, 0, offset), SentPage(f"http://a.example/{offset}", str(offset)))
    return sent


@pytest.fixture
def account(sent: SentPages) -> Account:
    """Of a journal that has the three pages, the first of them once more."""
    account = Account({}, sent, JOURNAL)
    journal(account, record([0, 1, 2], start=0, opening=True), 1)
    journal(account, record([0], start=0), 2)
    return account


def wrong(account: Account) -> tuple[int, int, int]:
    found = account.conclude()
    return found.missing, found.repeated, found.different


def test_nothing_is_found_where_all_is_right(account: Account) -> None:
    for offset in (2, 0, 1):
        account.take_verdict(verdict(offset))
    assert wrong(account) == (0, 0, 0)


def test_a_page_without_a_verdict_is_missing(account: Account) -> None:
    account.take_verdict(verdict(0))
    account.take_verdict(verdict(2))
    assert wrong(account) == (1, 0, 0)


def test_a_second_verdict_is_repeated(account: Account) -> None:
    for offset in (0, 1, 2, 0):
        account.take_verdict(verdict(offset))
    assert wrong(account) == (0, 1, 0)


@pytest.mark.parametrize(
    "other",
    [
        {"verdict": "duplicate", "duplicate_of": {"id": "ffffffff.1.0", "url": ""}},
        {"id": "ffffffff.2.0"},
        {"cluster": "ffffffff.1.0"},
        {"change": "changed"},
        {"distance": 1},
        {"similarity": 0.9},
        {"url": "http://a.example/0"},
        {"verdict": "rejected"},
    ],
)
def test_any_other_verdict_is_different(account: Account, other: dict[str, Any]) -> None:
    account.take_verdict(verdict(0))
    account.take_verdict(verdict(1, **other))
    account.take_verdict(verdict(2))
    assert wrong(account)[:2] == (0, 0)
    assert account.findings.different >= 1


def test_a_verdict_of_a_page_that_nobody_journalled_is_different(account: Account) -> None:
    for offset in range(4):
        account.take_verdict(verdict(offset))
    assert wrong(account) == (0, 0, 1)


def test_a_verdict_of_a_page_that_nobody_sent_is_different() -> None:
    sent = SentPages()
    account = Account({}, sent, JOURNAL)
    journal(account, record([0, 1, 2], start=0, opening=True), 1)
    for offset in range(3):
        account.take_verdict(verdict(offset))
        if offset < 2:
            sent.give((TOPIC, 0, offset), SentPage(f"http://a.example/{offset}", str(offset)))
    assert wrong(account) == (0, 0, 1)


@pytest.mark.parametrize("deleted", [False, True])
def test_pages_declared_lost_are_excused_only_where_they_were_deleted(sent: SentPages, deleted: bool) -> None:
    account = Account({}, sent, JOURNAL)
    journal(account, record([2], start=2, opening=True), 1)
    account.take_verdict(verdict(2, id="ffffffff.1.0", cluster="ffffffff.1.0"))
    if deleted:
        sent.delete_below(TOPIC, 0, 2)
    assert wrong(account) == (0 if deleted else 2, 0, 0)


def test_pages_that_were_deleted_and_not_declared_lost_are_missing(account: Account, sent: SentPages) -> None:
    sent.delete_below(TOPIC, 0, 2)
    account.take_verdict(verdict(2))
    assert wrong(account) == (2, 0, 0)


def test_what_lies_behind_a_gap_is_not_admitted(account: Account) -> None:
    for offset in range(3):
        account.take_verdict(verdict(offset))
    journal(account, record([7], start=5), 3)
    account.take_verdict(verdict(7))
    assert wrong(account) == (0, 0, 1)


NAMES_IT: dict[str, Any] = {
    "verdict": "recrawl", "change": "unchanged", "cluster": "ffffffff.1.0", "distance": 0, "similarity": 1.0,
    "duplicate_of": {"id": "ffffffff.1.0", "url": "http://a.example/0"},
}  # fmt: skip


@pytest.mark.parametrize(("other", "different"), [(NAMES_IT, 1), ({"cluster": "ffffffff.3.0"}, 0)])
def test_a_verdict_that_names_a_forgotten_page_is_different(
    account: Account, sent: SentPages, other: dict[str, Any], different: int
) -> None:
    for offset in range(3):
        account.take_verdict(verdict(offset))
    sent.give((TOPIC, 0, 3), SentPage("http://a.example/0", "0"))
    request = {"forget": "url", "digest": (1).to_bytes(16, "little").hex()}
    account.take_request(json.dumps(request).encode(), 4)
    decided(account, 3, requests=5)
    assert account.forgotten == {"ffffffff.1.0"}
    journal(account, record([3], start=3, like=3), 3)
    account.take_verdict(verdict(3, id="ffffffff.3.0", url="http://a.example/0", **other))
    assert wrong(account) == (0, 0, different)
