"""`neardup`, where pages may have a lifetime that an epoch outlasts: shorter than a deployment may have.

python -m tests.chaos.neardup COMMAND
"""

from __future__ import annotations

from stream.messages import verdict_options

verdict_options.LEAST_LIFETIME = 10  # type: ignore[misc]  # seconds


def main() -> None:
    """Run a command."""
    from stream.cli import main as neardup

    neardup()


if __name__ == "__main__":
    main()
