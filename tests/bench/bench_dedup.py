"""`neardup dedup` beside the MinHash of text-dedup, rensa and datatrove: the same files, one after the other.

    python -m tests.bench.bench_dedup --pages 1000000 --directory DIRECTORY

Pages are made (`dedup_pages`), and the similarity of all pairs planted among them is counted out. Figures
that are in the directory are not measured again, so a run may be stopped and resumed. Peers that `make bench`
has not installed are left out.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

import click
import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tests.bench import dedup_pages
from tests.bench.process_tree import measure
from tests.bench.quality.environments import python, say

PROCESSES: Final = 2
ALIKE: Final = 0.8
CHAINS: Final = "neardup chains"
OURS: Final = ("neardup stars", CHAINS)

Bools = NDArray[np.bool_]


class Tool(NamedTuple):
    """How a tool is run on the files of a directory, and how its answer is read."""

    command: Callable[[Path, list[Path], Path], list[str] | None]
    """The command for a directory, its files and a directory for the output; None where it is missing."""
    kept: Callable[[Path], Iterator[int]]
    """Numbers of the pages that it kept."""


class _Line(msgspec.Struct):
    id: str


def _kept_lines(files: Iterable[Path]) -> Iterator[int]:
    decode = msgspec.json.Decoder(_Line).decode
    for file in files:
        with file.open("rb") as lines:
            yield from (int(decode(line).id) for line in lines)


def _neardup(clusters: str) -> Tool:
    def command(directory: Path, files: list[Path], output: Path) -> list[str]:
        names = list(map(str, files))
        command = [sys.executable, "-m", "stream.cli", "dedup", *names, "--id-column", "id"]
        return [*command, "--clusters", clusters, "-o", str(output / "kept")]

    return Tool(command, lambda output: _kept_lines(sorted((output / "kept").rglob("*.jsonl"))))


def _text_dedup(directory: Path, files: list[Path], output: Path) -> list[str] | None:
    interpreter = python("text-dedup")
    if interpreter is None:
        return None
    return [
        *(str(interpreter), "-m", "text_dedup.minhash", "--path", "json", "--split", "train"),
        *("--data_files", str(directory / "pages-*.jsonl"), "--column", "text"),
        *("--threshold", str(ALIKE), "--num_proc", str(PROCESSES)),
        *("--cache_dir", str(output / "cache"), "--output", str(output / "kept")),
    ]


def _text_dedup_kept(output: Path) -> Iterator[int]:
    for file in sorted((output / "kept").glob("*.arrow")):
        with pa.memory_map(str(file)) as mapped, pa.ipc.open_stream(mapped) as batches:
            for batch in batches:
                yield from map(int, batch.column("id").to_pylist())


def _datatrove(directory: Path, files: list[Path], output: Path) -> list[str] | None:
    interpreter = python("datatrove")
    if interpreter is None:
        return None
    script = Path(__file__).with_name("datatrove_minhash.py")
    return [str(interpreter), "-P", str(script), str(directory), str(output), str(PROCESSES)]


def _rensa(directory: Path, files: list[Path], output: Path) -> list[str] | None:
    interpreter = python("peers")
    if interpreter is None:
        return None
    script = Path(__file__).with_name("rensa_minhash.py")
    return [str(interpreter), "-P", str(script), str(directory), str(output)]


TOOLS: Final = {
    "neardup stars": _neardup("stars"),
    CHAINS: _neardup("chains"),
    "text-dedup": Tool(_text_dedup, _text_dedup_kept),
    "rensa": Tool(_rensa, lambda output: _kept_lines([output / "kept.jsonl"])),
    "datatrove": Tool(_datatrove, lambda output: _kept_lines(sorted((output / "kept").glob("*.jsonl")))),
}


def quality(pairs: dedup_pages.Pairs, kept: Bools) -> dict[str, float | int]:
    """What a tool left and removed, by the pairs that are alike.

    A page is rightly dropped if a page that is kept is like it. A page is missed if it is kept beside an
    earlier one that is like it: whichever page of a cluster a tool keeps, one of them is no mistake.
    """
    figures: dict[str, float | int] = {"kept": int(kept.sum()), "dropped": int((~kept).sum())}
    earlier, later, similarity = pairs
    for least in (ALIKE, ALIKE - 0.1):
        alike = similarity >= least
        one, two = earlier[alike], later[alike]
        covered = np.zeros(len(kept), bool)
        covered[two[kept[one] & ~kept[two]]] = True
        covered[one[kept[two] & ~kept[one]]] = True
        rightly = int(covered.sum())
        figures[f"precision_{least:.1f}"] = round(rightly / max(1, figures["dropped"]), 5)
        if least == ALIKE:
            both = kept[one] & kept[two]
            missed = len(np.unique(two[both]))
            figures["recall"] = round(rightly / max(1, rightly + missed), 5)
    return figures


def run(
    pages: int = 20_000, directory: Path | None = None, tools: tuple[str, ...] = tuple(TOOLS)
) -> dict[str, Any]:
    """Figures of each tool, and of each peer how many times our time and memory it takes."""
    if directory is None:
        with TemporaryDirectory(prefix="neardup-bench-") as scratch:
            return run(pages, Path(scratch), tools)
    place = directory / f"{pages}"
    files, pairs = dedup_pages.make(place, pages)
    alike = pairs[2] >= ALIKE
    report: dict[str, Any] = {
        "pages": pages,
        "bytes": sum(file.stat().st_size for file in files),
        "pairs_alike": int(alike.sum()),
        "pages_like_an_earlier_one": len(np.unique(pairs[1][alike])),
    }
    for name in tools:
        report[name] = _figures(name, place, files, pairs, pages)
    ours = report.get(OURS[0], {})
    for name in tools:
        if name not in OURS and "seconds" in report[name] and "seconds" in ours:
            for figure in ("seconds", "processor_seconds", "peak_mib"):
                report[name][f"{figure}_to_ours_ratio"] = round(report[name][figure] / ours[figure], 2)
    return report


def _figures(
    name: str, place: Path, files: list[Path], pairs: dedup_pages.Pairs, pages: int
) -> dict[str, Any]:
    """Of one tool; read where they have been measured."""
    written = place / f"{name}.json"
    if written.exists():
        return dict(json.loads(written.read_text()))
    output = place / name.replace(" ", "-")
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir()
    command = TOOLS[name].command(place, files, output)
    if command is None:
        return {"missing": "not installed"}
    environment = os.environ | {"HF_HUB_OFFLINE": "1"}  # nothing is fetched while it is measured
    say(f"{name}, {pages:,} pages")
    try:
        cost = measure(command, place / f"{name}.log", environment)
    except subprocess.CalledProcessError as error:
        if name in OURS:
            raise
        return {"missing": f"failed with {error.returncode}"}
    kept = np.zeros(pages, bool)
    kept[list(TOOLS[name].kept(output))] = True
    figures = cost._asdict() | {"pages_per_second": round(pages / cost.seconds)} | quality(pairs, kept)
    written.write_text(json.dumps(figures) + "\n")
    shutil.rmtree(output)
    return figures


@click.command()
@click.option("--pages", type=click.IntRange(min=100), default=20_000, show_default=True)
@click.option("--directory", type=click.Path(path_type=Path), help="Where pages and figures stay.")
def command(pages: int, directory: Path | None) -> None:
    """Print the figures of each tool as JSON."""
    sys.stdout.write(json.dumps(run(pages, directory), indent=2) + "\n")


if __name__ == "__main__":
    command(prog_name="python -m tests.bench.bench_dedup")
