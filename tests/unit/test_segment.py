"""Text becomes words and tokens."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from stream.text.characters import UNASSIGNED, classes
from stream.text.normalise import normalise
from stream.text.normalise_compiled import encoded, normalised_points
from stream.text.segment import segment, units, words


def said(tokens_: list[bytes]) -> list[str]:
    return [token.decode() for token in tokens_]


def test_words_are_runs_of_word_characters() -> None:
    assert said(words("foo_1, b-a.r\tbaz\0qux")) == ["foo_1", "b", "a", "r", "baz", "qux"]
    assert said(words("né à l’été、我们 ok我们")) == ["né", "à", "l", "été", "我们", "ok我们"]


@pytest.mark.parametrize("segmenter", ["rjieba", "jieba"])
def test_han_runs_are_cut_by_the_dictionary(segmenter: str) -> None:
    found = said(segment("我们在北京天安门 hello天气", segmenter))  # type: ignore[arg-type]
    assert sorted(found) == sorted(["hello", "我们", "在", "北京", "天安门", "天气"])


def test_a_word_does_not_reach_over_punctuation() -> None:
    assert said(segment("北,京", "rjieba")) == ["北", "京"]


def test_scripts_without_spaces_are_cut_into_runs_of_three() -> None:
    found = said(segment("これは日本語のテスト ok", "rjieba"))
    assert found[:5] == ["ok", "これは", "のテス", "テスト", "日本"]
    assert said(segment("ไทย, ลา", "rjieba")) == ["ไทย", "ลา"]
    assert said(segment(normalise("ភា\u200bសាខ្មែរ"), "rjieba"))[:3] == ["ភាស", "ាសា", "សាខ"]


def test_marks_belong_to_the_word_that_they_stand_in() -> None:
    assert said(segment("हिन्दी में", "rjieba")) == ["हिन्दी", "में"]
    assert said(segment("x̄ý", "rjieba")) == ["x̄ý"]
    assert said(segment(normalise("it´s \u0301b 界\u0308c"), "rjieba")) == ["it", "s", "b", "c", "界"]


def test_a_unit_is_a_character_of_a_script_without_spaces_or_a_word_of_another() -> None:
    assert said(units("a我b2们、𠮷々1")) == ["a", "我", "b2", "们", "𠮷", "々", "1"]
    assert said(units("これはok テスト")) == ["こ", "れ", "は", "ok", "テ", "ス", "ト"]
    assert said(units(normalise("ที่ไหน ๑๒ ខ្មែរ"))) == ["ที่", "ไ", "ห", "น", "๑", "๒", "ខ្", "មែ", "រ"]
    assert said(units(normalise("हिन्दी में، می\u200cخواهم 한국어는"))) == ["हिन्दी", "में", "ميخواهم", "한국어는"]
    assert said(units("བོད་ཡིག 1,000.5 don't")) == ["བོད", "ཡིག", "1", "000", "5", "don", "t"]
    assert said(units("ㄅㄆ ꆈꌠ ꦗꦮ \u0301")) == ["ㄅ", "ㄆ", "ꆈ", "ꌠ", "ꦗ", "ꦮ"]


def test_marks_without_end_are_one_unit() -> None:
    text = normalise("ก" + "\u0e38" * 5000 + "ข")
    assert [len(unit) for unit in said(units(text))] == [5001, 1]


def test_no_letter_digit_or_mark_is_in_tokens_alone_or_in_units_alone() -> None:
    assigned = np.flatnonzero(classes() != UNASSIGNED).tolist()
    for start in range(0, len(assigned), 64):  # each by itself in a line
        text = normalise("\n".join(map(chr, assigned[start : start + 64])))
        in_units, in_tokens = (set("".join(said(each))) for each in (units(text), segment(text, "rjieba")))
        assert in_units == in_tokens, hex(assigned[start])


@pytest.mark.parametrize("text", ["", " ", "。", "\0", "😀", "!?"])
def test_text_without_words_has_no_tokens(text: str) -> None:
    assert words(text) == units(text) == segment(text, "rjieba") == []


def test_normalising_folds_case_width_and_compatibility() -> None:
    assert normalise("ＡＢＣ ﬁ Straße K ①") == "abc fi strasse k 1"
    assert normalise("が") == "が"
    assert normalise("ABC") == "abc"


def test_characters_that_nobody_sees_are_dropped() -> None:
    assert normalise("ex\u00adam\u200bple\ufeff") == "example"
    assert normalise("می\u200cخواهم") == "ميخواهم"
    assert normalise("界" * 100 + "\u00ad界\u200e") == "界" * 101
    assert normalise("❤\ufe0f") == "❤"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("كتاب ي", "\u06a9تاب \u06cc"),
        ("على \ufef1", "علي \ufbfe"),
        ("کتـــاب", "كتاب"),
        ("بہار ۱۲", "بهار ١٢"),
        ("boʻron taʼmir", "bo'ron ta'mir"),
        ("об\u02bcєкт \u0149", "об'єкт 'n"),
        ("Țară şi", "Ţară \u0219i"),
        ("İstanbul I\u0307zmir", "istanbul izmir"),
        ("ӑна ӕз ҫын", "ăна æз çын"),
        ("taɣect ɛ", "taγect ε"),
        ("ײַד", "ייַד"),
        ("เเม่", "แม่"),
        ("চিৎ", "চিত্\u200d"),
        ("അവൻ", "അവന്\u200d"),
        ("港 务  局\u3000将", "港务局将"),
        ("か な 漢 字 แม่ น้ำ", "かな漢字แม่น้ำ"),
    ],
)
def test_what_is_the_same_to_readers_is_the_same_text(one: str, other: str) -> None:
    for before in ("", "界" * 80, "é\u0301\u0301" * 30):
        both = [normalise(f"{before}, {each}") for each in (one, other)]
        assert both[0] == both[1]
        batches = [encoded(normalised_points([f"{before}, {each}"])) for each in (one, other)]
        several = encoded(normalised_points([f"{before}, {one}", f"{before}, {other}", "é", "ａ"]))
        assert {bytes(each).decode() for each in (*batches[0], *batches[1], *several[:2])} == {both[0]}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("أ", "ا"),
        ("ёлка", "елка"),
        ("كَتب", "كتب"),
        ("بھار", "بهار"),
        ("sık", "sik"),
        ("é", "e"),
        ("港 x", "港x"),
        ("港\n务", "港务"),
        ("हिन्दी में", "हिन्दीमें"),
        ("한국 어", "한국어"),
        (" 港 ", "港"),
        ("港 ", "港"),
    ],
)
def test_what_parts_words_is_not_folded(one: str, other: str) -> None:
    assert normalise(one) != normalise(other)


def test_lone_surrogates_become_replacement_characters() -> None:
    assert normalise("a\ud800b") == "a�b"
    assert normalise("你" * 100 + "\udc00") == "你" * 100 + "�"


@pytest.mark.parametrize(
    ("text", "normalised"),
    [
        ("a\ud842\udfb7", "a𠮷"),
        ("\udfb7\ud842\ud842\udfb7\udfb7", "\ufffd\ufffd𠮷\ufffd"),
        ("\ud842é\udfb7", "\ufffdé\ufffd"),
    ],
)
def test_two_surrogates_that_make_a_character_are_that_character(text: str, normalised: str) -> None:
    """As in UTF-16, and whether the text is normalised alone, in a batch or by the table."""
    assert normalise(text) == normalised
    (alone,), (among, _) = (encoded(normalised_points(texts)) for texts in ([text], [text, "é"]))
    assert bytes(alone).decode() == bytes(among).decode() == normalised
    assert normalise("界" * 80 + text) == "界" * 80 + normalised


def test_jieba_is_quiet_and_nothing_is_loaded_before_it_is_needed() -> None:
    code = (
        "import sys; from stream.fingerprint.fingerprinter import Fingerprinter; "
        "assert 'jieba' not in sys.modules and 'rjieba' not in sys.modules; "
        "from stream.text.segment import segment; segment('预热。', 'jieba')"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, check=True)
    assert done.stdout == b""
    assert done.stderr == b""


def test_the_dictionary_is_loaded_once_and_rjieba_is_whole_for_who_imports_it_later() -> None:
    code = (
        "import sys; from stream.text.han_cutters import cutter; cut = cutter('rjieba'); "
        "assert 'rjieba' not in sys.modules; "
        "import rjieba; assert cut('天气好') == rjieba.cut('天气好') == rjieba.Jieba().cut('天气好')"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
