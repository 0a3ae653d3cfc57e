"""From a page's bytes to text and tokens: charset, main content, normalisation, segmentation, URL keys."""
