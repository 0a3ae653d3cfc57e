"""Faults found by fuzzing: each input that a decoder failed on, and its outcome now."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import count

import msgspec
import pytest

from stream.fingerprint.row import Status
from tests.fuzz.decoders.decisions import DecisionRecords
from tests.fuzz.decoders.journal import JournalRecords, record
from tests.fuzz.decoders.requests import TOKEN, Requests


@pytest.fixture(scope="module")
def decisions() -> Iterator[DecisionRecords]:
    with DecisionRecords() as decoder:
        yield decoder


@pytest.mark.parametrize(
    ("change", "came"),
    [
        (lambda tree: tree | {"clusters": tree["clusters"] + b"\0"}, "refused"),
        (lambda tree: tree | {"clusters": tree["clusters"] + bytes(8)}, "does not fit"),
        (lambda tree: tree | {"codes": b"\x06" + tree["codes"][1:]}, "does not fit"),
        (lambda tree: tree | {"other": b"\xff" * len(tree["other"])}, "does not fit"),
        (lambda tree: tree | {"other": b"\x07" * len(tree["other"])}, "does not fit"),
        (lambda tree: tree | {"other": bytes(len(tree["other"]))}, "does not fit"),
        (lambda tree: tree | {"numbers": b"\x07" * len(tree["numbers"])}, "does not fit"),
        (lambda tree: tree | {"skipped": [[99, 1]]}, "does not fit"),
        (lambda tree: tree | {"skipped": [[0, 1 << 40]]}, "does not fit"),
        (lambda tree: tree | {"superseded": [[0, 99]]}, "does not fit"),
    ],
)
def test_decisions_that_no_judge_makes_are_refused(
    decisions: DecisionRecords, change: Callable[[dict[str, object]], object], came: str
) -> None:
    number = next(n for n in range(16) if decisions.whole(n)["other"])
    data = msgspec.msgpack.encode(change(decisions.whole(number)))
    assert decisions.check(bytes([number]) + data) == came


@pytest.mark.parametrize("column", ["fingerprint", "sketch"])
def test_rows_as_wide_as_their_scheme_makes_none_are_refused(column: str) -> None:
    trees = (msgspec.msgpack.decode(record(random.Random(number))) for number in count())
    tree = next(each for each in trees if each["status"] == bytes([Status.READY]))
    with JournalRecords() as decoder:
        data = msgspec.msgpack.encode(tree | {column: tree[column] * 2})
        assert decoder.check(data) == "RecordError"


@pytest.mark.parametrize(
    ("headers", "status"),
    [({"host": "["}, "421"), ({"host": "[::1"}, "421"), ({"origin": "http://["}, "403")],
)
def test_headers_that_are_no_url_are_no_internal_error(headers: dict[str, str], status: str) -> None:
    asked = {
        "method": "POST", "target": "/api/v1/lookup", "host": "127.0.0.1", "credentials": f"Bearer {TOKEN}",
        "cookie": "", "type": "application/json", "origin": "", "body": b"{}",
    }  # fmt: skip
    with Requests() as decoder:
        assert decoder.check(msgspec.json.encode(asked | headers)) == status


def test_inputs_are_the_same_for_the_same_numbers() -> None:
    assert record(random.Random(7)) == record(random.Random(7))
