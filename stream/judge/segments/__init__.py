"""Candidates among sealed ranges of anchors, which other processes may hold.

A *segment* is a sealed range of anchor numbers. Who holds its tables and sketches answers about runs of
journal records (`answering`), as of some decision; the answer is a value (`answer`). The judge keeps the
records of pages and the tables of what is not sealed. It merges both (`merged_search`), and takes from
answers what has died since (`deaths`). Answers may come late, repeatedly and in any order: no verdict depends
on it.
"""
