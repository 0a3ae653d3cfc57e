"""Why a page is rejected: every code that a verdict's `reason` can be.

`docs/reasons.md` is printed from here: `python -m stream.messages.reasons > docs/reasons.md`.
"""

from __future__ import annotations

import sys
from typing import Final

REASONS: Final[dict[str, str]] = {
    "empty_message": "The message has no value, or only white space.",
    "malformed_json": "The value is no JSON, or is nested too deeply.",
    "bad_avro": "The value is framed, and is no record of its schema.",
    "unknown_schema": "Its schema's id is unknown to the registry, or no `schema_registry_url` is set.",
    "unsupported_schema": "Its schema holds no pages, contains itself, or has items that take no byte.",
    "missing_field": "There is no `url`, no content at all, or a claim without `warc_offset`.",
    "ambiguous_content": "More than one of `html`, `text`, `body` and `warc_filename` is there.",
    "wrong_type": "A field has another type than the contract says, or `fetched_at` is no time.",
    "bad_base64": "`body` is not base64.",
    "bad_compression": "The message or its `body` does not decompress, or is neither gzip nor zstd.",
    "bad_claim": "`warc_filename` names no file within `claim_root`, or a record that holds no page.",
    "claim_not_found": "The archive that `warc_filename` names is not there.",
    "claim_damaged": "The archive is cut off or damaged at `warc_offset`, or no record begins there.",
    "http_status": "The crawler's answer was an error, or no page: its HTTP status is not 2xx.",
    "too_large": "The message or its `body` is larger than `page_bytes`, perhaps only once decompressed.",
    "key_too_large": "The message's key is too long to be the key of a verdict.",
    "bad_url": "`url` has no scheme or no host, a control character, a malformed host, or is too long.",
    "unsupported_content": "`content_type` names neither HTML nor text: an image, an archive, a PDF.",
    "unknown_charset": "The charset that the page or its message names does not exist.",
    "extraction_failed": "No text could be taken out of the HTML.",
    "failed": "Another error, without a code of its own; the dead letter's header says which.",
    "crash": "The page took its process down (over `page_deadline` or `child_memory`, or by a crash), "
    "or three workers.",
}
"""Code to meaning. Codes are never renamed; new ones may be added."""
PRODUCER: Final = frozenset(
    {
        "empty_message",
        "malformed_json",
        "bad_avro",
        "unknown_schema",
        "unsupported_schema",
        "missing_field",
        "ambiguous_content",
        "wrong_type",
        "bad_base64",
        "bad_claim",
        "claim_not_found",
        "claim_damaged",
    }
)
"""Reasons that the author of a web page cannot cause: the message itself, or what it refers to, is wrong."""

HEAD: Final = """\
# Why pages are rejected

A verdict `rejected` has one of these codes as its `reason`.
The topic `<namespace>.rejected` has the bytes of the page as they came, with the code and a sentence for a
person in the record's headers. Codes may be added, and are never renamed. Where the fault is the producer's,
no author of a web page can cause it; these alone count for `reject_limit`. This page is printed from
`stream/messages/reasons.py`.

| reason | fault of | meaning |
|---|---|---|
"""


def page() -> str:
    """The page's Markdown."""
    return HEAD + "".join(
        f"| `{code}` | {'producer' if code in PRODUCER else 'page'} | {meaning} |\n"
        for code, meaning in REASONS.items()
    )


if __name__ == "__main__":
    sys.stdout.write(page())
