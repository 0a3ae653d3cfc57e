"""What a page message refers to -> the page: records of web archives, schemas of a registry."""
