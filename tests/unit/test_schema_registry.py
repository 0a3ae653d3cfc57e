"""Framed messages: a schema id, and a record that is decoded by a schema of a registry.

The registry is a small server that answers Confluent's REST calls.
"""

from __future__ import annotations

import io
import json
import secrets
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from math import inf, nan
from pathlib import Path
from typing import Any, NamedTuple

import fastavro
import pytest

from stream.errors import RecordError, RefusedError, SettingsError
from stream.kafka.verdict_values import AvroVerdicts, VerdictReader
from stream.pages.outside import schema_registry as registry_module
from stream.pages.outside.errors import FetchNeededError, UnavailableError
from stream.pages.outside.outside import Outside
from stream.pages.outside.schema import KEPT, REFUSED_SECONDS
from stream.pages.outside.schema_registry import Registry
from stream.pages.page import Page, PageMessageError, decode_page
from stream.settings import Settings, load

SCHEMAS = Path(__file__).parents[2] / "schemas"
SCHEMA = json.loads((SCHEMAS / "page.avsc").read_text("utf-8"))
VERDICT_SCHEMA = json.loads((SCHEMAS / "verdict.avsc").read_text("utf-8"))
URL = "http://example.com/news"


def record_of(name: str, **kinds: object) -> dict[str, Any]:
    fields = [{"name": field, "type": kind} for field, kind in kinds.items()]
    return {"type": "record", "name": name, "fields": fields}


VERDICT = (
    b'{"v":1,"id":"abababab.2.1","url":"http://a/\xc3\xa9","verdict":"duplicate","change":"new",'
    b'"cluster":"abababab.2.0","duplicate_of":{"url":"http://a/","id":"abababab.2.0"},"distance":3,'
    b'"similarity":0.8125,"fingerprint":"0123456789abcdef","text_hash":"%s","scheme":"0123456789abcdef",'
    b'"source":{"topic":"pages","topic_id":"%s","partition":2,"offset":5000000000},'
    b'"fetched_at":"0001-01-01T00:00:00.001Z","decided_at":"9999-12-31T23:59:59.999Z","reason":null}'
) % (b"ab" * 16, b"cd" * 16)


class Served:
    """A registry in this process. `fail` is a status with which it answers; `asked` counts requests."""

    def __init__(self) -> None:
        self.schemas: dict[int, dict[str, Any]] = {}
        self.subjects: dict[str, int] = {}
        self.fail: int | None = None
        self.garbage = False
        self.asked: list[str] = []
        self.authorization: str | None = None
        self.moved: dict[str, str] = {}
        """By path, where it sends who asks for it."""
        served = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                served.asked.append(self.path)
                served.authorization = self.headers["Authorization"]
                if self.path in served.moved:
                    self.send_response(307)
                    self.send_header("Location", served.moved[self.path])
                    self.end_headers()
                else:
                    self.answered(*served.answer(self.path))

            def do_POST(self) -> None:
                content = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                served.asked.append(self.path)
                self.answered(*served.post(self.path, content))

            def answered(self, status: int, answer: object) -> None:
                content = b"<html>" if served.garbage else json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def answer(self, path: str) -> tuple[int, Any]:
        if self.fail is not None:
            return self.fail, {"error_code": 50001, "message": "on purpose"}
        parts = path.split("/")
        if parts[1:3] == ["schemas", "ids"]:
            found = self.schemas.get(int(parts[3]))
            return (200, found) if found else (404, {"error_code": 40403, "message": "Schema not found"})
        if parts[1:] == ["subjects"]:
            return 200, list(self.subjects)
        if parts[1] == "subjects":
            return 200, self.schemas[self.subjects[parts[2]]]
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def post(self, path: str, content: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Look up or register a schema. A schema has one id in all subjects."""
        if self.fail is not None:
            return self.fail, {"error_code": 50001, "message": "on purpose"}
        _, _, subject, *versions = path.split("/")
        number = next((n for n, each in self.schemas.items() if each["schema"] == content["schema"]), None)
        if not versions and (number is None or self.subjects.get(subject) != number):
            code = 40403 if subject in self.subjects else 40401
            return 404, {"error_code": code, "message": "not found"}
        if number is None:
            number = self.register(json.loads(content["schema"]))
            self.schemas[number]["schema"] = content["schema"]
        self.subjects[subject] = number
        return 200, {"id": number}

    def register(self, schema: object, kind: str = "AVRO", references: tuple[str, ...] = ()) -> int:
        number = len(self.schemas) + 7
        entry: dict[str, Any] = {"schema": json.dumps(schema)}
        if kind != "AVRO":
            entry["schemaType"] = kind  # Confluent's leaves it out for Avro
        if references:
            entry["references"] = [{"name": name, "subject": name, "version": 1} for name in references]
        self.schemas[number] = entry
        if isinstance(schema, dict) and "name" in schema:
            self.subjects[str(schema["name"])] = number
        return number


@pytest.fixture
def served() -> Iterator[Served]:
    registry = Served()
    yield registry
    registry.close()


def framed(number: int, body: bytes) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + body


def avro(number: int, schema: dict[str, Any], **fields: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), fields)
    return framed(number, out.getvalue())


def outside_at(url: str, user: str | None = None, password: str | None = None) -> Outside:
    return Outside(ask=Registry(url, user, password).schema)


def decoded(outside: Outside, value: bytes) -> Page:
    """The page, after fetching what it needs, at most once."""
    try:
        return decode_page(value, 1 << 20, outside)
    except FetchNeededError as wanted:
        wanted.fetch()
    return decode_page(value, 1 << 20, outside)


def reason(outside: Outside, value: bytes) -> str:
    with pytest.raises(PageMessageError) as error:
        decoded(outside, value)
    return error.value.reason


def test_a_framed_avro_record_is_a_page(served: Served) -> None:
    fields: dict[str, Any] = {"body": b"caf\xe9", "charset": "latin-1", "fetched_at": 1_767_323_045_678}
    page = decoded(outside_at(served.url), avro(served.register(SCHEMA), SCHEMA, url=URL, **fields))
    assert page == Page(url=URL, **fields)


@pytest.mark.parametrize(
    ("kind", "quality", "due"),
    [
        ("double", 0.1, "0.1"), ("float", 0.5, "0.5"), ("int", -3, "-3.0"), ("double", nan, "nan"),
        ("double", inf, "nan"), ("string", "0.5", "nan"), ("boolean", True, "nan"), ("null", None, "None"),
    ],
)  # fmt: skip
def test_what_is_no_finite_number_in_avro_is_no_quality(
    served: Served, kind: str, quality: object, due: str
) -> None:
    """A writer's own schema may have another type than ours; what is no finite number costs no page."""
    own = record_of("Rated", url="string", text="string", quality=kind)
    value = avro(served.register(own), own, url=URL, text="a", quality=quality)
    assert str(decoded(outside_at(served.url), value).quality) == due


def test_framed_json_is_a_page_message(served: Served) -> None:
    number = served.register({"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}, "JSON")
    value = framed(number, json.dumps({"url": URL, "text": "Hello"}).encode())
    assert decoded(outside_at(served.url), value) == Page(url=URL, text="Hello")
    assert reason(outside_at(served.url), framed(number, b"{")) == "malformed_json"


def test_an_unknown_id_and_an_undecodable_body_are_refused(served: Served) -> None:
    number = served.register(SCHEMA)
    whole = avro(number, SCHEMA, url=URL, text="Hello")
    outside = outside_at(served.url)
    assert reason(outside, framed(2_000_000_000, whole[5:])) == "unknown_schema"
    assert reason(outside, whole[:-6]) == "bad_avro"
    assert reason(outside, whole + b"more") == "bad_avro"
    assert reason(outside, framed(number, b"\xff" * 40)) == "bad_avro"
    assert reason(outside, avro(number, SCHEMA, url=URL)) == "missing_field"


def test_each_id_is_asked_for_once(served: Served) -> None:
    number, outside = served.register(SCHEMA), outside_at(served.url)
    for _ in range(3):
        decoded(outside, avro(number, SCHEMA, url=URL, text="Hello"))
        assert reason(outside, framed(4, b"?")) == "unknown_schema"
    assert served.asked == [f"/schemas/ids/{number}", "/schemas/ids/4"]


def test_schemas_that_refer_to_others_are_put_together(served: Served) -> None:
    text = record_of("Text", value="string")
    whole = record_of("Page", url="string", text="string", more="Text")
    served.register(text)
    number = served.register(whole, references=("Text",))
    out = io.BytesIO()
    named: dict[str, Any] = {}
    fastavro.parse_schema(text, named_schemas=named)
    parsed = fastavro.parse_schema(whole, named_schemas=named)
    fastavro.schemaless_writer(out, parsed, {"url": URL, "text": "Hello", "more": {"value": "x"}})
    assert decoded(outside_at(served.url), framed(number, out.getvalue())).text == "Hello"
    loose = served.register({**whole, "name": "Loose"})
    assert reason(outside_at(served.url), framed(loose, out.getvalue())) == "unsupported_schema"


def test_other_kinds_of_schemas_are_refused(served: Served) -> None:
    number = served.register("syntax = 'proto3';", "PROTOBUF")
    assert reason(outside_at(served.url), framed(number, b"\0")) == "unsupported_schema"


def test_a_registry_that_is_away_is_no_fault_of_the_page(served: Served) -> None:
    number, outside = served.register(SCHEMA), outside_at(served.url)
    value = avro(number, SCHEMA, url=URL, text="Hello")
    for status in (500, 503, 401, 403, 404):
        served.fail = status
        with pytest.raises(UnavailableError, match=f"schema_registry_url .*{status}"):
            decoded(outside, value)
    served.fail, served.garbage = None, True
    with pytest.raises(UnavailableError):
        decoded(outside, value)
    served.garbage = False
    assert decoded(outside, value).text == "Hello"
    with pytest.raises(UnavailableError, match="schema_registry_url"):
        decoded(outside_at("http://127.0.0.1:1"), value)
    with pytest.raises(UnavailableError, match="404"):
        decoded(outside_at(served.url + "/wrong"), value)


def test_credentials_stay_with_the_registry_that_they_are_for(served: Served) -> None:
    other = Served()
    try:
        number = other.register(SCHEMA)
        path, value = f"/schemas/ids/{number}", avro(number, SCHEMA, url=URL, text="Hello")
        served.moved[path] = other.url + path
        assert decoded(outside_at(served.url, "crawler", "pass word"), value).text == "Hello"
        assert (other.asked, other.authorization) == ([path], None)
        assert served.authorization == "Basic Y3Jhd2xlcjpwYXNzIHdvcmQ="
        served.moved[path], served.schemas[99] = "/schemas/ids/99", other.schemas[number]
        served.authorization = None
        assert decoded(outside_at(served.url, "crawler", "pass word"), value).text == "Hello"
        assert served.authorization is not None, "elsewhere in the same registry"
    finally:
        other.close()


def test_an_answer_that_is_too_large_rejects_its_pages_and_is_asked_for_once(served: Served) -> None:
    """Pages of such a schema used to wait for ever, as a truncated answer is not valid JSON."""
    number = served.register({**SCHEMA, "doc": "x" * registry_module.MAX_ANSWER})
    other = served.register({**SCHEMA, "doc": "x" * registry_module.MAX_SCHEMA})
    outside = outside_at(served.url)
    for each in (number, other, number, other):
        assert reason(outside, framed(each, b"body")) == "unsupported_schema"
    assert served.asked == [f"/schemas/ids/{number}", f"/schemas/ids/{other}"]


def test_an_answer_that_trickles_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    class Trickle(io.BytesIO):
        def read1(self, size: int | None = -1) -> bytes:
            clock.append(clock[-1] + 3)
            return b" "

    clock = [0.0]
    monkeypatch.setattr("stream.pages.outside.schema_registry.time.monotonic", lambda: clock[-1])
    with pytest.raises(TimeoutError, match="longer than 10 s"):
        registry_module._content(Trickle(), "here")  # type: ignore[arg-type]


def test_a_refusal_is_asked_for_again_after_a_while(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing schema may have been registered since. A known schema is never requested again."""
    clock = [0.0]
    monkeypatch.setattr("stream.pages.outside.schema_registry.time.monotonic", lambda: clock[0])
    text = record_of("Text", value="string")
    loose = served.register(with_field("Text"))
    served.schemas[loose]["references"] = [{"name": "Text", "subject": "Absent", "version": 1}]
    served.moved["/subjects/Absent/versions/1"] = "/schemas/ids/4"
    outside = outside_at(served.url)
    body = zigzag(len(URL)) + URL.encode() + zigzag(1) + b"x"
    for _ in range(3):
        assert reason(outside, framed(4, b"?")) == "unknown_schema"
        assert reason(outside, framed(loose, body)) == "unsupported_schema"
    asked = len(served.asked)
    clock[0] += REFUSED_SECONDS + 1
    served.schemas[4] = {"schema": json.dumps(text)}
    assert reason(outside, framed(loose, body)) == "missing_field", "a page without content, but read"
    assert len(served.asked) > asked
    asked = len(served.asked)
    clock[0] += 10 * REFUSED_SECONDS
    assert reason(outside, framed(loose, body)) == "missing_field"
    assert len(served.asked) == asked


def test_a_schema_that_is_refused_is_not_parsed_for_each_page(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    number, parsed = served.register(with_field({"type": "array", "items": "null"})), []
    original = fastavro.parse_schema
    monkeypatch.setattr(fastavro, "parse_schema", lambda *a, **k: parsed.append(1) or original(*a, **k))
    outside = outside_at(served.url)
    for _ in range(5):
        assert reason(outside, framed(number, b"?")) == "unsupported_schema"
    assert len(parsed) == 1


def test_what_is_kept_of_a_registry_is_bounded(served: Served) -> None:
    registry = Registry(served.url)
    for number in range(1000, 1000 + 2 * KEPT):
        assert registry.schema(number).reason == "unknown_schema"
    assert len(registry._refused) == KEPT


def zigzag(number: int) -> bytes:
    """Avro's long."""
    out, rest = bytearray(), number << 1
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*out, rest])


def with_field(kind: object) -> dict[str, Any]:
    return record_of("Crawled", url="string", more=kind)


def nulls(name: str, count: int, *others: str) -> dict[str, Any]:
    kinds = [*others, *["null"] * count]
    return record_of(name, **{f"f{place}": kind for place, kind in enumerate(kinds)})


def doubling(levels: int) -> dict[str, Any]:
    """A type of 2^levels nulls, which take no bytes."""
    kind: object = "null"
    for level in range(levels):
        kind = record_of(f"D{level}", a=kind, b=f"D{level - 1}" if level else "null")
    return with_field(kind)


def chained(levels: int) -> list[dict[str, Any]]:
    """Types nested by reference, not in the text; the last one is the deepest."""
    return [nulls(f"C{level}", 0, f"C{level - 1}" if level else "int") for level in range(levels)]


def nested(levels: int) -> str:
    return '{"type":"array","items":' * levels + '"string"' + "}" * levels


COSTLY: dict[str, object] = {
    "nulls": with_field({"type": "array", "items": "null"}),
    "records": with_field({"type": "array", "items": nulls("Nulls", 1)}),
    "fixeds": with_field({"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}),
    "nearly free records": with_field({"type": "array", "items": nulls("Nearly", 50, "int")}),
    "unions": with_field({"type": "array", "items": ["int", nulls("Branch", 50)]}),
    "map": with_field({"type": "map", "values": nulls("Many", 50)}),
    "self": with_field("Crawled"),
    "tree": with_field({"type": "array", "items": "Crawled"}),
    "list": with_field(["null", "Crawled"]),
    "doubling": doubling(40),
    "chained": chained(150),
    "nested": nested(150),
    "deep": nested(20_000),
    "odd": {"type": "record", "name": "Odd", "fields": 5},
    "unknown": ["null", "Nowhere"],
    "number": 7,
}


@pytest.mark.parametrize("name", COSTLY)
def test_schemas_that_would_take_a_process_down_are_refused(served: Served, name: str) -> None:
    """A few bytes claim 2^41 items that take none, and five million levels of a recursive schema overflow the
    stack of the decoder, which is C."""
    number, schema = served.register("replaced"), COSTLY[name]
    served.schemas[number]["schema"] = schema if isinstance(schema, str) else json.dumps(schema)
    claim = zigzag(len(URL)) + URL.encode() + zigzag(1 << 41)
    for body in (claim, b"\x02" * 1_000_000):
        assert reason(outside_at(served.url), framed(number, body)) == "unsupported_schema"


def test_lists_of_what_takes_bytes_are_read(served: Served) -> None:
    link = record_of("Link", **{f"f{place}": ["null", "int"] for place in range(40)})
    more = ["null", "string", {"type": "array", "items": "Link"}]
    links, metas = {"type": "array", "items": link}, {"type": "map", "values": more}
    schema = record_of("Crawled", url="string", text="string", links=links, meta=metas, nothing="null")
    meta = {"a": None, "b": [{}]}
    fields = {"url": URL, "text": "Hello", "links": [{}] * 100, "meta": meta, "nothing": None}
    value = avro(served.register(schema), schema, **fields)
    assert decoded(outside_at(served.url), value) == Page(url=URL, text="Hello")


def test_without_a_registry_a_framed_message_is_refused() -> None:
    for outside in (None, Outside()):
        with pytest.raises(PageMessageError, match="unknown_schema"):
            decode_page(framed(1, b"body"), 1 << 20, outside)


# Verdicts: our own schema is registered, and whatever a topic holds is read.


class Read(NamedTuple):
    """A record as a consumer returns it."""

    value: bytes
    topic: str = "n.verdicts"
    partition: int = 2
    offset: int = 7


def with_registry(url: str, **options: Any) -> Settings:
    return Settings(schema_registry_url=url, verdict_format="avro", **options)


def test_a_verdict_comes_back_as_the_same_json(served: Served) -> None:
    settings = with_registry(served.url)
    writer = AvroVerdicts(settings)
    number = writer.register([f"{secrets.token_hex(8)}.verdicts", "routed"])
    (value,) = writer.values([VERDICT])
    assert value[:5] == b"\0" + number.to_bytes(4, "big")
    assert len(value) < len(VERDICT) * 0.6
    reader = VerdictReader(settings)
    assert reader.json(Read(value)) == VERDICT
    assert reader.json(Read(VERDICT)) is VERDICT, "JSON is left alone"
    plain = fastavro.schemaless_reader(io.BytesIO(value[5:]), fastavro.parse_schema(VERDICT_SCHEMA), None)
    assert plain["fetched_at"] == datetime(1, 1, 1, 0, 0, 0, 1000, UTC), "as any other reader sees it"


def test_a_schema_is_registered_once_and_then_looked_up(served: Served) -> None:
    topics = ["n.verdicts", "n.verdicts.duplicate"]
    numbers = {AvroVerdicts(with_registry(served.url)).register(topics) for _ in range(2)}
    assert len(numbers) == len(served.schemas) == 1
    assert set(served.subjects) >= {"n.verdicts-value", "n.verdicts.duplicate-value"}
    looked = [f"/subjects/{topic}-value" for topic in topics]
    first = [path for each in looked for path in (each, f"{each}/versions")]
    assert served.asked == [*first, *looked], "who may only read can start, once it is there"


def test_a_schema_that_is_not_taken_is_a_refusal(served: Served) -> None:
    writer = AvroVerdicts(with_registry(served.url))
    for status in (401, 403, 409, 422):
        served.fail = status
        with pytest.raises(RefusedError, match=f"schema_registry_url .*n.verdicts-value: {status} .*purpose"):
            writer.register(["n.verdicts"])
    served.fail = 500
    with pytest.raises(UnavailableError, match=r"schema_registry_url .*n\.verdicts-value: 500"):
        writer.register(["n.verdicts"])


def test_a_verdict_that_cannot_be_read_is_named(served: Served) -> None:
    settings = with_registry(served.url)
    writer = AvroVerdicts(settings)
    number = writer.register(["n.verdicts"])
    (value,) = writer.values([VERDICT])
    where = r"n\.verdicts\[2\] offset 7"
    with pytest.raises(RecordError, match=f"{where}: has schema id {number}, .*no schema_registry_url"):
        VerdictReader(Settings()).json(Read(value))
    other = served.register(SCHEMA)
    for wrong in (b"\0", framed(2_000_000_000, value[5:]), value[:-3], avro(other, SCHEMA, url=URL)):
        with pytest.raises(RecordError, match=f"{where}: no verdict"):
            VerdictReader(settings).json(Read(wrong))
    served.fail = 503
    with pytest.raises(UnavailableError, match="503"):
        VerdictReader(settings).json(Read(value))


def test_avro_verdicts_want_a_registry() -> None:
    with pytest.raises(SettingsError, match="verdict_format avro requires schema_registry_url"):
        load(verdict_format="avro")
    with pytest.raises(SettingsError, match="--verdict-format"):
        load(verdict_format="protobuf", schema_registry_url="http://registry")
