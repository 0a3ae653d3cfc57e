"""What somebody reads of a deployment's key from what it publishes, in both disclosures.

Attacks succeed on `internal` values, as the controls show. `public` values tell no more than chance.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from stream import Index
from stream.fingerprint.fingerprinter import Fingerprinter
from stream.fingerprint.parity import ONE, SCALE, estimated_differences
from stream.messages.verdict import VerdictRecord
from tests.unit.test_attacks import (
    BINS,
    DISCLOSURES,
    LANGUAGES,
    SEEDS,
    Attacker,
    Disclosure,
    bits_of,
    index_of,
)

CASES = list(zip(LANGUAGES, SEEDS, strict=False))
cases = pytest.mark.parametrize(("language", "seed"), CASES)
disclosures = pytest.mark.parametrize("disclosure", DISCLOSURES)


def published(index: Index, texts: list[str]) -> list[VerdictRecord]:
    """The verdicts on texts, as consumers read them."""
    named = [(f"http://example.com/{number}", text) for number, text in enumerate(texts)]
    return list(index.judge(index._rows(named)).verdict_records())


def secret_bits(records: list[VerdictRecord]) -> NDArray[np.int64]:
    """64 bits of each of some verdicts (n, 64), of the field that has the most to do with words."""
    fields = [each.fingerprint or (each.text_hash or "")[:16] for each in records]
    return bits_of(np.array([int(field, 16) for field in fields], np.uint64))


def fingerprinter_of(index: Index) -> Fingerprinter:
    return Fingerprinter(index.scheme, index.seed)


@disclosures
@cases
def test_a_regression_over_pages_learns_the_hashes_of_words(
    language: str, seed: str, disclosure: Disclosure, tmp_path: Path
) -> None:
    """Each bit of 80 words, from 800 pages that have half of them each."""
    attacker = Attacker(language, seed)
    words = np.arange(80)
    pages = [attacker.rng.permutation(words)[:40] for _ in range(800)]
    with index_of(seed, tmp_path, disclosure) as index:
        records = published(index, [attacker.text(page.tolist()) for page in pages])
    has = np.zeros((len(pages), len(words)))
    for row, page in zip(has, pages, strict=True):
        row[page] = 1
    learned = np.linalg.lstsq(has - 0.5, secret_bits(records) - 0.5, rcond=None)[0] > 0
    right = float((learned == (attacker.moves[words] > 0)).mean())
    assert right > 0.9 if disclosure == "internal" else abs(right - 0.5) < 0.03  # 4 standard deviations


@disclosures
@cases
def test_a_kept_verdict_tells_the_words_of_a_forgotten_page(
    language: str, seed: str, disclosure: Disclosure, tmp_path: Path
) -> None:
    """A page of eleven words, three of which are one of 30 each: the share of all candidates that look as
    likely as the text, by the hashes of all words."""
    attacker = Attacker(language, seed)
    likely = []
    for _ in range(4):
        known, unknown = attacker.page()[:8], attacker.rng.integers(0, 3000, (3, 30))
        chosen = attacker.rng.integers(0, 30, 3)
        with index_of(seed, tmp_path, disclosure) as index:
            text = attacker.text([*known, *unknown[range(3), chosen].tolist()])
            told = secret_bits(published(index, [text]))
        offered = np.array(list(itertools.product(*unknown)))
        sums = attacker.moves[known].sum(axis=0) + attacker.moves[offered].sum(axis=1)
        wrong = ((sums > 0) != told).sum(axis=1)
        of_text = wrong[np.ravel_multi_index(chosen.tolist(), (30, 30, 30))]
        likely.append(float((wrong <= of_text).mean()))
    assert max(likely) < 0.001 if disclosure == "internal" else 0.1 < np.mean(likely) < 0.9


@disclosures
@cases
def test_similarities_tell_which_shingles_share_a_bin(
    language: str, seed: str, disclosure: Disclosure, tmp_path: Path
) -> None:
    """The number of odd bins between two long pages, which tells whether two of their shingles share one."""
    attacker = Attacker(language, seed)
    words = attacker.rng.permutation(3000)[:600].tolist()
    copies = [[*words[:place], *attacker.page()[:3], *words[place + 3 :]] for place in range(0, 500, 10)]
    texts = [attacker.text(each) for each in (words, *copies)]
    with index_of(seed, tmp_path, disclosure) as index:
        records = published(index, texts)
        sketches = [np.frombuffer(each.sketch, np.uint8) for each in fingerprinter_of(index).texts(texts)]
    odd = [int(np.unpackbits(sketches[0][: BINS // 8] ^ each[: BINS // 8]).sum()) for each in sketches[1:]]
    size = 596  # shingles of each page
    apart = estimated_differences(BINS)[: BINS // 4] / SCALE
    expected = np.round((2 * size - apart) / (2 * size + apart), 4 if disclosure == "internal" else 2)
    exactly = 0
    for record, count in zip(records[1:], odd, strict=True):
        assert record.similarity is not None
        fits = np.flatnonzero(np.abs(expected - record.similarity) < 1.5 / ONE)
        exactly += fits.tolist() == [count]
    assert exactly > 45 if disclosure == "internal" else exactly == 0
