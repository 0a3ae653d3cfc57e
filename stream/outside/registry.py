"""A schema registry: schemas by id, and the ids of our own.

The REST calls are Confluent's, which Karapace and Apicurio (`/apis/ccompat/v7`) answer too.
"""

from __future__ import annotations

import base64
import http.client
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Final, TypeVar

import msgspec

from stream.errors import PageError, RefusedError
from stream.outside.errors import AwayError, WantedError
from stream.outside.schema import AvroSchema, JsonSchema, Schema

MEDIA_TYPE: Final = "application/vnd.schemaregistry.v1+json"
SECONDS: Final = 10.0
"""How long an answer may take."""
UNKNOWN_SECONDS: Final = 60.0
"""How long an id that the registry does not know is not asked for again."""
MAX_ANSWER: Final = 8 << 20
MAX_REFERENCES: Final = 100
NOT_FOUND: Final = range(40_400, 40_500)
"""Confluent's codes of what is not there; any other 404 is a wrong URL."""
REFUSALS: Final = (400, 401, 403, 409, 422)
"""Statuses of a schema that is not taken: asking again would not help."""
_T = TypeVar("_T")


class _Reference(msgspec.Struct):
    subject: str
    version: int


class _Registered(msgspec.Struct):
    id: int


class _Answer(msgspec.Struct, rename="camel"):
    schema: str
    schema_type: str | None = "AVRO"
    references: list[_Reference] | None = None


class _Error(msgspec.Struct):
    error_code: int = 0
    message: str = ""


class Registry:
    """Schemas by id; an id means the same for ever, so each is asked for once."""

    def __init__(self, url: str, user: str | None = None, password: str | None = None) -> None:
        self._url = url.rstrip("/")
        self._headers = {"Accept": f"{MEDIA_TYPE}, application/json"}
        if user is not None:
            token = base64.b64encode(f"{user}:{password or ''}".encode()).decode()
            self._headers["Authorization"] = f"Basic {token}"
        self._schemas: dict[int, Schema | PageError] = {}
        self._unknown: dict[int, float] = {}

    def schema(self, number: int) -> Schema:
        """The schema of that id, once it was fetched; see `Outside.schema`."""
        if number in self._unknown and time.monotonic() < self._unknown[number]:
            raise PageError("unknown_schema", f"the schema registry knows no id {number}")
        found = self._schemas.get(number)
        if found is None:
            raise WantedError(f"schema {number}", lambda: self._fetch(number))
        if isinstance(found, PageError):
            raise found
        return found

    def _fetch(self, number: int) -> None:
        self._unknown.pop(number, None)
        answer = self._ask(f"/schemas/ids/{number}")
        if answer is None:
            self._unknown[number] = time.monotonic() + UNKNOWN_SECONDS
            return
        try:
            self._schemas[number] = self._read(answer)
        except PageError as error:
            self._schemas[number] = error

    def _read(self, answer: _Answer) -> Schema:
        kind = answer.schema_type or "AVRO"
        if kind == "JSON":
            return JsonSchema()
        if kind != "AVRO":
            raise PageError("unsupported_schema", f"schemas of type {kind[:40]!r} hold no pages")
        referred: dict[tuple[str, int], str] = {}
        self._collect(answer, referred)
        return AvroSchema(answer.schema, list(referred.values()))

    def _collect(self, answer: _Answer, found: dict[tuple[str, int], str], depth: int = 0) -> None:
        """Everything that a schema refers to, leaves first."""
        for each in answer.references or ():
            key = (each.subject, each.version)
            if key in found:
                continue
            if len(found) >= MAX_REFERENCES or depth > MAX_REFERENCES:
                raise PageError("unsupported_schema", f"more than {MAX_REFERENCES} references")
            subject = urllib.parse.quote(each.subject, safe="")
            below = self._ask(f"/subjects/{subject}/versions/{each.version}")
            if below is None:
                raise PageError("unsupported_schema", f"refers to {each.subject} {each.version}: not there")
            self._collect(below, found, depth + 1)
            found[key] = below.schema

    def _ask(self, path: str) -> _Answer | None:
        """The answer; None where the registry says that there is no such thing. Raises AwayError."""
        try:
            return self._call(path, _Answer)
        except _NotThereError:
            return None
        except _StatusError as error:
            raise AwayError(str(error)) from None

    def register(self, subject: str, schema: str) -> int:
        """The id of an Avro schema of that subject, to which it is added where it is not there.

        Looked up first: who may only read can use what somebody else registered. Raises AwayError, and
        RefusedError when the registry does not take the schema.
        """
        place = f"/subjects/{urllib.parse.quote(subject, safe='')}"
        content = {"schema": schema}
        try:
            try:
                return self._call(place, _Registered, content).id
            except _NotThereError:
                return self._call(f"{place}/versions", _Registered, content).id
        except _StatusError as error:
            kind = RefusedError if error.status in REFUSALS else AwayError
            raise kind(f"{error}: {error.said}") from None

    def _call(self, path: str, answer: type[_T], content: object = None) -> _T:
        """GET, or POST with a content. Raises AwayError, _StatusError, and _NotThereError of nothing."""
        where = f"schema_registry_url {self._url}: {path}"
        data = None if content is None else msgspec.json.encode(content)
        headers = self._headers if data is None else {**self._headers, "Content-Type": MEDIA_TYPE}
        request = urllib.request.Request(self._url + path, data, headers)  # noqa: S310 (the setting's scheme)
        try:
            with urllib.request.urlopen(request, timeout=SECONDS) as response:  # noqa: S310
                return msgspec.json.decode(response.read(MAX_ANSWER), type=answer)
        except urllib.error.HTTPError as error:
            with error:
                said = _error(error.read(MAX_ANSWER))
            if error.code == 404 and said.error_code in NOT_FOUND:
                raise _NotThereError from None
            raise _StatusError(f"{where}: {error.code} {error.reason}", error.code, said.message) from None
        except (OSError, http.client.HTTPException, msgspec.DecodeError, ValueError) as error:
            raise AwayError(f"{where}: {error}") from None


class _NotThereError(Exception):
    """The registry knows no such thing."""


class _StatusError(Exception):
    """The registry answered, with an error."""

    def __init__(self, what: str, status: int, said: str) -> None:
        super().__init__(what)
        self.status, self.said = status, said


def _error(said: bytes) -> _Error:
    try:
        return msgspec.json.decode(said, type=_Error)
    except msgspec.DecodeError:
        return _Error()
