"""Look-ups: the verdicts of a URL, and what a text would get."""
