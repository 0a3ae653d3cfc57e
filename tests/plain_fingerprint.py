"""The fingerprint by its specification alone: docs/reference/fingerprint.md in plain Python.

It imports nothing of `stream`. The table of characters and the list of tracking parameters are read as the
data files that the page names, and jieba's dictionary and model from its package. It is slow, and meant to be
read beside the page.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import json
import math
import re
import runpy
import unicodedata
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

DATA: Final = Path(__file__).parents[1] / "stream" / "text"
M32: Final = 2**32 - 1
M64: Final = 2**64 - 1
GOLDEN: Final = 0x9E3779B97F4A7C15

Options = Mapping[str, Any]


# Keys


def derive(seed: bytes, purpose: bytes, size: int) -> bytes:
    return hashlib.blake2b(b"", key=seed, person=b"neardup." + purpose, digest_size=size).digest()


def token_keys(seed: bytes) -> tuple[int, int, int, int]:
    key = derive(seed, b"tokens", 32)
    state, added, left, right = (int.from_bytes(key[at : at + 8], "little") for at in range(0, 32, 8))
    return state, added, left, right


def unit_key(seed: bytes) -> tuple[int, int]:
    key = derive(seed, b"units", 16)
    return int.from_bytes(key[:8], "little"), int.from_bytes(key[8:], "little")


# Normalisation

IGNORABLE: Final = (
    "00AD 034F 061C 115F-1160 17B4-17B5 180B-180F 200B-200F 202A-202E 2060-206F 3164 FE00-FE0F FEFF FFA0"
    " FFF0-FFF8 1BCA0-1BCA3 1D173-1D17A E0000-E0FFF"
)


def ranges(listed: str) -> list[tuple[int, int]]:
    """Inclusive ranges of hexadecimal code points."""
    return [
        (int(first, 16), int(last or first, 16))
        for first, _, last in (part.partition("-") for part in listed.split())
    ]


def is_within(point: int, listed: list[tuple[int, int]]) -> bool:
    return any(first <= point <= last for first, last in listed)


IGNORED: Final = ranges(IGNORABLE)


@functools.cache
def table() -> tuple[list[int], str]:
    lines = [line.split() for line in (DATA / "characters.txt").read_text("ascii").splitlines()]
    return [int(start, 16) for start, _ in lines], "".join(letter for _, letter in lines)


def class_of(character: str) -> str:
    """`-` unassigned, `.` neither, `w` a word character, `m` a mark."""
    starts, letters = table()
    return letters[bisect_right(starts, ord(character)) - 1]


def normalise(text: str, han_variants: str = "kept") -> str:
    text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    ligatures = [place for place, character in enumerate(text) if character in "\ufdfa\ufdfb"]
    if len(ligatures) > 65_536:
        text = text[: ligatures[65_536]]
    text = "".join(character for character in text if not is_within(ord(character), IGNORED))
    parts, marks = [], 0
    for character in text:
        if class_of(character) != "-" and unicodedata.combining(unicodedata.normalize("NFKD", character)[0]):
            if marks and marks % 30 == 0:
                parts.append("\u034f")
            marks += 1
        else:
            marks = 0
        parts.append(character)
    # Unassigned characters are kept: what lies between them is normalised by itself.
    kept: list[str] = []
    run = ""
    for character in [*parts, ""]:
        if character and class_of(character) != "-":
            run += character
            continue
        normal = unicodedata.normalize("NFKC", run).replace("\u034f", "")
        kept += normal.translate(same_letters()).casefold(), character
        run = ""
    text = "".join(kept)
    text = close_up(text)
    if han_variants == "folded":
        text = "".join(map(simplify, text))
    return text


@functools.cache
def same_letters() -> dict[int, str]:
    lines = (DATA / "letters.txt").read_text("utf-8").splitlines()
    pairs = (line.partition("#")[0].split(":") for line in lines if ":" in line.partition("#")[0])
    return {int(one, 16): "".join(chr(int(each, 16)) for each in others.split()) for one, others in pairs}


def close_up(text: str) -> str:
    """`text` without spaces between two characters of scripts without spaces."""
    pieces = re.split("( +)", text)
    for place in range(1, len(pieces) - 1, 2):
        before, after = pieces[place - 1][-1:], pieces[place + 1][:1]
        if before and after and is_unspaced(before) and is_unspaced(after):
            pieces[place] = ""
    return "".join(pieces)


def is_unspaced(character: str) -> bool:
    return class_of(character) in "wm" and is_within(ord(character), HAN + UNSPACED)


def simplify(character: str) -> str:
    if not is_within(ord(character), ranges("3400-4DBF 4E00-9FFF 20000-323AF")):
        return character
    converted = converter()(character)
    return converted if len(converted) == 1 else character


@functools.cache
def converter() -> Any:
    import opencc

    return functools.cache(opencc.OpenCC("t2s").convert)


# Words, tokens and units

HAN: Final = ranges("3005-3007 3400-4DBF 4E00-9FFF F900-FAFF 20000-323AF")
UNSPACED: Final = ranges(
    "0E00-0EFF 1000-109F 1780-17FF 1950-19DF 1A20-1AAF 1B00-1B7F 3021-3029 3031-303F 3041-312F 31A0-31BF"
    " 31F0-31FF A000-A4CF A980-A9FF AA60-AADF 11700-1174F 16FE0-18D7F 1AFF0-1B2FF"
)


@functools.cache
def kind(character: str) -> str:
    letter = class_of(character)
    if letter == "w":
        point = ord(character)
        return "han" if is_within(point, HAN) else "unspaced" if is_within(point, UNSPACED) else "spaced"
    return "mark" if letter == "m" else "none"


def runs(text: str) -> Iterator[tuple[str, str]]:
    """The runs of a normalised text, each with its kind."""
    run, of = "", "none"
    for character in [*text, "\0"]:
        own = kind(character)
        if own == "mark" and of in ("spaced", "unspaced"):
            own = of  # a mark belongs to its base character
        if own == of and own != "none":
            run += character
            continue
        if run:
            yield of, run
        run, of = (character, own) if own in ("han", "spaced", "unspaced") else ("", "none")


def tokens(text: str) -> list[str]:
    """Return the tokens in text order."""
    result: list[str] = []
    for of, run in runs(text):
        if of == "spaced":
            result.append(run)
        elif of == "unspaced":
            result += [run[at : at + 3] for at in range(max(1, len(run) - 2))]
        else:
            result += han_words(run)
    return result


def units(text: str) -> list[str]:
    result: list[str] = []
    for of, run in runs(text):
        if of == "spaced":
            result.append(run)
        elif of == "han":
            result += run
        else:
            for character in run:
                if kind(character) == "mark":
                    result[-1] += character
                else:
                    result.append(character)
    return result


# Han words

LOOKED_UP: Final = ranges("3400-4DBF 4E00-9FFF F900-FAFF 20000-2A6DF 2A700-2EBEF 2F800-2FA1F")
IMPOSSIBLE: Final = -3.14e100
START: Final = {"B": -0.26268660809250016, "E": IMPOSSIBLE, "M": IMPOSSIBLE, "S": -1.4652633398537678}
FOLLOW: Final = {
    "BE": -0.51082562376599,
    "BM": -0.916290731874155,
    "EB": -0.5897149736854513,
    "ES": -0.8085250474669937,
    "ME": -0.33344856811948514,
    "MM": -1.2603623820268226,
    "SB": -0.7211965654669841,
    "SS": -0.6658631448798212,
}


def package_file(name: str) -> Path:
    spec = importlib.util.find_spec("jieba")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / name


@functools.cache
def dictionary() -> tuple[dict[str, int], int, float]:
    """Frequencies by word, the length of the longest word, and the logarithm of the sum."""
    frequencies: dict[str, int] = {}
    for line in package_file("dict.txt").read_text("utf-8").splitlines():
        word, frequency, _ = line.split(" ")
        frequencies.setdefault(word, int(frequency))
    return frequencies, max(map(len, frequencies)), math.log(sum(frequencies.values()))


@functools.cache
def emissions() -> dict[str, dict[str, float]]:
    model: dict[str, dict[str, float]] = runpy.run_path(str(package_file("finalseg/prob_emit.py")))["P"]
    return {
        state: {character: round(value, 6) for character, value in each.items()}
        for state, each in model.items()
    }


def han_words(run: str) -> list[str]:
    result: list[str] = []
    part = ""
    for character in run:
        if is_within(ord(character), LOOKED_UP):
            part += character
            continue
        result += [*dictionary_words(part), character]
        part = ""
    return result + dictionary_words(part)


def dictionary_words(run: str) -> list[str]:
    frequencies, longest, total = dictionary()
    best, until = [0.0] * (len(run) + 1), [0] * len(run)
    for i in reversed(range(len(run))):
        chosen: tuple[float, int] | None = None
        for j in range(i + 1, min(len(run), i + longest) + 1):
            if frequency := frequencies.get(run[i:j]):
                score = math.log(frequency) - total + best[j]
                if chosen is None or score >= chosen[0]:
                    chosen = score, j
        best[i], until[i] = chosen or (-total + best[i + 1], i + 1)
    result, singles, i = [], "", 0
    while i < len(run):
        j = until[i]
        if j == i + 1:
            singles += run[i]
        else:
            result += [*guess_words(singles), run[i:j]]
            singles = ""
        i = j
    return result + guess_words(singles)


def guess_words(singles: str) -> list[str]:
    """Return the words of consecutive single characters."""
    if len(singles) < 2 or singles in dictionary()[0]:
        return list(singles)
    result: list[str] = []
    for part in re.findall("[\u4e00-\u9fd5]+|[^\u4e00-\u9fd5]+", singles):
        in_model = "\u4e00" <= part[0] <= "\u9fd5" and len(part) > 1
        result += model_words(part) if in_model else [part]
    return result


def model_words(part: str) -> list[str]:
    emitted = emissions()
    value = {state: START[state] + emitted[state].get(part[0], IMPOSSIBLE) for state in "BEMS"}
    previous: list[dict[str, str]] = []
    for character in part[1:]:
        sources, values = {}, {}
        for state, (one, two) in {"B": "ES", "S": "ES", "E": "BM", "M": "BM"}.items():
            own = emitted[state].get(character, IMPOSSIBLE)
            first, second = (value[other] + FOLLOW[other + state] + own for other in (one, two))
            sources[state], values[state] = (one, first) if first > second else (two, second)
        previous.append(sources)
        value = values
    state = "E" if value["E"] > value["S"] else "S"
    path = state
    for sources in reversed(previous):
        state = sources[state]
        path = state + path
    words = [""]
    for character, state in zip(part, path, strict=True):
        words[-1] += character
        if state in "ES":
            words.append("")
    return [word for word in words if word]


# Hashes


def mix64(value: int) -> int:
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & M64
    value = (value ^ value >> 27) * 0x94D049BB133111EB & M64
    return value ^ value >> 31


def mix32(value: int) -> int:
    value = (value ^ value >> 16) * 0x7FEB352D & M32
    value = (value ^ value >> 15) * 0x846CA68B & M32
    return value ^ value >> 16


def rotate(value: int, bits: int) -> int:
    return (value << bits | value >> 64 - bits) & M64


def siphash(word: int, left: int, right: int) -> int:
    a, b = left ^ 0x736F6D6570736575, right ^ 0x646F72616E646F6D
    c, d = left ^ 0x6C7967656E657261, right ^ 0x7465646279746573 ^ word
    for number in range(4):
        if number == 1:
            a ^= word
            c ^= 0xFF
        a = a + b & M64
        b = rotate(b, 13) ^ a
        a = rotate(a, 32)
        c = c + d & M64
        d = rotate(d, 16) ^ c
        a = a + d & M64
        d = rotate(d, 21) ^ a
        c = c + b & M64
        b = rotate(b, 17) ^ c
        c = rotate(c, 32)
    return a ^ b ^ c ^ d


@functools.cache
def factor(state: int, place: int) -> int:
    return mix64(state + (place + 1) * GOLDEN & M64) | 1


def token_sum(token: str, seed: bytes) -> int:
    state, total, *_ = token_keys(seed)
    for place, character in enumerate(token):
        total += (ord(character) + 1) * factor(state, place)
    return total & M64


def token_hash(token: str, seed: bytes) -> int:
    return siphash(token_sum(token, seed), *token_keys(seed)[2:])


def unit_hash(unit: str, seed: bytes) -> int:
    return siphash(token_sum(unit, seed), *unit_key(seed)) & M32


def text_hash(text: str, seed: bytes) -> bytes:
    return hashlib.sha256(derive(seed, b"text", 64) + text.encode()).digest()[:16]


# Features, weights and the hashes that options select


def features(text: str, options: Options) -> dict[str, int]:
    """The distinct features, and how often each occurs."""
    length = options["feature_length"]
    if options["features"] == "words":
        return Counter(tokens(text))
    if options["features"] == "ngrams":
        joined = " ".join(words(text))
        return Counter(joined[at : at + length] for at in range(max(1, len(joined) - length + 1)) if joined)
    if options["features"] == "shingles":
        ordered: list[str] = []
        for wanted in ("spaced", "unspaced", "han"):
            for of, run in runs(text):
                if of == wanted:
                    ordered += tokens(run)
        count = max(1, len(ordered) - length + 1) if ordered else 0
        return Counter(" ".join(ordered[at : at + length]) for at in range(count))
    sentences = re.split(
        r"[。．｡!?;\n\r…]+|\.(?=[\t-\r\x1c-\x20\x85\u1680\u2028\u2029]|$)", text
    )  # as the page has it
    different = dict.fromkeys(" ".join(words(sentence)) for sentence in sentences)
    different.pop("", None)
    return dict.fromkeys(sorted(different, key=len, reverse=True)[: options["sentences"]], 1)


def words(text: str) -> list[str]:
    """Runs of word characters of any kind, with the marks that belong to them."""
    joined, base = [""], "none"
    for character in text:
        own = kind(character)
        if own == "mark":
            own = base if base in ("spaced", "unspaced") else "none"
        else:
            base = own
        if own == "none":
            joined.append("")
        else:
            joined[-1] += character
    return [word for word in joined if word]


def weights(counts: list[int], options: Options) -> list[int]:
    if options["weights"] == "tf":
        weighted = [4096 * count for count in counts]
    elif options["weights"] == "log":
        weighted = [((1 + count) ** 4096).bit_length() - 1 for count in counts]
    else:
        weighted = [(4096, 5793, 7094, 8192)[min(count, 4) - 1] for count in counts]
    percent, rest = options["weight_cap"], sum(weighted)
    if percent == 100 or not weighted:
        return weighted
    cap = min(weighted)
    for heavy, weight in enumerate(sorted(weighted, reverse=True)):
        if 100 - heavy * percent <= 0:
            break
        most = percent * rest // (100 - heavy * percent)
        if weight <= most:
            cap = most
            break
        rest -= weight
    return [min(weight, cap) for weight in weighted]


def feature_hash(feature: str, seed: bytes, options: Options) -> int:
    width, name = options["width"], options["hash"]
    if name == "multilinear":
        lower = token_hash(feature, seed)
        return (mix64(lower ^ GOLDEN) << 64 | lower) & (1 << width) - 1
    data = feature.encode()
    if seed != bytes(16):
        data = hashlib.blake2b(data, key=derive(seed, b"features", 32), digest_size=16).digest()
    if name in ("md5", "sha1"):
        return int.from_bytes(hashlib.new(name, data).digest()[: width // 8], "big")
    if name == "fnv1a":
        prime = {32: 2**24 + 0x193, 64: 2**40 + 0x1B3, 128: 2**88 + 0x13B}[width]
        value = {32: 0x811C9DC5, 64: 0xCBF29CE484222325, 128: 0x6C62272E07BB014262B821756295C58D}[width]
        for byte in data:
            value = (value ^ byte) * prime & (1 << width) - 1
        return value
    if name == "jenkins":
        return sum(one_at_a_time(data, i * 0x9E3779B9 & M32) << 32 * i for i in range(width // 32))
    if name == "xxh3":
        import xxhash

        return (
            xxhash.xxh3_128_intdigest(data)
            if width > 64
            else xxhash.xxh3_64_intdigest(data) & (1 << width) - 1
        )
    import mmh3

    if width == 32:
        return mmh3.hash(data, 0, signed=False)
    return mmh3.hash128(data, 0, x64arch=True, signed=False) & (1 << width) - 1


def one_at_a_time(data: bytes, value: int) -> int:
    for byte in data:
        value = value + byte & M32
        value = value + (value << 10) & M32
        value ^= value >> 6
    value = value + (value << 3) & M32
    value ^= value >> 11
    return value + (value << 15) & M32


# SimHash


def bit_sums(weighted: dict[int, int], width: int) -> list[int]:
    return [
        sum(weight if value >> bit & 1 else -weight for value, weight in weighted.items())
        for bit in range(width)
    ]


def simhash(sums: list[int], ties: str) -> int:
    tie = {"random": 0xF39CC0605CEDC8349E3779B97F4A7C15, "zero": 0, "one": 2**128 - 1}[ties]
    return sum((total > 0 if total else tie >> bit & 1) << bit for bit, total in enumerate(sums))


# Shingles, minima and sketches


def shingles(hashes: list[int], length: int) -> list[int]:
    """The set, ascending."""
    length = min(length, len(hashes))
    result = set()
    for at in range(len(hashes) - length + 1 if length else 0):
        value = 0
        for unit in hashes[at : at + length]:
            value = value * 0x846CA68B + unit & M32
        result.add(mix32(value))
    return sorted(result)


def minima(ordered: list[int]) -> bytes:
    first = (0, 3, 6, 9, 2, 5, 8, 1, 4, 7)
    edges = (thirtieth * 2**32 // 30 for each in first for thirtieth in (each, each + 10, each + 20))
    least = [next((value for value in ordered if value >= edge), ordered[0]) for edge in edges]
    words = [
        sum((least[3 * word + place] & 0x7FFFF) << 19 * place for place in range(3))
        | ((least[29] & 0xFFFF) >> 7 * word & 127) << 57
        for word in range(3)
    ]
    words += [
        sum((least[9 + 4 * word + place] & 0xFFFF) << 16 * place for place in range(4)) for word in range(5)
    ]
    return b"".join(word.to_bytes(8, "little") for word in words)


def sketch(ordered: list[int], options: Options) -> bytes:
    bins, b = options["sketch_bins"], options["sketch_bits"]
    if options["sketch"] == "minhash":
        if not ordered:
            return bytes(bins * b // 8 + 64)
        return minhash(ordered, bins, b) + minima(ordered)
    if not ordered:
        return bytes(bins // 8 + 72)
    n = len(ordered)
    content = encode_list(ordered, bins) if n <= 7 * bins // 40 else odd_bins(ordered, bins)
    return content.to_bytes(bins // 8, "little") + n.to_bytes(8, "little") + minima(ordered)


def odd_bins(ordered: list[int], bins: int) -> int:
    halved = 0
    while len(ordered) > 5 * bins // 2 << halved:
        halved += 1
    content = 0
    for value in ordered:
        if value < 2 ** (32 - halved):
            place = 2 * (mix32(value) * (bins // 2) >> 32) + (value >= 2 ** (31 - halved))
            content ^= 1 << place
    return content


def encode_list(ordered: list[int], bins: int) -> int:
    n = len(ordered)
    k = min(16, 7 * bins // 8 // n - 1)
    codes = []
    for value in ordered:
        scaled = mix32(value) * (bins // 2)
        place = 2 * (scaled >> 32) + (value >= 2**31)
        codes.append(place << k - 3 | (scaled & M32) >> 32 - (k - 3))
    content = 0
    for i, code in enumerate(sorted(codes)):
        content |= 1 << (code >> k) + i
        content |= (code & (1 << k) - 1) << bins // 8 + n + i * k
    return content


def minhash(ordered: list[int], t: int, b: int) -> bytes:
    low = 32 - (t - 1).bit_length()
    least: dict[int, int] = {}
    for number in range(t):
        for value in ordered:
            mixed = throw(value, number)
            at, own = mixed * t >> 32, number << low | mixed & (1 << low) - 1
            least[at] = min(least.get(at, own), own)
        if len(least) == t:
            break  # later rounds change nothing
    for at in range(t):
        if at not in least:
            least[at] = min(throw(value, t + at) for value in ordered)
    planes = (sum((least[at] >> plane & 1) << at for at in range(t)) for plane in range(b))
    return b"".join(plane.to_bytes(t // 8, "little") for plane in planes)


def throw(value: int, number: int) -> int:
    value = value + (number + 1) * 0x9E3779B9 & M32
    value = (value ^ value >> 16) * 0x7FEB352D & M32
    return value ^ value >> 15


# The scheme's id


def scheme_id(options: Options, behaviour: Mapping[str, int], unicode: str) -> str:
    import xxhash

    scheme = {
        name: value for name, value in options.items() if name not in ("dictionary", "idf", "seed_file")
    }
    document = {"scheme": scheme, "behaviour": behaviour, "unicode": unicode}
    written = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return xxhash.xxh3_64_hexdigest(written.encode())


# URL keys

EVERYWHERE: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~!$'()*,")
PORTS: Final = {"http": "80", "https": "443", "ws": "80", "wss": "443", "ftp": "21"}


def url_key(url: str, rules: str) -> str:
    """Return the key of a well-formed URL with a host that is no IPv6 address."""
    url = url.strip("".join(map(chr, range(0x21)))).translate(dict.fromkeys(b"\t\n\r"))
    before, mark, after = url.partition("?")
    if mark and "#" not in before:
        ends = re.search("(?<!&)#|&#(?!38;|x26;)|$", after, re.IGNORECASE)
        assert ends is not None
        query = re.sub("&(?:(?:amp|#38|#x26);)+(?=[^&=#])", "&", after[: ends.start()], flags=re.IGNORECASE)
        url = f"{before}?{query}{after[ends.start() :]}"
    url = re.sub(
        "[\0-\x1f\x7f-\x9f]", lambda match: "".join(f"%{byte:02X}" for byte in match[0].encode()), url
    )
    if url.lower().startswith(("http:", "https:")):
        ends = re.search("[?#]|$", url)
        assert ends is not None
        url = url[: ends.start()].replace("\\", "/") + url[ends.start() :]
    has_host = re.match(r"(https?|wss?|ftp):[/\\]*", url, re.IGNORECASE)
    if has_host:
        url = f"{has_host[1]}://{url[has_host.end() :]}"
    # RFC 3986, appendix B
    parts = re.fullmatch(r"([^:/?#]+)://([^/?#]*)([^?#]*)(?:\?([^#]*))?(?:#(.*))?", url, re.DOTALL)
    assert parts is not None
    scheme, authority, path, query, fragment = (part or "" for part in parts.groups())
    scheme = scheme.lower()
    user, at, host = authority.rpartition("@")
    host, _, port = host.partition(":")
    if has_host:
        host = unquote(host)
    if not host.isascii():
        import idna

        host = idna.encode(host, uts46=True).decode()
    if has_host:
        host = decimal_address(host)
    port = port.lstrip("0") or port[:1]
    host = host.lower() + (f":{port}" if port and port != PORTS.get(scheme) else "")
    user = ":".join(percent_encode(part, "+&=;") for part in user.split(":", 1))
    path = remove_dots(percent_encode(path, "+&=;@:/", "/+")) or "/"
    query = percent_encode(query, "?/:@=+&;", "=+&;", space="+").replace("%20", "+")
    fragment = percent_encode(fragment, "+&=;?/:@")
    parameters = [re.sub("(?<=.)=$", "", each) if each.count("=") == 1 else each for each in query.split("&")]
    parameters = [each for each in parameters if each]
    if "tracking" in rules:
        parameters = [each for each in parameters if not is_tracking(each.partition("=")[0])]
    if "sorted" in rules:
        parameters.sort(key=lambda each: each.partition("=")[0])
    route = f"#{fragment}" if "routes" in rules and fragment[:1] in ("!", "/") and fragment else ""
    query = "&".join(parameters)
    return f"{scheme}://{user}{at}{host}{path}{'?' if query else ''}{query}{route}"


def decimal_address(host: str) -> str:
    numbers = host.removesuffix(".").split(".")
    if not re.fullmatch("0x[0-9a-f]*|[0-9]+", numbers[-1], re.IGNORECASE):
        return host
    values = []
    for number in numbers:
        base = 16 if number.lower().startswith("0x") else 8 if number.startswith("0") else 10
        values.append(int(number[2:] or "0" if base == 16 else number, base))
    last = values.pop().to_bytes(4 - len(values), "big")
    return ".".join(map(str, bytes(values) + last))


def url_digest(key: str, seed: bytes) -> bytes:
    """Return the digest of a URL key."""
    return hashlib.blake2b(key.encode(), key=seed, person=b"neardup.url", digest_size=16).digest()


def percent_encode(part: str, also: str, protected: str = "", space: str = "%20") -> str:
    kept = EVERYWHERE | set(also)

    def one(match: re.Match[str]) -> str:
        if match[1]:
            character = chr(int(match[1], 16))
            return character if character in kept and character not in protected else f"%{match[1].upper()}"
        if match[0] in kept:
            return match[0]
        return space if match[0] == " " else "".join(f"%{byte:02X}" for byte in match[0].encode())

    return re.sub("%([0-9A-Fa-f]{2})|.", one, part, flags=re.DOTALL)


def remove_dots(path: str) -> str:
    """RFC 3986, 5.2.4, of an absolute path."""
    done: list[str] = []
    segments = path.split("/")[1:]
    for segment in segments:
        if segment == "..":
            del done[-1:]
        elif segment != ".":
            done.append(segment)
    if segments and segments[-1] in (".", ".."):
        done.append("")
    return "/" + "/".join(done)


@functools.cache
def tracking() -> re.Pattern[str]:
    lines = (DATA / "tracking_parameters.txt").read_text("utf-8").splitlines()
    names = (re.escape(line.split()[0]) for line in lines if line and not line.startswith("#"))
    return re.compile("|".join(name.replace(r"\*", "[^=]*") for name in names), re.ASCII | re.IGNORECASE)


def is_tracking(name: str) -> bool:
    return tracking().fullmatch(name) is not None


# All of it


def fingerprint(text: str, seed: bytes, options: Options) -> dict[str, Any]:
    """Return the fields that vectors have for a text."""
    plain = normalise(text, options["han_variants"])
    of_text, of_units = tokens(plain), units(plain)
    token_hashes = [token_hash(token, seed) for token in of_text]
    shingle_hashes = shingles([unit_hash(unit, seed) for unit in of_units], options["shingle"])
    counts = features(plain, options)
    hashed: dict[int, int] = {}
    for feature, weight in zip(counts, weights(list(counts.values()), options), strict=True):
        value = feature_hash(feature, seed, options)
        hashed[value] = hashed.get(value, 0) + weight
    sums = bit_sums(hashed, options["width"])
    value = simhash(sums, options["ties"])
    few = len(of_text) < options["minimum_tokens"] or not counts
    status = "insufficient" if few else "short" if len(of_text) < options["short_tokens"] else "ready"
    return {
        "normalised": plain,
        "tokens": of_text,
        "token_hashes": token_hashes,
        "units": of_units,
        "shingles": shingle_hashes,
        "features": len(counts),
        "sums": sums,
        "fingerprint": value,
        "sketch": sketch(shingle_hashes, options),
        "text_hash": text_hash(plain, seed),
        "status": status,
    }
