"""Which value depends on which key: one key is changed, and rows are compared."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stream.fingerprint import seed as seeds
from stream.fingerprint.row import Row
from stream.fingerprint.scheme import Scheme
from stream.page_rows.page_fingerprinter import PageFingerprinter
from stream.pages.page import Page

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "fingerprint.md"
FIELDS = ("fingerprint", "uncertain", "sketch", "text_hash", "url_digest", "status", "length")
TEXTS = (
    "The ferry leaves the harbour at half past six, and whoever misses it waits until nine.",
    "清晨的码头很安静，渡船六点半离开港口。" * 3,
    "ท่าเรือยามเช้าเงียบ Ещё паром",
    " ".join(f"word{number}" for number in range(2_000)),
)
"""Short and long, in scripts that are cut in different ways."""
DERIVE = seeds._derive


def rows(monkeypatch: pytest.MonkeyPatch, options: dict[str, str], changed: str | None) -> list[Row]:
    """The rows of all texts, with the key of the purpose `changed` replaced. Sums of tokens, which units
    share, stay: their keys are the first 16 bytes."""

    def derive(seed: bytes, purpose: bytes, size: int) -> bytes:
        key, other = DERIVE(seed, purpose, size), DERIVE(seed[::-1], purpose, size)
        if purpose.decode() != changed:
            return key
        return key[:16] + other[16:] if changed == "tokens" else other

    secret = bytes(range(16))
    scheme = Scheme.of(options).with_seed(secret)
    keys = (seeds.hash_keys, seeds.unit_keys, seeds.text_key, seeds.feature_key)
    with monkeypatch.context() as patch:
        patch.setattr(seeds, "_derive", derive)
        for key in keys:
            key.cache_clear()
        fingerprinter = PageFingerprinter(scheme, secret)
        pages = [Page(url=f"http://example.com/{number}", text=text) for number, text in enumerate(TEXTS)]
        found = [*map(fingerprinter.page, pages)]
        batch = fingerprinter.texts(TEXTS)
    for key in keys:
        key.cache_clear()
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
