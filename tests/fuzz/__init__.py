"""Fuzzers of everything that decodes bytes which somebody else wrote: `python -m tests.fuzz`, or `make fuzz`.

A decoder here is a class in `decoders/`: it makes inputs of the right structure, damages some of them, and
says what may come of each. Inputs are numbered: seed, decoder and number give the same bytes everywhere.
"""
