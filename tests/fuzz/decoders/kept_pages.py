"""Records of the topic `best`: those that decode can be written again; others are refused by name."""

from __future__ import annotations

import copy
import json
import random
from typing import Any, ClassVar

from stream.errors import RecordError
from stream.messages.best import decode_best, encode_best
from tests.fuzz.decoder import Decoder
from tests.fuzz.mutate import damaged
from tests.property.best_oracle import Topics, pauses

VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 2**63, 1e308, "", "grew", "abababab.1.0", f"abababab.{'9' * 5000}.0", "é", [], {},
)  # fmt: skip


class KeptPageRecords(Decoder):
    """`decode_best`, and the place in the order of judgement."""

    name: ClassVar = "kept pages"

    def __enter__(self) -> KeptPageRecords:
        topics = Topics("longest", random.Random(1))
        for _ in pauses(topics, 1):
            pass
        self._records = [json.loads(encode_best(each)) for each in topics.records]
        return self

    def make(self, rng: random.Random) -> bytes:
        record = json.loads(json.dumps(rng.choice(self._records)))
        for _ in range(rng.choice((0, 1, 1, 2))):
            inside = record["best"] if isinstance(record.get("best"), dict) and rng.random() < 0.3 else record
            name = rng.choice([*inside, "more"])
            if rng.random() < 0.2:
                inside.pop(name, None)
            else:
                inside[name] = copy.deepcopy(rng.choice(VALUES))
        data = json.dumps(record).encode()
        return damaged(rng, data) if rng.random() < 0.2 else data

    def check(self, data: bytes) -> str:
        try:
            record = decode_best(data, "best partition 0 offset 0")
        except RecordError:
            return "refused"
        assert min(record.place) >= 0
        again = decode_best(encode_best(record), "best")
        assert again == record
        return "decoded"
