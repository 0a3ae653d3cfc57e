"""Batches of pages into verdicts: stored candidates, anchors of the same batch, recrawls, and the loop that
decides row by row."""
