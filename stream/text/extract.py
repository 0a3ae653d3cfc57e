"""Main-content extraction from HTML: which blocks of text are content, by their features."""

from __future__ import annotations

from typing import Final, NamedTuple

from stream.errors import PageError
from stream.text.surrogates import replace_surrogates

CODE_BYTES: Final = 10_000
"""Reference documentation has at least `main_content.CODE` code elements and one definition or code element
more for every CODE_BYTES / CODE bytes of HTML. Its signatures and tables are content, but no prose."""
OUT_OF_MEMORY: Final = "MemoryError"
"""Detail of `extraction_failed`."""


class Extract(NamedTuple):
    """The main content of a page."""

    text: str
    """A line a block."""
    share: float
    """The share of the page's visible text that it is, in bytes that are no white space; 1 without any."""
    visible: str = ""
    """All visible text, of a page whose main content is another part of it and less than `FEW_BYTES`: pages
    are not the same because the same few words were chosen of them."""


def extract(html: str) -> str:
    """The text of `extraction`."""
    return extraction(html).text


def extraction(html: str) -> Extract:
    """The main content of a page.

    Reference documentation gives its body without bars of navigation, and so does a page whose main content
    (`stream.text.main_content`) says nothing. If even that is empty, it is the whole body.

    Link targets, alternative texts, form fields and hidden elements are left out, and so are comments of
    readers, because they differ between copies of one article, and the sound of characters (`rt`). NUL and
    lone surrogates become U+FFFD, as in browsers. Takes linear time and memory, whatever the page contains.
    Raises PageError `extraction_failed` if the memory does not suffice.
    """
    from stream.text.blocks import LITERAL_AND, SIZE, read
    from stream.text.main_content import CODE, FEW_BYTES, body, joined, main_content
    from stream.text.markup import unescaped

    try:
        page = html.encode()
    except UnicodeEncodeError:
        page = replace_surrogates(html).encode()
    if b"\0" in page:
        page = page.replace(b"\0", "\ufffd".encode())
    try:
        parsed = read(page)
        is_reference = parsed.code >= CODE * (1 + len(page) / CODE_BYTES)
        kept = body(parsed) if is_reference else main_content(parsed)
        whole, size = int(parsed.blocks[:, SIZE].sum()), int(parsed.blocks[kept, SIZE].sum())
        texts = [
            joined(parsed.text, parsed.blocks, some).tobytes().decode("utf-8", "replace")
            for some in ((kept, ~kept | kept) if size < min(whole, FEW_BYTES) else (kept,))
        ]
        text, visible = (unescaped(each).replace(chr(LITERAL_AND), "&") for each in (*texts, "")[:2])
        return Extract(text, size / whole if whole else 1.0, visible)
    except MemoryError as error:
        raise PageError("extraction_failed", OUT_OF_MEMORY) from error
