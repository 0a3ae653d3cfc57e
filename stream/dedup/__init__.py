"""Files without near-duplicates: pages are judged, one of each cluster is elected, and copied as it is."""
