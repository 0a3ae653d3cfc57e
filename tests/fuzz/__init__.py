"""Fuzzers of everything that decodes untrusted bytes: `python -m tests.fuzz`, or `make fuzz`.

A decoder is a class in `decoders/`. It generates inputs of the right structure, damages some of them, and
checks the results. Inputs are numbered: the same seed, decoder and number give the same bytes everywhere.
"""
