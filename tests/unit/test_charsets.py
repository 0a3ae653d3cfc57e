"""Every charset of the Encoding standard, wherever a page may declare it, and nowhere else."""

from __future__ import annotations

import codecs

import pytest

from stream.errors import PageError
from stream.text.declared_charset import DECLARED_BYTES
from stream.text.decode import Kind, decode

LABELS = {
    "utf-8": "unicode-1-1-utf-8 unicode11utf8 unicode20utf8 utf-8 utf8 x-unicode20utf8",
    "ibm866": "866 cp866 csibm866 ibm866",
    "iso-8859-2": "csisolatin2 iso-8859-2 iso-ir-101 iso8859-2 iso88592 iso_8859-2 iso_8859-2:1987 l2 latin2",
    "iso-8859-3": "csisolatin3 iso-8859-3 iso-ir-109 iso8859-3 iso88593 iso_8859-3 iso_8859-3:1988 l3 latin3",
    "iso-8859-4": "csisolatin4 iso-8859-4 iso-ir-110 iso8859-4 iso88594 iso_8859-4 iso_8859-4:1988 l4 latin4",
    "iso-8859-5": "csisolatincyrillic cyrillic iso-8859-5 iso-ir-144 iso8859-5 iso88595 iso_8859-5"
    " iso_8859-5:1988",
    "iso-8859-6": "arabic asmo-708 csiso88596e csiso88596i csisolatinarabic ecma-114 iso-8859-6"
    " iso-8859-6-e iso-8859-6-i iso-ir-127 iso8859-6 iso88596 iso_8859-6 iso_8859-6:1987",
    "iso-8859-7": "csisolatingreek ecma-118 elot_928 greek greek8 iso-8859-7 iso-ir-126 iso8859-7"
    " iso88597 iso_8859-7 iso_8859-7:1987 sun_eu_greek",
    "iso-8859-8": "csiso88598e csisolatinhebrew hebrew iso-8859-8 iso-8859-8-e iso-ir-138 iso8859-8"
    " iso88598 iso_8859-8 iso_8859-8:1988 visual",
    "iso-8859-8-i": "csiso88598i iso-8859-8-i logical",
    "iso-8859-10": "csisolatin6 iso-8859-10 iso-ir-157 iso8859-10 iso885910 l6 latin6",
    "iso-8859-13": "iso-8859-13 iso8859-13 iso885913",
    "iso-8859-14": "iso-8859-14 iso8859-14 iso885914",
    "iso-8859-15": "csisolatin9 iso-8859-15 iso8859-15 iso885915 iso_8859-15 l9",
    "iso-8859-16": "iso-8859-16",
    "koi8-r": "cskoi8r koi koi8 koi8-r koi8_r",
    "koi8-u": "koi8-ru koi8-u",
    "macintosh": "csmacintosh mac macintosh x-mac-roman",
    "windows-874": "dos-874 iso-8859-11 iso8859-11 iso885911 tis-620 windows-874",
    "windows-1250": "cp1250 windows-1250 x-cp1250",
    "windows-1251": "cp1251 windows-1251 x-cp1251",
    "windows-1252": "ansi_x3.4-1968 ascii cp1252 cp819 csisolatin1 ibm819 iso-8859-1 iso-ir-100 iso8859-1"
    " iso88591 iso_8859-1 iso_8859-1:1987 l1 latin1 us-ascii windows-1252 x-cp1252",
    "windows-1253": "cp1253 windows-1253 x-cp1253",
    "windows-1254": "cp1254 csisolatin5 iso-8859-9 iso-ir-148 iso8859-9 iso88599 iso_8859-9"
    " iso_8859-9:1989 l5 latin5 windows-1254 x-cp1254",
    "windows-1255": "cp1255 windows-1255 x-cp1255",
    "windows-1256": "cp1256 windows-1256 x-cp1256",
    "windows-1257": "cp1257 windows-1257 x-cp1257",
    "windows-1258": "cp1258 windows-1258 x-cp1258",
    "x-mac-cyrillic": "x-mac-cyrillic x-mac-ukrainian",
    "gbk": "chinese csgb2312 csiso58gb231280 gb2312 gb_2312 gb_2312-80 gbk iso-ir-58 x-gbk",
    "gb18030": "gb18030",
    "big5": "big5 big5-hkscs cn-big5 csbig5 x-x-big5",
    "euc-jp": "cseucpkdfmtjapanese euc-jp x-euc-jp",
    "iso-2022-jp": "csiso2022jp iso-2022-jp",
    "shift_jis": "csshiftjis ms932 ms_kanji shift-jis shift_jis sjis windows-31j x-sjis",
    "euc-kr": "cseuckr csksc56011987 euc-kr iso-ir-149 korean ks_c_5601-1987 ks_c_5601-1989 ksc5601"
    " ksc_5601 windows-949",
    "utf-16be": "unicodefffe utf-16be",
    "utf-16le": "csunicode iso-10646-ucs-2 ucs-2 unicode unicodefeff utf-16 utf-16le",
    "iso-2022-kr": "csiso2022kr iso-2022-kr",
    "hz-gb-2312": "hz-gb-2312",
    "x-user-defined": "x-user-defined",
}
"""The labels of the standard by encoding. `replacement` and `iso-2022-cn`, which browsers do not decode, are
unknown; of the others that they replace, pages are read."""
SAMPLES = {
    "ibm866": "Ремонт маяка",
    "iso-8859-2": "Oprava majáku, dřív než začnou bouře",
    "iso-8859-3": "Riparo ĉe ŝtono",
    "iso-8859-4": "Bāka tiek labota šķērsām",
    "iso-8859-5": "Ремонт маяка",
    "iso-8859-6": "إصلاح المنارة",
    "iso-8859-7": "Επισκευή του φάρου",
    "iso-8859-8": "תיקון המגדלור",
    "iso-8859-8-i": "תיקון המגדלור",
    "iso-8859-10": "Viti lagfærður áður",
    "iso-8859-13": "Bākas remonts pirms vētrām",
    "iso-8859-14": "Ŵyl ŷd",
    "iso-8859-15": "Réparé pour 5 €, cœur",
    "iso-8859-16": "Farul în reparație",
    "koi8-r": "Ремонт маяка",
    "koi8-u": "Ремонт маяка, її",
    "macintosh": "Réparé avant l’été",
    "windows-874": "ซ่อมประภาคาร",
    "windows-1250": "Oprava majáku, dřív než",
    "windows-1251": "Ремонт маяка",
    "windows-1252": "Réparé l’été – 5 €",
    "windows-1253": "Επισκευή του φάρου",
    "windows-1254": "Fener onarılıyor, şimdi",
    "windows-1255": "תיקון המגדלור",
    "windows-1256": "إصلاح المنارة",
    "windows-1257": "Bākas remonts pirms vētrām",
    "windows-1258": "Sửa ngọn hải đăng",
    "x-mac-cyrillic": "Ремонт маяка",
    "gbk": "修理灯塔𠮷",
    "gb18030": "修理灯塔𠮷",
    "big5": "修理燈塔嘅",
    "euc-jp": "灯台を修理",
    "iso-2022-jp": "灯台を修理ｶﾅ",
    "shift_jis": "灯台を修理①",
    "euc-kr": "등대를 고친다 똠",
    "utf-16be": "修理灯塔 é",
    "utf-16le": "修理灯塔 é",
    "utf-8": "修理灯塔 é",
    "iso-2022-kr": "등대를 고친다",
    "hz-gb-2312": "修理灯塔",
    "x-user-defined": "plain",
}
OTHERS = [("gbk", "cp936"), ("utf-8", "utf_8"), ("utf-8", '"utf-8"')]
"""Labels that are not the standard's, and are known all the same."""
LABELLED = [(encoding, label) for encoding, labels in LABELS.items() for label in labels.split()]
WRITERS = {
    "gbk": "gb18030",
    "shift_jis": "cp932",
    "euc-kr": "cp949",
    "windows-874": "cp874",
    "big5": "big5hkscs",
    "iso-2022-jp": "iso2022_jp_ext",
    "utf-16be": "utf-16-be",
    "utf-16le": "utf-16-le",
    "x-mac-cyrillic": "mac_cyrillic",
    "iso-8859-8-i": "iso8859-8",
    "macintosh": "mac_roman",
    "hz-gb-2312": "hz",
    "x-user-defined": "ascii",
}
"""Python's names, where they are others."""
UTF_8 = "Портовое управление ремонтирует старый маяк."
CYRILLIC = UTF_8.encode("cp1251")


def written(encoding: str) -> bytes:
    text = SAMPLES[encoding]
    if encoding == "windows-1258":  # it has combining tones
        return b"S\xfd\xd2a ng\xf2n ha\xd2i \xf0\xe3ng"
    return text.encode(WRITERS.get(encoding, encoding))


@pytest.mark.parametrize(("encoding", "label"), [*LABELLED, *OTHERS])
def test_all_labels_of_the_standard_are_known(encoding: str, label: str) -> None:
    body = written(encoding)
    expected = body.decode(WRITERS.get(encoding, encoding))
    for spelling in (label, f" {label.upper()}\t"):
        assert decode(body, charset=spelling) == expected
        assert decode(body, header=spelling) == expected
    if not encoding.startswith("utf-16"):
        page = f"<title>a</title><meta charset={label}><p>".encode()
        assert decode(page + body).endswith(expected)
        page = f"<?xml version='1.0' encoding='{label}'?>".encode()
        assert decode(page + body, kind="xml").endswith(expected)


UNKNOWN = [
    "none",
    "null",
    "utf-8,gbk",
    "ISO-88509-1",
    "utf-7",
    "cesu-8",
    "utf8mb4",
    "x-klingon",
    "binary",
    "8859-1",
    "auto",
    "replacement",
    "iso-2022-cn",
    "iso-2022-cn-ext",
    "$charset",
    "{{charset}}",
    "utf-8\0",
    "é",
    "\u202eutf-8",
    "=",
    "a" * 2000,
    "idna",
    "rot13",
    "unicode_escape",
    "punycode",
    "undefined",
    "mbcs",
    "oem",
    "zlib",
    "base64",
    "quopri",
    "utf_8_sig",
    "cp65001",
]


@pytest.mark.parametrize("label", UNKNOWN)
def test_a_label_that_nobody_knows_counts_in_a_message_only(label: str) -> None:
    """Browsers ignore it elsewhere: a header is its server's, and the page may say better."""
    for body in (
        UTF_8.encode(),
        f"<meta charset=utf-8>{UTF_8}".encode(),
        b"<meta charset=cp1251>" + CYRILLIC,
    ):
        assert decode(body, header=label).endswith(UTF_8)
    in_page = f'<meta charset="{label}"><meta charset="windows-1251">'.encode()
    assert decode(in_page + CYRILLIC).endswith(UTF_8)
    with pytest.raises(PageError) as caught:
        decode(UTF_8.encode(), charset=label)
    assert caught.value.reason == "unknown_charset"
    assert caught.value.detail == label[:100]


DECLARED = [
    "<meta charset=windows-1251>",
    "<META\nCHARSET = 'Windows-1251' />",
    '<meta charset=" windows-1251 ">',
    "<meta/charset=windows-1251>",
    "<meta name=a content='>' charset=windows-1251>",
    '<meta http-equiv="Content-Type" content="text/html; charset=windows-1251">',
    "<meta content='text/html;charset = \"windows-1251\"' http-equiv=content-TYPE>",
    "<meta http-equiv=content-type content='charset charset=windows-1251;x'>",
    "<meta http-equiv=content-type content=charset=windows-1251>",
    "<meta charset=x-klingon http-equiv=content-type content='charset=utf-8'><meta charset=windows-1251>",
    "<meta charset><meta charset=''><meta charset=windows-1251>",
    "<!doctype html><html lang=ru><head><title>a</title><meta charset=windows-1251><meta charset=utf-8>",
    "<!-- <meta charset=utf-8> --><meta charset=windows-1251>",
    "<!--><meta charset=windows-1251><!-- -->",
    "<!-- a --!><meta charset=windows-1251>",
    "<![if IE]><meta charset=windows-1251><![endif]>",
    "<!--[if lt IE 9]><meta charset=utf-8><![endif]--><meta charset=windows-1251>",
    "<script>a = '<meta charset=utf-8>'</script><meta charset=windows-1251>",
    "<SCRIPT src=a><meta charset=utf-8></scripts></Script ><meta charset=windows-1251>",
    "<style><meta charset=utf-8></style><title><meta charset=utf-8></title><meta charset=windows-1251>",
    "<noscript><meta charset=utf-8></noscript><meta charset=windows-1251>",
    "<textarea><meta charset=utf-8></textarea><xmp><meta charset=utf-8></xmp><meta charset=windows-1251>",
    "<a title='<meta charset=utf-8>'><meta charset=windows-1251>",
    "<p '<meta charset=utf-8>'><meta charset=windows-1251>",
    "1 < 2 <3 <!doctype <meta charset=utf-8><meta charset=windows-1251>",
    "</p title='<meta charset=utf-8>'><meta charset=windows-1251>",
    "<metadata charset=utf-8><meta-a charset=utf-8><meta charset=windows-1251>",
    "<meta http-equiv=refresh content='charset=utf-8'><meta charset=windows-1251>",
    "<meta name=content-type content='text/html; charset=utf-8'><meta charset=windows-1251>",
    "<meta http-equiv=content-type content='text/html; charset=\"utf-8'><meta charset=windows-1251>",
    "<script charset=utf-8></script><link charset=utf-8><a charset=utf-8></a><meta charset=windows-1251>",
    "<?xml version='1.0' encoding='windows-1251'?>",
    "\n<?xml version='1.0' encoding = \"Windows-1251\" standalone='yes'?>",
    "<?xml version='1.0' encoding='utf-8'?><meta charset=windows-1251>",
    f"<!-- {'x' * 1024} --><meta charset=windows-1251>",
    f"<title>{'x' * 1020}</title><meta charset=windows-1251>",
    f"{'<p>x' * 30_000}<meta charset=windows-1251>",
    f"<body>{'x' * 9000}<p>y<meta charset=windows-1251>",
]


@pytest.mark.parametrize("start", DECLARED)
def test_a_page_declares_its_charset_where_html_lets_it(start: str) -> None:
    """The same bytes are no UTF-8, and a detector would know them; this Greek letter it would not."""
    text = decode(start.encode() + b"<p>\xbf\xa8 \xb8</p>")
    assert text.endswith("<p>їЁ ё</p>")


UNDECLARED = [
    "<!-- <meta charset=windows-1251> -->",
    "<!-- <meta charset=windows-1251>",
    "<script>'<meta charset=windows-1251>'</script>",
    "<script><!-- <meta charset=windows-1251>",
    "<plaintext></plaintext><meta charset=windows-1251>",
    "<a title='<meta charset=windows-1251>'>",
    "<meta name=description content='text/html; charset=windows-1251'>",
    "<meta content='text/html; charset=windows-1251'>",
    "<meta http-equiv=refresh content='text/html; charset=windows-1251'>",
    "<metas charset=windows-1251>",
    "<?php echo '<meta charset=windows-1251>'; ?>",
    "<link charset=windows-1251>charset=windows-1251 ",
    "&lt;meta charset=windows-1251>",
    "a <?xml version='1.0' encoding='windows-1251'?>",
    "<meta charset=utf-16>",
    "<meta charset=UTF-16BE><meta charset=windows-1251>",
    "<?xml version='1.0' encoding='utf-16'?>",
    f"{'x' * DECLARED_BYTES}<meta charset=windows-1251>",
]


IN_TEXT = ("<meta charset=windows-1251>", "<?xml version='1.0' encoding='windows-1251'?>")


@pytest.mark.parametrize(
    ("start", "kind"), [*((each, "html") for each in UNDECLARED), *((each, "text") for each in IN_TEXT)]
)
def test_nothing_else_declares_a_charset(start: str, kind: Kind) -> None:
    assert decode((start + UTF_8).encode(), kind=kind).endswith(UTF_8)


def test_an_xml_declaration_counts_before_meta_in_xml_and_after_it_in_html() -> None:
    page = b"<?xml version='1.0' encoding='utf-8'?><html><meta charset='windows-1251'/>"
    assert decode(page + UTF_8.encode(), kind="xml").endswith(UTF_8)
    assert decode(page + CYRILLIC, kind="html").endswith(UTF_8)


@pytest.mark.parametrize(
    ("mark", "python"),
    [
        (codecs.BOM_UTF8, "utf-8"),
        (codecs.BOM_UTF16_LE, "utf-16-le"),
        (codecs.BOM_UTF16_BE, "utf-16-be"),
        (codecs.BOM_UTF32_LE, "utf-32-le"),
        (codecs.BOM_UTF32_BE, "utf-32-be"),
    ],
)
def test_a_byte_order_mark_wins(mark: bytes, python: str) -> None:
    page = f"<meta charset=windows-1251>{UTF_8}"
    for given in ({}, {"charset": "big5"}, {"header": "koi8-r"}, {"charset": "x-klingon"}, {"kind": "text"}):
        assert decode(mark + page.encode(python), **given) == page  # type: ignore[arg-type]


DETECTED = [
    ("utf-8", SAMPLES["gbk"]),
    ("iso2022_jp", "灯台を修理しています。"),
    ("iso2022_jp_ext", "ｶﾅ"),
    ("iso2022_jp_ext", "丂 JIS X 0212"),
    ("iso2022_kr", "등대를 고친다"),
    ("utf-16-le", "<p>The old lighthouse</p>"),
    ("utf-16-be", "<p>The old lighthouse</p>"),
    ("utf-16-le", "<html><body><p>修理灯塔</p></body></html>"),
    ("utf-16-be", "<?xml version='1.0'?><p>é</p>"),
    ("ascii", "ESC [1m and 1 < 2 \x1b[1m"),
    ("ascii", "a\0b\0"),
    ("ascii", ""),
    ("ascii", "\0"),
    ("gb18030", "今天天气很好，我们去公园散步，然后回家吃饭。" * 3),
    ("big5", "今天天氣很好，我們去公園散步，然後回家吃飯。" * 3),
    ("shift_jis", "今日は天気がいいので、公園まで散歩してから家に帰りました。" * 3),
    ("euc_jp", "今日は天気がいいので、公園まで散歩してから家に帰りました。" * 3),
    ("euc_kr", "오늘은 날씨가 좋아서 공원까지 산책하고 집에 돌아왔습니다." * 3),
    ("cp1251", "Сегодня хорошая погода, мы пошли гулять в парк." * 3),
    ("cp1252", "Le café fermé l’été reste à côté du théâtre." * 3),
]


@pytest.mark.parametrize(("python", "text"), DETECTED)
def test_a_charset_that_nobody_declares_is_detected(python: str, text: str) -> None:
    assert decode(text.encode(python)) in (text, "ab")


def test_bytes_that_are_no_text_are_not_taken_for_utf_16() -> None:
    sound = b"".join(sample.to_bytes(2, "little") for sample in range(600))
    assert "\0" in decode(sound)


def test_the_message_beats_the_header_and_the_header_the_meta_tag() -> None:
    body = b"<meta charset=koi8-r>" + CYRILLIC
    assert decode(body, charset="windows-1251", header="koi8-r").endswith(UTF_8)
    assert decode(body, header="windows-1251").endswith(UTF_8)


def test_malformed_and_cut_sequences_become_replacement_characters() -> None:
    assert decode(b"abc\xff", charset="utf-8") == "abc\ufffd"
    assert decode(SAMPLES["gbk"].encode()[:-1], charset="utf-8") == SAMPLES["gbk"][:-1] + "\ufffd"
