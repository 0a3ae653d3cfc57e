"""A schema registry, as far as a consumer needs it: schemas by id.

The REST calls are Confluent's, which Karapace and Apicurio (`/apis/ccompat/v7`) answer too.
"""

from __future__ import annotations

import base64
import http.client
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, Final

import msgspec

from stream.errors import PageError
from stream.outside.errors import AwayError, WantedError
from stream.outside.schema import AvroSchema, JsonSchema, Schema

SECONDS: Final = 10.0
"""How long an answer may take."""
UNKNOWN_SECONDS: Final = 60.0
"""How long an id that the registry does not know is not asked for again."""
MAX_ANSWER: Final = 8 << 20
MAX_REFERENCES: Final = 100
NOT_FOUND: Final = range(40_400, 40_500)
"""Confluent's codes of what is not there; any other 404 is a wrong URL."""


class _Reference(msgspec.Struct):
    subject: str
    version: int


class _Answer(msgspec.Struct, rename="camel"):
    schema: str
    schema_type: str | None = "AVRO"
    references: list[_Reference] | None = None


class _Error(msgspec.Struct):
    error_code: int = 0


class Registry:
    """Schemas by id; an id means the same for ever, so each is asked for once."""

    def __init__(self, url: str, user: str | None = None, password: str | None = None) -> None:
        self._url = url.rstrip("/")
        self._headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
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
        request = urllib.request.Request(self._url + path, headers=self._headers)  # noqa: S310 (the setting's scheme)
        try:
            with urllib.request.urlopen(request, timeout=SECONDS) as response:  # noqa: S310
                content = response.read(MAX_ANSWER)
            return msgspec.json.decode(content, type=_Answer)
        except urllib.error.HTTPError as error:
            with error:
                said = error.read(MAX_ANSWER)
            if error.code == 404 and _code(said) in NOT_FOUND:
                return None
            raise AwayError(f"schema_registry_url {self._url}: {path}: {error.code} {error.reason}") from None
        except (OSError, http.client.HTTPException, msgspec.DecodeError, ValueError) as error:
            raise AwayError(f"schema_registry_url {self._url}: {path}: {error}") from None


def _code(said: bytes) -> Any:
    try:
        return msgspec.json.decode(said, type=_Error).error_code
    except msgspec.DecodeError:
        return 0
