"""Computes the expected verdicts and compares them with the actual ones; imports nothing of `stream`."""
