"""What `neardup trim` refuses before it asks any broker."""

from __future__ import annotations

import pytest

from stream.errors import SettingsError
from tests.commands import neardup

NOWHERE = ("--bootstrap-servers", "127.0.0.1:1")


@pytest.mark.parametrize("options", [(), ("--dry-run",), ("--every", "1h")])
def test_without_a_store_of_checkpoints_it_says_so_at_once(options: tuple[str, ...]) -> None:
    """A role would wait for a broker without limit."""
    result = neardup("trim", *NOWHERE, *options)
    assert result.exit_code == 78, result.output
    assert "checkpoints: not set" in result.output


@pytest.mark.parametrize(
    ("options", "why"),
    [(("--every", "0"), "--every: 0 is no interval"), (("--every", "1h", "--json"), "--every: trims again")],
)
def test_intervals_that_make_no_sense_are_refused(options: tuple[str, ...], why: str) -> None:
    with pytest.raises(SettingsError, match=why):
        neardup("trim", *NOWHERE, "--checkpoints", "objects", *options)
