"""What verdicts say about pages, without what differs between runs: ids, times, and where pages were read."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

SAME = ("verdict", "change", "reason", "distance", "similarity", "fingerprint", "text_hash")


def projection(verdicts: Iterable[dict[str, Any]]) -> bytes:
    """A line for each verdict, sorted by the offset of its page; pages are named by their offsets."""
    listed = sorted(verdicts, key=lambda verdict: verdict["source"]["offset"])
    place = {verdict["id"]: verdict["source"]["offset"] for verdict in listed}
    assert len(place) == len(listed)
    lines = []
    for verdict in listed:
        other, cluster = verdict["duplicate_of"], verdict["cluster"]
        line = {
            "order": verdict["source"]["offset"],
            **{name: verdict[name] for name in SAME},
            "cluster": place[cluster] if cluster else None,
            "duplicate_of": place[other["id"]] if other else None,
        }
        lines.append(json.dumps(line, sort_keys=True).encode() + b"\n")
    return b"".join(lines)
