"""The stages of `python -m tests.bench` that need a broker, in small, so that none rots.
`tests/unit/test_bench_stages.py` has the others."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from stream.brokers.local_broker import LocalBroker
from stream.settings import Settings
from tests.bench import pages, pipeline
from tests.bench.goals import figure_at

pytestmark = pytest.mark.night


@pytest.fixture
def on_the_broker(broker: LocalBroker, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """A part of the benchmark, which would start a broker of its own."""

    def part(name: str) -> Any:
        module = import_module(f"tests.bench.bench_{name}")
        monkeypatch.setattr(module, "start_broker", lambda: nullcontext(broker))
        return module

    return part


@pytest.mark.parametrize(
    ("name", "small", "arguments", "figure"),
    [
        ("judge", {}, {"anchors": 2000, "measured": 4000}, ("verdicts_per_second",)),
        ("dashboard", {"ASK_SECONDS": 0.01}, {"count": 2000}, ("verdicts",)),
        ("worker", {"ROUNDS": 1}, {"count": 600}, ("pages_per_second",)),
        (
            "latency",
            {"SECONDS": 0.5, "SHARES": (0.5,), "AHEAD": 16, "WARM_SECONDS": 0.2, "SUSTAINED_SECONDS": 0.2},
            {"count": 600},
            ("at_50%", "p50_ms"),
        ),
    ],
)
def test_a_part_runs(
    on_the_broker: Callable[[str], Any],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    small: dict[str, Any],
    arguments: dict[str, int],
    figure: tuple[str, ...],
) -> None:
    module = on_the_broker(name)
    for constant, value in small.items():
        monkeypatch.setattr(module, constant, value)
    found = module.run(**arguments)
    assert (figure_at(found, figure) or 0) > 0
    json.dumps(found)


def test_end_to_end_suits_itself_to_a_machine_that_is_too_fast(
    on_the_broker: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With us in place of the peer, where that is not installed: it signs pages by the package simhash."""
    module = on_the_broker("end_to_end")
    small = {"ROUNDS": 1, "DISCARDED": 0, "AHEAD": 16, "WARM_SECONDS": 0.2, "SECONDS": 0.3, "CHILDREN": 1}
    for name, value in small.items():
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(pages, "AHEAD", 16)
    monkeypatch.setattr(module, "PAGES", {"html": 40})
    if find_spec("simhash") is None:
        monkeypatch.setattr(module, "_workable", lambda pages: pages)
        monkeypatch.setattr(module, "faust_job", lambda settings: pipeline.ours(settings, 1))
    side, refused = module._side, list[int]()

    async def too_fast(servers: str, directory: Path, values: list[bytes], *rest: Any) -> Any:
        if len(values) < 160:
            refused.append(len(values))
            raise pipeline.TooFewPagesError("too few")
        return await side(servers, directory, values, *rest)

    monkeypatch.setattr(module, "_side", too_fast)
    found = module.run(kinds=("html",))
    assert refused == [40, 80]
    assert found["html"]["pages_per_second"] > 0
    json.dumps(found)


async def test_a_window_needs_more_pages_than_are_through_before_it(
    settings: Settings, tmp_path: Path
) -> None:
    values = pages.texts(40).values
    async with pipeline.ours(settings.model_copy(update={"partitions": pipeline.PARTITIONS}), 1) as running:
        with pytest.raises(pipeline.TooFewPagesError, match="40 pages were sent before a window"):
            await pipeline.steady(running, values, ahead=64, warm=5.0, seconds=5.0)
