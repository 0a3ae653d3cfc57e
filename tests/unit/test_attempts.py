"""Attempts at pages: what is counted, what is forgotten, and which page is given up."""

from __future__ import annotations

import random

import pytest
from aiokafka.structs import OffsetAndMetadata

from stream.messages.journal import SourceRange
from stream.roles.worker.attempts import (
    CAREFUL_PAGES,
    MOST,
    NONE,
    SOME,
    Attempts,
    Positions,
    attempts_of,
    metadata_of,
)
from stream.roles.worker.backlog import PagesTopic
from stream.roles.worker.positions import counts

ID = "ab" * 16
SOURCE = PagesTopic("cluster", "pages", ID)


def written(partition: int, start: int, end: int, rows: int | None = None) -> list[SourceRange]:
    """A range of the journal, as many rows as offsets unless told."""
    count = end - start if rows is None else rows
    return [SourceRange(SOURCE.cluster_id, SOURCE.topic, ID, partition, start, end, count)]


def begun(offset: int = 0, found: Attempts = NONE) -> Positions:
    """Partition 0, assigned as the group has it."""
    positions = Positions()
    positions.take(0, offset, found)
    return positions


def committed(positions: Positions) -> tuple[int, str]:
    return positions.commits([0], "t")[0]


@pytest.mark.parametrize(
    ("metadata", "attempts"),
    [
        (ID, NONE),  # of a version that did not count
        ("", NONE),  # of a tool
        (f"{ID} 0", NONE),
        (f"{ID} 1", SOME),
        (f"{ID} 7", SOME),  # only of a single page there can be more
        (f"{ID} 2 17", Attempts(2, 17)),
        (f"{ID} 9 17", Attempts(MOST, 17)),
        (f"{ID} 2 17 4", NONE),
        (f"{ID} -2 17", SOME),
        (f"{ID} two", NONE),
        (f"{ID} ²", NONE),
    ],
)
def test_metadata_tells_attempts_and_nothing_else_does(metadata: str, attempts: Attempts) -> None:
    assert attempts_of(metadata) == attempts


@pytest.mark.parametrize("attempts", [NONE, SOME, Attempts(2, 0), Attempts(3, 2**63)])
def test_metadata_comes_back_as_it_was(attempts: Attempts) -> None:
    assert attempts_of(metadata_of(ID, attempts)) == attempts
    assert metadata_of(ID, NONE) == ID, "what it always was"


@pytest.mark.parametrize(
    ("metadata", "counted"),
    [("", True), (ID, True), (f"{ID} 3 17", True), ("f" * 32, False), (f"{'f' * 32} 1", False)],
)
def test_a_commit_counts_by_its_topic_id_whatever_the_attempts(metadata: str, counted: bool) -> None:
    assert counts(OffsetAndMetadata(5, metadata), SOURCE) is counted
    assert not counts(None, SOURCE)


def test_an_attempt_counts_from_the_first_pages_until_some_are_in_the_journal() -> None:
    positions = begun(5)
    assert not positions.any_careful
    assert positions.begin({0}) == {0}
    assert committed(positions) == (5, "t 1")
    assert positions.begin({0}) == set(), "counted once"
    positions.advance(written(0, 5, 9))
    assert committed(positions) == (9, "t")
    assert positions.begin({0}) == set(), "no commit a page"


def test_openings_and_losses_are_no_pages() -> None:
    positions = begun(5)
    positions.begin({0})
    positions.advance(written(0, 5, 5))
    positions.advance(written(0, 5, 8, rows=0))
    assert committed(positions) == (8, "t 1")


def test_a_page_that_takes_long_counts_also_after_others() -> None:
    positions = begun(5)
    positions.begin({0})
    positions.advance(written(0, 5, 9))
    assert positions.slow(0)
    assert not positions.slow(0), "once"
    assert committed(positions) == (9, "t 1")
    positions.advance(written(0, 9, 10))
    assert committed(positions) == (10, "t")


def test_a_page_is_given_up_after_three_attempts() -> None:
    """Each line is a worker that is killed while it processes page 5."""
    positions = begun(5)
    positions.begin({0})
    for count in (2, 3):
        positions = begun(5, attempts_of(committed(positions)[1]))
        assert positions.careful(0)
        assert not positions.exhausted(0, 5)
        positions.try_alone(0, 5)
        assert committed(positions) == (5, f"t {count} 5")
    positions = begun(5, attempts_of(committed(positions)[1]))
    assert positions.exhausted(0, 5)
    assert committed(positions) == (5, "t 3 5"), "also were the worker to end now"
    positions.advance(written(0, 5, 6))
    assert committed(positions) == (6, "t")
    assert not positions.careful(0), "the guilty one was found"


def test_a_page_behind_others_is_found() -> None:
    positions = begun(5, SOME)
    for page in (5, 6):
        positions.try_alone(0, page)
        positions.passed(0)
        assert committed(positions) == (page, "t 1")
        positions.advance(written(0, page, page + 1))
    positions.try_alone(0, 9)  # 7 and 8 are holes: a range of the journal begins at 7 nevertheless
    assert committed(positions) == (7, "t 2 9")
    positions = begun(7, attempts_of("t 2 9"))
    positions.try_alone(0, 9)
    assert committed(positions) == (7, "t 3 9")
    assert begun(7, attempts_of("t 3 9")).exhausted(0, 9)


def test_another_page_than_the_one_that_was_at_hand_is_not_given_up() -> None:
    """Compaction or retention deleted the recorded page, or an operator has set the offset."""
    positions = begun(5, Attempts(3, 7))
    assert not positions.exhausted(0, 8)
    positions.try_alone(0, 8)
    assert committed(positions) == (5, "t 2 8")


def test_an_offset_does_not_go_back() -> None:
    positions = begun(9)
    positions.advance([*written(0, 0, 5), *written(0, 9, 12), *written(0, 5, 9)])
    assert positions.offset(0) == 12


def test_after_enough_pages_care_ends() -> None:
    positions = begun(0, SOME)
    for page in range(CAREFUL_PAGES):
        assert positions.careful(0)
        positions.try_alone(0, page)
        positions.passed(0)
        positions.advance(written(0, page, page + 1))
    assert not positions.careful(0)
    assert committed(positions) == (CAREFUL_PAGES, "t")
    assert positions.begin({0}) == set()


@pytest.mark.parametrize(("found", "after"), [(NONE, "t"), (SOME, "t 1"), (Attempts(2, 5), "t 2 5")])
def test_what_is_handed_over_in_good_order_was_no_attempt(found: Attempts, after: str) -> None:
    positions = begun(5, found)
    if positions.careful(0):
        positions.try_alone(0, 5)
    else:
        positions.begin({0})
    assert positions.hand_over() == {0}
    assert committed(positions) == (5, after)
    assert positions.hand_over() == set()
    positions.advance(written(0, 5, 6))
    positions.hand_over()
    assert committed(positions) == (6, "t")


def test_a_page_that_did_no_harm_is_cleared_also_at_a_hand_over() -> None:
    positions = begun(5, Attempts(2, 5))
    positions.try_alone(0, 5)
    positions.passed(0)
    assert positions.hand_over() == set()
    assert committed(positions) == (5, "t 1")


def test_only_the_page_that_takes_workers_down_is_ever_given_up() -> None:
    """Workers are killed at random while they process several pages, and always at one poison page."""
    for seed in range(300):
        rng = random.Random(seed)
        poison, end, offset, metadata, given_up = rng.randrange(100), 120, 0, "t", list[int]()
        while offset < end:
            positions = begun(offset, attempts_of(metadata))
            alive = True
            while alive and offset < end:
                if positions.careful(0):
                    if positions.exhausted(0, offset):
                        given_up.append(offset)
                    else:
                        positions.try_alone(0, offset)
                        alive = offset != poison
                        if not alive:
                            break
                        positions.passed(0)
                        alive = rng.random() > 0.01
                    count = 1
                else:
                    positions.begin({0})
                    count = min(rng.randint(1, CAREFUL_PAGES), end - offset)
                    alive = not offset <= poison < offset + count and rng.random() > 0.1
                if alive:
                    positions.advance(written(0, offset, offset + count))
                    offset = positions.offset(0)
                    alive = rng.random() > 0.05
            _, metadata = committed(positions)
        assert given_up == [poison]
