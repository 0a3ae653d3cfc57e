"""After the rehearsal, nothing is compiled while pages wait."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.waiting import HANG_SECONDS

PROGRAM = """
import gc, sys
from pathlib import Path
from numba.core.dispatcher import Dispatcher
from stream import Index
from stream.judge.judge import Judge
from stream.judge.rehearse import rehearse
from stream.messages.verdict_options import VerdictOptions
from tests.genesis import genesis_of
from tests.judged_crawls import entries_of, judge_all, open_state, templates

def compiled(*rooms):
    loops = [each for each in gc.get_objects() if isinstance(each, Dispatcher)]
    named = {f"{each.__module__}.{each.__name__}": list(each.signatures) for each in loops}
    return {name: each for name, each in named.items() if name.startswith(rooms)}

JUDGING = "stream.judge.", "stream.tables.", "stream.fingerprint.parity_similarity_compiled."
rehearse(genesis_of())
everywhere, judging = compiled(""), compiled(*JUDGING)
assert len(judging) > 20
options = VerdictOptions(bucket_cap=2, compared=3)
for generation in 1 << 20, 16:
    path = Path(sys.argv[1]) / str(generation)
    state, genesis = open_state(path, options, memory=0, generation=generation)
    judge_all(Judge(state, genesis), entries_of(templates(1, 600), 1), 1)
    assert state.tables.stats.skipping_anchors > 100
    state.close()
    open_state(path, options, memory=0, generation=generation)[0].close()
assert not (late := {name for name, each in compiled("").items() if each != everywhere.get(name)}), late
texts = [" ".join(f"{name}{number}" for number in range(80)) for name in "abc"]
with Index() as index:  # which compiles what pages are fingerprinted with
    verdicts = [index.add(text[:2], text).verdict for text in texts]
    assert index.near(texts[0])
    verdicts += [each.verdict for each in index.add_all((text[:3], text) for text in texts * 2)]
assert verdicts == ["unique"] * 3 + ["duplicate"] * 3 + ["recrawl"] * 3, verdicts
assert compiled(*JUDGING) == judging
"""


def test_whatever_judging_compiles_has_been_compiled(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_SECONDS, check=False)
    assert done.returncode == 0, done.stderr
