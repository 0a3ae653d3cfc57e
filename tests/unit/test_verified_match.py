"""`match --verified` finds exactly the similar pairs, compared with brute force."""

from __future__ import annotations

import json
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pytest

from stream.errors import SchemeMismatchError, SettingsError
from stream.fingerprint.lanes import from_integers
from stream.fingerprint.scheme import Scheme
from stream.fingerprint.sketch import sketch
from stream.local.index import Index
from stream.messages.verdict_options import VerdictOptions
from stream.offline import minima_tables
from stream.offline.verified_match import Sketched, SketchedFile, Verified, default_rule
from tests.commands import neardup
from tests.fingerprint_sets import as_integers, flip_bits, random_set
from tests.night import cases
from tests.oracle import Oracle, OraclePage

pytestmark = pytest.mark.usefixtures("no_children")

PARITY = Scheme()
SCHEMES = {"64 bits": PARITY, "128 bits": Scheme(width=128)}


def some_pages(scheme: Scheme, seed: int, families: int = 12, most: int = 12) -> list[OraclePage]:
    """Families of pages whose shingles and fingerprints are more or less those of the first one; one large
    family is of exact copies, so that a bucket holds more than the judge's cap."""
    rng = np.random.default_rng(seed)
    pages: list[OraclePage] = []
    for family in range(families):
        shingles = rng.integers(0, 1 << 32, (300, 120, 900)[family % 3], dtype=np.uint32)
        first = random_set(rng, 1, scheme.width)
        copies = 150 if family == 0 else int(rng.integers(1, most))
        for _ in range(copies):
            own = shingles.copy()
            changed = 0 if family == 0 else int(rng.integers(0, shingles.size // 5))
            own[:changed] = rng.integers(0, 1 << 32, changed, dtype=np.uint32)
            fingerprint = flip_bits(rng, first, scheme.width, rng.integers(0, 18, 1))
            (value,), shingles_of_page = as_integers(fingerprint), frozenset(own.tolist())
            page = OraclePage(len(pages), None, value, sketch=sketch(own, scheme), shingles=shingles_of_page)
            pages.append(page)
    rng.shuffle(pages)  # type: ignore[arg-type]
    return pages


def as_file(pages: list[OraclePage], scheme: Scheme, size: int) -> SketchedFile:
    def chunks():
        for first in range(0, len(pages), size):
            some = pages[first : first + size]
            sketches = np.frombuffer(b"".join(page.sketch for page in some), "<u8").astype(np.uint64)
            yield Sketched.of(
                from_integers([page.fingerprint for page in some], scheme.width),
                sketches.reshape(len(some), -1),
                [""] * len(some),
            )

    return SketchedFile(chunks())


def found_by(verified: Verified) -> list[tuple[int, int, int, float]]:
    return [
        (record["row"], record["match"]["row"], record["distance"], record["similarity"])
        for record in verified.records()
    ]


@pytest.mark.parametrize("with_corpus", cases([False, True], by_day=[False]))
@pytest.mark.parametrize("case", SCHEMES)
def test_pairs_are_those_of_brute_force(
    case: str, with_corpus: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(minima_tables, "SLICE", 7)
    monkeypatch.setattr("stream.offline.verified_match.CHUNK", 64)
    scheme = SCHEMES[case]
    pages, oracle = some_pages(scheme, 1), Oracle()
    batch, corpus = (pages[:90], pages[60:]) if with_corpus else (pages, pages)
    if with_corpus:
        places = [(b, c) for c, b in product(range(len(corpus)), range(len(batch)))]
    else:
        places = list(combinations(range(len(pages)), 2))
    probed = {page.id: set(oracle.buckets(page)[:9]) for page in pages}
    pairs = [
        (b, c, same[0], same[1] / 10_000)
        for b, c in places
        if probed[batch[b].id] & probed[corpus[c].id] and (same := oracle.similar(batch[b], corpus[c]))
    ]
    matched = {row for pair in pairs for row in (pair[:1] if with_corpus else pair[:2])}
    for most in (1, 1 << 16):
        monkeypatch.setattr(minima_tables, "MOST_PAIRS", most)
        against = as_file(corpus, scheme, 9) if with_corpus else None
        verified = Verified(as_file(batch, scheme, 50), against, default_rule(scheme), threads=3)
        assert found_by(verified) == pairs
        figures = verified.summary()
        assert figures["matches"] == len(pairs) > (50 if with_corpus else 500)
        assert figures["batch_rows_matched"] == len(matched)
        assert (figures["batch"], figures["corpus"]) == (len(batch), len(corpus))


def test_rule_is_that_of_a_stream() -> None:
    assert default_rule(PARITY).options == VerdictOptions()


def test_nothing_is_found_in_nothing() -> None:
    verified = Verified(as_file([], PARITY, 1), as_file([], PARITY, 1), default_rule(PARITY), threads=1)
    assert list(verified.records()) == []
    assert verified.summary()["matches"] == 0


# --- the command ---


@pytest.fixture
def texts(tmp_path: Path) -> list[str]:
    """Four pages in pages.jsonl: the second differs from the first in two words, the third in all, and the
    last is too short."""
    words = [f"word{i * 31}" for i in range(200)]
    edited = [*words]
    edited[50] = edited[150] = "other"
    texts = [" ".join(words), " ".join(edited), " ".join(f"more{i}" for i in range(200)), "x"]
    records = [json.dumps({"url": f"http://a.example/{i}", "text": text}) for i, text in enumerate(texts)]
    (tmp_path / "pages.jsonl").write_text("\n".join(records))
    return texts


@pytest.mark.usefixtures("texts")
def test_the_command_finds_what_a_stream_calls_similar(tmp_path: Path) -> None:
    pages = tmp_path / "pages.jsonl"
    one = ("--worker-processes", "1")
    record, summary = map(
        json.loads, neardup("match", "--verified", pages, "--json", *one).stdout.splitlines()
    )
    assert (record["name"], record["match"]["name"]) == ("http://a.example/0", "http://a.example/1")
    neardup("scan", pages, "-o", tmp_path / "verdicts", *one)
    verdict = json.loads((tmp_path / "verdicts").read_text().splitlines()[1])
    assert verdict["verdict"] == "duplicate"
    assert (record["distance"], record["similarity"]) == (verdict["distance"], verdict["similarity"])
    assert (summary["batch"], summary["skipped"], summary["matches"]) == (3, 1, 1)
    shown = neardup("match", "--verified", pages, "--against", pages, *one)
    assert len(shown.stdout.splitlines()) == 5  # each with itself, and the two with each other
    line = shown.stdout.splitlines()[0].split()
    assert line[:2] == ["0", "1.0000"]
    assert line[4:] == ["http://a.example/0", "http://a.example/0"]
    assert "5 pairs between 3 pages and 3 of" in shown.stderr


@pytest.mark.usefixtures("texts")
@pytest.mark.parametrize("options", [(), ("--verified",)])
def test_rows_have_the_pairs_of_their_pages(options: tuple[str, ...], tmp_path: Path) -> None:
    pages, rows = tmp_path / "pages.jsonl", tmp_path / "rows"
    one = ("--worker-processes", "1")
    neardup("fingerprint", pages, "-o", rows, *one)
    batches = [neardup("match", each, *options, "--json", *one).stdout.splitlines() for each in (pages, rows)]
    pairs = [[json.loads(line) for line in batch] for batch in batches]
    assert pairs[0][:-1] == pairs[1][:-1] != []
    assert [batch[-1]["skipped"] for batch in pairs] == [1, 1]


def test_live_anchors_of_an_index_are_matched_with_their_urls(texts: list[str], tmp_path: Path) -> None:
    with Index(tmp_path / "pages.index") as index:
        for number in (2, 0):
            index.add(f"http://b.example/{number}", texts[number])
        index.add("http://b.example/2", texts[1] * 2)  # another text there: the anchor is superseded
    outcome = neardup(
        "match", "--verified", tmp_path / "pages.jsonl", "--against", tmp_path / "pages.index", "--json",
        "--worker-processes", "1",
    )  # fmt: skip
    *records, summary = map(json.loads, outcome.stdout.splitlines())
    assert {(record["name"][-1], record["match"]["name"]) for record in records} == {
        ("0", "http://b.example/0"),
        ("1", "http://b.example/0"),
    }
    assert summary["corpus"] == 1


@pytest.mark.parametrize(
    ("content", "given"),
    [
        (b"0123456789abcdef  http://a.example/\n", ()),
        (b'{"url": "http://a.example/", "fingerprint": "0123456789abcdef"}\n', ()),
        (b"0123456789abcdef  http://a.example/\n", ("-",)),
        (b'{"url": "http://a.example/", "fingerprint": "0123456789abcdef"}\n', ("-",)),
    ],
)
def test_fingerprints_alone_are_refused_and_what_to_do_is_said(
    content: bytes, given: tuple[str, ...], tmp_path: Path
) -> None:
    path = tmp_path / "fingerprints"
    path.write_bytes(content)
    with pytest.raises(SettingsError, match=r"fingerprints alone.*give the pages themselves"):
        neardup("match", "--verified", *(given or [path]), input=content)


@pytest.mark.usefixtures("texts")
def test_a_state_of_another_scheme_is_refused(tmp_path: Path) -> None:
    with Index(tmp_path / "pages.index", scheme=Scheme(features="ngrams")):
        pass
    with pytest.raises(SchemeMismatchError, match=r"--scheme seed_file=FILE \(`neardup topics seed FILE`\)"):
        neardup("match", "--verified", tmp_path / "pages.index")
