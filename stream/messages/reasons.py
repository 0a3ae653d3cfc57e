"""Reject reasons: all values that the field `reason` of a verdict can have.

`docs/reasons.md` is generated from this module: `python -m stream.messages.reasons > docs/reasons.md`.
"""

from __future__ import annotations

import sys
from typing import Final

REASONS: Final[dict[str, str]] = {
    "empty_message": "The message has no value, or only white space.",
    "malformed_json": "The value is not JSON.",
    "bad_avro": "The value has a schema id, but is not a record of that schema.",
    "unknown_schema": "The registry does not know the schema id, or no `schema_registry_url` is set.",
    "unsupported_schema": "The schema is not one of pages, is recursive, or has array items of zero bytes.",
    "missing_field": "`url` is missing or empty, or the content, or the `warc_offset` of a `warc_filename`.",
    "ambiguous_content": "More than one of `html`, `text`, `body` and `warc_filename` is set and not empty.",
    "wrong_type": "A field has another type than in the schema, or `fetched_at` is not a time.",
    "bad_base64": "`body` is not base64.",
    "bad_compression": "The message or its `body` cannot be decompressed, or its coding is unknown.",
    "bad_claim": "`warc_filename` is not a file within `claim_root`, or the record is not a page.",
    "claim_not_found": "The archive `warc_filename` does not exist.",
    "claim_damaged": "The archive is truncated or damaged at `warc_offset`, or no record starts there.",
    "http_status": "The server did not answer the crawler with a page: the HTTP status is not 2xx.",
    "too_large": "`html`, `text` or the decoded `body` has more than `page_bytes` bytes.",
    "key_too_large": "The key of the message is too long for the key of a verdict.",
    "bad_url": "`url` has no scheme, no valid host or a control character, or is too long.",
    "unsupported_content": "`content_type` names neither HTML nor text: an image, an archive, a PDF. "
    "Or it names no type, or plain text, and the bytes are no text.",
    "unknown_charset": "The field `charset` of the message names a charset that does not exist.",
    "extraction_failed": "No text could be extracted from the HTML.",
    "failed": "Any other error; the header of the dead letter has the details.",
    "crash": "The page ended its process by a crash or by exceeding `page_deadline` or `child_memory`, or it "
    "ended three workers.",
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
"""Reasons that only the producer of messages can cause, not the author of a web page."""

HEAD: Final = """\
# Why pages are rejected

A verdict `rejected` has one of these codes as its `reason`.
The topic `<namespace>.rejected` has the original bytes of the page, with the code and an explanation in the
record's headers. Codes may be added, but are never renamed. Reasons whose fault is the producer's cannot be
caused by the author of a web page; only they count for `reject_limit`.
`neardup help reasons` prints this list. This page is generated from `stream/messages/reasons.py`.

| reason | fault of | meaning |
|---|---|---|
"""


def page() -> str:
    """Return the Markdown of `docs/reasons.md`."""
    return HEAD + "".join(
        f"| `{code}` | {'producer' if code in PRODUCER else 'page'} | {meaning} |\n"
        for code, meaning in REASONS.items()
    )


if __name__ == "__main__":
    sys.stdout.write(page())
