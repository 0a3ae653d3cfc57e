"""`python -m stream.cli`, the same as `neardup`."""

from stream.cli import main

main()
