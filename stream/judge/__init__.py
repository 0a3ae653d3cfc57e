"""Candidates -> verdicts: the rule, the decision in journal order, and the state that remembers it."""
