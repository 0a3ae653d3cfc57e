"""An elector's state and input: what is damaged, foreign or invalid is refused by name; and the policies."""

from __future__ import annotations

from collections.abc import Iterator
from math import nan
from pathlib import Path

import msgspec
import numpy as np
import pytest

from stream.elector.elector import Elector, TopicRecord
from stream.elector.layout import CLUSTER, NOBODY
from stream.elector.policy import Policy, Ranked
from stream.errors import DamagedStateError, RecordError, SettingsError, StateError
from stream.judge.batch import Decided
from stream.judge.ids import NO_PAGE
from stream.messages.best import BestRecord, KeptPage
from stream.messages.row_columns import NO_TIME
from stream.tables.store.rocks import DUE, MEMBERS, Store
from stream.text.url import host_of
from tests.elected import decided_of, open_elector
from tests.genesis import JOURNAL
from tests.property.best_oracle import crawl

PREFIX = JOURNAL[:8]


@pytest.fixture
def elector(tmp_path: Path) -> Elector:
    """With a crawl of which nothing was told."""
    made = open_elector(tmp_path / "state", "longest")
    made.apply(decided_of(crawl(1, 200), 1))
    assert made.state.meta.due
    return made


def test_the_state_of_another_policy_is_refused(elector: Elector) -> None:
    elector.state.close()
    said = "elects by elect=longest, but the setting says elect=newest; give the second"
    with pytest.raises(StateError, match=said):
        open_elector(elector.state.store.path, "newest")


def test_the_state_of_a_judge_is_refused_and_left_alone(tmp_path: Path, elector: Elector) -> None:
    Store(tmp_path / "judge", 1 << 20).close()
    with pytest.raises(StateError, match="this RocksDB is not an elector's"):
        open_elector(tmp_path / "judge", "longest")
    Store(tmp_path / "judge", 1 << 20).close()
    elector.state.close()
    with pytest.raises(StateError, match="this RocksDB is not a judge's"):
        Store(elector.state.store.path, 1 << 20)


def test_lost_records_are_damage(elector: Elector) -> None:
    store, clusters = elector.state.store, elector.state.due(3)
    writes = store.batch()
    for cluster in clusters:
        for place, _ in elector.state.members(cluster):
            writes.delete(MEMBERS, cluster.to_bytes(8, "big") + place)
    writes.delete(DUE, clusters[0].to_bytes(8, "big"))
    store.write(writes)
    assert elector.state.kept(clusters[1]) is None
    elector.state.close()
    with pytest.raises(DamagedStateError, match=r"clusters that are due, but .* were written; move"):
        open_elector(store.path, "longest")


def changed(decided: Decided, **fields: object) -> Decided:
    return decided._replace(decisions=msgspec.structs.replace(decided.decisions, **fields))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"journal": "cd" * 16}, "do not fit the journal"),
        ({"last": bytes(16)}, "do not fit the journal"),
        ({"codes": bytes([7])}, "do not fit the journal"),
        ({"codes": None}, "are invalid: unknown verdict 7; the largest is 5"),
        ({"other": bytes(8 * 1000)}, "are invalid: 1000 of other, which does not fit the verdicts"),
    ],
)
def test_decisions_that_do_not_fit_are_refused(
    tmp_path: Path, fields: dict[str, object], message: str
) -> None:
    elector = open_elector(tmp_path / "state", "longest")
    decided = decided_of(crawl(1, 60), 1)
    if fields.get("codes", b"") is None:
        fields = {"codes": b"\7" * len(decided[0].decisions.codes)}
    with pytest.raises(StateError, match=message):
        elector.apply([changed(decided[0], **fields)])
    assert elector.state.meta.applied == 0
    elector.state.close()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"cluster": "00000000.1.0"}, r"00000000\.1\.0 is a page of another journal than"),
        ({"as_of": "00000000.9.0"}, r"00000000\.9\.0 is a page of another journal than"),
        ({"best": KeptPage("http://a.example/", "00000000.2.0", 1, None, None)}, "a page of another journal"),
        ({"as_of": f"{PREFIX}.{1 << 47}.0"}, r"140737488355328\.0 is the id of no page"),
        ({"as_of": f"{PREFIX}.9.65536"}, r"9\.65536 is the id of no page"),
        ({"as_of": f"{PREFIX}.0.0"}, "keeps a page that is older than its cluster or newer than its as_of"),
        ({"best": KeptPage("http://a.example/", f"{PREFIX}.0.9", 1, None, None)}, "older than its cluster"),
        ({"best": KeptPage("http://a.example/", f"{PREFIX}.9.1", 1, None, None)}, "newer than its as_of"),
        ({"cluster": f"{PREFIX}.1.900"}, f"cluster {PREFIX}.1.900, which state directory .* does not know"),
    ],
)
def test_invalid_records_are_refused_by_name(
    elector: Elector, fields: dict[str, object], message: str
) -> None:
    """They are no damage of the state, which would be moved away."""
    before, blank = elector.state.store.digest(), BestRecord(
        cluster=f"{PREFIX}.1.0", best=None, was=None, because="left", members=0, as_of=f"{PREFIX}.9.0",
        decided_at="2026-01-01T00:00:00.000Z",
    )  # fmt: skip
    record = msgspec.structs.replace(blank, **fields)
    with pytest.raises(RecordError, match=rf"^best partition 1 offset 7: .*{message}"):
        elector.take_over([TopicRecord(record, NOBODY, NOBODY, "best partition 1 offset 7")], {})
    assert elector.state.store.digest() == before
    elector.state.close()


def test_what_is_due_is_searched_for_behind_what_was_told(
    elector: Elector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the beginning, each search would pass over all that was told before."""
    starts, scan = list[bytes](), elector.state.store.scan

    def noted(family: str, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        starts.append(start)
        return scan(family, start)

    monkeypatch.setattr(elector.state.store, "scan", noted)
    want, last, found = [each.cluster for each in elector.due(1000)], NO_PAGE, list[int]()
    del starts[:]
    while due := elector.due(3, last):
        elector.tell(due, {})
        last = due[-1].cluster
        found += [each.cluster for each in due]
    assert found == want
    assert starts == [CLUSTER.pack(after + 1) for after in (NO_PAGE, *found[2::3], found[-1])]
    assert not elector.due(10), "it was told once"
    elector.state.close()


# Policies


def ranked(**columns: list[object]) -> Ranked:
    n = len(next(iter(columns.values())))
    blank: dict[str, list[object]] = {
        "length": [0] * n, "fetched_at": [NO_TIME] * n, "quality": [nan] * n, "url": [b""] * n,
    }  # fmt: skip
    blank |= columns
    return Ranked(
        np.array(blank["length"], np.uint32),
        np.array(blank["fetched_at"], np.int64),
        np.array(blank["quality"], np.float64),
        blank["url"],  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("elect", "field", "best_first"),
    [
        ("longest", "length", [2**32 - 1, 100, 1, 0]),
        ("newest", "fetched_at", [2**62, 1, 0, -1, -(2**62), NO_TIME]),
        ("quality", "quality", [1.7e308, 1.0, 5e-324, 0.0, -5e-324, -1.0, -1.7e308, nan]),
        (
            "hosts=b.example,a.example",
            "url",
            [b"https://b.example/", b"http://a.example:80/x", b"//b.example/x"],
        ),
    ],
)
def test_ranks_are_less_for_better_pages(elect: str, field: str, best_first: list[object]) -> None:
    ranks = Policy.parse(elect).ranks(ranked(**{field: best_first}))
    values = next(iter(ranks.values())).tolist()
    assert values == sorted(set(values))
    assert len(values) == len(best_first)


def test_negative_zero_is_zero() -> None:
    (quality, _) = Policy.parse("quality").ranks(ranked(quality=[-0.0, 0.0])).values()
    assert quality[0] == quality[1]


@pytest.mark.parametrize("elect", ["", "best", "hosts", "hosts=", "longest=a.example"])
def test_what_is_no_policy_is_refused(elect: str) -> None:
    with pytest.raises(SettingsError, match="elect="):
        Policy.parse(elect)


@pytest.mark.parametrize(
    ("host", "urls"),
    [
        ("a.example", ["https://a.example/x", "http://A.Example/x", "http://user@a.example/?x", "http://a.example#x",
                       "http://a.example:8080/x", "http://a.example./x", "http://a.example.:81", "ftp://a.example",
                       "http://a.example\\x", " http://a.exa\tmple/", "http://a.example\u3002/"]),
        ("xn--bcher-kva.example", ["http://b\u00fccher.example/x", "http://B\u00dcCHER.example.:80/",
                                   "http://bu\u0308cher.example", "http://xn--bcher-kva.example"]),
        ("[::1]", ["http://[::1]:80/", "http://[::1]:81"]),
        ("localhost", ["http://localhost:8080/x", "http:///localhost/x"]),
        ("", ["a.example/x", "mailto:someone", "", "http://[broken/"]),
    ],
)  # fmt: skip
def test_hosts_are_those_of_url_keys(host: str, urls: list[str]) -> None:
    assert {host_of(url) for url in urls} == {host}
    if host:
        policy = Policy.parse(f"hosts=other.example,{host}")
        ranks = policy.ranks(ranked(url=[url.encode() for url in urls]))
        assert set(ranks["host"].tolist()) == {1}


@pytest.mark.parametrize(
    ("host", "message"),
    [
        ("A.example", "'A.example' is no host as URL keys have it; write a.example"),
        ("a.example:80", "write a.example"),
        ("a.example.", "write a.example"),
        ("b\u00fccher.example", "write xn--bcher-kva.example"),
        ("a.example/x", "write a.example"),
        ("", "'' is no host as URL keys have it$"),
        ("::1", "'::1' is no host as URL keys have it$"),
    ],
)
def test_a_host_that_no_url_key_has_is_refused(host: str, message: str) -> None:
    """It would never match."""
    with pytest.raises(SettingsError, match=f"^keep: .*{message}"):
        Policy.parse(f"hosts=b.example,{host}", "keep")
