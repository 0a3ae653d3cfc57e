"""`python -m stream.cli` is the same as `neardup`."""

from stream.cli import main

main()
