"""A judge that looks for what is to be forgotten stops at once. What the command refuses before it asks any
broker."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from stream.errors import SettingsError
from stream.kafka.in_flight import in_thread
from stream.roles.judge.forgetting import ForgetRequests
from tests.commands import neardup


async def test_a_judge_that_stops_waits_for_the_thread_that_searches() -> None:
    watch: Any = SimpleNamespace(stage=lambda name: nullcontext())
    reader, none, ended = SimpleNamespace(position=0), SimpleNamespace(), list[bool]()
    requests = ForgetRequests(reader, none, none, watch)  # type: ignore[arg-type]

    def run(turn: Any) -> None:
        requests._stop.wait()
        ended.append(True)

    search: Any = SimpleNamespace(run=run)
    requests._begin(search)
    await in_thread(lambda: None)
    await requests.close()
    assert ended == [True]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ((), "name URLs, --host, --domain or --file"),
        (("--status", "http://a.example/"), "--status: shows all requests"),
        (("--json", "http://a.example/"), "--json: needs --status"),
    ],
)
def test_a_command_that_names_nothing_or_too_much_is_refused(arguments: tuple[str, ...], why: str) -> None:
    with pytest.raises(SettingsError, match=why):
        neardup("forget", "--bootstrap-servers", "127.0.0.1:1", *arguments)
