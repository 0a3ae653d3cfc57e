"""Writes the known-answer vectors of fingerprints: `python -m tests.fingerprint_vectors`.

docs/reference/fingerprint.md explains the fields. The texts are written for this file.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from stream.fingerprint.default_weights import features
from stream.fingerprint.keyed_hashes import hash_tokens
from stream.fingerprint.recipe import recipe_of
from stream.fingerprint.row import Status
from stream.fingerprint.scheme import BEHAVIOUR, Scheme
from stream.fingerprint.seed import PUBLIC_SEED, digest_of, hash_keys, text_key, unit_keys, url_hasher
from stream.fingerprint.simhash import bit_sums
from stream.fingerprint.sketch import shingles
from stream.page_rows.page_fingerprinter import PageFingerprinter, ReadPage
from stream.text.characters import UNICODE
from stream.text.points import points_of
from stream.text.segment import pieces, segment, units
from stream.text.url import url_key, url_rules
from tests import plain_fingerprint

VECTORS: Final = Path(__file__).parents[1] / "schemas" / "fingerprint-vectors.json"
SECRET: Final = bytes(range(1, 17))
"""Another seed than the public one."""
LISTED: Final = 40
"""Longest list that a vector has in full. Of longer lists it has a digest."""

SHORT: Final = 400
"""Most characters of a normalised text that a vector has in full."""

TEXTS: Final[dict[str, Any]] = {
    "empty": "",
    "only punctuation": "... !!! \u2014 ???",
    "one word": "Lighthouse",
    "seven words, one below the least": "One two three four five six seven",
    "eight words": "One two three four five six seven eight",
    "four words, less than a shingle": "alpha beta gamma delta",
    "english": "The ferry leaves the harbour at half past six. Whoever misses it waits for the"
    " next one, which leaves at nine; the harbour café stays open until the ferry leaves.",
    "underscores and digits": "snake_case_name = 42; // 3.14 x86_64 C++20 v2.0.1 2024-05-17 #7 100%",
    "repeated words": "tick " + "tock " * 2 + "clock " * 3 + "bell " * 4 + "chime " * 9 + "end",
    "chinese": "清晨的码头很安静，渡船六点半离开港口。错过这班船的人要等到九点，"
    "港口的咖啡馆一直开到最后一班船离开。",
    "chinese, traditional": "清晨的碼頭很安靜，渡船六點半離開港口。"
    "錯過這班船的人要等到九點，咖啡館一直開著。",
    "chinese, names that no dictionary has": "欧阳沐霖和尉迟瑾萱在榕樾里小区遇见了皇甫砚秋，"
    "三人去了槿溪镇的荇藻书屋。",
    "chinese, rare characters": "㐀㐁䶵𠀀𠀁𪜀鿕鿖鿫々〇〆豈更﨎 人々在〇七年 丨亅丶",
    "chinese, paths of equal probability": "谢谢谢天地，看看看，等等等，人们们天天天天说说说。人々abc々",
    "japanese": "朝の港はとても静かで、フェリーは六時半に出ます。"
    "乗り遅れた人は九時まで待ちます。ｶﾌｪは開いています。",
    "korean": "아침의 항구는 매우 조용합니다. 여객선은 여섯 시 반에 떠나고"
    " 놓친 사람은 아홉 시까지 기다립니다.",
    "thai": "ท่าเรือยามเช้าเงียบมาก เรือออกเวลาหกโมงครึ่ง คนที่พลาดต้องรอถึงเก้าโมง",
    "khmer and lao": "កំពង់ផែពេលព្រឹកស្ងាត់ណាស់ ທ່າເຮືອຕອນເຊົ້າງຽບຫຼາຍ ເຮືອອອກຫົກໂມງເຄິ່ງ",
    "hindi": "सुबह का बंदरगाह बहुत शांत है। नाव साढ़े छह बजे चलती है और जो छूट जाए वह नौ बजे तक रुकता है।",
    "russian": "Утром в гавани очень тихо. Паром уходит в половине"
    " седьмого, а кто опоздал, ждёт до девяти.",
    "arabic": "المِيناءُ هادئٌ جدًّا في الصباح، وتغادر العبّارة في السادسة "
    "والنصف، ومن فاته الموعد ينتظر حتى التاسعة ﷺ.",
    "hebrew and persian": "הנמל שקט מאוד בבוקר והמעבורת יוצאת בשש וחצי. بندر صبح‌ها آرام است و کشتی می‌رود",
    "tibetan and burmese": "གྲུ་ཁ་ནི་ཞོགས་པར་ཧ་ཅང་ཁུ་སིམ་པོ་རེད། မနက်ခင်း ဆိပ်ကမ်းက တိတ်ဆိတ်တယ်",
    "mixed scripts": "Kafka的分区partition和オフセットoffset是ordered的，ไทย42字；ok。",
    "blanks in scripts without spaces": "港 务  局 将\u3000在 ok 冬 か な  ไทย แม่ 天 \n 气 , 好 x",
    "emoji": "Sunrise 🌅 at the pier 👩\u200d🚀 and ❤\ufe0f for all 🇨🇭 1\ufe0f\u20e3 of us 👍🏽 today",
    "forms that normalisation folds": "ＦＵＬＬ ｗｉｄｔｈ ﬃ ǅ Ⅳ ½ ㎏ ㍿ ① ª İ ı "
    "ẞ ß Å e\u0301 é ς Σ ﬁn…end",
    "characters that nobody sees": "co\u00adop\u200berate \ufeffzero\u2060width"
    " \u061cmark\u200e e\u034f\u0301 \u180b \U000e0041x",
    "lone surrogates, and a pair held apart": [
        *map(ord, "left"), 0xD800, *map(ord, " right"), 0xDC00, *map(ord, " pair "), 0xD842, 0xDFB7,
        *map(ord, " swapped "), 0xDFB7, 0xD842, *map(ord, " one two three four"),
    ],
    "marks in the wrong places": "\u0301alone \u0e31 ม\u0e31 好\u0301好 x\u0301\u0323 "
    ".\u0301y z\u0301-\u0301w ក\u17d2ខ a\u0e31b",
    "assigned after Unicode 14": "faces \U0001fae8\U0001fae9 letters \U00031350\U0001e4d0 \u0c5d"
    "\u0cf3x end of it all",
    "nul and controls": "nul\0byte tab\tnewline\nreturn\rformfeed"
    "\x0cescape\x1bdelete\x7fnext\x85line\u2028sep",
}  # fmt: skip
"""Texts by name, as strings or as lists of code points."""


def edges(ranges: Iterable[tuple[int, int]], around: Sequence[int]) -> list[int]:
    """The code points at the edges of ranges, twice each, and those beside them, amid others."""
    points = sorted({point for first, last in ranges for point in (first - 1, first, last, last + 1)})
    return [each for point in points for each in (point, point, *around)]


EDGES: Final = {
    "edges of ignorable ranges": edges(plain_fingerprint.IGNORED, [0x61]),
    "edges of scripts": edges((*plain_fingerprint.HAN, *plain_fingerprint.UNSPACED), [0x61, 0x20]),
    "edges of what the dictionary cuts": edges(plain_fingerprint.LOOKED_UP, [0x2E]),
    "letters that are the same to readers": [
        each for point in plain_fingerprint.same_letters() for each in (0x78, point, 0x301, 0x20)
    ],
}
"""More texts, as code points."""

RULES: Final[dict[str, Any]] = {
    "61 marks on one letter": {"repeat": [0x61, *[0x301, 0x323] * 30, 0x301, 0x62], "times": 3},
    "30 marks and 31 marks": {
        "repeat": [0x78, *[0x316, 0x301] * 15, 0x20, 0x79, *[0x301, 0x316] * 15, 0x327],
        "times": 1,
    },
    "a long token": {"repeat": [0x61, 0x62, 0xE9], "times": 100},
    **{
        f"{shingled} shingles": {"words": shingled + 4}
        for shingled in (1, 97, 98, 99, 105, 106, 335, 336, 337, 4800, 4801, 9600, 9601)
    },
    "1000 different words, repeated": {"words": 3000, "of": 1000},
    "rare Han characters": {"han": 3000},
    "every seventh code point": {"every": 7, "separator": ""},
    "every fifth code point, by itself": {"every": 5, "separator": " "},
    "ligatures beyond the limit": {"repeat": [0xFDFB], "times": 65537},
}  # fmt: skip
"""Texts by name, as rules."""

OPTIONS: Final[tuple[dict[str, Any], ...]] = (
    {"width": 32},
    {"width": 128},
    {"width": 128, "hash": "md5"},
    {"width": 32, "hash": "sha1"},
    {"hash": "fnv1a"},
    {"width": 128, "hash": "jenkins"},
    {"hash": "xxh3"},
    {"hash": "murmur3"},
    {"han_variants": "folded"},
    {"features": "ngrams", "feature_length": 2},
    {"features": "shingles", "feature_length": 2},
    {"features": "sentences", "sentences": 2},
    {"weights": "tf"},
    {"weights": "log"},
    {"weights": "tf", "weight_cap": 7},
    {"weight_cap": 2},
    {"ties": "zero"},
    {"ties": "one"},
    {"minimum_tokens": 100},
    {"short_tokens": 100},
    {"shingle": 3},
    {"sketch_bins": 64},
    {"sketch_bins": 256, "shingle": 1},
    {"sketch": "minhash", "sketch_bins": 256, "sketch_bits": 2},
    {"sketch": "minhash", "sketch_bins": 64, "sketch_bits": 8},
)
"""Options that have vectors of their own, the other options of whose schemes are the defaults."""
OPTION_TEXTS: Final = ("english", "chinese, traditional", "mixed scripts", "repeated words")
"""Texts that have vectors for them, and vectors under another seed."""

URLS: Final = (
    "HTTP://Example.COM:80/a/../b/./c?b=2&a=1&utm_source=x#top",
    "https://example.com",
    "https://example.com:8443?q",
    "http://example.com/%7euser/%e4%bd%a0/你好/a%2fb%zz?x=a b+c%2B&y=%3d;é",
    "http://example.com/app#!/news/7?b=1&a=2",
    "http://example.com/app#/route",
    " \thttp://exam\nple.com\\dir\\page?q=\\ \x1f",
    "http://例え.jp/",
    "http://user:pa%73s@example.com/",
    "http://example.com/?GCLID=1&&b&a=2&b=1&utm_x&gclid_of=3",
    "http://example.com/?fbclid=1",
    "http://example.com/?utm_x&",
    "http://example.com/?&&",
    "https:///%65xample.com/?a=1&amp;b=&#38;c%20d#&amp;x",
    "http://0x7F.1:080/",
)


def text_of(written: Any) -> str:
    """The text of a vector: a string, code points, or a rule that the page explains."""
    if isinstance(written, str):
        return written
    if isinstance(written, list):
        return "".join(map(chr, written))
    if "repeat" in written:
        return "".join(map(chr, written["repeat"])) * written["times"]
    if "words" in written:
        different = written.get("of", written["words"])
        return " ".join(f"w{number % different}" for number in range(written["words"]))
    if "han" in written:
        return "".join(
            chr(0x4E00 + (number * number * 31 + 7 * number) % 20_992) for number in range(written["han"])
        )
    return written["separator"].join(map(chr, range(0x20, 0x3_0000, written["every"])))


def numbers(values: Iterable[int], size: int) -> Any:
    """Integers of `size` bytes in hexadecimal; of a long list the digest of their little-endian bytes."""
    whole = list(values)
    if len(whole) <= LISTED:
        return [f"{value:0{2 * size}x}" for value in whole]
    return {
        "count": len(whole),
        "sha256": digest(b"".join(value.to_bytes(size, "little") for value in whole)),
    }


def strings(values: Sequence[str]) -> Any:
    """A list of strings; of a long one the digest of the strings in UTF-8, each with a NUL after it."""
    if len(values) <= LISTED:
        return list(values)
    return {"count": len(values), "sha256": digest("".join(f"{value}\0" for value in values).encode())}


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def answer(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return a vector's fields, from the results for a text."""
    plain, sums = result["normalised"], result["sums"]
    is_short = len(plain) <= SHORT
    return {
        "normalised": plain if is_short else {"sha256": digest(plain.encode())},
        "length": len(plain),
        "tokens": strings(result["tokens"]),
        "token_hashes": numbers(result["token_hashes"], 8),
        "units": strings(result["units"]),
        "shingles": numbers(result["shingles"], 4),
        "features": result["features"],
        "sums": sums if is_short else {"sha256": digest(struct.pack(f"<{len(sums)}q", *sums))},
        "fingerprint": f"{result['fingerprint']:0{len(sums) // 4}x}",
        "sketch": result["sketch"].hex(),
        "minima": minima_of(result["sketch"]),
        "text_hash": result["text_hash"].hex(),
        "status": result["status"],
    }


def minima_of(sketch: bytes) -> list[str]:
    """Return the minima at the end of a sketch in hexadecimal."""
    words = struct.unpack("<8Q", sketch[-64:])
    minima = [word >> 19 * place & (1 << 19) - 1 for word in words[:3] for place in range(3)]
    minima += [word >> 16 * place & 0xFFFF for word in words[3:] for place in range(4)]
    minima.append(sum(word >> 57 << 7 * number for number, word in enumerate(words[:3])))
    return [f"{each:x}" for each in minima]


def result_of(text: str, scheme: Scheme, seed: bytes) -> dict[str, Any]:
    """Return the results of the product for a text, and of its steps."""
    fingerprinter = PageFingerprinter(scheme.with_seed(seed), seed)
    whole = fingerprinter.text(text)
    (row,) = fingerprinter.rows([ReadPage("http://example.com/", "", None, text)])
    plain = fingerprinter.normalise(text)
    ranges = pieces(points_of([plain]), scheme.segmenter)
    tokens = [
        plain[start:end] for start, end in zip(ranges.starts.tolist(), ranges.ends.tolist(), strict=True)
    ]
    keys, of_text = hash_keys(seed), units(plain)
    hashes = hash_tokens([token.encode() for token in tokens], keys)
    recipe = recipe_of(scheme, seed)
    weighted = recipe.features(plain, segment(plain, scheme.segmenter)) if recipe else features(hashes)
    unit_hashes = hash_tokens(of_text, unit_keys(seed)).astype(np.uint32)
    return {
        "normalised": plain,
        "tokens": tokens,
        "token_hashes": hashes.tolist(),
        "units": [unit.decode() for unit in of_text],
        "shingles": sorted(set(shingles(unit_hashes, scheme.shingle).tolist())),
        "sums": bit_sums(*weighted, scheme.width).tolist(),
        "features": whole.features,
        "fingerprint": whole.fingerprint,
        "sketch": whole.sketch,
        "text_hash": whole.text_hash,
        "status": Status(row.status).name.lower(),
    }


def content() -> dict[str, Any]:
    """The file."""
    default = msgspec.structs.asdict(Scheme())
    vectors: list[dict[str, Any]] = []
    for seed, names in ((PUBLIC_SEED, TEXTS | EDGES | RULES), (SECRET, OPTION_TEXTS)):
        for name in names:
            written = (TEXTS | EDGES | RULES)[name]
            given = {"name": name, "seed": seed.hex(), "text": written}
            vectors.append(given | answer(result_of(text_of(written), Scheme(), seed)))
    others: list[dict[str, Any]] = []
    for vector, options in product(vectors, OPTIONS):
        if vector["name"] not in OPTION_TEXTS or (vector["seed"] == SECRET.hex() and "hash" not in options):
            continue
        seed = bytes.fromhex(vector["seed"])
        fields = answer(result_of(text_of(vector["text"]), Scheme.of(options), seed))
        del fields["sums"]  # as many as bits, and the fingerprint follows from them
        if changed := {name: value for name, value in fields.items() if value != vector[name]}:
            others.append({"name": vector["name"], "seed": vector["seed"], "options": options} | changed)
    return {
        "specification": "docs/reference/fingerprint.md",
        "scheme": default,
        "behaviour": BEHAVIOUR,
        "unicode": UNICODE,
        "seeds": [keys_of(seed) for seed in (PUBLIC_SEED, SECRET)],
        "vectors": vectors,
        "options": others,
        "urls": [url_vector(url, rules) for url, rules in product(URLS, ("", default["url_key"]))],
    }


def url_vector(url: str, rules: str) -> dict[str, Any]:
    """The key of a URL, and its digest under each seed."""
    key = url_key(url, url_rules(rules))
    digests = [url_hasher(seed)(key).hex() for seed in (PUBLIC_SEED, SECRET)]
    return {"url": url, "rules": rules, "key": key, "digests": digests}


def keys_of(seed: bytes) -> dict[str, Any]:
    """The keys of a seed."""
    keys, of_units = hash_keys(seed), unit_keys(seed)
    return {
        "seed": seed.hex(),
        "digest": digest_of(seed),
        "scheme_id": Scheme().with_seed(seed).id,
        "state": f"{keys.state:016x}",
        "added": f"{keys.added:016x}",
        "left": f"{keys.left:016x}",
        "right": f"{keys.right:016x}",
        "unit_left": f"{of_units.left:016x}",
        "unit_right": f"{of_units.right:016x}",
        "factors": [f"{factor:016x}" for factor in keys.factors[:4].tolist()],
        "text_key": text_key(seed).hex(),
    }


def printed(content: Mapping[str, Any]) -> str:
    """The file's text: a field a line."""
    lines = []
    for name, value in content.items():
        if isinstance(value, list):
            fields = (
                ",\n   ".join(f"{json.dumps(field)}: {json.dumps(each[field])}" for field in each)
                for each in value
            )
            written = "[\n  {" + "},\n  {".join(fields) + "}\n ]"
        else:
            written = json.dumps(value)
        lines.append(f" {json.dumps(name)}: {written}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    VECTORS.write_text(printed(content()), "ascii")
