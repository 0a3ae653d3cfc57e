"""Known-answer vectors of fingerprints: the product gives them, and so does docs/reference/fingerprint.md."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
import xxhash

from stream.fingerprint.fingerprinter import Fingerprinter
from stream.fingerprint.scheme import Scheme
from stream.text.segment import (
    ASCII,
    HAN_CHARACTER,
    MARK,
    UNSPACED_CHARACTER,
    WIDE,
    kinds_of_characters,
)
from tests import plain_fingerprint
from tests.fingerprint_vectors import VECTORS, answer, content, printed, text_of

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "fingerprint.md").read_text("utf-8")
FILE = json.loads(VECTORS.read_text("ascii"))
DEFAULT = FILE["vectors"]
TEXTS = {vector["name"]: vector["text"] for vector in DEFAULT}
OTHERS = FILE["options"]


def test_the_file_is_what_the_product_gives() -> None:
    assert VECTORS.read_text("ascii") == printed(content()), "python -m tests.fingerprint_vectors"


def test_the_compiled_loops_give_the_vectors_too() -> None:
    vectors = [vector for vector in DEFAULT if vector["seed"] == FILE["seeds"][0]["seed"]]
    for vector, result in zip(
        vectors, Fingerprinter().texts([text_of(vector["text"]) for vector in vectors]), strict=True
    ):
        assert f"{result.fingerprint:016x}" == vector["fingerprint"], vector["name"]
        assert result.sketch.hex() == vector["sketch"], vector["name"]
        assert result.text_hash.hex() == vector["text_hash"], vector["name"]
        assert (result.features, result.length) == (vector["features"], vector["length"]), vector["name"]


@pytest.mark.parametrize("vector", DEFAULT, ids=lambda vector: vector["name"])
def test_the_specification_gives_the_vectors(vector: dict[str, Any]) -> None:
    result = plain_fingerprint.fingerprint(
        text_of(vector["text"]), bytes.fromhex(vector["seed"]), FILE["scheme"]
    )
    assert answer(result) == {
        name: value for name, value in vector.items() if name not in ("name", "seed", "text")
    }


@pytest.mark.parametrize("vector", OTHERS, ids=lambda vector: f"{vector['name']}-{vector['options']}")
def test_the_specification_gives_the_vectors_of_other_options(vector: dict[str, Any]) -> None:
    (default,) = (each for each in DEFAULT if all(each[name] == vector[name] for name in ("name", "seed")))
    options = FILE["scheme"] | vector["options"]
    result = plain_fingerprint.fingerprint(text_of(default["text"]), bytes.fromhex(vector["seed"]), options)
    expected = default | vector
    left_out = ("name", "seed", "text", "options", "sums")
    assert {name: value for name, value in answer(result).items() if name != "sums"} == {
        name: value for name, value in expected.items() if name not in left_out
    }


@pytest.mark.parametrize("vector", FILE["urls"], ids=lambda vector: f"{vector['url']!r}-{vector['rules']}")
def test_the_specification_gives_the_keys_of_urls(vector: dict[str, Any]) -> None:
    key = plain_fingerprint.url_key(vector["url"], vector["rules"])
    seeds = [bytes.fromhex(each["seed"]) for each in FILE["seeds"]]
    digests = [plain_fingerprint.url_digest(key, seed).hex() for seed in seeds]
    assert (key, digests) == (vector["key"], vector["digests"])


@pytest.mark.parametrize("keys", FILE["seeds"], ids=lambda keys: keys["seed"])
def test_the_specification_gives_the_keys_of_a_seed(keys: dict[str, Any]) -> None:
    seed = bytes.fromhex(keys["seed"])
    state, *others = plain_fingerprint.token_keys(seed)
    assert [f"{key:016x}" for key in (state, *others)] == [
        keys[name] for name in ("state", "added", "left", "right")
    ]
    assert [f"{key:016x}" for key in plain_fingerprint.unit_key(seed)] == [
        keys[name] for name in ("unit_left", "unit_right")
    ]
    factors = [plain_fingerprint.factor(state, place) for place in range(4)]
    assert [f"{factor:016x}" for factor in factors] == keys["factors"]
    assert plain_fingerprint.derive(seed, b"digest", 16).hex() == keys["digest"]
    assert plain_fingerprint.derive(seed, b"text", 64).hex() == keys["text_key"]
    scheme = FILE["scheme"] | {"seed_digest": keys["digest"]}
    assert plain_fingerprint.scheme_id(scheme, FILE["behaviour"], FILE["unicode"]) == keys["scheme_id"]


def test_the_specification_imports_nothing_of_the_product() -> None:
    written = Path(plain_fingerprint.__file__).read_text("utf-8")
    assert re.findall(r"^\s*(?:from|import) (?:stream|tests)\b", written, re.MULTILINE) == []


def test_every_character_is_of_the_kind_that_the_specification_says() -> None:
    kinds = {
        ASCII: "spaced",
        WIDE: "spaced",
        HAN_CHARACTER: "han",
        UNSPACED_CHARACTER: "unspaced",
        MARK: "mark",
    }
    names = [kinds.get(kind, "none") for kind in kinds_of_characters().tolist()]
    kind_of = plain_fingerprint.kind.__wrapped__
    assert names == [kind_of(chr(point)) for point in range(0x11_0000)]


def test_the_page_has_the_lists_of_the_specification() -> None:
    blocks = re.findall(r"(?:^ {4}[0-9A-F]{4}[0-9A-F -]*\n)+", PAGE, re.MULTILINE)
    listed = [plain_fingerprint.ranges(block) for block in blocks]
    assert listed == [
        plain_fingerprint.IGNORED,
        plain_fingerprint.HAN,
        plain_fingerprint.UNSPACED,
        plain_fingerprint.LOOKED_UP,
    ]
    for value in (*plain_fingerprint.START.values(), *plain_fingerprint.FOLLOW.values()):
        assert f" {value:.17g}".replace("e+", "e") in PAGE or f" {value!r}".replace("e+", "e") in PAGE


def test_the_page_names_the_data_files_by_their_digests() -> None:
    rows = re.findall(r"^\| `([\w.]+)` \| .* \| `([0-9a-f]{64})` \|$", PAGE, re.MULTILINE)
    places = {
        "characters.txt": plain_fingerprint.DATA / "characters.txt",
        "letters.txt": plain_fingerprint.DATA / "letters.txt",
        "tracking_parameters.txt": plain_fingerprint.DATA / "tracking_parameters.txt",
        "dict.txt": plain_fingerprint.package_file("dict.txt"),
        "prob_emit.py": plain_fingerprint.package_file("finalseg/prob_emit.py"),
    }
    assert dict(rows) == {
        name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in places.items()
    }


def test_the_page_has_the_default_scheme_and_its_id() -> None:
    (document,) = re.findall(r"^```json\n(.*)\n```$", PAGE, re.MULTILINE)
    assert f"`{xxhash.xxh3_64_hexdigest(document.encode())}`" in PAGE
    assert xxhash.xxh3_64_hexdigest(document.encode()) == Scheme().id
