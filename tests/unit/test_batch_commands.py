"""`neardup match` and `neardup index`: inputs of every kind, outputs for people and programs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from stream.errors import FingerprintFileError, NeardupError, SchemeMismatchError, SettingsError
from stream.fingerprint.fingerprinter import Fingerprinter
from stream.fingerprint.lanes import as_words, to_hex
from stream.fingerprint.minima import MINIMA_WORDS
from stream.fingerprint.scheme import Scheme
from stream.judge.state.page_log import HEAD, PageLog, record_words
from stream.messages.byte_strings import StringColumn
from stream.offline.compressed_blocks import encode, sort_words
from stream.offline.compressed_file import HEADER_BYTES, CompressedFile, write_compressed
from stream.offline.fingerprints import open_fingerprints
from stream.tables.store.rocks import ANCHORS
from tests.commands import neardup
from tests.fingerprint_sets import flip_bits, random_set
from tests.judged_crawls import judging

SCHEME = "a6fe188f1b9b0efe"


@pytest.fixture
def pair(tmp_path: Path):
    """A batch and a corpus of 1000, in which every batch fingerprint has one neighbour, at row + 100."""
    rng = np.random.default_rng(1)
    batch, corpus = random_set(rng, 50, 64), random_set(rng, 1000, 64)
    corpus[100:150] = flip_bits(rng, batch, 64, np.arange(50) % 4)
    return batch, corpus


def as_lines(words, names: bool = True) -> str:
    digits = to_hex(as_words(words, 64), 64)
    return "".join(f"{d}  http://a.example/{i}\n" if names else f"{d}\n" for i, d in enumerate(digits))


def as_records(words, scheme: str = SCHEME) -> str:
    rows = enumerate(to_hex(as_words(words, 64), 64))
    return "".join(
        json.dumps({"url": f"http://a.example/{i}", "fingerprint": d, "scheme": scheme}) + "\n"
        for i, d in rows
    )


@pytest.mark.parametrize("kind", ["npy", "lines", "records", "index"])
def test_a_corpus_of_any_kind_gives_the_same_matches(kind: str, pair, tmp_path: Path) -> None:
    batch, corpus = pair
    (tmp_path / "batch.txt").write_text(as_lines(batch))
    path = tmp_path / "corpus"
    if kind == "npy":
        path = tmp_path / "corpus.npy"
        np.save(path, corpus)
    elif kind == "lines":
        path.write_text("\n(insufficient)  http://a.example/short\n" + as_lines(corpus))
    elif kind == "records":
        path.write_text('{"url": "u", "fingerprint": null}\n' + as_records(corpus))
    else:
        write_compressed(path, encode(sort_words(as_words(corpus, 64)), 64), SCHEME)
    outcome = neardup("match", tmp_path / "batch.txt", "--against", path, "--json")
    *records, summary = map(json.loads, outcome.stdout.splitlines())
    assert outcome.exit_code == 0
    assert [record["row"] for record in records] == list(range(50))
    assert [record["distance"] for record in records] == (np.arange(50) % 4).tolist()
    digits = to_hex(as_words(corpus, 64), 64)
    assert [record["match"]["fingerprint"] for record in records] == digits[100:150]
    assert records[7]["name"] == "http://a.example/7"
    if kind != "index":  # which is sorted
        assert [record["match"]["row"] for record in records] == list(range(100, 150))
    if kind in ("lines", "records"):
        assert records[7]["match"]["name"] == "http://a.example/107"
        assert summary["skipped"] == 1
    assert (summary["batch"], summary["corpus"], summary["matches"]) == (50, 1000, 50)


def test_without_a_corpus_pairs_within_the_batch_are_found(tmp_path: Path) -> None:
    path = tmp_path / "batch"
    lines = [
        "ff00ff00ff00ff00  http://a.example/0",
        "0123456789abcdef",
        "ff00ff00ff00ff01  http://a.example/2",
    ]
    path.write_text("\n".join(lines) + "\n")
    record, summary = map(json.loads, neardup("match", path, "--json").stdout.splitlines())
    assert (record["row"], record["name"], record["distance"]) == (0, "http://a.example/0", 1)
    assert record["match"] == {"row": 2, "name": "http://a.example/2", "fingerprint": "ff00ff00ff00ff01"}
    assert (summary["batch"], summary["corpus"], summary["matches"]) == (3, 3, 1)


def test_matches_are_readable_and_written_to_a_file(pair, tmp_path: Path) -> None:
    batch, corpus = pair
    (tmp_path / "batch").write_text(as_lines(batch))
    (tmp_path / "corpus").write_text(as_lines(corpus))
    shown = neardup("match", tmp_path / "batch", "--against", tmp_path / "corpus", "-k", "1")
    first = to_hex(as_words(batch[:1], 64), 64)[0]
    assert shown.stdout.splitlines()[0] == f"0  {first}  {first}  http://a.example/0  http://a.example/100"
    assert "26 pairs between 50 fingerprints and 1,000 of" in shown.stderr
    neardup("match", tmp_path / "batch", "--against", tmp_path / "corpus", "-o", tmp_path / "out")
    assert len((tmp_path / "out").read_text().splitlines()) == 50


@pytest.mark.night
@pytest.mark.parametrize("width", [64, 32, 128])
def test_pages_are_fingerprinted_on_the_way(width: int, tmp_path: Path) -> None:
    texts = [f"page {i} about {' '.join(f'word{i * 31 + j}' for j in range(60))}" for i in range(20)]
    pages = [json.dumps({"url": f"http://a.example/{i}", "text": text}) for i, text in enumerate(texts)]
    (tmp_path / "pages.jsonl").write_text("\n".join([*pages, '{"url": "http://a.example/s", "text": "x"}']))
    saved = tmp_path / "saved"
    saved.mkdir()
    (saved / "three.txt").write_text(texts[3])
    options = ("--worker-processes", "1", "--scheme", f"width={width}")
    outcome = neardup("match", saved, "--against", tmp_path / "pages.jsonl", "--json", *options)
    *records, summary = map(json.loads, outcome.stdout.splitlines())
    assert [(record["name"], record["match"]["name"]) for record in records] == [
        (f"file://localhost{saved}/three.txt", "http://a.example/3")
    ]
    assert (
        records[0]["fingerprint"]
        == f"{Fingerprinter(Scheme(width=width)).text(texts[3]).fingerprint:0{width // 4}x}"
    )
    assert (summary["corpus"], summary["skipped"]) == (20, 1)


def test_schemes_that_differ_are_not_compared(pair, tmp_path: Path) -> None:
    (tmp_path / "a").write_text(as_records(pair[0]))
    (tmp_path / "b").write_text(as_records(pair[1], "0123456789abcdef"))
    with pytest.raises(SchemeMismatchError, match="0123456789abcdef"):
        neardup("match", tmp_path / "a", "--against", tmp_path / "b")


@pytest.mark.parametrize("width", [32, 64, 128])
def test_export_and_import_keep_the_set(width: int, tmp_path: Path) -> None:
    fingerprints = random_set(np.random.default_rng(2), 5000, width)
    fingerprints[10:20] = fingerprints[0]
    np.save(tmp_path / "in.npy", fingerprints)
    options = ["--width", str(width)]
    outcome = neardup("compress", tmp_path / "in.npy", tmp_path / "index", *options, "--json")
    figures = json.loads(outcome.stdout)
    assert figures["bytes"] == (tmp_path / "index").stat().st_size
    assert figures["ratio"] == pytest.approx(figures["expected_ratio"], abs=0.06)  # blocks are whole
    neardup("decompress", tmp_path / "index", tmp_path / "out.npy")
    wanted = sort_words(as_words(fingerprints, width))
    assert np.array_equal(as_words(np.load(tmp_path / "out.npy"), width), wanted)
    lines = neardup("decompress", tmp_path / "index", "-").stdout.split()
    assert lines == to_hex(wanted, width)


def test_a_state_directory_exports_its_live_anchors_while_it_is_open(tmp_path: Path) -> None:
    scheme = Scheme()
    anchors = random_set(np.random.default_rng(3), 1000, 64)
    with judging(tmp_path / "crawl" / "judge", generation=300, scheme=scheme) as judge:
        state = judge.state
        batch = state.store.batch()
        state.tables.insert(batch, anchors, {}, np.zeros((len(anchors), MINIMA_WORDS), np.uint64))
        words = np.zeros((len(anchors), record_words(64, scheme.sketch_bytes)), np.uint64)
        words[:, HEAD] = anchors
        log = PageLog(state.store, ANCHORS, words.shape[1])
        log.write(batch, log.prepare(words, StringColumn.of([b""] * len(anchors))))
        state.tables.kill(batch, np.array([5, 700]))
        state.store.write(batch)
        state.tables.maintain(wait=True)
        state.flush()
        outcome = neardup("compress", tmp_path, tmp_path / "index", "--json")
        found = open_fingerprints(str(tmp_path / "crawl"))
    assert json.loads(outcome.stdout)["fingerprints"] == 998
    assert json.loads(outcome.stdout)["scheme"] == scheme.id
    compressed = CompressedFile(tmp_path / "index")
    assert compressed.read(0, compressed.blocks)[:, 0].tolist() == sorted(
        np.delete(anchors, [5, 700]).tolist()
    )
    assert found is not None
    assert found.count == 998


def test_an_export_of_nothing_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(SettingsError, match="empty: it has neither fingerprints nor pages"):
        neardup("compress", tmp_path / "empty", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def damage(content: bytes, place: int) -> bytes:
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda c: damage(c, 8), "version 0; this program reads 1"),
        (lambda c: damage(c, 20), "its header is damaged"),
        (lambda c: damage(c, HEADER_BYTES + 100), "its directory is damaged"),
        (lambda c: damage(c, len(c) - 2000), "block [0-9]+ is damaged"),
        (lambda c: c[:-1], r"bytes, but \d+ by its header"),
        (lambda c: c[:30], "its header is truncated"),
    ],
)
def test_a_damaged_index_is_named_and_told(spoil, message: str, tmp_path: Path) -> None:
    path = tmp_path / "index"
    write_compressed(
        path, encode(sort_words(as_words(random_set(np.random.default_rng(4), 3000, 64), 64)), 64), None
    )
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(FingerprintFileError, match=message) as refused:
        neardup("decompress", path, tmp_path / "out.npy")
    assert str(path) in str(refused.value)
    with pytest.raises(FingerprintFileError, match=message):
        neardup("match", path, "--against", path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"0123456789abcdef  a\n0123456789abcde  b\n", "line 2: expected 16 hex digits"),
        (b'{"fingerprint": "0123456789abcdef"}\n{"url": "x"}\n', "line 2: it has no field `fingerprint`"),
        (b'{"fingerprint": "0123456789abcdeg"}\n', "line 1: `fingerprint` is not 16 hex digits"),
        (b'{"fingerprint": "012"}\n', "'012' is not a fingerprint"),
        (b'{"fingerprint": "0123456789abcdef"}\n{', "line 2"),
        (b"\x93NUMPY nothing", "source"),
        (b"no fingerprints at all\n", "neither its name nor its content"),
    ],
)
def test_files_that_are_no_fingerprints_are_named_with_the_line(
    content: bytes, message: str, tmp_path: Path
) -> None:
    (tmp_path / "bad").write_bytes(content)
    with pytest.raises(NeardupError, match=message) as refused:
        neardup("match", tmp_path / "bad", "--against", tmp_path / "bad")
    assert "bad" in str(refused.value)
