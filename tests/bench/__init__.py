"""Benchmarks: `python -m tests.bench`. Speed is shown here, side by side, and never asserted by a test."""
