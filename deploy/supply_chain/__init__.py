"""What an image is made of, under which licences, and what is known to be wrong with it.

Public tools do parts of it. cyclonedx-py takes licences and needs from an environment, or hashes from a lock
file, never both. pip-licenses compares whole names, where this reads SPDX expressions. pip-audit needs a
network.
"""

from __future__ import annotations

import click


class SupplyChainError(click.ClickException):
    """A file that says what is installed is not what it should be; the message names file and package."""
