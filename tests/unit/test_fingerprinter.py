"""A page becomes one row, whatever it is; outputs are pinned."""

from __future__ import annotations

import subprocess
import sys

import pytest
import xxhash

from stream.fingerprint.row import NO_HASH, Status
from stream.fingerprint.scheme import Scheme
from stream.page_rows.page_fingerprinter import PageFingerprinter
from stream.pages.page import Page
from tests.url_digests import digest_of_url

LIMIT = 1 << 20
ENGLISH = """A crawler meets the same article under many addresses. It should keep the first, point the others
to it, and notice when a page that it has seen before says something new. Order once, then decide
deterministically: the journal gives every page one place, and the verdict follows from what came before."""
CHINESE = """同一篇文章常常以许多不同的地址出现在网络上。爬虫应当保留最先看到的那一篇，把其余的指向它，
并且在曾经见过的页面说出新的内容时有所察觉。先排定一次顺序，然后按照确定的规则判断：
日志给每个页面一个唯一的位置，而结论完全取决于在它之前到来的页面。这样，无论程序在哪里中断，重新启动以后得到的结果总是相同的。"""
JAPANESE = """同じ記事が多くの異なるアドレスで現れることはよくあります。クローラーは最初のものを残し、
残りをそれに結び付け、以前に見たページが新しい内容になったときに気づくべきです。"""

E_COM = ("http://e.com", "http://e.com/")
ENGLISH_PRINT = "22c497c1716b76aa"
CHINESE_PRINT = "d37da2cef4d15250"
GOLDEN = {  # text, scheme, fingerprint, hash of the sketch, text hash, tokens
    "english": (ENGLISH, {}, ENGLISH_PRINT, "b540791403e6c5b6", "593b5b90785afc23fdb25f5a4da2edcb", 52),
    "chinese": (CHINESE, {}, CHINESE_PRINT, "736913c3bbd491b8", "7cb8f68987d93715020a23e240d776ec", 81),
    "japanese": (
        JAPANESE, {}, "c14f92ae76deec45", "1fd72a0581146c4d",
        "e605198f1575fd56f8ad49c002ce2733", 58,
    ),
    "chinese by jieba": (
        CHINESE, {"segmenter": "jieba"}, CHINESE_PRINT, "736913c3bbd491b8",
        "7cb8f68987d93715020a23e240d776ec", 81,
    ),
    "chinese 256 x 2": (
        CHINESE, {"sketch": "minhash", "sketch_bins": 256, "sketch_bits": 2}, CHINESE_PRINT,
        "f0d4fd5d139d69bf", "7cb8f68987d93715020a23e240d776ec", 81,
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def fingerprinter() -> PageFingerprinter:
    return PageFingerprinter()


def test_a_short_page_is_insufficient_and_keeps_its_text_hash(fingerprinter: PageFingerprinter) -> None:
    row = fingerprinter.page(Page(url="http://E.com/#x", text="Page not found", fetched_at=7))
    assert (row.status, row.url, row.fetched_at) == (1, "http://E.com/#x", 7)
    assert row.url_digest == digest_of_url("http://e.com/")
    assert row.fingerprint == 0
    assert row.text_hash == fingerprinter.text("page NOT found").text_hash != NO_HASH


def test_a_page_is_short_with_fewer_than_short_tokens() -> None:
    text = "harbour lighthouse storm pier boat tide gull rope sail net"
    tokens = PageFingerprinter().text(text).tokens
    found = [PageFingerprinter(Scheme(short_tokens=least)) for least in (tokens, tokens + 1)]
    assert [each.status(each.text(text)) for each in found] == [Status.READY, Status.SHORT]


@pytest.mark.parametrize(
    ("value", "reason", "url", "key"),
    [
        (None, "empty_message", None, None),
        (b'{"url": "http://e.com"}', "missing_field", *E_COM),
        (b'{"url": "http://e.com", "body": "", "charset": "x"}', "unknown_charset", *E_COM),
        (b'{"url": "no url", "text": ""}', "bad_url", "no url", None),
        (b'{"url": "no url", "text": 5}', "wrong_type", "no url", None),
        (b'{"url": "http://e.com/' + b"a" * 9000 + b'", "text": ""}', "bad_url", None, None),
    ],
)
def test_a_page_that_cannot_be_used_is_rejected_with_a_reason(
    value: bytes | None, reason: str, url: str | None, key: str | None, fingerprinter: PageFingerprinter
) -> None:
    row = fingerprinter.message(value, LIMIT)
    assert (row.status, row.reason, row.url) == (Status.REJECTED, reason, url)
    assert row.url_digest == digest_of_url(key)
    assert row.detail is None or len(row.detail) <= 500


@pytest.mark.parametrize("name", GOLDEN)
def test_output_is_what_it_was(name: str) -> None:
    """A failure here means that fingerprints changed: raise that part's number in `scheme.BEHAVIOUR`."""
    text, options, fingerprint, sketch_hash, text_hash, count = GOLDEN[name]
    found = PageFingerprinter(Scheme.of(options)).text(text)
    assert f"{found.fingerprint:016x}" == fingerprint
    assert xxhash.xxh3_64_hexdigest(found.sketch) == sketch_hash
    assert found.text_hash.hex() == text_hash
    assert found.tokens == count


@pytest.mark.parametrize(
    "scheme",
    [Scheme(), Scheme(han_variants="folded"), Scheme(sketch="minhash")],
    ids=["default", "folded", "minhash"],
)
def test_a_batch_has_the_fingerprints_of_its_texts_one_by_one(scheme: Scheme) -> None:
    fingerprinter = PageFingerprinter(scheme)
    texts = [ENGLISH, CHINESE, "漢語與漢字，傳統的寫法" * 9, JAPANESE, ""]
    texts += ["ไทย e\u0301 \ud800", "汉" * 70_000]
    for batch in (texts, [ENGLISH, "", "x y"]):
        assert fingerprinter.texts(batch) == list(map(fingerprinter.text, batch))


def test_after_warming_up_no_page_waits_for_the_compiler() -> None:
    script = """
import gc, random
from numba.core.dispatcher import Dispatcher
from stream.page_rows.page_fingerprinter import PageFingerprinter
from stream.pages.page import Page
from stream.pages.page import Page

def loaded():
    return {id(one): len(one.signatures) for one in gc.get_objects() if isinstance(one, Dispatcher)}

fingerprinter = PageFingerprinter()
fingerprinter.warm()
before = loaded()
assert before
parts = ["plain words ", "中文句子", "e\u0301", "ﬃ", "ไทย", "한국어 ", "か゚な", "क्षि ", "\u200d", "<p>"]
chosen = random.Random(6)
texts = ["".join(chosen.choices(parts, k=size)) for size in (0, 1, 2, 5, 50, 500, 30_000) for _ in range(9)]
fingerprinter.texts(texts)
for text in texts:
    fingerprinter.page(Page(url="http://e.com/", text=text))
    fingerprinter.page(Page(url="http://e.com/", html=text))
assert loaded() == before
"""
    subprocess.run([sys.executable, "-c", script], check=True)
