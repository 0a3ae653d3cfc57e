"""Published pages -> verdicts, all processes and the broker on this machine, against the same job in Faust.

Two kinds of input, of which 30 % are copies: text pages of 5 KB, copies edited; and HTML pages, whose copies
come from another URL.

Rates are of a steady state, the same for both (`pipeline.steady`): neither the seconds in which processes
start and code is compiled nor those in which the last pages trickle out. Rounds alternate; the first is
thrown away, because a broker compiles itself in its first minute and takes up to half a core for it.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from resiliparse.extract.html2text import extract_plain_text

from stream.brokers.broker import start_broker
from stream.errors import NeardupError
from tests.bench.pages import AHEAD, InputPages, bodies, htmls, texts
from tests.bench.pipeline import SteadyState, TooFewPagesError, faust_job, ours, settings_for, steady

WORKERS, CHILDREN = 1, 2
"""What `neardup run` starts on two cores."""
ROUNDS = 3
DISCARDED = 1
"""Rounds in which the broker compiles itself."""
WARM_SECONDS, SECONDS = 4.0, 6.0
PAGES = {"text": 60_000, "html": 6_000}
"""More than a window takes. A machine that is too fast for them gets twice as many."""


def _workable(pages: list[str]) -> list[str]:
    """Pages that the peer can sign: it overflows on long texts, and Faust would lose those pages."""
    try:
        from simhash import Simhash
    except ImportError:
        raise NeardupError("the peer is missing: pip install 'neardup-stream[bench]'") from None

    def signs(html: str) -> bool:
        try:
            Simhash(extract_plain_text(html, main_content=True))
        except OverflowError:
            return False
        return True

    return [html for html in pages if signs(html)]


async def _side(servers: str, directory: Path, values: list[bytes], side: str) -> SteadyState:
    if side == "ours":
        running = ours(settings_for(servers, directory, worker_processes=CHILDREN), WORKERS)
    else:
        running = faust_job(settings_for(servers, directory))
    async with running as settings:
        return await steady(settings, values, ahead=AHEAD, warm=WARM_SECONDS, seconds=SECONDS)


def _wrong(pages: InputPages, found: SteadyState, urls: set[str]) -> int:
    """Of these pages, those whose verdict is not what they were made as."""
    return sum(
        (found.verdicts[url] == "duplicate") != pages.copies[int(url.rpartition("/")[2])] for url in urls
    )


def _of_rounds(pages: InputPages, rounds: list[dict[str, SteadyState]]) -> dict[str, Any]:
    def median(side: str) -> int:
        return round(statistics.median(each[side].pages_per_second for each in rounds))

    last = rounds[-1]
    both = set(last["ours"].verdicts) & set(last["faust"].verdicts)
    return {
        "bytes_a_page": round(statistics.mean(map(len, pages.values))),
        "pages_per_second": median("ours"),
        "faust_pages_per_second": median("faust"),
        "ratio": round(
            statistics.median(e["ours"].pages_per_second / e["faust"].pages_per_second for e in rounds), 2
        ),
        "compared_pages": len(both),
        "wrong_verdicts": _wrong(pages, last["ours"], both),
        "faust_wrong_verdicts": _wrong(pages, last["faust"], both),
        "processor_us_a_page": {who: round(us) for who, us in last["ours"].processor_us_a_page.items()},
        "faust_processor_us_a_page": {
            who: round(us) for who, us in last["faust"].processor_us_a_page.items()
        },
        "largest_rss_mib": last["ours"].largest_rss_mib,
    }


async def _run(servers: str, directory: Path, kinds: Sequence[str], data: Path | None) -> dict[str, Any]:
    report: dict[str, Any] = {}
    for kind in kinds:
        pages, rounds = PAGES[kind], ROUNDS + (0 if report else DISCARDED)
        while kind not in report:
            made = texts(pages) if kind == "text" else htmls(pages, _workable(bodies(data)))
            try:
                report[kind] = _of_rounds(made, await _rounds(servers, directory, made, rounds))
            except TooFewPagesError as error:
                pages *= 2
                sys.stderr.write(f"{error}: once more with {pages}\n")
    return report


async def _rounds(
    servers: str, directory: Path, pages: InputPages, rounds: int
) -> list[dict[str, SteadyState]]:
    """The last ROUNDS of so many rounds."""
    found = [
        {side: await _side(servers, directory, pages.values, side) for side in ("ours", "faust")}
        for _ in range(rounds)
    ]
    return found[-ROUNDS:]


def run(data: Path | None = None, kinds: tuple[str, ...] = ("text", "html")) -> dict[str, Any]:
    """By kind of page: pages a second of ours and of the plain Faust job, medians of rounds, and their ratio.

    Raises NeardupError without the peers of tests/bench/requirements.lock.
    """
    with start_broker() as broker, tempfile.TemporaryDirectory(prefix="neardup-bench-") as directory:
        return asyncio.run(_run(broker.bootstrap_servers, Path(directory), kinds, data))
