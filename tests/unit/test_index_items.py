"""An index of a user's own items: dicts, names that are numbers, what is removed, and what is refused."""

from __future__ import annotations

import base64
import subprocess
import sys
from collections import OrderedDict
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from stream import Index, Page, Scheme, VerdictOptions
from stream.errors import PageError, SchemeMismatchError, SettingsError, StateError
from stream.judge.state.state import State
from stream.local.index import _genesis

HARBOUR = (
    "The harbour authority will repair the old lighthouse on the north pier before the winter storms arrive."
)
MARKET = (
    "On Saturday the market square belongs to bakers, beekeepers and one patient knife grinder who sings."
)
URL = "http://a.example/"
ITEMS: list[tuple[Any, str, str | None]] = [  # item, name in the answer, reason
    ({"url": URL, "text": HARBOUR}, URL, None),
    (OrderedDict(url=URL, html=f"<p>{HARBOUR}", other=object(), quality="high"), URL, None),
    ({"url": URL, "body": HARBOUR.encode()}, URL, None),
    ({"url": URL, "body": base64.b64encode(HARBOUR.encode()).decode()}, URL, None),
    ({"url": URL, "body": bytearray(HARBOUR.encode()), "text": None}, URL, None),
    ({"url": URL, "html": memoryview(f"<p>{HARBOUR}".encode())}, URL, None),
    ({"url": np.str_(URL), "text": np.str_(HARBOUR), "fetched_at": np.int64(5)}, URL, None),
    ({"url": URL, "text": HARBOUR, "fetched_at": datetime(2026, 1, 2, tzinfo=UTC)}, URL, None),
    ({"url": URL, "body": HARBOUR.encode(), "content_encoding": "identity"}, URL, None),
    ({"url": URL, "text": HARBOUR, 5: 6, None: 7}, URL, None),
    ({"url": URL, "text": 5}, URL, "wrong_type"),
    ({"url": 5, "text": HARBOUR}, "", "wrong_type"),
    ({"url": URL, "text": HARBOUR, "fetched_at": object()}, URL, "wrong_type"),
    ({"url": URL, "body": HARBOUR}, URL, "bad_base64"),
    ({"text": HARBOUR}, "", "missing_field"),
    ({}, "", "missing_field"),
    ((17, HARBOUR), "17", None),
    ((-3, HARBOUR), "-3", None),
    ((np.uint64(2**64 - 1), HARBOUR), "18446744073709551615", None),
    (("", HARBOUR), "", None),
    (("a\ud800", HARBOUR), "a\ufffd", None),
    ((True, HARBOUR), "", "wrong_type"),
    ((10**5000, HARBOUR), "", "wrong_type"),
    ((None, HARBOUR), "", "wrong_type"),
    (((1, 2), HARBOUR), "", "wrong_type"),
    ((np.array([1, 2]), HARBOUR), "", "wrong_type"),
    (("a", None), "a", "wrong_type"),
    (("a", HARBOUR.encode()), "a", "wrong_type"),
    (("a", HARBOUR, "c"), "", "wrong_type"),
    (("a",), "", "wrong_type"),
    ((), "", "wrong_type"),
    ("ab", "", "wrong_type"),
    ({"a", "b"}, "", "wrong_type"),
    (None, "", "wrong_type"),
    (object(), "", "wrong_type"),
    (Page(url=URL, text=5), URL, "wrong_type"),  # type: ignore[arg-type]
]


def verdicts(index: Index, *items: Any) -> list[str]:
    return [each.verdict for each in index.add_all(items)]


@pytest.mark.parametrize(("item", "name", "reason"), ITEMS, ids=lambda each: type(each).__name__)
def test_items_of_every_type_are_judged_or_rejected_beside_others(
    item: Any, name: str, reason: str | None
) -> None:
    with Index() as index:
        before, answer, after = index.add_all([("first", HARBOUR), item, ("last", MARKET)])
        assert (answer.name, answer.reason) == (name, reason)
        assert answer.verdict == ("duplicate" if reason is None else "rejected")
        assert (before.verdict, after.verdict) == ("unique", "unique")


def test_an_item_alone_is_read_as_among_others() -> None:
    with Index() as index:
        assert index.add(17, HARBOUR).verdict == "unique"
        assert index.add("17", HARBOUR).verdict == "recrawl"
        assert index.add_page({"url": URL, "text": HARBOUR}).duplicate_of == "17"
        assert [each.name for each in index.near({"url": URL, "text": HARBOUR})] == ["17"]
        for odd in (5, None, [HARBOUR], {"url": URL}):
            with pytest.raises(PageError):
                index.near(odd)  # type: ignore[arg-type]


def test_what_is_removed_is_as_if_it_had_not_been_added(tmp_path: Path) -> None:
    with Index(tmp_path / "index") as index:
        assert verdicts(index, ("a", HARBOUR), ("b", HARBOUR), ("c", MARKET), (17, "short")) == [
            "unique", "duplicate", "unique", "insufficient",
        ]  # fmt: skip
        assert index.remove("a") == 1
        assert (index.near(HARBOUR), [each.name for each in index.near(MARKET)]) == ([], ["c"])
        assert verdicts(index, ("d", HARBOUR), ("a", HARBOUR)) == ["unique", "duplicate"]
        assert [index.remove(name) for name in ("a", "a", "never there", 17)] == [1, 0, 0, 0]
        assert len(index) == 6
    with Index(tmp_path / "index") as index:
        assert index.remove_all(["d", "b", "d"]) == 2
        assert index.remove_all([]) == 0
        assert verdicts(index, ("e", HARBOUR), ("c", MARKET)) == ["unique", "recrawl"]


def test_all_versions_of_a_name_are_removed_under_any_spelling_of_its_url(tmp_path: Path) -> None:
    with Index(tmp_path / "index") as index:
        for text in (HARBOUR, MARKET, " ".join(sorted(HARBOUR.split()))):
            index.add("http://A.example:80/x?b=1&a=2", text)
        assert index.remove("http://a.example/x?a=2&b=1#top") == 3
        assert verdicts(index, ("m", MARKET), ("h", HARBOUR)) == ["unique", "unique"]


def test_nothing_of_what_was_removed_is_on_disk(tmp_path: Path) -> None:
    name = "http://victim.example/people/1"
    with Index(tmp_path / "index") as index:
        verdicts(
            index, *((f"http://h{n}.example/", f"{MARKET} {n} {'x' * n}") for n in range(50)), (name, HARBOUR)
        )
        index.flush()
        index.remove(name)
    files = [each for each in (tmp_path / "index").rglob("*") if each.is_file()]
    assert [each for each in files if b"victim" in each.read_bytes()] == []


KILLED = """
import os, sys
from stream import Index
index = Index(sys.argv[1])
index.add_all([])
list(index.add_all([("a", sys.argv[2]), ("b", sys.argv[3])]))
index.remove("a")
os.kill(os.getpid(), 9)
"""


def test_a_removal_is_durable_when_it_returns(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, tmp_path / "index", HARBOUR, MARKET], check=False)
    assert done.returncode == -9
    with Index(tmp_path / "index") as index:
        assert len(index) == 2
        assert (index.near(HARBOUR), [each.name for each in index.near(MARKET)]) == ([], ["b"])
        assert verdicts(index, ("c", HARBOUR)) == ["unique"]


def test_a_removal_that_was_killed_while_it_erased_is_finished_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(_: State) -> bool:
        raise KeyboardInterrupt

    index = Index(tmp_path / "index")
    index.add("http://victim.example/", HARBOUR)
    with monkeypatch.context() as patched:
        patched.setattr(State, "blank", killed)
        with pytest.raises(KeyboardInterrupt):
            index.remove("http://victim.example/")
    index.close()
    with Index(tmp_path / "index") as index:
        assert index._state.meta.forgetting.is_erased
        assert index.near(HARBOUR) == []
    files = [each for each in (tmp_path / "index").rglob("*") if each.is_file()]
    assert [each for each in files if b"victim" in each.read_bytes()] == []


def test_a_name_that_none_can_have_is_refused_before_anything_is_removed() -> None:
    with Index() as index:
        index.add("a", HARBOUR)
        for odd in (None, 1.5, b"a", True, ["a"]):
            with pytest.raises(PageError, match="wrong_type"):
                index.remove_all(["a", odd])  # type: ignore[list-item]
        assert len(index.near(HARBOUR)) == 1


def test_an_index_that_is_closed_says_so(tmp_path: Path) -> None:
    index = Index(tmp_path / "index")
    later = index.add_all([("a", HARBOUR)])
    with index:
        index.add("b", MARKET)
        index.close()
    index.close()
    for use in (
        lambda: index.add("a", HARBOUR), lambda: next(later), lambda: list(index.add_all([])),
        lambda: index.add_page(Page(url=URL, text=HARBOUR)), lambda: index.near(HARBOUR),
        lambda: index.remove("b"), index.flush, lambda: index.judge([]),
    ):  # fmt: skip
        with pytest.raises(StateError, match=r"index .*index: is closed"):
            use()
    assert (len(index), index.scheme) == (1, Scheme())
    with suppress(KeyError), Index(tmp_path / "index") as index:
        index.close()
        raise KeyError


OPTIONS: list[tuple[dict[str, Any], str]] = [
    *(({name: odd}, f"{name}=") for name in ("memory", "generation", "cache", "page_bytes")
      for odd in (-1, "1", 1.5, True, None)),
    ({"generation": 0}, "generation=0"),
    ({"page_bytes": 0}, "page_bytes=0"),
    ({"scheme": "words"}, "scheme: is a str"),
    ({"scheme": {}}, "scheme: is a dict"),
    ({"scheme": Scheme(width=17)}, "width"),  # type: ignore[arg-type]
    ({"scheme": Scheme(shingle="5")}, "shingle"),  # type: ignore[arg-type]
    ({"options": VerdictOptions}, "options: is a "),
    ({"options": {"distance": 3}}, "options: is a dict"),
    ({"options": VerdictOptions(similarity=0.5)}, "similarity"),  # type: ignore[arg-type]
    ({"options": VerdictOptions(similarity="abc")}, "similarity"),
    ({"options": VerdictOptions(mode="x")}, "mode"),  # type: ignore[arg-type]
    ({"options": VerdictOptions(baselines=0)}, "baselines"),
    ({"options": VerdictOptions(compared=-1)}, "compared"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "named"), OPTIONS, ids=str)
def test_options_are_checked_when_they_are_given(tmp_path: Path, given: dict[str, Any], named: str) -> None:
    with pytest.raises(SettingsError, match=named):
        Index(tmp_path / "index", **given)
    assert not (tmp_path / "index").exists()


def test_an_index_of_another_scheme_is_refused_by_the_options_that_differ(tmp_path: Path) -> None:
    path = tmp_path / "index"
    Index(path, options=VerdictOptions(baselines=3)).close()
    with pytest.raises(SchemeMismatchError, match=r"shingle is 5, not 4, sketch_bins is 1920, not 64; "):
        Index(path, scheme=Scheme(shingle=4, sketch_bins=64))
    with pytest.raises(
        SchemeMismatchError, match=r"verdict options: compared is 64, not 0, baselines is 3, not 2; "
    ):
        Index(path, options=VerdictOptions(compared=0))
    (tmp_path / "file").touch()
    with pytest.raises(StateError, match="file: is a file"):
        Index(tmp_path / "file")
    genesis, _ = _genesis(path, None, None)
    other = msgspec.structs.replace(genesis, scheme_id="0123456789abcdef")
    (path / "genesis").write_bytes(msgspec.msgpack.encode(other))
    for scheme in (None, Scheme()):
        with pytest.raises(SchemeMismatchError, match="0123456789abcdef: another version of neardup"):
            Index(path, scheme=scheme)
