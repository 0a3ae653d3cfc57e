"""Tokens -> 64-bit SimHash, its least certain bits and a MinHash sketch; the scheme that names how."""
