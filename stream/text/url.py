"""URL keys: two URLs with equal keys are the address of the same page."""

from __future__ import annotations

import re
from typing import Final

from yarl import URL

from stream.errors import PageError

MAX_URL: Final = 8192
"""Longest URL, in characters. Crawlers fetch nothing longer, and journal rows must stay small."""

_SEGMENT: Final = "[A-Za-z0-9_~-][A-Za-z0-9._~-]*+"
_NORMAL = re.compile(
    rf"https?://(?:[a-z0-9_-]++\.)+[a-z][a-z0-9_-]*+/(?:{_SEGMENT}/)*+(?:{_SEGMENT})?+"
    r"(?:\?[A-Za-z0-9._~=&-]+)?"
)
"""Fast path: matches URLs that are their own keys, with nothing to encode, no dot segments and no numeric
address. Most are. yarl takes 15 us for the same answer, a tenth of the cost of a page of plain text."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_NOT_IN_HOST = re.compile(r"""[\s"<>\\^`{|}%]""")


def url_key(url: str) -> str:
    """The key of a URL: the URL without its fragment and default port, scheme and host in lower case (IDNA),
    percent-encoding normalised (RFC 3986 section 6.2.2, by yarl).

    Raises PageError `bad_url` for a URL without scheme or host, with control characters or lone surrogates,
    or longer than MAX_URL.
    """
    if len(url) > MAX_URL:
        raise PageError("bad_url", f"{len(url)} characters, at most {MAX_URL}: {url[:80]}")
    return url if _NORMAL.fullmatch(url) else normalised(url)


def normalised(url: str) -> str:
    """The reference implementation of `url_key`, by yarl, without the limit on length."""
    if _CONTROL.search(url):
        raise PageError("bad_url", f"control character in {url[:200]!r}")
    try:
        parsed = URL(url.strip(" "))
        host = parsed.raw_host
        if not parsed.scheme or not host:
            raise PageError("bad_url", f"no scheme or no host in {url[:200]!r}")
        if parsed.explicit_port is not None and parsed.is_default_port():
            parsed = parsed.with_port(None)
        if _NOT_IN_HOST.search(host):
            raise PageError("bad_url", f"malformed host in {url[:200]!r}")
        parsed = parsed.with_fragment(None)
        key = str(parsed)
        # An empty path is "/" (RFC 3986 section 6.2.3); yarl adds it only before a query.
        bare = parsed.raw_path == "/" and not parsed.raw_query_string and not key.endswith("/")
        return key + "/" if bare else key
    except (ValueError, TypeError, IndexError) as error:
        raise PageError("bad_url", f"{error} in {url[:200]!r}") from None
