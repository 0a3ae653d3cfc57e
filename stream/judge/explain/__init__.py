"""Why two pages are near-duplicates or are not, in detail, for `neardup explain`."""
