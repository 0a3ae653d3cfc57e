"""Verdicts against the truth, side by side with the seeds' recipe and with peers.

DATA has revisions-LANGUAGE.jsonl.xz and web-html.jsonl.xz. All first revisions are judged, then all second
ones under other URLs, by `scan`. Nothing is downloaded: peers that `make bench` has not installed are left
out, and so are German manual pages that it has not fetched, and files other than those of zh and en that are
not there.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from stream.errors import NeardupError
from stream.fingerprint.scheme import Scheme
from stream.messages.verdict_options import VerdictOptions
from tests.bench.quality import chrome, manpages, ours, truth
from tests.bench.quality.environments import call
from tests.bench.quality.figures import EDGES, LanguageFigures

LANGUAGES = ("zh", "en")
"""Those that every way is measured on."""
OTHERS = ("ja", "ko", "th", "indic", "ar", "ru", "short")
"""Those that the default and the peers of `VERIFIED` alone are measured on; `short` are short pages in many
languages. German, `de`, is measured in the same way."""
VERIFIED = ("datasketch 256 verified", "rensa 128 verified")
GOALS = {
    "precision_08": (0.99, 0.985),
    "precision_07": (0.999, 0.999),
    "recall_modified": (0.99, 0.985),
    "recall_085": (0.998, 0.995),
}
"""What the default is to reach on the mean of its seeds, and the least that counts."""
SEEDS = Scheme(segmenter="jieba", features="tfidf", keywords=20, weights="score", hash="md5", ties="zero")
Ways = Mapping[str, tuple[Scheme, VerdictOptions]]
OURS: Ways = {
    "default": (Scheme(), VerdictOptions()),
    "strict k=3": (Scheme(), VerdictOptions.paper(3)),
    "strict k=6": (Scheme(), VerdictOptions.paper(6, blocks=8)),
    "strict k=8": (Scheme(), VerdictOptions.paper(8, blocks=10)),
    "seeds: jieba TF-IDF top 20, k=3": (SEEDS, VerdictOptions.paper(3)),
    "seeds: 3 longest sentences, k=3": (Scheme(features="sentences"), VerdictOptions.paper(3)),
}
PEERS = {
    "simhash": ("simhash k=3",),
    "peers": (*VERIFIED, "trafilatura Simhash", "text-dedup settings"),
}
"""Environment -> what is measured there."""
DRAWS: Final = 10
"""Seeds of the hashes over which the default is averaged: one of them alone may be lucky."""
MEAN: Final = f"default, mean of {DRAWS} seeds"


def run(data: Path | None = None, picture: Path | None = None) -> dict[str, Any]:
    """Figures of every way, a language each, and of extraction; `short_of` lists what the default misses.

    Raises NeardupError without `data`.
    """
    if data is None:
        raise NeardupError("bench quality: --data names the directory with the texts")
    report: dict[str, Any] = {"goals": {name: goal for name, (goal, _) in GOALS.items()}, "edges": EDGES}
    for language in LANGUAGES:
        report[language] = _language(truth.revisions(data, language), OURS, PEERS)
    others = {
        language: truth.revisions(data, language)
        for language in OTHERS
        if (data / f"revisions-{language}.jsonl.xz").exists()
    }
    others |= {"de": german} if (german := manpages.revisions()) else {}
    of_default = {"default": (Scheme(), VerdictOptions())}, {"peers": VERIFIED}
    report["others"] = {language: _language(texts, *of_default) for language, texts in others.items()}
    report["short_of"] = ", ".join(
        f"{language} {name}"
        for language in LANGUAGES
        for name, (goal, _) in GOALS.items()
        if report[language]["ways"][MEAN][name] < goal
    )
    if picture is not None:
        call("peers", "picture.py", str(picture), content=report)
    return report | chrome.run(data)


def _language(texts: list[str], compared: Ways, peers: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    figures = LanguageFigures(texts)
    ways = {name: figures.of(ours.named_of(texts, *each)) for name, each in compared.items()}
    ways |= _over_seeds(texts, figures)
    pages = [{"text": text, "shingles": truth.shingles(text)} for text in texts]
    for environment, methods in peers.items():
        answers = call(environment, "peers.py", *methods, content=pages)
        ways |= {name: figures.of(named) for name, named in (answers or {}).items()}
    return {"pairs": figures.pairs, "modified": len(figures.within(0.8, 1.0)), "ways": ways}


def _over_seeds(texts: list[str], figures: LanguageFigures) -> dict[str, Any]:
    """The mean of each figure of the default over DRAWS seeds, and the least."""
    drawn: list[dict[str, float]] = []
    with TemporaryDirectory() as directory:
        for number in range(1, DRAWS + 1):
            file = Path(directory, f"{number}")
            file.write_text(f"{number:032x}")
            named = ours.named_of(texts, Scheme(seed_file=str(file)), VerdictOptions())
            drawn.append(figures.of(named))
    return {
        f"default, {said} of {DRAWS} seeds": {
            name: round(choose([each[name] for each in drawn]), 4)
            for name, value in drawn[0].items()
            if isinstance(value, int | float)
        }
        for said, choose in (("mean", statistics.mean), ("least", min))
    }
