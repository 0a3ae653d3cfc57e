"""The code writes exactly what the documents in `schemas/` say, field by field and byte by byte."""

from __future__ import annotations

import copy
import dataclasses
import json
import re
from collections.abc import Callable
from contextlib import nullcontext
from datetime import datetime
from hashlib import blake2b, sha256
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner
from jsonschema import Draft202012Validator, FormatChecker
from msgspec import convert, structs

from stream.cli import cli
from stream.errors import RecordError, RecordVersionError, StateError
from stream.fingerprint.scheme import Scheme
from stream.judge.batch import Batch, Entry, digest_of
from stream.judge.ids import pack
from stream.judge.judge import Judge
from stream.judge.judged_batch import JudgedBatch
from stream.judge.state.state import State
from stream.messages.best import BestRecord, KeptPage, decode_best, encode_best
from stream.messages.decision import (
    Decisions,
    Forgotten,
    LedgerPart,
    NamedDigests,
    SourceProgress,
    Turn,
    decode_decisions,
    encode_decisions,
    forgetting_record,
    ledger_record,
    turn_record,
)
from stream.messages.journal import Genesis, Rows, SourceRange, decode_journal, encode_genesis
from stream.messages.requests import ForgetRequest, decode_request, encode_request
from stream.messages.row_columns import COLUMNS
from stream.messages.verdict import PageRef
from stream.messages.verdict_avro import to_avro, to_json
from stream.messages.verdict_options import VerdictOptions
from stream.page_rows.page_fingerprinter import PageFingerprinter
from stream.pages.outside.schema import AvroSchema
from stream.pages.page import Page

SCHEMAS = Path(__file__).parents[2] / "schemas"
FORMATS = FormatChecker(formats=())
FORMATS.checks("date-time", raises=ValueError)(
    lambda value: not isinstance(value, str) or bool(datetime.fromisoformat(value))
)

SCHEME = Scheme(sketch="minhash", sketch_bins=256, sketch_bits=2)
CLUSTER, TOPIC_ID, JOURNAL = "cluster-1", "0123456789abcdef" * 2, "ab" * 16
HARBOUR = (
    "The harbour authority will repair the old lighthouse at the north pier before the winter storms. " * 3
)
CHANGED = " The harbour council will repair the old lighthouse at the north quay before the winter storms."
MARKET = (
    "On Saturday the market square belongs to bakers, beekeepers and one very patient knife grinder. " * 3
)
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
OPTIONAL = ("nearest", "origin")
BLANK = {"duplicate_of": None, "distance": None, "similarity": None}


def message(url: str | None, text: str | None, **fields: Any) -> bytes:
    return json.dumps({"url": url, "text": text, **fields}).encode()


NEWS, MIRROR, NEARLY = "http://example.com/news", "http://mirror.example/1", "http://example.com/nearly"
MESSAGES: list[list[tuple[bytes | None, bytes | None]]] = [
    [
        (None, message(NEWS, HARBOUR, fetched_at="2026-01-02T03:04:05.678+01:00")),
        (b"\x00key", message(MIRROR, HARBOUR.upper())),
        (b"key", message(NEWS + "#top", HARBOUR)),
        (None, message("http://example.com/empty", "Loading", fetched_at=0)),
        (None, message("http://example.com/bad", None, body="%%%")),
        (None, b"no JSON"),
    ],
    [
        (None, message(NEWS, MARKET)),  # unique, changed: supersedes the first page
        (None, message("http://example.com/other", HARBOUR)),  # unique again: its anchor is gone
        (None, message(MIRROR, MARKET)),  # duplicate, changed
        (None, None),
        (None, message(NEARLY, HARBOUR.strip() + CHANGED)),  # unique, nearest to the one before
    ],
]


def entries() -> list[Entry]:
    """Two journal records as a judge reads them; the second begins with a re-delivered row."""
    fingerprinter, found, offset = PageFingerprinter(SCHEME), [], 0
    for number, messages in enumerate(MESSAGES):
        start = offset - (number > 0)
        part = [*(MESSAGES[0][-1:] if number else ()), *messages]
        rows = [fingerprinter.message(value, 1 << 20) for _, value in part]
        offset = start + len(part)
        ranges = [SourceRange(CLUSTER, "pages", TOPIC_ID, 3, start, offset, len(rows), opening=not number)]
        value = Rows.of(SCHEME, ranges, rows, range(start, offset), [key for key, _ in part]).encode()
        decoded = decode_journal(value, 2 + number)
        assert isinstance(decoded, Rows)
        found.append(Entry(2 + number, 1_700_000_000_123 - number, digest_of(value), decoded))
    return found


def genesis(options: VerdictOptions) -> Genesis:
    return Genesis(journal=JOURNAL, scheme=SCHEME, scheme_id=SCHEME.id, options=options, seed=SCHEME.seed())


@pytest.fixture(params=["verified", "strict"])
def decided(request: pytest.FixtureRequest, tmp_path: Path) -> list[JudgedBatch]:
    """Judge the messages record by record, and again both together."""
    start = genesis(VerdictOptions() if request.param == "verified" else VerdictOptions.paper())
    found: list[JudgedBatch] = []
    for path, batches in (("one", [[entry] for entry in entries()]), ("both", [entries()])):
        state = State(tmp_path / path, start, CLUSTER, memory=1 << 20, generation=100, cache=1 << 20)
        judge = Judge(state, start)
        for batch in batches:
            found.append(judge.decide(batch))
            judge.apply(batch, found[-1].record())
        state.close()
    return found


def schema(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((SCHEMAS / f"{name}.schema.json").read_text("utf-8"))
    return loaded


def validator(name: str) -> Draft202012Validator:
    return Draft202012Validator(schema(name), format_checker=FORMATS)


def verdicts(found: list[JudgedBatch]) -> list[dict[str, Any]]:
    return [json.loads(value) for each in found for value in each.json()]


@pytest.mark.parametrize("path", sorted(SCHEMAS.glob("*.json")), ids=lambda path: path.name)
def test_a_schema_is_itself_valid(path: Path) -> None:
    Draft202012Validator.check_schema(json.loads(path.read_text("utf-8")))


def test_the_files_are_printed_as_they_stand() -> None:
    printed = CliRunner(catch_exceptions=False)
    listed = printed.invoke(cli, ["schema"]).output.split()
    assert set(listed) == {path.name for path in SCHEMAS.iterdir()} - {"README.md"}
    for name in listed:
        assert printed.invoke(cli, ["schema", name]).output == (SCHEMAS / name).read_text("utf-8")


def test_a_page_in_avro_has_the_fields_of_a_page_in_json() -> None:
    avro = json.loads((SCHEMAS / "page.avsc").read_text("utf-8"))
    assert [each["name"] for each in avro["fields"]] == list(schema("page")["properties"])
    for each in avro["fields"]:
        assert each["name"] == "url" or (each["type"][0] == "null" and each["default"] is None)


def test_every_kind_of_verdict_validates(decided: list[JudgedBatch]) -> None:
    published = verdicts(decided)
    seen = {(each["verdict"], each["change"]) for each in published}
    assert seen == {
        ("unique", "new"), ("unique", "changed"), ("duplicate", "new"), ("duplicate", "changed"),
        ("recrawl", "unchanged"), ("insufficient", None), ("rejected", None),
    }  # fmt: skip
    assert len(published) == 2 * sum(map(len, MESSAGES)), "the re-delivered row has no second verdict"
    strict = decided[0].genesis.options.strict
    near = [(each["url"], each["nearest"]["url"]) for each in published if "nearest" in each]
    assert near == [(NEARLY, "http://example.com/other")] * (0 if strict else 2)
    for each in published:
        validator("verdict").validate(each)
        fields = [name for name in schema("verdict")["properties"] if name not in OPTIONAL or name in each]
        assert list(each) == fields, "in the order of the schema"


def test_every_kind_of_verdict_is_the_same_in_avro(decided: list[JudgedBatch]) -> None:
    avro = AvroSchema((SCHEMAS / "verdict.avsc").read_text("utf-8"), [])
    for value in (value for each in decided for value in each.json()):
        fields = avro.fields(to_avro(value))
        wanted = [name for name in schema("verdict")["properties"] if name != "origin"]
        assert list(fields) == wanted, "fields, in the order of the schema"
        assert to_json(fields) == value


def test_every_cluster_change_validates(decided: list[JudgedBatch]) -> None:
    changes = [
        json.loads(msgspec.json.encode(each)) for part in decided for each, _ in part.cluster_records()
    ]
    assert [each["cluster"] for each in changes] == ["abababab.2.0"] * 2
    for each in changes:
        validator("cluster").validate(each)
        assert list(each) == list(schema("cluster")["properties"])
        assert not validator("cluster").is_valid({**each, "state": "gone"})
        assert not validator("cluster").is_valid({**each, "more": 1})


KEPT = BestRecord(
    cluster="abababab.2.0",
    best=KeptPage(MIRROR, "abababab.7.65535", 272, None, "2026-01-02T02:04:05.678Z"),
    was=PageRef(NEWS, "abababab.2.0"),
    because="joined",
    members=2,
    as_of="abababab.7.65535",
    decided_at="2026-01-02T03:04:05.000Z",
)
KEPT_RECORDS = [
    KEPT,
    structs.replace(KEPT, best=KeptPage(MIRROR, "abababab.9.1", 0, -1.5, None), because="grew", members=4),
    structs.replace(KEPT, best=None, because="left", members=0),
    structs.replace(KEPT, was=None, because="better"),
]


def test_every_kept_page_validates() -> None:
    for each in KEPT_RECORDS:
        value = encode_best(each)
        validator("best").validate(json.loads(value))
        assert list(json.loads(value)) == list(schema("best")["properties"]), "in the order of the schema"
        assert decode_best(value, "best") == each
    for name in json.loads(encode_best(KEPT)):
        short = {field: value for field, value in json.loads(encode_best(KEPT)).items() if field != name}
        assert not validator("best").is_valid(short), name


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"members": 0}, "keeps a page of 0 members"),
        ({"best": None}, "keeps no page of 2 members"),
        ({"cluster": "abababab.2"}, r"\$.cluster"),
        ({"as_of": "abababab.2.065"}, r"\$.as_of"),
        ({"because": "liked"}, "because"),
        ({"members": -1}, "members"),
        ({"best": {"url": NEWS, "id": "abababab.2.0"}}, "length"),
        ({"best": {**msgspec.to_builtins(KEPT.best), "length": -1}}, "length"),
    ],
)
def test_a_wrong_kept_page_is_invalid_and_refused(wrong: dict[str, Any], error: str) -> None:
    value = {**json.loads(encode_best(KEPT)), **wrong}
    assert not validator("best").is_valid(value)
    with pytest.raises(RecordError, match=rf"^best partition 3 offset 7: .*{error}"):
        decode_best(json.dumps(value).encode(), "best partition 3 offset 7")


def test_a_kept_page_of_another_version_is_refused_by_name() -> None:
    value = json.dumps({"v": 2, "cluster": "abababab.2.0", "kept": []}).encode()
    with pytest.raises(RecordVersionError, match=r"^best offset 7: has version 2, .* version 1 only"):
        decode_best(value, "best offset 7")
    for broken in (b"", b"{}", b"no JSON", b'{"v": "2"}'):
        with pytest.raises(RecordError, match=r"^best offset 7: "):
            decode_best(broken, "best offset 7")


@pytest.mark.parametrize(
    ("verdict", "wrong"),
    [
        ("unique", {"v": 2}),
        ("unique", {"verdict": "original"}),
        ("unique", {"id": "abababab.2"}),
        ("unique", {"id": "abababab.2.065"}),
        ("unique", {"cluster": None}),
        ("unique", {"change": "unchanged"}),
        ("unique", {"reason": "crash"}),
        ("unique", {"more": 1}),
        ("unique", {"fingerprint": "0123"}),
        ("unique", {"decided_at": "2026-01-02T03:04:05Z"}),  # milliseconds are always there
        ("unique", {"decided_at": "2026-13-02T03:04:05.000Z"}),
        ("unique", {"fetched_at": 1_700_000_000_000}),
        ("unique", {"source": {"topic": "pages", "partition": 0, "offset": 1}}),
        ("unique", {"nearest": None}),
        ("unique", {"nearest": {"url": NEWS, "id": "abababab.2.0"}}),
        ("unique", {"nearest": {"url": NEWS, "id": "abababab.2.0", "similarity": 1.1}}),
        ("duplicate", {"nearest": {"url": NEWS, "id": "abababab.2.0", "similarity": 0.7}}),
        ("duplicate", BLANK),
        ("duplicate", {"duplicate_of": {"url": NEWS}}),
        ("duplicate", {"distance": -1}),
        ("duplicate", {"similarity": 1.1}),
        ("recrawl", {"change": "new"}),
        ("insufficient", {"fingerprint": "0" * 16}),
        ("insufficient", {"text_hash": None}),
        ("insufficient", {"url": None}),
        ("rejected", {"reason": None}),
        ("rejected", {"reason": "Something went wrong"}),
        ("rejected", {"change": "new"}),
    ],
)
def test_a_verdict_with_a_wrong_field_is_invalid(
    decided: list[JudgedBatch], verdict: str, wrong: dict[str, Any]
) -> None:
    good = next(each for each in verdicts(decided) if each["verdict"] == verdict)
    assert validator("verdict").is_valid(good)
    assert not validator("verdict").is_valid({**good, **wrong})


def test_a_verdict_without_one_of_its_fields_is_invalid(decided: list[JudgedBatch]) -> None:
    for good in verdicts(decided):
        for name in good.keys() - set(OPTIONAL):
            short = copy.copy(good)
            del short[name]
            assert not validator("verdict").is_valid(short), name


# The binary records, read as another program would: plain msgpack, and the types that the documents name.


def documented(file: str, kind: str) -> dict[str, str]:
    text = (SCHEMAS / file).read_text("utf-8")
    table = text[text.index(f'| `kind` | str | `"{kind}"`') :].split("\n\n")[0]
    return dict(re.findall(r"^\| `(\w+)` \| ([^|]+?) \|", table, re.MULTILINE))


def column(value: bytes, kind: str, sizes: dict[str, int]) -> np.ndarray[Any, Any]:
    """A buffer as its documented type says: `bin, n x 32 x u8`, little-endian."""
    *shape, last = kind.removeprefix("bin, ").split(" x ")
    if last == "16 bytes":
        shape, last = [*shape, "16"], "u8"
    dtype = np.dtype(f"<{last[0]}{int(last[1:]) // 8}")
    return np.frombuffer(value, dtype).reshape(
        [sizes[each] if each in sizes else int(each) for each in shape]
    )


def test_a_journal_record_is_laid_out_as_documented() -> None:
    kinds = documented("journal.md", "rows")
    for entry in entries():
        rows = entry.rows
        plain = msgspec.msgpack.decode(rows.encode())
        rare = {"corpus", *(each.name for each in COLUMNS if each.omitted == "column")}
        assert list(plain) == [each for each in kinds if each not in rare], "no row has a value of these"
        assert (plain["kind"], plain["version"], plain["scheme"]) == ("rows", 6, SCHEME.id)
        sizes = {"n": len(plain["status"]), "w": SCHEME.sketch_bins * SCHEME.sketch_bits // 64 + 8}
        strings = strings_of(plain, sizes["n"])
        buffers = {name: kinds[name] for name in plain if kinds[name].startswith("bin, ")}
        assert len(buffers) == 10
        for name, kind in buffers.items():
            found = column(plain[name], kind, sizes)
            if name in strings:
                assert strings[name] == getattr(rows.strings.columns(), name).strings(), name
            else:
                np.testing.assert_array_equal(found, getattr(rows, name).reshape(found.shape), name)
        assert [list(msgspec.structs.astuple(each)) for each in rows.ranges] == plain["ranges"]


def strings_of(plain: dict[str, Any], n: int) -> dict[str, list[bytes | None]]:
    """The columns of strings, as `journal.md` has them."""
    found: dict[str, list[bytes | None]] = {}
    at = 0
    for name in ("url", "key"):
        sizes = np.frombuffer(plain[name], "<i4").tolist()
        assert len(sizes) == n
        found[name] = []
        for row, size in enumerate(sizes):
            if size == -2:
                found[name].append(found["url"][row])
            else:
                found[name].append(None if size == -1 else plain["strings"][at : at + size])
                at += max(size, 0)
    assert at == len(plain["strings"])
    return found


def test_columns_of_a_journal_record_mean_what_is_documented() -> None:
    plain = msgspec.msgpack.decode(entries()[0].rows.encode())
    found = PageFingerprinter(SCHEME).text(HARBOUR)
    assert list(plain["status"]) == [0, 0, 0, 1, 2, 2]
    assert int.from_bytes(plain["fingerprint"][:8], "little") == found.fingerprint
    assert plain["sketch"][: SCHEME.sketch_bytes] == found.sketch
    key = blake2b(key=bytes(16), person=b"neardup.text").digest()
    assert plain["text_hash"][48:64] == sha256(key + b"loading").digest()[:16]
    assert plain["text_hash"][64:] == bytes(32), "zeros when rejected"
    # Runs of spaces are one, and the last is none.
    lengths = np.frombuffer(plain["length"], "<u4").tolist()
    assert lengths == [len(PageFingerprinter(SCHEME).normalise(HARBOUR))] * 3 + [len("loading"), 0, 0]
    times = np.frombuffer(plain["fetched_at"], "<i8").tolist()
    assert times == [1_767_319_445_678, -(2**63), -(2**63), 0, -(2**63), -(2**63)]
    strings = strings_of(plain, 6)
    assert strings["url"][2] == (NEWS + "#top").encode()
    digests = [plain["url_digest"][16 * row : 16 * row + 16] for row in range(6)]
    digest = blake2b(NEWS.encode(), key=bytes(16), person=b"neardup.url", digest_size=16).digest()
    assert digests[2] == digests[0] == digest, "of the URL key, without the fragment"
    assert strings["key"] == [None, b"\x00key", b"key", None, None, None]
    assert plain["reason"] == {4: "bad_base64", 5: "malformed_json"}
    assert plain["ranges"] == [[CLUSTER, "pages", TOPIC_ID, 3, 0, 6, 6, True, False, 0]]
    assert np.frombuffer(plain["url"], "<i4")[2] == len(NEWS + "#top")


def test_languages_take_no_bytes_where_there_are_none() -> None:
    fingerprinter = PageFingerprinter(SCHEME)
    pages = [
        Page(url=NEWS, html=f"<html lang={lang}><p>{HARBOUR}") for lang in ("en-GB", "zh", "x-none", "ast")
    ]
    rows = [fingerprinter.page(page) for page in pages]
    ranges = [SourceRange(CLUSTER, "pages", TOPIC_ID, 3, 0, 4, 4)]
    plain = msgspec.msgpack.decode(Rows.of(SCHEME, ranges, rows, range(4), [None] * 4).encode())
    assert plain["language"] == b"en\0zh\0\0\0\0ast"
    assert msgspec.msgpack.decode(entries()[0].rows.encode())["language"] == b""


def test_a_record_with_a_sketch_of_more_shingles_than_there_are_is_refused() -> None:
    """A size that overflows would end every judge in the estimate of a similarity."""
    scheme, ranges = Scheme(), [SourceRange(CLUSTER, "pages", TOPIC_ID, 3, 0, 1, 1)]
    start = msgspec.structs.replace(
        genesis(VerdictOptions()), scheme=scheme, scheme_id=scheme.id, seed=scheme.seed()
    )
    row = PageFingerprinter(scheme).page(Page(url=NEWS, text=HARBOUR))
    for size, refused in ((2**32, False), (2**32 + 1, True), (2**64 - 1, True)):
        forged = row.sketch[:240] + size.to_bytes(8, "little") + bytes(64)
        rows = Rows.of(scheme, ranges, [msgspec.structs.replace(row, sketch=forged)], [0], [None])
        with pytest.raises(RecordError, match=f"here: a sketch of {size}") if refused else nullcontext():
            rows.refuse_foreign(start, "here")


def sized(name: str, *sizes: int) -> Callable[[dict[str, Any]], object]:
    return lambda plain: plain.update({name: np.array(sizes, "<i4").tobytes()})


def ended(name: str, dtype: str, number: float) -> Callable[[dict[str, Any]], object]:
    """The last value of a column is another."""
    last = np.array([number], dtype).tobytes()
    return lambda plain: plain.update({name: plain[name][: -len(last)] + last})


def inside_a_character(plain: dict[str, Any]) -> None:
    first = int(np.frombuffer(plain["url"], "<i4")[0])
    plain["strings"] = plain["strings"][: first - 1] + "é".encode() + plain["strings"][first + 1 :]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (sized("url", -2, -1, -1, -1, -1, -1), "a size of a string that means nothing"),
        (sized("key", -3, -1, -1, -1, -1, -1), "a size of a string that means nothing"),
        (sized("key", 2**31 - 1, -1, -1, -1, -1, -1), "sizes of the strings do not add up"),
        (sized("key", -1, -1, -1, -1, -1), "cannot reshape"),
        # URLs become JSON.
        (lambda plain: plain.update(strings=b"\xff" + plain["strings"][1:]), "(UTF-8|utf-8)"),
        (inside_a_character, "(UTF-8|utf-8)"),
        # Years of five digits cannot be written.
        (ended("status", "u1", 4), "status 4"),
        (ended("fetched_at", "<i8", 253_402_300_800_000), "fetched_at"),
        (ended("fetched_at", "<i8", -(2**63) + 1), "fetched_at"),
        (lambda plain: plain.update(traceparent={6: TRACE}), "a traceparent of a row that does not exist"),
    ],
)
def test_a_journal_record_that_cannot_be_is_refused(
    change: Callable[[dict[str, Any]], object], said: str
) -> None:
    plain = msgspec.msgpack.decode(entries()[0].rows.encode())
    change(plain)
    with pytest.raises(RecordError, match=f"journal offset 2: .*{said}"):
        decode_journal(msgspec.msgpack.encode(plain), 2)


@pytest.mark.parametrize("kind", ["genesis", "rows"])
@pytest.mark.parametrize("version", [4, 5])
def test_a_journal_record_of_another_version_is_refused_by_name(kind: str, version: int) -> None:
    old = {"kind": kind, "version": version, "scheme": SCHEME.id, "url": [None], "reason": [None]}
    with pytest.raises(
        RecordVersionError, match=rf"journal offset 5: has version {version}, .* version 6 only; create"
    ):
        decode_journal(msgspec.msgpack.encode(old), 5)


def test_qualities_take_no_bytes_where_there_are_none() -> None:
    fingerprinter = PageFingerprinter(SCHEME)
    qualities = [None, 0.1, float("nan"), -1e308]
    rows = [fingerprinter.page(Page(url=NEWS, text=HARBOUR, quality=each)) for each in qualities]
    assert [row.quality_ignored for row in rows] == [False, False, True, False]
    ranges = [SourceRange(CLUSTER, "pages", TOPIC_ID, 3, 0, 4, 4)]
    value = Rows.of(SCHEME, ranges, rows, range(4), [None] * 4).encode()
    plain = msgspec.msgpack.decode(value)
    expected = np.array([np.nan, 0.1, np.nan, -1e308])
    np.testing.assert_array_equal(np.frombuffer(plain["quality"], "<f8"), expected)
    read = decode_journal(value, 2)
    assert isinstance(read, Rows)
    np.testing.assert_array_equal(read.quality, expected)
    ranges = [SourceRange(CLUSTER, "pages", TOPIC_ID, 3, 0, 2, 2)]
    value = Rows.of(SCHEME, ranges, [rows[0], rows[2]], range(2), [None] * 2).encode()
    assert "quality" not in msgspec.msgpack.decode(value)
    read = decode_journal(value, 2)
    assert isinstance(read, Rows)
    assert np.isnan(read.quality).all()
    plain["quality"] = np.array([1, 2, 3, -np.inf], "<f8").tobytes()
    with pytest.raises(RecordError, match="quality -inf, not in"):
        decode_journal(msgspec.msgpack.encode(plain), 2)


def test_traces_travel_with_their_rows_and_cost_nothing_where_there_are_none() -> None:
    rows = dataclasses.replace(entries()[0].rows, traceparent={1: TRACE, 3: TRACE[:-1] + "0"})
    plain = msgspec.msgpack.decode(rows.encode())
    assert plain["traceparent"] == {1: TRACE, 3: TRACE[:-1] + "0"}
    read = decode_journal(rows.encode(), 2)
    assert isinstance(read, Rows)
    keep = np.array([False, True, True, False, True, True])
    batch = Batch.of([Entry(2, 0, b"", read), Entry(3, 0, b"", read)], [keep, keep], 0)
    assert batch.traceparent == {0: TRACE, 4: TRACE}


def test_the_genesis_is_laid_out_as_documented() -> None:
    plain = msgspec.msgpack.decode(encode_genesis(genesis(VerdictOptions())))
    assert list(plain) == list(documented("journal.md", "genesis"))
    text = (SCHEMAS / "journal.md").read_text("utf-8")
    for name in ("scheme", "options"):
        paragraph = text[text.index(f"\n`{name}`: ") + 1 :]
        listed = re.findall(r"`(\w+)`", paragraph.split("\n\n")[0].split("\n`options`: ")[0])
        values = {each for each in plain[name].values() if isinstance(each, str)}
        values |= {"jieba", "parity", "strict"}
        assert [each for each in listed[1:] if each not in values] == list(plain[name]), name


def test_a_decision_record_is_laid_out_as_documented(decided: list[JudgedBatch]) -> None:
    kinds = documented("decisions.md", "decisions")
    for each in decided:
        record = each.record()
        plain = msgspec.msgpack.decode(encode_decisions(record))
        assert list(plain) == list(kinds)
        assert (plain["kind"], plain["version"], plain["journal"]) == ("decisions", 4, JOURNAL)
        codes = column(plain["codes"], kinds["codes"], {"N": len(record.codes)})
        names = ["unique", "duplicate", "recrawl", "insufficient", "rejected"]
        published = verdicts([each])
        judged = codes[codes & 7 > 0]
        assert [names[code - 1] for code in (judged & 7).tolist()] == [one["verdict"] for one in published]
        words = [None, "new", "unchanged", "changed"]
        assert [words[code] for code in (judged >> 3 & 3).tolist()] == [one["change"] for one in published]
        named = [one for one in published if one["duplicate_of"]]
        near = [one for one in published if "nearest" in one]
        sizes = {"m": len(named), "k": int((codes >> 5 & 1).sum()), "u": int((codes >> 7).sum())}
        assert sizes["u"] == len(near)
        for field, said in (("nearest", "id"), ("nearest_similarity", "similarity")):
            found = column(plain[field], kinds[field], sizes).tolist()
            found = list(map(shown, found)) if said == "id" else [part / 10_000 for part in found]
            assert found == [one["nearest"][said] for one in near]
        for field, count in (("numbers", "m"), ("anchors", "k"), ("nearest_numbers", "u")):
            assert len(column(plain[field], kinds[field], sizes)) == sizes[count]
        other = column(plain["other"], kinds["other"], sizes).tolist()
        assert list(map(shown, other)) == [one["duplicate_of"]["id"] for one in named]
        distance = column(plain["distance"], kinds["distance"], sizes).tolist()
        assert distance == [one["distance"] for one in named]
        if plain["similarity"]:
            similarity = column(plain["similarity"], kinds["similarity"].removeprefix("empty, or "), sizes)
            assert [part / 10_000 for part in similarity.tolist()] == [one["similarity"] for one in named]
        else:
            assert not any(one["similarity"] for one in named)
        clusters = dict(
            zip(
                np.flatnonzero(codes >> 5 & 1).tolist(),
                column(plain["clusters"], kinds["clusters"], sizes).tolist(),
                strict=True,
            )
        )
        rows = [row for row, code in enumerate(codes.tolist()) if code & 7 in (2, 3)]
        found = [shown(clusters.get(row, page)) for row, page in zip(rows, other, strict=True)]
        assert found == [one["cluster"] for one in named]


def shown(page: int) -> str:
    return f"abababab.{page >> 16}.{page & 0xFFFF}"


def test_a_decision_record_means_what_is_documented(decided: list[JudgedBatch]) -> None:
    first, second, both = (each.record() for each in decided)
    assert plain(first)["sources"] == [[CLUSTER, "pages", TOPIC_ID, 3, 6, 0]]
    assert plain(both)["sources"] == [[CLUSTER, "pages", TOPIC_ID, 3, 11, 0]]
    assert [plain(each)["start"] for each in (first, second, both)] == [2, 3, 2]
    assert [plain(each)["end"] for each in (first, second, both)] == [3, 4, 4]
    assert plain(second)["codes"][0] == 0, "the re-delivered row"
    assert plain(second)["superseded"] == [[1, 0]], "the second row supersedes anchor 0"
    assert plain(both)["superseded"] == [[7, 0]], "counted over all rows of both records"
    assert plain(second)["time"] == plain(first)["time"], "a running maximum"
    assert plain(second)["last"] == entries()[1].digest
    assert np.frombuffer(plain(first)["other"], "<i8").tolist() == [pack(2, 0)] * 2
    assert list(plain(first)["distance"]) == [0, 0]
    assert np.frombuffer(plain(first)["numbers"], "<i8").tolist() == [0, 0]
    numbers = np.frombuffer(plain(second)["numbers"], "<i8").tolist()
    assert numbers[0] == 1, "the first record has one anchor"


def plain(record: Decisions) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.msgpack.decode(encode_decisions(record))
    return found


TURN = {
    "oldest": [3, 1],
    "next": [9, 4],
    "anchors": np.array([0, 2], "<i8").tobytes(),
    "duplicates": bytes(8),
}
FORGOTTEN = Forgotten(
    requests=5,
    anchors=bytes(8),
    duplicates=b"",
    urls=bytes(16),
    ids=bytes(8),
    pages=[(4, 1)],
    named=NamedDigests.of(urls=[b"u" * 16], domains=[b"d" * 16]),
)
SOURCES = [SourceProgress(CLUSTER, "pages", TOPIC_ID, partition, 6, 0) for partition in (3, 4)]
BEGIN = (JOURNAL, "0" * 16, 9, bytes(16), 7)
ABOUT_NO_ROWS = {
    "ledger": ledger_record(*BEGIN, SOURCES, LedgerPart(1, 3)),
    "turn": turn_record(*BEGIN, 6, convert(TURN, Turn)),
    "forgotten": forgetting_record(*BEGIN, FORGOTTEN),
}


@pytest.mark.parametrize(
    ("kind", "heading"), [("ledger", None), ("turn", "\n## Turns"), ("forgotten", "\n## Forgotten pages")]
)
def test_a_record_about_no_rows_is_laid_out_as_documented(kind: str, heading: str | None) -> None:
    record = plain(ABOUT_NO_ROWS[kind])
    assert list(record) == list(documented("decisions.md", "decisions"))
    assert (record["kind"], record["start"], record["end"], record["time"]) == ("decisions", 9, 9, 7)
    about_rows = list(record)[list(record).index("codes") :]
    assert len(about_rows) == 12
    filled = {name for name in ("sources", "ledger", "turn", "forgotten", *about_rows) if record[name]}
    assert filled == ({"sources", "ledger"} if kind == "ledger" else {kind})
    if heading:
        described = (SCHEMAS / "decisions.md").read_text("utf-8").split(heading)[1].split("\n## ")[0]
        assert list(record[kind]) == re.findall(r"^\| `(\w+)` \|", described, re.MULTILINE)
    assert decode_decisions(msgspec.msgpack.encode(record), 5) == ABOUT_NO_ROWS[kind]


def test_a_ledger_record_and_a_turn_mean_what_is_documented() -> None:
    ledger, turn = plain(ABOUT_NO_ROWS["ledger"]), plain(ABOUT_NO_ROWS["turn"])
    assert ledger["ledger"] == [1, 3]
    assert ledger["sources"] == [[CLUSTER, "pages", TOPIC_ID, partition, 6, 0] for partition in (3, 4)]
    assert (turn["turn"], turn["cap"]) == (TURN, 6)


@pytest.mark.parametrize(
    ("kind", "changed", "said"),
    [
        ("ledger", {"end": 10}, "a ledger record that decides rows"),
        ("ledger", {"codes": b"\x01"}, "a ledger record that decides rows"),
        ("ledger", {"skipped": [[0, 1]]}, "a ledger record that decides rows"),
        ("ledger", {"turn": TURN}, "a ledger record that is a turn as well"),
        ("ledger", {"ledger": None}, "decides no journal record"),
        ("ledger", {"ledger": [-1, 3]}, "a ledger record of 2 sources from -1 on, of 3"),
        ("ledger", {"ledger": [2, 3]}, "a ledger record of 2 sources from 2 on, of 3"),
        ("ledger", {"sources": []}, "a ledger record of 0 sources from 1 on, of 3"),
        ("turn", {"end": 10}, "a turn that decides rows"),
        ("turn", {"codes": b"\x01"}, "a turn that decides rows"),
        ("turn", {"oldest": [2, 1]}, "a turn that carries anchors which do not expire"),
        ("turn", {"oldest": [3, 5]}, "a turn that carries duplicates which do not expire"),
        ("turn", {"anchors": bytes(16)}, "a turn that carries anchors out of order"),
        ("turn", {"duplicates": bytes(9)}, "the length of duplicates is not a multiple of 8 bytes"),
        ("turn", {"duplicates": b"\xff" * 8}, "a turn that carries duplicates which do not expire"),
        ("turn", {"next": [9]}, "Expected `array` of length 2"),
        ("forgotten", {"anchors": bytes(7)}, "the length of anchors is not a multiple of 8 bytes"),
        ("forgotten", {"ids": bytes(16)}, "a forgetting of numbers that are not in order"),
        ("forgotten", {"anchors": b"\xff" * 8}, "a forgetting of numbers that are not in order"),
        ("forgotten", {"named": [b"1", b"", b""]}, "the length of named urls is not a multiple of 16"),
        ("forgotten", {"named": [b"", b"", b"b" * 16 + b"a" * 16]}, ".* names domains out of order"),
        ("forgotten", {"urls": b""}, "a forgetting of URLs that are not those of its pages, in order"),
        ("forgotten", {"pages": [(5, 1)]}, "a forgetting that found pages of requests which are not decided"),
        ("forgotten", {"pages": [(4, 1), (3, 1)]}, "a forgetting that found pages of requests which are not"),
    ],
)
def test_a_record_about_no_rows_that_cannot_be_is_refused(
    kind: str, changed: dict[str, Any], said: str
) -> None:
    record = plain(ABOUT_NO_ROWS[kind])
    within = record[kind] if isinstance(record[kind], dict) else {}
    (within if within.keys() >= changed.keys() else record).update(changed)
    with pytest.raises(RecordError, match=f"decisions offset 5: {said}"):
        decode_decisions(msgspec.msgpack.encode(record), 5)


def test_requests_to_forget_validate_and_others_are_refused() -> None:
    valid = validator("request")
    right = ForgetRequest(journal="ab" * 16, forget="domain", digest="cd" * 16)
    valid.validate(json.loads(encode_request(right)))
    assert decode_request(encode_request(right), 7) == right
    for wrong in ({"v": 2}, {"forget": "page"}, {"digest": "CD" * 16}, {"journal": "ab"}):
        value = json.loads(encode_request(right)) | wrong
        assert not valid.is_valid(value)
        with pytest.raises(RecordError, match="requests offset 7: "):
            decode_request(json.dumps(value).encode(), 7)
    with pytest.raises(RecordError, match="requests offset 7: "):
        decode_request(None, 7)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_decision_record_of_another_version_is_refused_by_name(
    version: int, decided: list[JudgedBatch]
) -> None:
    old = plain(decided[0].record()) | {"version": version}
    with pytest.raises(
        RecordVersionError, match=rf"decisions offset 7: has version {version}, .* version 4 only; create"
    ):
        decode_decisions(msgspec.msgpack.encode(old), 7)


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("codes", lambda codes: bytes([6]) + codes[1:], "unknown verdict 6"),
        ("codes", lambda codes: bytes([codes[0] | 64]) + codes[1:], "a code that means nothing"),
        ("codes", lambda codes: bytes([codes[0] | 32]) + codes[1:], "a code that means nothing"),
        ("codes", lambda codes: bytes([0]) + codes[1:-1], "do not fit the journal"),
        ("other", lambda other: other[8:], "1 of other, which does not fit"),
        ("distance", lambda distance: distance + b"0", "3 of distance, which does not fit"),
        ("similarity", lambda similarity: similarity + b"00", "of similarity, which does not fit"),
        ("distance", lambda _: bytes([0, 129]), "a distance of 129, which is not from 0 to 128"),
        ("similarity", lambda _: b"\x10\x27\x11\x27", "a similarity of 10001, which is not from 0 to 10000"),
        ("clusters", lambda _: bytes(8), "1 of clusters, which does not fit"),
        ("other", lambda other: b"\xff" * len(other), "a page with a negative id"),
        ("numbers", lambda numbers: numbers[8:], "1 of numbers, which does not fit"),
        ("numbers", lambda numbers: bytes([1]) + numbers[1:], "row 1 names page 131072 by the number 1"),
        ("other", lambda other: bytes(8) + other[8:], "row 1 names page 0 by the number 0"),
        ("nearest", lambda _: bytes(8), "1 of nearest, which does not fit"),
        ("codes", lambda codes: codes[:1] + bytes([codes[1] | 128]) + codes[2:], "a code that means nothing"),
    ],
)
def test_decisions_that_do_not_fit_are_refused(
    tmp_path: Path, name: str, change: Callable[[bytes], bytes], said: str
) -> None:
    start = genesis(VerdictOptions())
    state = State(tmp_path, start, CLUSTER, memory=1 << 20, generation=100, cache=1 << 20)
    judge, first = Judge(state, start), entries()[:1]
    record = judge.decide(first).record()
    wrong = msgspec.structs.replace(record, **{name: change(getattr(record, name))})
    with pytest.raises(StateError, match=said):
        judge.prepare(first, wrong)
    with pytest.raises(StateError, match=said):
        judge.json(first, wrong)
    assert judge.json(first, record) == judge.decide(first).json()
    state.close()


@pytest.mark.parametrize("similarity", [4999, 10_001])
def test_a_nearest_page_of_a_similarity_that_cannot_be_is_refused(tmp_path: Path, similarity: int) -> None:
    start = genesis(VerdictOptions(evidence="0.5"))
    state = State(tmp_path, start, CLUSTER, memory=1 << 20, generation=100, cache=1 << 20)
    judge, both = Judge(state, start), entries()
    record = judge.decide(both).record()
    assert record.nearest_similarity
    others = record.nearest_similarity[2:]
    wrong = msgspec.structs.replace(record, nearest_similarity=similarity.to_bytes(2, "little") + others)
    said = f"a nearest_similarity of {similarity}, which is not from 5000 to 10000"
    with pytest.raises(StateError, match=said):
        judge.prepare(both, wrong)
    judge.prepare(both, record)
    state.close()
