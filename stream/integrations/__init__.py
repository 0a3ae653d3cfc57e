"""Other programs' plug-ins -> page messages and verdicts; each needs its own extra."""
