"""Each kind of features, against seeds, libraries and one-line definitions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import snowballstemmer

from stream.errors import SettingsError
from stream.fingerprint.features.feature_methods import HOMES, maker
from stream.fingerprint.recipe import Recipe, recipe_of
from stream.fingerprint.row import Status
from stream.fingerprint.scheme import Scheme
from stream.fingerprint.seed import PUBLIC_SEED
from stream.fingerprint.simhash import TIES
from stream.fingerprint.sketch import SketchPairs, similarities
from stream.page_rows.page_fingerprinter import PageFingerprinter
from stream.pages.page import Page
from stream.text.han_cutters import analyse
from stream.text.normalise import normalise
from stream.text.segment import segment
from stream.text.stop_words import stop_words

CHINESE = """两座城市的港口由同一家航运公司经营。航运公司规定了船长为维护航道安全而遵守的规则，
港口则规定了在装卸货物时为鼓励船员仔细核对账本而发放的奖金。
奖金的数目由航运公司决定，港口决定装卸货物的次序！
北京的研究者认为，航道的安全仍然是未来几年的难题？"""
ENGLISH = (
    "The miners are mining. A mined block follows the block that miners mined before; blocks follow blocks."
)


def made(text: str, **options: object) -> dict[str, int]:
    scheme = Scheme(**options)  # type: ignore[arg-type]
    clean = normalise(text)
    tokens = segment(clean, scheme.segmenter, scheme.dictionary)
    return {feature.decode(): count for feature, count in maker(scheme)(clean, tokens).items()}


PAIRS = dict.fromkeys([" c", "ca", " s", "sa", " o", "on", "n ", " t", " m", "ma"], 1) | {"at": 3}
PAIRS |= dict.fromkeys(["th", "he", "e ", "t "], 2)
"""Seed 000's fifteen pairs of characters of "the cat sat on the mat"."""


@pytest.mark.parametrize(
    ("text", "features", "length", "expected"),
    [
        ("b a b 北京 北京", "words", 2, {"b": 2, "a": 1, "北京": 2}),
        ("the cat sat on the mat", "ngrams", 2, PAIRS),
        ("我们，在北京", "ngrams", 2, dict.fromkeys(["我们", "们 ", " 在", "在北", "北京"], 1)),
        ("北", "ngrams", 3, {"北": 1}),
        ("。", "ngrams", 3, {}),
        ("a b c d", "shingles", 3, {"a b c": 1, "b c d": 1}),
        ("a b", "shingles", 3, {"a b": 1}),
        ("", "shingles", 3, {}),
    ],
)
def test_features_are_counted(text: str, features: str, length: int, expected: dict[str, int]) -> None:
    assert made(text, features=features, feature_length=length) == expected


def test_the_longest_sentences_are_picked_whatever_their_punctuation() -> None:
    text = "Short. This one is much longer, by far! 3.14 is no end of a sentence? Tiny.\nA last line of words"
    found = made(text, features="sentences")
    assert set(found) == {
        "this one is much longer by far",
        "3 14 is no end of a sentence",
        "a last line of words",
    }
    assert (
        made(text.replace(",", " -").replace("!", "。").replace("Tiny.", "Tin y"), features="sentences")
        == found
    )
    assert len(made(text, features="sentences", sentences=2)) == 2


@pytest.mark.parametrize(("method", "tags"), [("tfidf", "extract_tags"), ("textrank", "textrank")])
def test_keywords_are_those_of_jieba(method: str, tags: str) -> None:
    expected = getattr(analyse(), tags)(normalise(CHINESE), topK=12, withWeight=True)
    found = made(CHINESE, features=method, keywords=12, weights="score", segmenter="jieba")
    assert list(found.items()) == [(word, round(2**20 * score)) for word, score in expected]


def test_keywords_without_scores_are_weighed_by_their_counts() -> None:
    found = made(CHINESE, features="tfidf", keywords=5)
    assert len(found) == 5
    assert found["港口"] == 3


@pytest.mark.parametrize("features", ["tfidf", "textrank"])
def test_the_number_of_keywords_grows_with_the_text(features: str) -> None:
    tokens = len(segment(normalise(CHINESE), "rjieba"))
    assert len(made(CHINESE, features=features, keywords=3)) == 3
    assert len(made(CHINESE, features=features, keywords=3, keyword_every=20)) == 3 + tokens // 20


def test_an_idf_file_of_ones_own_decides_what_is_a_keyword(tmp_path: Path) -> None:
    idf = tmp_path / "idf.txt"
    idf.write_text("北京 50\n港口 0.1\n航运 0.1\n账本 0.1\n", "utf-8")
    assert list(made(CHINESE, features="tfidf", keywords=1, idf=str(idf))) == ["北京"]


@pytest.mark.parametrize("segmenter", ["rjieba", "jieba"])
def test_a_users_dictionary_keeps_its_words_whole(segmenter: str, tmp_path: Path) -> None:
    words = tmp_path / "words.txt"
    words.write_text("雾灯公会\n共识算法 20000 n\n", "utf-8")
    text = "共识算法与雾灯公会"
    assert not {"共识算法", "雾灯公会"} & set(made(text, segmenter=segmenter))
    assert set(made(text, segmenter=segmenter, dictionary=str(words))) == {"共识算法", "与", "雾灯公会"}


def test_a_malformed_dictionary_is_named(tmp_path: Path) -> None:
    words = tmp_path / "words.txt"
    words.write_text("词 5 n 又 一\n", "utf-8")
    with pytest.raises(SettingsError, match=r"dictionary=.*words\.txt: line 1"):
        PageFingerprinter(Scheme(dictionary=str(words))).warm()


def recipe_features(text: str, **options: object) -> set[int]:
    scheme = Scheme(**options)  # type: ignore[arg-type]
    clean = normalise(text)
    return set(Recipe(scheme, PUBLIC_SEED).features(clean, segment(clean, scheme.segmenter))[0].tolist())


def test_stop_words_are_left_out_in_both_languages() -> None:
    assert {"the", "and"} <= {word.decode() for word in stop_words("en")}
    assert {"的", "因为"} <= {word.decode() for word in stop_words("zh")}
    plain = recipe_features("harbour lighthouse 北京 城市", weights="tf")
    full = "the harbour and the lighthouse 在北京的城市"
    assert recipe_features(full, stop_words="en,zh") == plain
    assert recipe_features(full) > plain


def test_stemming_makes_forms_of_a_word_one_feature() -> None:
    assert recipe_features("crawled crawling crawls", stem="english") == recipe_features(
        "crawl", weights="tf"
    )
    stem = snowballstemmer.stemmer("german").stemWord
    assert recipe_features("häuser", stem="german") == recipe_features(stem("häuser"), weights="tf")
    assert recipe_features("北京 город", stem="english") == recipe_features("北京 город", weights="tf")


def test_a_recipe_of_the_defaults_options_is_the_default_way() -> None:
    """The default path in columns and the general path agree."""
    fingerprinter, general = PageFingerprinter(), PageFingerprinter()
    general._recipe = Recipe(Scheme(), PUBLIC_SEED)
    assert recipe_of(Scheme(), PUBLIC_SEED) is None
    assert recipe_of(Scheme(ties="one", minimum_tokens=3, sketch_bins=512), PUBLIC_SEED) is None
    for text in (CHINESE, ENGLISH):
        assert general.text(text) == fingerprinter.text(text)


GOLDEN = {
    "features=words weights=tf": ("f57cbaef2c3ad7d0", "384eb2ec92df174b"),
    "features=ngrams": ("3d64c92808061e7e", "876a1f1c2eb9625f"),
    "features=shingles": ("35d62324d24ebd15", "b69e7456a038ba3b"),
    "features=tfidf weights=score": ("f76cf0ff6cd2dedc", "3856b3ae928e1749"),
    "features=textrank weights=score": ("ff68f8ff6452ded4", "9e3779b97f4a7c15"),
    "features=sentences": ("b2e5bed2ce6de384", "ff109b43e3abe02b"),
    "weights=log": ("fd6cba7f6c32dfd4", "384eb2ec92df574b"),
    "weights=tfidf": ("ff6cf87f6cdadedc", "384eb2ec92df174b"),
    "weight_cap=2": ("fcecf27d4c3acf91", "3847b2e893df5749"),
    "stop_words=en,zh": ("fcccf87f4c52cfd5", "3856b3a796ce1f58"),
    "stem=english": ("fc6cfa7f6c32df94", "2076b6e497895b63"),
    "hash=md5": ("143ee6aecedf2273", "8744056d51bc0249"),
    "hash=fnv1a width=32": ("d7b7b2b1", "0c0c212c"),
    "hash=xxh3 width=128": ("f7ad9e86f517b98d138ec9f45c22088e", "d964f82cdf9f0c31a21fa1243ee73f27"),
}


@pytest.mark.parametrize("options", GOLDEN)
def test_output_is_what_it_was(options: str) -> None:
    """A failure here means that fingerprints changed: raise that part's number in `scheme.BEHAVIOUR`."""
    scheme = Scheme.of(dict(option.split("=") for option in options.split()))
    found = [PageFingerprinter(scheme).text(text).fingerprint for text in (CHINESE, ENGLISH)]
    assert tuple(f"{each:0{scheme.width // 4}x}" for each in found) == GOLDEN[options]


def test_every_method_has_a_golden_output() -> None:
    assert {f"features={name}" for name in HOMES} <= {
        option for options in GOLDEN for option in options.split()
    }


def test_a_page_without_features_is_insufficient() -> None:
    """TextRank finds only Chinese words. Otherwise all English pages would have the fingerprint of ties."""
    fingerprinter = PageFingerprinter(Scheme(features="textrank"))
    found = fingerprinter.text(ENGLISH)
    assert (found.features, found.fingerprint) == (0, TIES)
    assert fingerprinter.page(Page(url="http://e.com/", text=ENGLISH)).status == Status.INSUFFICIENT
    assert PageFingerprinter().text(ENGLISH).features == 12


def test_pairs_of_ones_own_are_fingerprinted_as_they_are() -> None:
    fingerprinter = PageFingerprinter()
    same = fingerprinter.features([("a", 1), ("b", 2**0.5)])
    assert same.fingerprint == fingerprinter.text("b a b").fingerprint
    assert fingerprinter.features([("A", 1)]).fingerprint != fingerprinter.features([("a", 1)]).fingerprint
    flipped = fingerprinter.features([("a", -1.0)])
    assert flipped.fingerprint == fingerprinter.features([("a", 1)]).fingerprint ^ 2**64 - 1
    one, two = (fingerprinter.features((str(i), 1 + i % 3) for i in range(start, 400)) for start in (0, 40))
    assert (one.fingerprint ^ two.fingerprint).bit_count() <= 16
    sketches = (np.frombuffer(each.sketch, "<u8")[None] for each in (one, two))
    assert similarities(SketchPairs.of(*sketches), fingerprinter.scheme)[0] == pytest.approx(9000, abs=200)
    assert one.text_hash != two.text_hash


@pytest.mark.parametrize("weight", [float("nan"), float("inf"), 2.0**33])
def test_a_weight_that_cannot_be_summed_is_refused(weight: float) -> None:
    with pytest.raises(ValueError, match="feature 'x'"):
        PageFingerprinter().features([("x", weight)])
