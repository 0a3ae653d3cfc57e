"""Pages that mislead near-duplicate detectors, judged as in a crawl."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from stream.fingerprint.fingerprinter import Fingerprint
from stream.fingerprint.scheme import Scheme
from stream.judge.batch import Entry
from stream.judge.judge import Judge
from stream.judge.state.state import State
from stream.messages.journal import Rows, SourceRange
from stream.messages.verdict import VerdictRecord
from stream.messages.verdict_options import VerdictOptions
from stream.page_rows.page_fingerprinter import PageFingerprinter
from stream.pages.page import Page
from tests.genesis import genesis_of

CHINESE = """港口的灯塔建于上个世纪，至今仍由同一个家族看守。每天傍晚，守塔人登上许多级台阶，点亮那盏老灯，
然后在日志里写下风向、海浪和经过的船只。日志已经写满了四十多本，最早的一本纸页发黄，字迹却依然清楚。
有一年冬天，暴风雪持续了整整一个星期，补给船无法靠岸，他们靠储存的土豆和咸鱼度过了难关。"""


SEEDS = 6
"""Of the hashes of a template's pages."""


def text_of(seed: int, words: int = 120) -> str:
    """A text of words that are unique to a seed."""
    rng = random.Random(seed)
    return " ".join(
        f"{rng.choice('bdfgklmn')}{rng.choice('aeiou')}{rng.randrange(10**5):x}" for _ in range(words)
    )


def judged(
    texts: list[str], directory: Path, options: VerdictOptions | None = None, **scheme: object
) -> list[VerdictRecord]:
    """Verdicts on pages of different URLs, in order, a hundred per journal record."""
    fingerprinter = PageFingerprinter(Scheme(**scheme))  # type: ignore[arg-type]
    options = options or VerdictOptions()
    used = fingerprinter.scheme
    genesis = genesis_of(used, options)
    state = State(directory / "state", genesis, "here", memory=1 << 20, generation=10_000, cache=1 << 20)
    verdicts: list[VerdictRecord] = []
    try:
        judge = Judge(state, genesis)
        for start in range(0, len(texts), 100):
            rows = [
                fingerprinter.page(Page(url=f"http://e.com/{start + place}", text=text))
                for place, text in enumerate(texts[start : start + 100])
            ]
            end = start + len(rows)
            source = SourceRange("here", "pages", "0" * 32, 0, start, end, len(rows), opening=start == 0)
            columns = Rows.of(used, [source], rows, range(start, end), [None] * len(rows))
            entry = Entry(start // 100 + 1, 0, b"", columns)
            decided = judge.decide([entry])
            verdicts += decided.verdict_records()
            judge.apply([entry], decided.record())
    finally:
        state.close()
    return verdicts


def counted(verdicts: list[VerdictRecord]) -> Counter[str]:
    return Counter(each.verdict for each in verdicts)


@pytest.fixture(scope="module")
def fingerprinter() -> PageFingerprinter:
    return PageFingerprinter()


def same(a: Fingerprint, b: Fingerprint) -> bool:
    return (a.fingerprint, a.sketch) == (b.fingerprint, b.sketch)


def apart(a: Fingerprint, b: Fingerprint) -> int:
    return (a.fingerprint ^ b.fingerprint).bit_count()


@pytest.mark.parametrize("text", ["", " \n\t", "。", "Loading", "👍👍👍", "403 Forbidden", "正在加载"])
def test_empty_and_near_empty_pages_never_match_anything(text: str, tmp_path: Path) -> None:
    verdicts = judged([text, text, text_of(1)], tmp_path)
    assert [each.verdict for each in verdicts] == ["insufficient", "insufficient", "unique"]
    assert verdicts[0].text_hash == verdicts[1].text_hash != verdicts[2].text_hash


def test_a_cookie_wall_on_thousands_of_urls_is_one_cluster(tmp_path: Path) -> None:
    """Above the floor: one anchor, and so one bucket entry, however many pages."""
    wall = "We value your privacy. We and our partners store cookies on your device. Accept or manage."
    verdicts = judged([wall] * 2000, tmp_path)
    assert counted(verdicts) == {"unique": 1, "duplicate": 1999}
    assert len({each.cluster for each in verdicts}) == 1


def test_pages_of_one_template_are_no_duplicates_and_their_copies_are(tmp_path: Path) -> None:
    """Pages share three quarters of their words, so hundreds of them share buckets meant for a few."""
    template = text_of(0, 150).split()
    pages, copies = [], []
    for seed in range(1, 301):
        own = text_of(seed, 50).split()
        words = template[:75] + own[:25] + template[75:] + own[25:]
        pages.append(" ".join(words))
        copies.append(" ".join([*words[:180], "changed", *words[181:]]))
    found = 0
    for number in range(1, SEEDS + 1):  # which shingles are minima depends on the seed
        (directory := tmp_path / f"{number}").mkdir()
        (seed := directory / "seed").write_text(f"{number:032x}")
        verdicts = judged(pages + copies, directory, VerdictOptions(bucket_cap=6), seed_file=str(seed))
        assert counted(verdicts[:300]) == {"unique": 300}
        found += sum(
            copy.duplicate_of is not None and copy.duplicate_of.id == page.id
            for page, copy in zip(verdicts[:300], verdicts[300:], strict=True)
        )
    assert found >= 0.94 * SEEDS * 300, "of twelve seeds one finds 267 to 300, all together 0.958"


def test_one_heavy_term_does_not_make_pages_alike() -> None:
    """Two different pages repeat one word a hundred times. Weighted by its count, the word determines every
    bit; by the logarithm, some; by the square root of four occurrences at most, or with a cap, hardly any."""
    spam = " casino" * 100
    pages = [text_of(1) + spam, text_of(2) + spam]

    def distance(**options: object) -> int:
        fingerprinter = PageFingerprinter(Scheme(**options))  # type: ignore[arg-type]
        return apart(*map(fingerprinter.text, pages))

    assert distance(weights="tf") == 0
    assert distance(weights="log") > 3
    assert distance() > 16
    assert distance(weights="log", weight_cap=2) > 16


def test_a_token_repeated_is_that_token(tmp_path: Path) -> None:
    verdicts = judged(["spam " * 500, "spam " * 400, "ham " * 500], tmp_path)
    assert [each.verdict for each in verdicts] == ["unique", "duplicate", "unique"]


def test_traditional_and_simplified_copies_are_different_texts_unless_folded(
    fingerprinter: PageFingerprinter,
) -> None:
    simplified = "这个国家的图书馆里有许多关于历史与艺术的书籍，学生们经常来这里读书写字。"
    traditional = "這個國家的圖書館裡有許多關於歷史與藝術的書籍，學生們經常來這裡讀書寫字。"
    assert apart(fingerprinter.text(simplified), fingerprinter.text(traditional)) > 12
    folding = PageFingerprinter(Scheme(han_variants="folded"))
    one, other, plain = folding.text(simplified), folding.text(traditional), fingerprinter.text(simplified)
    assert same(one, other)
    assert same(one, plain)
    assert one.text_hash == other.text_hash
    assert folding.normalise("𠮷 é 한 ABC") == "𠮷 é 한 abc"


def test_a_mixed_page_is_found_again_with_a_part_changed(tmp_path: Path) -> None:
    japanese = "灯台守は毎晩、階段をのぼり、古いランプに火をともして、日誌に風向きと船の名前を書きます。"
    english = text_of(9, 60)
    mixed = f"{CHINESE}\n{english}\n{japanese}"
    verdicts = judged([mixed, mixed.replace("土豆", "萝卜"), f"{english}\n{japanese}"], tmp_path)
    assert [each.verdict for each in verdicts] == ["unique", "duplicate", "unique"]


@pytest.mark.parametrize(
    "letters",
    [
        [chr(point) for point in range(0x905, 0x93A)] + ["ि", "ी", "ु", "े", "्"],  # Devanagari
        [chr(point) for point in range(0xE01, 0xE2F)] + ["ิ", "ี", "ุ", "่", "้"],  # Thai
        [chr(point) for point in range(0x1780, 0x17B3)] + ["្", "ា", "ិ", "ំ"],  # Khmer
        [chr(point) for point in range(0x3042, 0x3090)],  # hiragana
        [chr(point) for point in range(0x5D0, 0x5EB)] + ["ְ", "ָ"],  # Hebrew, pointed
    ],
    ids=["hindi", "thai", "khmer", "kana", "hebrew"],
)
def test_unlike_pages_of_any_script_are_far_apart_and_like_ones_near(
    letters: list[str], fingerprinter: PageFingerprinter
) -> None:
    def page(seed: int) -> list[str]:
        rng = random.Random(seed)
        words = ["".join(rng.choices(letters, k=rng.randint(2, 9))) for _ in range(200)]
        return [word + " " * (rng.random() < (1 if letters[0] in "अא" else 0.1)) for word in words]

    one, other = page(1), page(2)
    changed = [*one[:100], *page(3)[:5], *one[105:]]
    a, b, c = (fingerprinter.text("".join(each)) for each in (one, changed, other))
    assert apart(a, b) <= 12
    assert apart(a, c) > 16


def product(number: int, words: int) -> str:
    """A product page: the description is all products', four numbers are its own."""
    rng = random.Random(number)
    price, weight, code, stock = (rng.randrange(10**6) for _ in range(4))
    return f"{text_of(77, words)} price {price} weight {weight} code {code} stock {stock}"


@pytest.mark.parametrize(("words", "verdict"), [(20, "unique"), (400, "duplicate")])
def test_pages_that_differ_in_numbers_are_judged_by_how_much_else_there_is(
    words: int, verdict: str, tmp_path: Path
) -> None:
    """Four changed words touch up to twenty 5-grams: J = 0.3 among 25 words, 0.97 among 400."""
    verdicts = judged([product(number, words) for number in range(1, 6)], tmp_path)
    assert [each.verdict for each in verdicts] == ["unique", *[verdict] * 4]


def test_pages_of_two_words_do_not_fall_together_by_ties(tmp_path: Path) -> None:
    """Half of all sums of two features are 0. Were those bits always 0, such pages would be near each other:
    the sketch tells them apart all the same."""
    texts = [" ".join(text_of(seed, 2).split() * 10) for seed in range(100)]
    assert counted(judged(texts, tmp_path)) == {"unique": 100}
