"""After the rehearsal, nothing is compiled while pages wait."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import HANG_SECONDS

JUDGED_AFTER_REHEARSAL = """
import numpy as np
from stream import Index
from stream.fingerprint import parity_similarity_compiled
from stream.fingerprint.scheme import Scheme
from stream.judge.decision import bucket_collisions, decide_rows_compiled, nearest
from stream.judge.state import page_log
from stream.judge import verdict_json_compiled
from stream.messages.verdict_options import VerdictOptions
from stream.judge.rehearse import rehearse
from stream.messages.journal import Genesis
from stream.tables.search import pair_collector
from stream.tables.hot import buckets
from stream.tables.runs import filters
from stream.tables.runs import tier as runs
from stream.tables.search import prefixes_compiled

loops = (pair_collector.in_order, buckets.enter, buckets.find, buckets.leave, buckets.enter_reserves,
    buckets.leave_reserves, buckets.move, bucket_collisions.numbered, decide_rows_compiled.settle,
    nearest.nearest_alive,
    parity_similarity_compiled.similarities_of, verdict_json_compiled._write,
    verdict_json_compiled.quoted, runs._match, filters.groups_to_read, filters.mark, filters.folded,
    prefixes_compiled.keys_of, page_log._pack, page_log._take, page_log._joined)
assert not any(loop.signatures for loop in loops)
scheme = Scheme()
options, seed = VerdictOptions(), scheme.seed()
rehearse(Genesis(journal="ab" * 16, scheme=scheme, scheme_id=scheme.id, options=options, seed=seed))
known = [list(loop.signatures) for loop in loops]
assert all(known), [loop for loop in loops if not loop.signatures]
texts = [" ".join(f"{name}{number}" for number in range(80)) for name in "abc"]
with Index() as index:
    verdicts = [index.add(text[:2], text).verdict for text in texts]
    assert index.near(texts[0])
    verdicts += [each.verdict for each in index.add_all((text[:3], text) for text in texts * 2)]
assert verdicts == ["unique"] * 3 + ["duplicate"] * 3 + ["recrawl"] * 3, verdicts
assert [list(loop.signatures) for loop in loops] == known
"""

TEMPLATES_JUDGED_AFTER_REHEARSAL = """
import gc, sys
from pathlib import Path
from numba.core.dispatcher import Dispatcher
from stream.judge.judge import Judge
from stream.judge.rehearse import rehearse
from stream.messages.verdict_options import VerdictOptions
from tests.genesis import genesis_of
from tests.judged_crawls import entries_of, judge_all, open_state, templates

def compiled():
    loops = [each for each in gc.get_objects() if isinstance(each, Dispatcher)]
    return {f"{each.__module__}.{each.__name__}": list(each.signatures) for each in loops}

rehearse(genesis_of())
rehearsed = compiled()
options = VerdictOptions(bucket_cap=2, compared=3)
for generation in 1 << 20, 16:
    path = Path(sys.argv[1]) / str(generation)
    state, genesis = open_state(path, options, memory=0, generation=generation)
    judge_all(Judge(state, genesis), entries_of(templates(1, 600), 1), 1)
    assert state.tables.stats.skipping_anchors > 100
    state.close()
    open_state(path, options, memory=0, generation=generation)[0].close()
assert compiled() == rehearsed, [name for name, each in compiled().items() if each != rehearsed.get(name)]
"""


@pytest.mark.parametrize("program", [JUDGED_AFTER_REHEARSAL, TEMPLATES_JUDGED_AFTER_REHEARSAL])
def test_whatever_judging_compiles_has_been_compiled(program: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
