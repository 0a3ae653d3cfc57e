"""Requests for the judge, and what has become of them."""
