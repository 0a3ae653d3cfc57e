"""`neardup`, where pages may have a lifetime that an epoch outlasts: shorter than a deployment may have.

python -m tests.chaos.neardup COMMAND
"""

from __future__ import annotations

import sys
from typing import Final

from tests.kills import command

CONSTANTS: Final = {"stream.messages.verdict_options.LEAST_LIFETIME": 10}  # seconds

if __name__ == "__main__":
    command(CONSTANTS, *sys.argv[1:])
