"""Verdicts into figures: a Faust app that counts each verdict once."""
