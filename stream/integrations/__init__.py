"""Other programs' items -> page messages; verdicts -> their tables. Each needs an extra."""
