"""The clusters of an index, with sizes and counts by source over all that it was given."""

from __future__ import annotations

import csv
import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

from stream.errors import SettingsError, StateError
from stream.judge.state.labels import note_labels
from stream.local.clusters import clusters_of
from stream.local.index import Index
from tests import kills
from tests.commands import neardup
from tests.kafka.judge_helpers import text
from tests.unit.test_columns import FORMATS, tabular
from tests.unit.test_dedup import unpacked, write
from tests.unit.test_dedup_runs import CONSTANTS

pytestmark = pytest.mark.usefixtures("no_children")
SMALL = CONSTANTS | {"stream.local.scan.PAGES": 30}
DUMPS = ("2026-01", "2026-02", "2026-03")


def dump(folder: Path, month: int) -> Path:
    """Two shards of a month, with copies in it and of other months, and a URL that changes each month."""
    made = [
        {"url": f"https://{host}{month}.example/{n}", "text": text(n) + f" {host} {month}"}
        for n in range(20 * month, 20 * month + 60)
        for host in ("a", "b")
        if host == "a" or n % 3 == 0
    ]
    made.append({"url": "https://changes.example/", "text": text(1000 + month)})
    made.append({"url": "https://stays.example/", "text": text(7)})
    directory = folder / DUMPS[month]
    directory.mkdir()
    write(directory / "one.jsonl", made[:50])
    write(directory / "two.jsonl", made[50:])
    return directory


def clusters(index: Path, output: Path) -> dict[str, dict[str, Any]]:
    """The clusters of an index, by their ids."""
    result = neardup("query", "--clusters", index, "-o", output)
    assert (result.exit_code, result.output) == (0, "")
    return {each["id"]: each for each in map(json.loads, output.read_text().splitlines())}


def counted(verdicts: list[dict[str, Any]], sources: dict[str, str]) -> dict[str, tuple[int, dict[str, int]]]:
    """Size and counts of each cluster by plain counting: the last page of each URL is in one, and counts for
    the source that had its text first."""
    newest: dict[str, tuple[str, str]] = {}
    for each in verdicts:
        if each["verdict"] in ("unique", "duplicate"):
            newest[each["url"]] = each["cluster"], sources[each["origin"]["file"]]
    by_cluster: dict[str, Counter[str]] = defaultdict(Counter)
    for cluster, source in newest.values():
        by_cluster[cluster][source] += 1
    return {cluster: (counts.total(), dict(counts)) for cluster, counts in by_cluster.items()}


@pytest.fixture(scope="module")
def dumps(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("dumps")
    return [dump(folder, month) for month in range(3)]


@pytest.mark.parametrize("failpoint", ["", "flush", "scan.applied:2"])
def test_sizes_and_sources_are_those_of_all_dumps(failpoint: str, dumps: list[Path], tmp_path: Path) -> None:
    """Also if the process was killed, and some of what it had judged was judged again."""
    index, verdicts = ("--index", tmp_path / "index"), []
    for month, directory in enumerate(dumps):
        arguments = (directory, "-o", tmp_path / f"verdicts{month}.jsonl", *index)
        if failpoint:
            kills.killed(failpoint, kills.command, SMALL, "scan", *arguments)
        assert neardup("scan", *arguments).exit_code == 0
        verdicts += list(map(json.loads, (tmp_path / f"verdicts{month}.jsonl").read_text().splitlines()))
    found = clusters(tmp_path / "index", tmp_path / "clusters.jsonl")
    if not failpoint:
        sources = {str(each): str(directory) for directory in dumps for each in directory.iterdir()}
        by_id = {name: (each["size"], each["sources"]) for name, each in found.items()}
        assert by_id == counted(verdicts, sources)
    assert sum(each["size"] for each in found.values()) == len({each["url"] for each in verdicts})
    in_all = next(each for each in found.values() if each["url"] == "https://a0.example/42")
    assert in_all["sources"] == dict.fromkeys(map(str, dumps), 2)
    in_last = next(each for each in found.values() if each["url"] == "https://changes.example/")
    assert in_last["sources"] == {str(dumps[2]): 1}


def test_dedup_counts_by_what_was_named_and_forgotten_pages_do_not_count(
    dumps: list[Path], tmp_path: Path
) -> None:
    index = tmp_path / "index"
    for month, directory in enumerate(dumps[:2]):
        result = neardup("dedup", directory, "-o", tmp_path / f"kept{month}", "--index", index)
        assert result.exit_code == 0
    before = clusters(index, tmp_path / "before.jsonl")
    with Index(index) as opened:
        opened.add("mine", text(30))
        opened.remove_all(["https://a0.example/30", "https://b1.example/33"])
    after = clusters(index, tmp_path / "after.jsonl")
    of = {each["url"]: each for each in before.values()}
    thirty, more = of["https://a0.example/30"], of["https://a0.example/33"]
    assert thirty["sources"] == {str(dumps[0]): 2, str(dumps[1]): 2}
    assert after[thirty["id"]] == {
        "id": thirty["id"], "url": None, "size": 4, "sources": {str(dumps[0]): 1, str(dumps[1]): 2, "": 1},
    }  # fmt: skip
    assert after[more["id"]]["sources"] == {str(dumps[0]): 2, str(dumps[1]): 1}


def test_a_scan_writes_the_clusters_of_its_verdicts(dumps: list[Path], tmp_path: Path) -> None:
    """In the same run, without an index that outlives it."""
    verdicts, written = tmp_path / "verdicts.jsonl", tmp_path / "clusters.jsonl"
    assert neardup("scan", *dumps[:2], "-o", verdicts, "--clusters", written).exit_code == 0
    sources = {str(each): str(directory) for directory in dumps for each in directory.iterdir()}
    expected = counted([json.loads(line) for line in verdicts.read_text().splitlines()], sources)
    assert {each["id"]: (each["size"], each["sources"]) for each in read_report(written)} == expected
    for name, error in ((verdicts, "would change"), (tmp_path / "x.xlsx", "is not written as")):
        with pytest.raises(SettingsError, match=f"clusters .*: {error}"):
            neardup("scan", dumps[0], "-o", verdicts, "--clusters", name)


@pytest.mark.parametrize("suffix", ["jsonl", "jsonl.gz", "csv", "csv.zst", "parquet"])
def test_clusters_are_written_in_the_format_that_the_name_of_their_file_tells(
    suffix: str, dumps: list[Path], tmp_path: Path
) -> None:
    index = tmp_path / "index"
    assert neardup("scan", dumps[0], "--index", index).exit_code == 0
    output = tmp_path / f"clusters.{suffix}"
    assert neardup("query", "--clusters", index, "-o", output).exit_code == 0
    if suffix.endswith(("gz", "zst")):
        output.with_suffix("").write_bytes(unpacked(output))
        output = output.with_suffix("")
    rows = read_report(output)
    for each in rows:
        each["size"] = int(each["size"])
    assert rows == [each._asdict() for each in clusters_of(index)] != []


LABELS = {"2026-01": "2026-01", "2026-02": 2, "2026-03": None}
"""A label of each kind: a string, a number, and none."""


@pytest.mark.parametrize("way", ["jsonl", "csv", "parquet", "rows", "dedup"])
def test_pages_are_counted_by_a_column(way: str, dumps: list[Path], tmp_path: Path) -> None:
    """Of one file with all dumps; its clusters are those of three directories, counted by these."""
    files = [shard for directory in dumps for shard in sorted(directory.iterdir())]
    made = [
        json.loads(line) | {"meta": {"dump": LABELS[each.parent.name]}}
        for each in files
        for line in each.read_text().splitlines()
    ]
    kind = way if way in FORMATS else "jsonl"
    source, column = tmp_path / f"all.{kind}", "dump" if way == "csv" else "meta.dump"
    for each in made:
        if way == "csv":
            each["dump"] = each.pop("meta")["dump"]
        elif way == "parquet":
            each["meta"]["dump"] = each["meta"]["dump"] and str(each["meta"]["dump"])
    FORMATS[kind](source, made)
    index = tmp_path / "index"
    named = ("--count-by", column)
    if way == "rows":
        assert neardup("fingerprint", source, "-o", tmp_path / "rows", *named).exit_code == 0
        source, named = tmp_path / "rows", ()
    command = ("dedup", source, "-o", tmp_path / "kept") if way == "dedup" else ("scan", source)
    assert neardup(*command, *named, "--index", index).exit_code == 0
    for directory in dumps:
        assert neardup("scan", directory, "--index", tmp_path / "apart").exit_code == 0
    by_name = {str(each): str(LABELS[each.name] or "") for each in dumps}
    expected = [
        (each.url, each.size, {by_name[name]: count for name, count in each.sources.items()})
        for each in clusters_of(tmp_path / "apart")
    ]
    assert [(each.url, each.size, each.sources) for each in clusters_of(index)] == expected


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "tsv", "parquet"])
def test_kept_pages_get_the_counts_of_their_clusters(suffix: str, tmp_path: Path) -> None:
    """As the last two columns; those who have such columns already are refused."""
    made = [
        {"url": f"https://{host}.example/{n}", "text": text(n), "dump": f'of "{host}"'}
        for host, count in (("a", 9), ("b", 6), ("c", 3))
        for n in range(count)
    ]
    source, kept = tmp_path / f"pages.{suffix}", tmp_path / f"kept.{suffix}"
    (FORMATS | {"tsv": tabular})[suffix](source, made)
    arguments = ("dedup", source, "-o", kept, "--cluster-counts", "--count-by", "dump")
    assert neardup(*arguments).exit_code == 0
    rows = read_report(kept)
    assert len(rows) == 9
    for n, row in enumerate(rows):
        assert {name: row[name] for name in made[0]} == made[n]
        hosts = "abc" if n < 3 else "ab" if n < 6 else "a"
        counts = {f'of "{each}"': 1 for each in hosts}
        assert (int(row["cluster_size"]), row["cluster_sources"]) == (len(hosts), counts)
    with pytest.raises(
        SettingsError, match=r"cluster-counts: .* has a column cluster_size or cluster_sources"
    ):
        neardup("dedup", kept, "-o", tmp_path / f"again.{suffix}", "--cluster-counts")


def read_report(path: Path) -> list[dict[str, Any]]:
    """The rows of a file, with counts by source as dictionaries."""
    if path.suffix == ".parquet":
        rows = parquet.read_table(path).to_pylist()
    else:
        with path.open(newline="") as file:
            delimiter = {".csv": ",", ".tsv": "\t"}.get(path.suffix)
            rows = list(csv.DictReader(file, delimiter=delimiter) if delimiter else map(json.loads, file))
    for row in rows:
        for name in row.keys() & {"sources", "cluster_sources"}:
            row[name] = json.loads(row[name]) if isinstance(row[name], str) else dict(row[name])
    return rows


def test_labels_of_a_batch_that_a_crash_lost_are_not_those_of_the_next(tmp_path: Path) -> None:
    with Index(tmp_path / "index") as index:
        index.add("https://a.example/", text(1))
        note_labels(index._state.store, index._state.meta.applied, ["lost"])
    with Index(tmp_path / "index") as index:
        index.add("https://b.example/", text(2))
    assert [each.sources for each in clusters_of(tmp_path / "index")] == [{"": 1}, {"": 1}]


def test_an_index_whose_pages_were_all_removed_has_no_clusters(tmp_path: Path) -> None:
    with Index(tmp_path / "index") as index:
        index.add("page", text(1))
        index.remove("page")
    assert list(clusters_of(tmp_path / "index")) == []


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet"])
def test_dropped_pages_have_size_and_sources_of_their_cluster(
    suffix: str, dumps: list[Path], tmp_path: Path
) -> None:
    """Those of this run; `old version` counts its URL's newest page."""
    report = tmp_path / f"dropped.{suffix}"
    shards = [*dumps[0].iterdir(), *dumps[1].iterdir()]  # each for itself
    named = [tmp_path / f"{each.parent.name}-{each.name}" for each in shards]
    for each, link in zip(shards, named, strict=True):
        link.symlink_to(each)
    assert neardup("dedup", *named, "-o", tmp_path / "kept", "--dropped", report).exit_code == 0
    groups: dict[str, Counter[str]] = defaultdict(Counter)
    for each in read_report(report):
        sources = each["cluster_sources"]
        assert sum(sources.values()) == int(each["cluster_size"])
        assert sources.get(each["origin_file"]) or each["why"] == "old version"
        group = groups[each["kept_url"]]
        group["others"] += each["why"] != "old version"
        group["size"] = int(each["cluster_size"])
    assert groups
    for group in groups.values():
        assert group["size"] == group["others"] + 1


def test_exact_duplicates_alone_are_dropped_by_the_hash_of_their_text(tmp_path: Path) -> None:
    """Of long texts that differ in one word, none; short ones too."""
    long = " ".join(f"word{n}" for n in range(20_000))
    texts = [*(f"{long} {n}" for n in range(4)), f"{long} 2", "Loading", "loading", "Loading!", "", ""]
    made = [{"url": f"https://a.example/{n}", "text": each} for n, each in enumerate(texts)]
    write(tmp_path / "pages.jsonl", made)
    arguments = ("dedup", tmp_path / "pages.jsonl", "-o", tmp_path / "kept.jsonl", "--clusters", "texts")
    assert neardup(*arguments, "--dropped", tmp_path / "dropped.jsonl").exit_code == 0
    kept = [json.loads(line)["url"][-1] for line in (tmp_path / "kept.jsonl").read_text().splitlines()]
    assert kept == list("01235789")
    dropped = read_report(tmp_path / "dropped.jsonl")
    assert [(each["url"][-1], each["why"], each["kept_url"][-1]) for each in dropped] == [
        ("4", "same text", "2"),
        ("6", "same text", "5"),
    ]
    assert [each["cluster_size"] for each in dropped] == [2, 2]
    with pytest.raises(SettingsError, match="clusters: texts are those of one run; leave --index out"):
        neardup(*arguments, "--index", tmp_path / "index")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("--clusters", "none"), "index none: there is no index"),
        (("--clusters", "none", "pages.jsonl"), "clusters: are those of an index alone"),
        (("pages.jsonl", "-o", "x"), "output: is that of --clusters alone"),
        (("--clusters", "index", "-o", "x.xlsx"), r"output x\.xlsx: is not written as \.xlsx"),
        (("--clusters", "index", "-o", "index/x"), "output index/x: would change index"),
    ],
)
def test_what_is_no_question_is_refused(
    arguments: tuple[str, ...], error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "pages.jsonl", [{"url": "https://a.example/", "text": text(1)}])
    with pytest.raises((SettingsError, StateError), match=error):
        neardup("query", *arguments)
    assert not (tmp_path / "x").exists()
