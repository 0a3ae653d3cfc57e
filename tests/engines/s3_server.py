"""A mock of S3 (moto) on loopback, with faults and keys that a real server does not have. The Python of
requirements-s3.lock beside it runs it; it prints its port.

Keys name faults: below `forbidden/` everything is denied, and reading one that contains `cut` ends in the
middle of the second half of its bytes, each time.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server


class Quiet(WSGIRequestHandler):
    """Logs nothing."""

    def log(self, type: str, message: str, *args: Any) -> None:  # noqa: A002 - werkzeug's name
        pass


class Faulty:
    """The server with faults."""

    def __init__(self) -> None:
        self._server = DomainDispatcherApplication(create_backend_app)

    def __call__(self, environ: dict[str, Any], respond: Callable[..., Any]) -> Iterable[bytes]:
        path, method = environ["PATH_INFO"], environ["REQUEST_METHOD"]
        if "/forbidden/" in path + environ.get("QUERY_STRING", "").replace("%2F", "/"):
            body = b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
            respond("403 Forbidden", [("Content-Type", "application/xml")])
            return [b"" if method == "HEAD" else body]
        found = self._server(environ, respond)
        return self._cut(found) if "cut" in path and method == "GET" else found

    @staticmethod
    def _cut(found: Iterable[bytes]) -> Iterable[bytes]:
        whole = b"".join(found)
        yield whole[: len(whole) * 3 // 4]
        raise ConnectionAbortedError("as asked")


if __name__ == "__main__":
    server = make_server("127.0.0.1", 0, Faulty(), threaded=True, request_handler=Quiet)
    sys.stdout.write(f"{server.port}\n")
    sys.stdout.flush()
    server.serve_forever()
