"""`neardup audit`: counts verdicts, and decides again (rules 8 and 17)."""
