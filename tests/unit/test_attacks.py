"""Attacks by somebody who knows everything but the seed: they work under the public seed, and under no other.

Both attacks are computed against the public seed, whose hashes everybody can compute.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from stream import Index, Scheme
from stream.fingerprint.default_weights import features
from stream.fingerprint.fingerprinter import Fingerprinter
from stream.fingerprint.keyed_hashes import hash_tokens
from stream.fingerprint.seed import PUBLIC_SEED, hash_keys
from stream.fingerprint.simhash import bit_sums

KEYS = hash_keys(PUBLIC_SEED)
SEEDS = [f"{number:032x}" for number in range(1, 11)]
FIRST, LAST = 0xAC00, 0xD7A3  # Hangul syllables: many letters in a row
LETTERS = 8
ARTICLES = 7


@pytest.fixture(params=SEEDS)
def secret(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Index]:
    file = tmp_path / "seed"
    file.write_text(request.param)
    with Index(scheme=Scheme(seed_file=str(file))) as index:
        yield index


def article(number: int) -> list[str]:
    """300 words of an invented language, all different."""
    rng = np.random.default_rng(number)
    letters = rng.choice(list("abcdefghijklmnoprstuvwz"), (300, 7))
    return ["".join(word) for word in letters.tolist()]


# Hiding: a copy with one word added very often, whose weight would move more bits than the distance allows.


@pytest.mark.parametrize("words", [60, 100, 300])
def test_a_word_repeated_200_times_hides_no_copy(secret: Index, words: int) -> None:
    original = " ".join(article(3)[:words])
    secret.add("original", original)
    copy = secret.add("copy", original + " qzx" * 200)
    assert (copy.verdict, copy.duplicate_of) == ("duplicate", "original")


# Hiding: a copy with 25 words that move more bits than the distance allows.


def hidden(words: list[str]) -> str:
    """A copy of an article with 25 more words, chosen for the bits of their hashes."""
    rng = np.random.default_rng(99)
    offered = ["".join(word) for word in rng.choice(list("qxyz"), (20_000, 9)).tolist()]
    bits = np.unpackbits(
        hashes(offered).astype("<u8").view(np.uint8).reshape(-1, 8), axis=1, bitorder="little"
    )
    moves = bits.astype(np.int64) * 2 - 1
    sums = bit_sums(*features(hashes(words))) // 4096
    signs = np.where(sums > 0, 1, -1)
    wanted = np.argsort(np.abs(sums))[:26]  # the bits that turn over most easily
    chosen = []
    for _ in range(25):
        left = np.clip(sums[wanted] * signs[wanted] + 2, 0, None) > 0
        best = int(np.argmax(moves[:, wanted[left]] @ -signs[wanted[left]]))
        sums = sums + moves[best]
        chosen.append(offered[best])
    return " ".join(words + chosen)


def hashes(words: list[str]) -> np.ndarray:
    return hash_tokens([word.encode() for word in words], KEYS)


def test_known_hashes_let_every_copy_hide() -> None:
    """Otherwise the next test would show nothing."""
    with Index() as index:
        for number in range(ARTICLES):
            index.add(f"article {number}", " ".join(article(number)))
            assert index.add(f"copy {number}", hidden(article(number))).verdict == "unique"


def test_no_copy_hides_without_the_seed(secret: Index) -> None:
    for number in range(ARTICLES):
        secret.add(f"article {number}", " ".join(article(number)))
        assert secret.add(f"copy {number}", hidden(article(number))).duplicate_of == f"article {number}"


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
