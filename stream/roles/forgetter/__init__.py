"""Requests to forget pages, and what has become of them."""
