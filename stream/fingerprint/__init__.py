"""Fingerprints of pages: the SimHash, its least certain bits and a sketch, by the options of a scheme."""
