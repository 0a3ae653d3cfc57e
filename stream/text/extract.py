"""Main-content extraction from HTML: blocks of text in containers, by length, links, position and name."""

from __future__ import annotations

from typing import Final

from stream.errors import PageError
from stream.text.surrogates import replace_surrogates

CODE: Final = 4
CODE_BYTES: Final = 10_000
"""Reference documentation has at least CODE code elements and one definition or code element more for every
CODE_BYTES / CODE bytes of HTML. Its signatures and tables are content, but no prose."""

OUT_OF_MEMORY: Final = "MemoryError"
"""Detail of `extraction_failed`."""


def extract(html: str) -> str:
    """The main content of a page as plain text, a line a block.

    Reference documentation gives its body without bars of navigation, and so does a page without main content
    (`stream.text.main_content`), such as a list. If even that is empty, it is the whole body.

    Link targets, alternative texts, form fields and hidden elements are left out, and so are comments of
    readers, because they differ between copies of one article. NUL and lone surrogates become U+FFFD, as in
    browsers. Takes linear time and memory, whatever the page contains. Raises PageError `extraction_failed`
    if the memory does not suffice.
    """
    from stream.text.blocks import LITERAL_AND, read
    from stream.text.main_content import body, main_content
    from stream.text.markup import unescaped

    try:
        page = html.encode()
    except UnicodeEncodeError:
        page = replace_surrogates(html).encode()
    if b"\0" in page:
        page = page.replace(b"\0", "\ufffd".encode())
    try:
        text, blocks, containers, code = read(page)
        kept = text[:0]
        if code < CODE * (1 + len(page) / CODE_BYTES):
            kept = main_content(text, blocks, containers)
        if not len(kept):
            kept = body(text, blocks, containers)
        return unescaped(kept.tobytes().decode("utf-8", "replace")).replace(chr(LITERAL_AND), "&")
    except MemoryError as error:
        raise PageError("extraction_failed", OUT_OF_MEMORY) from error
