"""Kinds of features, one per file. All but plain words are loaded only if a scheme selects them."""
