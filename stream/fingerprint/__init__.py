"""Fingerprints of pages: the SimHash and a sketch, by the options of a scheme."""
