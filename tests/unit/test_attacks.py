"""Attacks by somebody who knows all code, and more than verdicts tell: the hash of every token.

The fingerprint of a page of one word is the hash of that word. What decides has a key of its own, so the
attacks succeed where units have the key of tokens, as the controls show, and with separate keys no better
than random edits of the same size. Those on the hash itself are computed against the public seed.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pytest
from numpy.typing import NDArray

from stream import Index, Scheme, VerdictOptions
from stream.fingerprint import fingerprinter as of_texts
from stream.fingerprint.default_weights import features
from stream.fingerprint.fingerprinter import Fingerprinter
from stream.fingerprint.keyed_hashes import HashKeys, hash_tokens, mix
from stream.fingerprint.minima import FIRST_MINIMA, MINIMA, THIRTIETHS, TRIANGLE
from stream.fingerprint.seed import PUBLIC_SEED, hash_keys
from stream.fingerprint.simhash import bit_sums
from stream.fingerprint.sketch import SHINGLE_BASE, shingles
from stream.fingerprint.small_sets import BIN_BITS, low_bits
from tests.night import cases

KEYS = hash_keys(PUBLIC_SEED)
Disclosure = Literal["internal", "public"]
DISCLOSURES: tuple[Disclosure, Disclosure] = get_args(Disclosure)
SEEDS = [f"{number:032x}" for number in range(1, 11)]
FIRST, LAST = 0xAC00, 0xD7A3  # Hangul syllables: many letters in a row
LETTERS = 8
ARTICLES = 7
LANGUAGES = {
    "english": ("abcdefghijklmnoprstuvwz", 7, " "),
    "russian": ("абвгдежзийклмнопрстуфхцчшщыэюя", 6, " "),
    "chinese": ("".join(map(chr, range(0x4E00, 0x4E00 + 6_000))), 1, ""),
}
"""Letters, length of words, and what stands between words, of which each is a unit."""
WORDS = 6_000
"""Of a language. Pages have the first half of them, and forged ones the second."""
PAGES = 10
UNITS = 300
BINS = Scheme().sketch_bins
THIRTIETH = 2**32 // MINIMA


@pytest.fixture(params=cases(range(len(SEEDS)), by_day=range(3)))
def secret(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Index]:
    """Every other one discloses what anybody may read."""
    with index_of(SEEDS[request.param], tmp_path, DISCLOSURES[request.param % 2]) as index:
        yield index


def index_of(seed: str, directory: Path, disclosure: Disclosure = "internal") -> Index:
    file = directory / "seed"
    file.write_text(seed)
    return Index(scheme=Scheme(seed_file=str(file)), options=VerdictOptions(disclosure=disclosure))


def article(number: int) -> list[str]:
    """300 words of an invented language, all different."""
    rng = np.random.default_rng(number)
    letters = rng.choice(list("abcdefghijklmnoprstuvwz"), (300, 7))
    return ["".join(word) for word in letters.tolist()]


class Attacker:
    """Has learned the hashes of all words of a language under a seed, and takes their lowest 32 bits for the
    hashes of units. Words are numbers from 0 on."""

    def __init__(self, language: str, seed: str) -> None:
        letters, length, self.between = LANGUAGES[language]
        self.rng = np.random.default_rng(int(seed, 16))
        drawn = self.rng.permuted(np.tile(list(letters), (1 if length == 1 else WORDS, 1)), axis=1)
        self.words = drawn[0].tolist() if length == 1 else ["".join(each) for each in drawn[:, :length]]
        hashes = hash_tokens([word.encode() for word in self.words], hash_keys(bytes.fromhex(seed)))
        self.units = hashes.astype(np.uint32)
        self.moves = bits_of(hashes) * 2 - 1

    def page(self) -> list[int]:
        return self.rng.integers(0, WORDS // 2, UNITS).tolist()

    def text(self, words: list[int]) -> str:
        return self.between.join(self.words[word] for word in words)

    def shingles_after(self, fours: Any, words: NDArray[np.int64]) -> NDArray[np.uint64]:
        """The shingles (..., words) of each four words (..., 4) and each of `words`, as the attacker
        believes."""
        units = self.units[np.asarray(fours)]
        begun = np.zeros((*units.shape[:-1], 1), np.uint32)
        for place in range(4):
            begun = (begun + units[..., place, None]) * SHINGLE_BASE
        return mix(begun + self.units[words]).astype(np.uint64)

    def suffix(self, after: list[int]) -> list[int]:
        """Words that take two minima of each triangle by which any page is found, after the last words of a
        page, or after four words of their own."""
        every = np.arange(WORDS // 2)
        suffix = [] if after else self.page()[:4]
        before, free = [*after, *suffix][-4:], set(range(FIRST_MINIMA))
        for _ in range(6):
            hashes = self.shingles_after(before, every)
            above = {each: (hashes - np.uint64(THIRTIETHS[each] * THIRTIETH)) % 2**32 for each in free}
            taken = min(free, key=lambda each: above[each].min())
            word = int(above[taken].argmin())
            free.remove(taken)
            if sum(each // TRIANGLE == taken // TRIANGLE for each in free) == 1:
                free = {each for each in free if each // TRIANGLE != taken // TRIANGLE}
            suffix.append(word)
            before = [*before[1:], word]
        return suffix

    def with_minima(self, of_victim: NDArray[np.uint64], number: int) -> tuple[list[int], NDArray[np.uint64]]:
        """Words that are not the victim's, with so many minima of its shingles, ascending, and what shingles
        of each thirtieth may not be below."""
        other = np.arange(WORDS // 2, WORDS)
        page: list[int] = []
        least = np.zeros(MINIMA, np.uint64)
        for thirtieth in THIRTIETHS[:number]:
            wanted = of_victim[of_victim >= thirtieth * THIRTIETH][0] % 2**19
            found = np.empty(0, np.int64)
            while not found.size:
                fours = self.rng.choice(other, (500, 4))
                hashes = self.shingles_after(fours, other)
                found = np.flatnonzero(
                    (hashes % 2**19 == wanted) & (hashes - np.uint64(thirtieth * THIRTIETH) < THIRTIETH // 5)
                )
            page += [*fours[found[0] // len(other)].tolist(), int(other[found[0] % len(other)])]
            least[thirtieth] = hashes.flat[found[0]]
        return page, least

    def forged(self, victim: list[int]) -> list[int]:
        """A page of other words than the victim's, with two of its minima and most of its codes."""
        of_victim = np.unique(shingles(self.units[victim], 5)).astype(np.uint64)
        other = np.arange(WORDS // 2, WORDS)
        page, least = self.with_minima(of_victim, 2)
        left = np.zeros(BINS << 16, np.bool_)  # the codes that the page lacks
        left[codes(of_victim, len(of_victim))] = True
        for _ in range(UNITS - len(page)):
            hashes = self.shingles_after(page[-4:], other)
            allowed, code = (
                hashes >= least[np.minimum(hashes // THIRTIETH, MINIMA - 1)],
                codes(hashes, len(of_victim)),
            )
            fits = allowed & left[code]
            chosen = int((fits if fits.any() else allowed).argmax())
            left[code[chosen]] = False
            page.append(int(other[chosen]))
        return page

    def decoys(self, victim: list[int], number: int) -> list[list[int]]:
        """Pages of other words than the victim's, with its first minima and its fingerprint, so that they
        have the least rank."""
        begun, least = self.with_minima(
            np.unique(shingles(self.units[victim], 5)).astype(np.uint64), FIRST_MINIMA
        )
        wanted = np.where(self.moves[victim].sum(axis=0) > 0, 1, -1)
        pages = []
        for _ in range(number):
            page, sums = begun.copy(), self.moves[begun].sum(axis=0) * wanted
            while len(page) < UNITS:
                offered = self.rng.integers(WORDS // 2, WORDS, 100)
                hashes = self.shingles_after(page[-4:], offered)
                moves = self.moves[offered] * wanted
                fits = moves @ np.clip(8 - sums, 0, None)  # turns those bits first that are far from it
                best = int(
                    np.where(
                        hashes >= least[np.minimum(hashes // THIRTIETH, MINIMA - 1)], fits, -(2**40)
                    ).argmax()
                )
                sums = sums + moves[best]
                page.append(int(offered[best]))
            pages.append(page)
        return pages


def codes(hashes: NDArray[np.uint64], size: int) -> NDArray[np.uint64]:
    """The codes of shingles in the list of a set of this size."""
    scaled = mix(hashes.astype(np.uint32)) * np.uint64(BINS // 2)
    places = scaled >> np.uint64(32) << np.uint64(1) | hashes >> np.uint64(31)
    more = np.uint64(int(low_bits(BINS)[size]) - BIN_BITS)
    return places << more | (scaled & np.uint64(2**32 - 1)) >> np.uint64(32) - more


def bits_of(hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
    """The bits of hashes (n, 64), the lowest first."""
    in_bytes = hashes.astype("<u8").view(np.uint8).reshape(-1, 8)
    return np.unpackbits(in_bytes, axis=1, bitorder="little").astype(np.int64)


EVERY = [(language, seed) for language in LANGUAGES for seed in SEEDS[:2]]
every = pytest.mark.parametrize(("language", "seed"), cases(EVERY, by_day=EVERY[::2]))


@pytest.fixture
def one_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Units have the key of tokens, as if the attacker knew theirs."""
    monkeypatch.setattr(of_texts, "unit_keys", hash_keys)


# Hiding: a copy with some words more, which take the minima by which it would be found.


def hidden_copies(language: str, seed: str, directory: Path, kind: str) -> int:
    """How many of the copies of some pages are not found."""
    attacker = Attacker(language, seed)
    one_for_all = attacker.suffix([])
    hidden = 0
    with index_of(seed, directory) as index:
        for number in range(PAGES):
            page = attacker.page()
            index.add(f"page {number}", attacker.text(page))
            suffix = {
                "one for all": one_for_all,
                "for this page": attacker.suffix(page),
                "random": attacker.page()[:10],
            }[kind]
            copy = index.add(f"copy {number}", attacker.text([*page, *suffix]))
            hidden += copy.duplicate_of != f"page {number}"
    return hidden


@pytest.mark.parametrize("kind", ["one for all", "for this page"])
@every
def test_known_units_let_copies_hide(
    language: str, seed: str, kind: str, tmp_path: Path, one_key: None
) -> None:
    """Otherwise the next test would show nothing."""
    assert hidden_copies(language, seed, tmp_path, kind) > PAGES // 2


@pytest.mark.parametrize("kind", ["one for all", "for this page", "random"])
@every
def test_known_tokens_hide_no_copy(language: str, seed: str, kind: str, tmp_path: Path) -> None:
    assert hidden_copies(language, seed, tmp_path, kind) == 0


# Flooding: many copies of one page, each with a suffix of its own.


@every
def test_known_tokens_let_no_page_flood(language: str, seed: str, tmp_path: Path) -> None:
    attacker = Attacker(language, seed)
    page = attacker.page()
    with index_of(seed, tmp_path) as index:
        index.add("page", attacker.text(page))
        copies = [
            index.add(f"{number}", attacker.text([*page, *attacker.suffix([])])) for number in range(PAGES)
        ]
    assert {copy.duplicate_of for copy in copies} == {"page"}


# Forging: a page without a word in common with the victim's, published before it.


def forged_anchors(language: str, seed: str, directory: Path, pages: int) -> int:
    """How many victims are named duplicates of forged pages, or said to be near them."""
    attacker = Attacker(language, seed)
    with index_of(seed, directory) as index:
        passed = 0
        for number in range(pages):
            victim = attacker.page()
            forged = attacker.forged(victim)
            assert not set(victim) & set(forged)
            index.add(f"forged {number}", attacker.text(forged))
            named = index.add(f"victim {number}", attacker.text(victim))
            passed += f"forged {number}" in (named.duplicate_of, named.nearest)
    return passed


@every
def test_known_units_let_pages_be_forged(language: str, seed: str, tmp_path: Path, one_key: None) -> None:
    """Otherwise the next test would show nothing."""
    assert forged_anchors(language, seed, tmp_path, 2) >= 1


@pytest.mark.parametrize("pages", cases([3, 34], by_day=[3]))
@every
def test_known_tokens_let_no_page_be_forged(language: str, seed: str, tmp_path: Path, pages: int) -> None:
    assert forged_anchors(language, seed, tmp_path, pages) == 0


# Decoys: pages that are compared with a page's copies in its place.


def copies_beside_decoys(language: str, seed: str, directory: Path) -> int:
    """How many of some copies of a page are not found, after so many decoys as a page is compared with."""
    attacker = Attacker(language, seed)
    page = attacker.page()
    with index_of(seed, directory, "public") as index:
        for number, decoy in enumerate(attacker.decoys(page, VerdictOptions().compared)):
            index.add(f"decoy {number}", attacker.text(decoy))
        index.add("page", attacker.text(page))
        copies = [attacker.text([*page, *attacker.page()[:words]]) for words in range(5)]
        return sum(index.add(copy, copy).duplicate_of != "page" for copy in copies)


@pytest.mark.parametrize(("language", "seed"), cases(EVERY, by_day=EVERY[1:2]))
@pytest.mark.parametrize("known", ["units", "tokens"])
def test_no_decoy_hides_a_copy(
    known: str, language: str, seed: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """No more of them stand in a page's buckets than these hold."""
    if known == "units":
        request.getfixturevalue("one_key")
    assert copies_beside_decoys(language, seed, tmp_path) == 0


# Hiding: a copy with one word added very often, whose weight would move more bits than the distance allows.


@pytest.mark.parametrize("words", [60, 100, 300])
def test_a_word_repeated_200_times_hides_no_copy(secret: Index, words: int) -> None:
    original = " ".join(article(3)[:words])
    secret.add("original", original)
    copy = secret.add("copy", original + " qzx" * 200)
    assert (copy.verdict, copy.duplicate_of) == ("duplicate", "original")


# Hiding: a copy with 25 words, chosen by their hashes, that move its fingerprint.


def moved(words: list[str], keys: HashKeys) -> str:
    """A copy of an article with 25 more words, chosen for the bits of their hashes."""
    rng = np.random.default_rng(99)
    offered = ["".join(word) for word in rng.choice(list("qxyz"), (20_000, 9)).tolist()]
    moves = bits_of(hashes(offered, keys)) * 2 - 1
    sums = bit_sums(*features(hashes(words, keys))) // 4096
    signs = np.where(sums > 0, 1, -1)
    wanted = np.argsort(np.abs(sums))[:26]  # the bits that turn over most easily
    chosen = []
    for _ in range(25):
        left = np.clip(sums[wanted] * signs[wanted] + 2, 0, None) > 0
        best = int(np.argmax(moves[:, wanted[left]] @ -signs[wanted[left]]))
        sums = sums + moves[best]
        chosen.append(offered[best])
    return " ".join(words + chosen)


def hashes(words: list[str], keys: HashKeys) -> np.ndarray:
    return hash_tokens([word.encode() for word in words], keys)


def test_words_that_move_the_fingerprint_hide_no_copy(secret: Index) -> None:
    """Before, a distance of more than 14 bits was enough."""
    beyond = 0
    for number in range(ARTICLES):
        secret.add(f"article {number}", " ".join(article(number)))
        copy = secret.add(f"copy {number}", moved(article(number), hash_keys(secret.seed)))
        assert copy.duplicate_of == f"article {number}"
        beyond += copy.distance is None or copy.distance > 14  # None: it is not told
    assert beyond > ARTICLES // 2


# Poisoning: a page without a word in common with the victim's, whose words have the hashes of the victim's.


def reduced(basis: list[list[int]]) -> list[list[int]]:
    """A basis of the same lattice with short vectors (Lenstra, Lenstra and Lovasz, 1982)."""
    basis = [row[:] for row in basis]
    at = 1
    while at < len(basis):
        upright = orthogonal(basis[: at + 1])
        for other in range(at - 1, -1, -1):
            times = round(along(basis[at], upright[other]))
            basis[at] = [a - times * b for a, b in zip(basis[at], basis[other], strict=True)]
        slope = along(basis[at], upright[at - 1])
        if square(upright[at]) >= (Fraction(3, 4) - slope**2) * square(upright[at - 1]):
            at += 1
        else:
            basis[at - 1], basis[at] = basis[at], basis[at - 1]
            at = max(at - 1, 1)
    return basis


def orthogonal(basis: list[list[int]]) -> list[list[Fraction]]:
    found: list[list[Fraction]] = []
    for row in basis:
        rest = [Fraction(each) for each in row]
        for other in found:
            times = along(row, other)
            rest = [a - times * b for a, b in zip(rest, other, strict=True)]
        found.append(rest)
    return found


def along(row: list[int], other: list[Fraction]) -> Fraction:
    return sum((a * b for a, b in zip(row, other, strict=True)), Fraction(0)) / square(other)


def square(row: list[Fraction]) -> Fraction:
    return sum((each * each for each in row), Fraction(0))


@pytest.fixture(scope="module")
def forged() -> tuple[str, str]:
    """A victim's page, and a page of other words with the same hashes under the public seed."""
    words = article(1)[:120]
    factors = [int(each) for each in KEYS.factors[:LETTERS]]
    inverse = pow(factors[0], -1, 2**64)
    # All differences of words that change no sum.
    basis = [[2**64] + [0] * (LETTERS - 1)]
    for place in range(1, LETTERS):
        row = [0] * LETTERS
        row[0], row[place] = -factors[place] * inverse % 2**64, 1
        basis.append(row)
    basis = reduced(basis)
    upright = orthogonal(basis)

    def collision(word: str) -> str:
        middle = (FIRST + LAST) // 2
        wanted = sum((ord(letter) + 1) * int(KEYS.factors[at]) for at, letter in enumerate(word)) - sum(
            factors
        )
        off = [(wanted - middle * sum(factors)) * inverse % 2**64] + [0] * (LETTERS - 1)
        for row, direction in zip(reversed(basis), reversed(upright), strict=True):
            times = round(along(off, direction))
            off = [a - times * b for a, b in zip(off, row, strict=True)]
        assert all(FIRST <= middle + each <= LAST for each in off)
        return "".join(chr(middle + each) for each in off)

    return " ".join(words), " ".join(map(collision, words))


def test_known_hashes_let_a_page_pass_for_another(forged: tuple[str, str]) -> None:
    victim, poison = forged
    assert not set(victim.split()) & set(poison.split())
    with Index() as index:
        index.add("poison", poison)
        named = index.add("victim", victim)
    assert (named.verdict, named.distance, named.similarity) == ("duplicate", 0, 1.0)


def test_the_fingerprint_of_a_word_does_not_reveal_the_key(secret: Index) -> None:
    """A page of one word has the word's hash for a fingerprint. With a last step that can be undone, two such
    pages gave the factor of the first character."""
    fingerprinter = Fingerprinter(secret.scheme, secret.seed)
    prints = [fingerprinter.text(" ".join([letter] * 8)).fingerprint for letter in "abc"]
    sums = [unmixed(each) for each in prints]
    factor = sums[1] - sums[0]
    assert (sums[2] - sums[1]) % 2**64 != factor % 2**64
    assert factor % 2**64 != int(hash_keys(secret.seed).factors[0])


def unmixed(value: int) -> int:
    """The value of which `mix64` makes this one."""
    value = unshifted(value, 31) * pow(0x94D049BB133111EB, -1, 2**64) % 2**64
    value = unshifted(value, 27) * pow(0xBF58476D1CE4E5B9, -1, 2**64) % 2**64
    return unshifted(value, 30)


def unshifted(value: int, bits: int) -> int:
    """The value of which `value ^ value >> bits` makes this one."""
    found = value
    for _ in range(64 // bits):
        found = value ^ found >> bits
    return found


def test_no_page_passes_for_another_without_the_seed(secret: Index, forged: tuple[str, str]) -> None:
    victim, poison = forged
    secret.add("poison", poison)
    assert secret.add("victim", victim).verdict == "unique"
    fingerprinter = Fingerprinter(secret.scheme, secret.seed)
    distance = (fingerprinter.text(victim).fingerprint ^ fingerprinter.text(poison).fingerprint).bit_count()
    assert distance > 14
