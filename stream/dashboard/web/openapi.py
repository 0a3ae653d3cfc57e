"""The OpenAPI document of the API, generated from the types of its responses."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import Struct

from stream.dashboard import answers
from stream.dashboard.answers import (
    About,
    Changes,
    ClusterPages,
    Clusters,
    Comparison,
    Figures,
    Hosts,
    Lag,
    LoginRequest,
    Lookup,
    LookupRequest,
    Neighbours,
    Session,
    System,
    Verdicts,
)
from stream.dashboard.deployment.system import ROLES
from stream.dashboard.web.api import LOOKUP_BYTES, MOST
from stream.dashboard.web.csv_export import FIGURES
from stream.messages.verdict import VERDICTS

_REFERENCE: Final = "#/components/schemas/{name}"


def _query(name: str, what: str, **schema: Any) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": False, "description": what, "schema": schema}


_RANGE: Final = [
    _query("range", "The last N minutes, hours or days; or `all`, from the first verdict to the last.",
           type="string", pattern=r"^(all|\d{1,5}[mhd])$", default="15m"),
    _query("from", "Start, seconds since 1970-01-01T00:00:00Z; not with `range`.", type="number", minimum=0),
    _query("to", "End, exclusive; now by default.", type="number", minimum=0),
]  # fmt: skip
_HOST: Final = _query("host", "Only pages of this host.", type="string", maxLength=253)
_VERDICT: Final = {
    **_query("verdict", "Only this verdict; may be repeated.", type="array",
             items={"enum": list(VERDICTS)}),
    "explode": True,
}  # fmt: skip
_ROLE: Final = _query(
    "role", "Also the partitions of this role's input topic.", type="string", enum=list(ROLES)
)
_FORMAT: Final = _query("format", "The answer as a file.", type="string", enum=["csv", "json"])
_PART: Final = _query(
    "part", "What of the figures the CSV has.", type="string", enum=list(FIGURES), default="series"
)
_LIMIT: Final = _query("limit", "Maximum number of items to return.", type="integer", minimum=1, maximum=MOST)
_OFFSET: Final = _query(
    "offset", "Items to skip: `next` of the previous response.", type="integer", minimum=0
)
_BEFORE: Final = _query("before", "Only sequence numbers below this: `next` of the previous response.",
                        type="integer", minimum=0)  # fmt: skip


def _page(name: str) -> dict[str, Any]:
    what = "Id of the cluster's anchor, of one of its `members`, or of the page that is kept."
    return {**_query(name, what, type="string"), "required": True}


def _answers(kind: type, *problems: int, media: str = "application/json") -> dict[str, Any]:
    reference = {"$ref": _REFERENCE.format(name=kind.__name__)}
    return {
        "200": {"description": (kind.__doc__ or "").strip(), "content": {media: {"schema": reference}}},
        **_problems(*problems),
    }


def _problems(*statuses: int) -> dict[str, Any]:
    problem = {"$ref": _REFERENCE.format(name="Problem")}
    content = {"application/problem+json": {"schema": problem}}
    return {str(status): {"description": "The problem.", "content": content} for status in statuses}


def _body(kind: type, what: str) -> dict[str, Any]:
    reference = {"$ref": _REFERENCE.format(name=kind.__name__)}
    return {"required": True, "description": what, "content": {"application/json": {"schema": reference}}}


def _get(what: str, parameters: list[dict[str, Any]], answers: dict[str, Any]) -> dict[str, Any]:
    return {"get": {"summary": what, "parameters": parameters, "responses": answers}}


def document() -> dict[str, Any]:
    """Return the OpenAPI 3.1 document."""
    kinds = [each for each in vars(answers).values() if isinstance(each, type(Struct)) and each != Struct]
    _, components = msgspec.json.schema_components(kinds, ref_template=_REFERENCE)
    cluster = {"name": "cluster", "in": "path", "required": True, "description": "Id of the anchor.",
               "schema": {"type": "string"}}  # fmt: skip
    paths = {
        "/api/v1/figures": _get(
            "Verdicts of a range of time", [*_RANGE, _HOST, _FORMAT, _PART], _answers(Figures, 400)
        ),
        "/api/v1/hosts": _get(
            "Hosts by duplicates", [*_RANGE, _LIMIT, _OFFSET, _FORMAT], _answers(Hosts, 400)
        ),
        "/api/v1/clusters": _get("Clusters by size", [_LIMIT, _OFFSET, _FORMAT], _answers(Clusters, 400)),
        "/api/v1/clusters/{cluster}": _get("A cluster's pages", [cluster], _answers(ClusterPages, 404)),
        "/api/v1/clusters/{cluster}/comparison": _get(
            "What two of a cluster's pages share, as long as the pages topic has them",
            [cluster, *(_page(name) for name in ("one", "other"))],
            _answers(Comparison, 404, 503, 504),
        ),
        "/api/v1/neighbours": _get(
            "Hosts that share pages with a host", [{**_HOST, "required": True}], _answers(Neighbours, 400)
        ),
        "/api/v1/verdicts": _get(
            "The latest verdicts", [_HOST, _VERDICT, _LIMIT, _BEFORE, _FORMAT], _answers(Verdicts, 400)
        ),
        "/api/v1/events": _get(
            "New verdicts as server-sent events named `verdicts`, with this JSON as data",
            [_HOST, _VERDICT],
            _answers(Verdicts, 400, 503, media="text/event-stream"),
        ),
        "/api/v1/system": _get("Roles, lag and positions", [], _answers(System)),
        "/api/v1/lag": _get("Lag over time", [*_RANGE, _ROLE, _FORMAT], _answers(Lag, 400)),
        "/api/v1/changes": _get("Restarts and rebalances", [*_RANGE, _FORMAT], _answers(Changes, 400)),
        "/api/v1/about": _get("Version, scheme and rule", [], _answers(About)),
        "/api/v1/lookup": {
            "post": {
                "summary": "Stored verdicts of a URL, or the verdict a page would get, and its comparison"
                " with another page; inserts nothing",
                "requestBody": _body(LookupRequest, f"At most {LOOKUP_BYTES} bytes."),
                "responses": _answers(Lookup, 400, 403, 413, 415, 503, 504),
            }
        },
        "/api/v1/session": {
            **_get("How the request is authenticated", [], _answers(Session, 429)),
            "post": {
                "summary": "Log a browser in: exchange the token for a session cookie",
                "requestBody": _body(LoginRequest, "The dashboard's token."),
                "responses": _answers(Session, 400, 401, 403, 404, 415, 429),
            },
            "delete": {"summary": "Log out", "responses": _answers(Session, 403)},
        },
    }
    for path, methods in paths.items():
        for method in methods.values():
            if _FORMAT in method.get("parameters", ()):
                method["responses"]["200"]["content"]["text/csv"] = {"schema": {"type": "string"}}
            if path == "/api/v1/session":
                method["security"] = []
            else:
                method["responses"] |= _problems(401, 429)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "neardup dashboard",
            "version": "1",
            "description": "Figures of a namespace. Only committed verdicts are counted, each exactly once.",
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "`dashboard_token`."},
                "session": {"type": "apiKey", "in": "cookie", "name": "neardup_session_NAMESPACE"},
            },
        },
        # The empty alternative: no authentication on loopback, or authentication by a proxy.
        "security": [{"token": []}, {"session": []}, {}],
    }
