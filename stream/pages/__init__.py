"""Page messages: parsing, compression and content types, and the archives and schemas that they refer to."""
