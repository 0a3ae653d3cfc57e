"""The embedded index gives the verdicts of a deployment."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from stream import Answer, Index, Page, PageError, Scheme, VerdictOptions
from stream.errors import SchemeMismatchError, StateBusyError, StateError
from stream.judge.state.live import live_anchors
from stream.judge.state.meta import VERSION
from stream.tables.store.meta_record import META
from stream.tables.store.rocks import Store

HARBOUR = "The harbour authority will repair the old lighthouse at the north pier before the winter storms. "
MARKET = "On Saturday the market square belongs to bakers, beekeepers and one very patient knife grinder. "


def told(answer: Answer) -> tuple[str, str | None, str | None]:
    return answer.verdict, answer.change, answer.duplicate_of


def test_a_near_duplicate_names_its_anchor_and_a_name_that_comes_again_is_a_recrawl() -> None:
    with Index() as index:
        first = index.add("a", HARBOUR * 3)
        second = index.add("b", HARBOUR.upper() * 3)
        assert told(first) == ("unique", "new", None)
        assert told(second) == ("duplicate", "new", "a")
        assert (second.cluster, second.distance, second.similarity) == (first.id, 0, 1.0)
        assert told(index.add("a", HARBOUR * 3)) == ("recrawl", "unchanged", "a")
        assert told(index.add("a", MARKET * 3)) == ("unique", "changed", None)
        assert told(index.add("c", HARBOUR * 3)) == ("unique", "new", None), "its anchor says something else"
        assert len(index) == 5


def test_a_unique_text_names_the_one_that_it_is_nearest_to() -> None:
    words = [f"word{number}" for number in range(60)]
    changed = [f"other{number}" if number in (20, 40) else word for number, word in enumerate(words)]
    far = [f"far{number}" if number % 6 == 0 else word for number, word in enumerate(words)]
    with Index() as index:
        texts = enumerate([words, changed, far])
        first, second, third = (index.add(str(number), " ".join(text)) for number, text in texts)
    # Of 56 shingles of five words, each of two words is in five.
    assert (first.nearest, told(second)) == (None, ("unique", "new", None))
    assert (second.nearest, second.nearest_similarity) == ("0", 46 * 10_000 // 66 / 10_000)
    assert (third.verdict, third.nearest) == ("unique", None), "no more than half is the same"
    with Index(options=VerdictOptions(evidence="0.7")) as index:
        index.add("a", " ".join(words))
        assert index.add("b", " ".join(changed)).nearest is None


def test_texts_and_pages_meet_and_equal_urls_are_one_name() -> None:
    with Index() as index:
        index.add("http://Example.com:80/news#top", HARBOUR)
        page = Page(url="http://example.com/news", html=f"<html><body><p>{HARBOUR}</p></body></html>")
        assert told(index.add_page(page))[:2] == ("recrawl", "unchanged")
        assert [each.name for each in index.near(page)] == ["http://Example.com:80/news#top"]


def test_what_is_asked_for_is_not_remembered() -> None:
    with Index() as index:
        assert index.near(HARBOUR) == []
        index.add("a", HARBOUR)
        near = index.near(HARBOUR)
        assert [(each.name, each.distance, each.similarity) for each in near] == [("a", 0, 1.0)]
        assert index.near(MARKET) == index.near("too short") == []
        assert len(index) == 1


def test_pages_that_cannot_be_used_are_answered_when_added_and_an_error_when_asked_for() -> None:
    picture = Page(url="http://example.com/p", body=b"\x89PNG", content_type="image/png")
    with Index() as index:
        answer = index.add_page(picture)
        assert (answer.verdict, answer.reason, answer.change) == ("rejected", "unsupported_content", None)
        assert index.add("short", "Loading").verdict == "insufficient"
        with pytest.raises(PageError, match="unsupported_content"):
            index.near(picture)


@pytest.mark.parametrize("url", ["http://\ud800/", "\udfff", 'http://"\x00\\\u2028é\x7f/'])
def test_a_page_whose_url_is_no_text_is_rejected_like_any_other(url: str) -> None:
    with Index() as index:
        answer = index.add_page(Page(url=url, text=HARBOUR))
        assert (answer.verdict, answer.reason) == ("rejected", "bad_url")
        assert answer.name == url.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def test_many_at_once_are_judged_as_one_by_one() -> None:
    items = [(f"n{i}", (HARBOUR if i % 3 else MARKET) * (1 + i % 5)) for i in range(40)]
    with Index() as one, Index() as many:
        assert [told(one.add(*item)) for item in items] == [told(each) for each in many.add_all(items)]


def test_a_directory_is_opened_again_as_it_was_closed(tmp_path: Path) -> None:
    options = VerdictOptions(baselines=3)
    with Index(tmp_path / "mine", options=options) as index:
        index.add("a", HARBOUR)
        with pytest.raises(StateBusyError):
            Index(tmp_path / "mine")
    with Index(tmp_path / "mine") as index:
        assert (len(index), index.options) == (1, options)
        assert told(index.add("b", HARBOUR)) == ("duplicate", "new", "a")
        assert told(index.add("a", HARBOUR)) == ("recrawl", "unchanged", "a")


def test_an_index_keeps_its_seed(tmp_path: Path) -> None:
    file = tmp_path / "seed"
    file.write_text("ab" * 16)
    text = "Each index has one seed and keeps it, whatever happens to the file that it was in."
    with Index(tmp_path / "index", scheme=Scheme(seed_file=str(file))) as index:
        index.add("one", text)
    with Index(tmp_path / "index", scheme=Scheme(seed_file=str(file))) as index:
        assert index.add("two", text).duplicate_of == "one"
    file.unlink()
    with Index(tmp_path / "index") as index:
        assert index.add("three", text).duplicate_of == "one"
        assert index.seed == b"\xab" * 16
    with pytest.raises(SchemeMismatchError, match="has scheme"):
        Index(tmp_path / "index", scheme=Scheme())


def test_an_index_of_another_version_is_refused(tmp_path: Path) -> None:
    Index(tmp_path / "mine").close()
    genesis = tmp_path / "mine" / "genesis"
    genesis.write_bytes(msgspec.msgpack.encode(msgspec.msgpack.decode(genesis.read_bytes()) | {"version": 2}))
    with pytest.raises(
        StateError, match=r"another version of neardup made it; make a new one .* has version 2"
    ):
        Index(tmp_path / "mine")


@pytest.mark.parametrize("change", [{"version": VERSION - 1}, {"sketch_bytes": None}])
def test_a_state_of_another_version_is_refused(tmp_path: Path, change: dict[str, int | None]) -> None:
    Index(tmp_path / "mine").close()
    (path,) = (found.parent for found in (tmp_path / "mine").rglob("CURRENT"))
    with Store(path, 1 << 20) as store:
        (meta,) = store.get("default", [META])
        writes = store.batch()
        writes.put("default", META, msgspec.msgpack.encode(msgspec.msgpack.decode(meta or b"") | change))
        writes.put("default", b"pages/anchors", (5).to_bytes(8, "little"))  # where formats put it differs
        store.write(writes)
    said = (
        rf"another version made it \(format {change.get('version', VERSION)}; this program reads {VERSION}\)"
    )
    with pytest.raises(StateError, match=said):
        Index(tmp_path / "mine")
    with pytest.raises(StateError, match="another version made it"):
        live_anchors(path)


def test_a_state_whose_records_do_not_fit_its_tables_is_refused(tmp_path: Path) -> None:
    with Index(tmp_path / "mine") as index:
        index.add("a", HARBOUR)
    (path,) = (found.parent for found in (tmp_path / "mine").rglob("CURRENT"))
    with Store(path, 1 << 20) as store:
        writes = store.batch()
        writes.delete("default", b"pages/anchors")
        store.write(writes)
    with pytest.raises(StateError, match=r"anchors \[0, 1\) in the tables, but records of \[0, 0\)"):
        Index(tmp_path / "mine")
