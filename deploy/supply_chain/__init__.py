"""What an image is made of, under which licences, and what is known to be wrong with it."""

from __future__ import annotations

import click


class SupplyChainError(click.ClickException):
    """A file that says what is installed is not what it should be; the message names file and package."""
