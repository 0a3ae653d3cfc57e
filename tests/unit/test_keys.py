"""Which value depends on which key: one key is changed, and rows are compared."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stream import Index
from stream.fingerprint import seed as seeds
from stream.fingerprint.row import Row
from stream.fingerprint.scheme import Scheme
from stream.messages.verdict_options import VerdictOptions
from stream.page_rows.page_fingerprinter import PageFingerprinter
from stream.pages.page import Page

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "fingerprint.md"
FIELDS = ("fingerprint", "sketch", "text_hash", "url_digest", "status", "length")
TEXTS = (
    "The ferry leaves the harbour at half past six, and whoever misses it waits until nine.",
    "清晨的码头很安静，渡船六点半离开港口。" * 3,
    "ท่าเรือยามเช้าเงียบ Ещё паром",
    " ".join(f"word{number}" for number in range(2_000)),
)
"""Short and long, in scripts that are cut in different ways."""
DERIVE = seeds._derive
SECRET = bytes(range(16))


@contextmanager
def other_key(monkeypatch: pytest.MonkeyPatch, changed: str | None) -> Iterator[None]:
    """Replace the key of the purpose `changed`. Sums of tokens, which units share, stay: their keys are the
    first 16 bytes."""

    def derive(seed: bytes, purpose: bytes, size: int) -> bytes:
        key, other = DERIVE(seed, purpose, size), DERIVE(seed[::-1], purpose, size)
        if purpose.decode() != changed:
            return key
        return key[:16] + other[16:] if changed == "tokens" else other

    keys = (seeds.hash_keys, seeds.unit_keys, seeds.text_key, seeds.feature_key)
    with monkeypatch.context() as patch:
        patch.setattr(seeds, "_derive", derive)
        for key in keys:
            key.cache_clear()
        yield
    for key in keys:
        key.cache_clear()


def rows(monkeypatch: pytest.MonkeyPatch, options: dict[str, str], changed: str | None) -> list[Row]:
    with other_key(monkeypatch, changed):
        fingerprinter = PageFingerprinter(Scheme.of(options).with_seed(SECRET), SECRET)
        pages = [Page(url=f"http://example.com/{number}", text=text) for number, text in enumerate(TEXTS)]
        found = [*map(fingerprinter.page, pages)]
        batch = fingerprinter.texts(TEXTS)
    assert [row.sketch for row in found] == [each.sketch for each in batch]
    return found


def listed() -> dict[str, set[str]]:
    """The fields of rows by the key that they depend on, as the page says it."""
    lines = re.findall(r"^\| `(\w+)`[^|]* \| (`[^|]*) \| `[^|]* \|$", PAGE.read_text("utf-8"), re.MULTILINE)
    return {key: set(re.findall(r"`(\w+)`", fields)) & set(FIELDS) for key, fields in lines}


@pytest.mark.parametrize("key", ["tokens", "units", "text", "features"])
def test_a_key_changes_what_the_page_says_and_nothing_else(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"hash": "md5"} if key == "features" else {}
    before, after = rows(monkeypatch, options, None), rows(monkeypatch, options, key)
    for one, other in zip(before, after, strict=True):
        assert {name for name in FIELDS if getattr(one, name) != getattr(other, name)} == listed()[key]


def verdicts(monkeypatch: pytest.MonkeyPatch, disclosure: Any, changed: str | None, tmp_path: Path) -> Any:
    """What verdicts on some texts, copies of them and texts that are nearly alike say."""
    (file := tmp_path / "seed").write_text(SECRET.hex())
    texts = [" ".join(f"{letter}{number}" for number in range(300)) for letter in "abc"]
    other = " ".join(f"other{number}" for number in range(150))
    texts += [f"{text} and {ending}" for text in texts for ending in ("more", other)]
    options = VerdictOptions(disclosure=disclosure)
    with (
        other_key(monkeypatch, changed),
        Index(scheme=Scheme(seed_file=str(file)), options=options) as index,
    ):
        named = [(f"http://example.com/{number}", text) for number, text in enumerate(texts)]
        records = [msgspec.to_builtins(each) for each in index.judge(index._rows(named)).verdict_records()]
    for record in records:  # without the journal, which is another one each time, and the time
        del record["decided_at"]
        record["id"], record["cluster"] = record["id"][8:], record["cluster"][8:]
        for name in ("duplicate_of", "nearest"):
            if record.get(name):
                record[name]["id"] = record[name]["id"][8:]
    return records


@pytest.mark.parametrize(
    ("disclosure", "changed"),
    [
        ("internal", {"tokens": {"fingerprint", "distance"}, "text": {"text_hash"}}),
        ("public", {"tokens": set[str](), "text": {"text_hash"}}),
    ],
)
def test_a_verdict_depends_on_the_key_of_its_units(
    disclosure: str, changed: dict[str, set[str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before = verdicts(monkeypatch, disclosure, None, tmp_path)
    assert {each["verdict"] for each in before} == {"unique", "duplicate"}
    for key, fields in changed.items():
        after = verdicts(monkeypatch, disclosure, key, tmp_path)
        different = {
            name for one, other in zip(before, after, strict=True) for name in one if one[name] != other[name]
        }
        assert different == fields


def test_public_verdicts_are_the_same_and_say_less(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    internal, public = (verdicts(monkeypatch, each, None, tmp_path) for each in ("internal", "public"))
    assert any("nearest" in each for each in internal)
    for one, other in zip(internal, public, strict=True):
        assert (other["fingerprint"], other["distance"], "nearest" in other) == (None, None, False)
        assert one["similarity"] is None or abs(one["similarity"] - other["similarity"]) <= 0.005
        assert other["similarity"] is None or other["similarity"] == round(other["similarity"], 2)
        left_out = ("fingerprint", "distance", "similarity", "nearest")
        assert {name: one[name] for name in one if name not in left_out} == {
            name: other[name] for name in other if name not in left_out
        }
