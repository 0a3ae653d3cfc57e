"""The scheme: every option is part of its id, every bad one is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from stream.errors import SettingsError
from stream.fingerprint.fingerprinter import Fingerprinter
from stream.fingerprint.scheme import Scheme

OTHER: dict[str, Any] = {
    "width": 32,
    "segmenter": "jieba",
    "han_variants": "folded",
    "features": "ngrams",
    "feature_length": 4,
    "keywords": 21,
    "keyword_every": 50,
    "sentences": 5,
    "stop_words": "en",
    "stem": "english",
    "weights": "log",
    "weight_cap": 10,
    "hash": "md5",
    "ties": "zero",
    "minimum_tokens": 9,
    "short_tokens": 40,
    "url_key": "routes",
    "shingle": 4,
    "sketch": "minhash",
    "sketch_bins": 512,
    "sketch_bits": 2,
}


@pytest.mark.parametrize("option", msgspec.structs.fields(Scheme), ids=lambda field: field.name)
def test_every_option_changes_the_id(option: Any, tmp_path: Path) -> None:
    name = option.name.removesuffix("_digest")
    if name in ("seed", "seed_file"):
        file = tmp_path / "seed"
        file.write_text("0" * 31 + "1")
        assert Scheme(seed_file=str(file)).id == Scheme().with_seed(bytes(15) + b"\1").id != Scheme().id
    elif name in ("dictionary", "idf"):
        file = tmp_path / "file"
        file.write_text("北京 5\n", "utf-8")
        changed = Scheme(**{name: str(file)}, weights="tfidf")
        assert changed.id != Scheme(weights="tfidf").id
    else:
        base: dict[str, Any] = {"sketch": "minhash"} if name == "sketch_bits" else {}
        assert Scheme(**base | {name: OTHER[name]}).id != Scheme(**base).id


@pytest.mark.parametrize("option", ["dictionary", "idf"])
def test_a_files_content_counts_and_its_place_does_not(option: str, tmp_path: Path) -> None:
    def made(name: str, content: str) -> Scheme:
        (tmp_path / name).write_text(content, "utf-8")
        return Scheme(**{option: str(tmp_path / name)}, weights="tfidf")  # type: ignore[arg-type]

    one, copy, other = made("one", "北京 5\n"), made("copy", "北京 5\n"), made("other", "北京 6\n")
    assert one.id == copy.id != other.id
    (tmp_path / "one").write_text("北京 7\n", "utf-8")
    with pytest.raises(SettingsError, match=f"{option}=.*digest"):
        Fingerprinter(one)
    (tmp_path / "one").unlink()
    with pytest.raises(SettingsError, match=f"{option}=.*No such file"):
        Fingerprinter(one)


@pytest.mark.parametrize(
    "options",
    [
        {"width": 48},
        {"width": "x"},
        {"segmenter": "x"},
        {"dictionary": "/nowhere"},
        {"dictionary_digest": "ab"},
        {"feature_length": 0},
        {"sketch_bits": 2},
        {"keywords": 0},
        {"keyword_every": -1},
        {"sentences": 0},
        {"stop_words": "en,xx"},
        {"stem": "klingon"},
        {"weights": "score"},
        {"idf": "/nowhere"},
        {"idf": "/nowhere", "weights": "tfidf"},
        {"weight_cap": 0},
        {"weight_cap": 101},
        {"sketch_bins": 100},
        {"unknown": 1},
    ],
    ids=str,
)
def test_a_bad_option_is_named(options: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match=f"scheme: .*{next(iter(options))}"):
        Scheme.of(options)


def test_a_fingerprinter_checks_a_scheme_that_was_constructed() -> None:
    with pytest.raises(SettingsError, match="width"):
        Fingerprinter(Scheme(width=48))  # type: ignore[arg-type]


def test_numbers_may_come_as_text() -> None:
    assert Scheme.of({"width": "32", "shingle": "4"}) == Scheme(width=32, shingle=4)


def test_a_scheme_survives_the_journal(tmp_path: Path) -> None:
    file = tmp_path / "words"
    file.write_text("北京\n", "utf-8")
    scheme = Scheme(dictionary=str(file), stop_words="zh", stem="german")
    file.unlink()  # a role that only reads the journal needs none of the files
    decoded = msgspec.msgpack.decode(msgspec.msgpack.encode(scheme), type=Scheme)
    assert (decoded, decoded.id) == (scheme, scheme.id)
