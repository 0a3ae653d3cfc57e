"""Text becomes words and tokens."""

from __future__ import annotations

import subprocess
import sys

import pytest

from stream.text.normalise import normalise
from stream.text.segment import segment, words


def said(tokens_: list[bytes]) -> list[str]:
    return [token.decode() for token in tokens_]


def test_words_are_runs_of_word_characters() -> None:
    assert said(words("foo_1, b-a.r\tbaz\0qux")) == ["foo_1", "b", "a", "r", "baz", "qux"]
    assert said(words("né à l’été、我们 ok我们")) == ["né", "à", "l", "été", "我们", "ok我们"]


@pytest.mark.parametrize("segmenter", ["rjieba", "jieba"])
def test_han_runs_are_cut_by_the_dictionary(segmenter: str) -> None:
    found = said(segment("我们在北京天安门 hello天气", segmenter).tokens)  # type: ignore[arg-type]
    assert sorted(found) == sorted(["hello", "我们", "在", "北京", "天安门", "天气"])


def test_a_word_does_not_reach_over_punctuation() -> None:
    assert said(segment("北,京", "rjieba").tokens) == ["北", "京"]


def test_kana_runs_stay_whole_beside_cut_han_runs() -> None:
    found = said(segment("これは日本語のテキスト", "rjieba").tokens)
    assert found[:2] == ["これは", "のテキスト"]
    assert "".join(found[2:]) == "日本語"


def test_han_characters_are_given_alone_and_in_order() -> None:
    assert "".join(map(chr, segment("a我b们、𠮷々1", "rjieba").han)) == "我们𠮷々"
    assert segment("none", "rjieba").han.size == 0


@pytest.mark.parametrize("text", ["", " ", "。", "\0", "😀", "!?"])
def test_text_without_words_has_no_tokens(text: str) -> None:
    assert words(text) == segment(text, "rjieba").tokens == []
    assert segment(text, "rjieba").han.size == 0


def test_normalising_folds_case_width_and_compatibility() -> None:
    assert normalise("ＡＢＣ ﬁ Straße K ①") == "abc fi strasse k 1"
    assert normalise("が") == "が"
    assert normalise("ABC") == "abc"


def test_lone_surrogates_become_replacement_characters() -> None:
    assert normalise("a\ud800b") == "a�b"
    assert normalise("你" * 100 + "\udc00") == "你" * 100 + "�"


def test_jieba_is_quiet_and_nothing_is_loaded_before_it_is_needed() -> None:
    code = (
        "import sys; from stream.fingerprint.fingerprinter import Fingerprinter; "
        "assert 'jieba' not in sys.modules and 'rjieba' not in sys.modules; "
        "from stream.text.segment import warm; warm('jieba')"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, check=True)
    assert done.stdout == b""
    assert done.stderr == b""
