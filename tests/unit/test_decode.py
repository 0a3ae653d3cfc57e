"""Bytes of any charset become the text their author wrote."""

from __future__ import annotations

import pytest

from stream.text.decode import codec, decode

CHINESE = "今天天气很好，我们去公园散步，然后回家吃饭。"
TRADITIONAL = "今天天氣很好，我們去公園散步，然後回家吃飯。"
JAPANESE = "今日は天気がいいので、公園まで散歩してから家に帰りました。"
KOREAN = "오늘은 날씨가 좋아서 공원까지 산책하고 집에 돌아왔습니다."
RUSSIAN = "Сегодня хорошая погода, мы пошли гулять в парк."
FRENCH = "Le café fermé l’été reste à côté du théâtre."
THAI = "วันนี้อากาศดีเราไปเดินเล่นที่สวน"

WRITTEN = [  # label as pages write it, Python codec that writes it, text
    ("gbk", "gbk", CHINESE),
    ("gbk", "gb18030", CHINESE + "𠮷"),
    ("GB2312", "gb2312", CHINESE),
    ("gb18030", "gb18030", CHINESE + "𠮷"),
    ("cp936", "gbk", CHINESE),
    ("Big5", "big5", TRADITIONAL),
    ("big5-hkscs", "big5hkscs", TRADITIONAL + "嘅咗"),
    ("Shift_JIS", "cp932", JAPANESE + "①"),
    ("x-sjis", "shift_jis", JAPANESE),
    ("EUC-JP", "euc_jp", JAPANESE),
    ("iso-2022-jp", "iso2022_jp", JAPANESE),
    ("EUC-KR", "euc_kr", KOREAN),
    ("ks_c_5601-1987", "cp949", KOREAN + "똠"),
    ("windows-1251", "cp1251", RUSSIAN),
    ("koi8-r", "koi8_r", RUSSIAN),
    ("windows-1252", "cp1252", FRENCH),
    ("iso-8859-1", "cp1252", FRENCH),
    ("windows-874", "cp874", THAI),
    ("windows-1250", "cp1250", "Příliš žluťoučký kůň"),
    ("windows-1254", "cp1254", "İstanbul'da güzel bir gün"),
    ("windows-1256", "cp1256", "الطقس جميل اليوم"),
    ("utf-16", "utf-16-le", CHINESE),
    ("UTF-8", "utf-8", CHINESE),
    ("UTF_8", "utf-8", CHINESE),
    (' "utf-8" ', "utf-8", CHINESE),
]


@pytest.mark.parametrize(("label", "python", "text"), WRITTEN)
def test_a_named_charset_is_believed(label: str, python: str, text: str) -> None:
    assert decode(text.encode(python), charset=label) == text


@pytest.mark.parametrize(("label", "python", "text"), WRITTEN)
def test_the_header_names_the_charset(label: str, python: str, text: str) -> None:
    assert decode(text.encode(python), header=label) == text


@pytest.mark.parametrize(
    ("python", "text"),
    [
        ("gb18030", CHINESE),
        ("big5", TRADITIONAL),
        ("shift_jis", JAPANESE),
        ("euc_jp", JAPANESE),
        ("euc_kr", KOREAN),
        ("cp1251", RUSSIAN),
        ("cp1252", FRENCH),
        ("utf-8", CHINESE),
    ],
)
def test_a_charset_nobody_names_is_detected(python: str, text: str) -> None:
    assert decode((text * 3).encode(python)) == text * 3


@pytest.mark.parametrize(
    "tag",
    [
        '<meta charset="gbk">',
        "<META CHARSET=GBK />",
        '<meta http-equiv="Content-Type" content="text/html; charset=gb2312">',
        "<?xml version='1.0' encoding='GBK'?>",
    ],
)
def test_the_page_names_its_own_charset(tag: str) -> None:
    assert CHINESE in decode((tag + CHINESE).encode("gbk"))


def test_the_message_beats_the_header_and_the_header_the_meta_tag() -> None:
    body = ('<meta charset="big5">' + CHINESE).encode("gbk")
    assert CHINESE in decode(body, charset="gbk", header="big5")
    assert CHINESE in decode(body, header="gbk")


@pytest.mark.parametrize(
    "label", ["utf-7", "idna", "punycode", "unicode_escape", "rot13", "hex", "", "é", "a\0b"]
)
def test_codecs_that_are_no_charset_are_unknown(label: str) -> None:
    assert codec(label) is None


def test_malformed_and_cut_sequences_become_replacement_characters() -> None:
    assert decode(b"abc\xff", charset="utf-8") == "abc�"
    assert decode(CHINESE.encode()[:-1], charset="utf-8") == CHINESE[:-1] + "�"
    assert decode(b"") == ""
