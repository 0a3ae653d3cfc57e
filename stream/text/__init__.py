"""Bytes of a page -> text -> tokens: charset, main content, normalisation, segmentation, URL keys."""
