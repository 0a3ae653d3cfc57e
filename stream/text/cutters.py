"""jieba and its Rust engine: cutters, taggers and keyword extractors, with a user's dictionary."""

from __future__ import annotations

import functools
import importlib.util
import logging
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from stream.errors import SettingsError
from stream.text.normalise import normalise

Segmenter = Literal["rjieba", "jieba"]
Cut = Callable[[str], Iterable[str]]
Tag = Callable[[str], Iterable[tuple[str, str]]]

_NO_FLAG = "x"


@functools.cache
def cutter(segmenter: Segmenter, dictionary: str = "") -> Cut:
    """Cuts a text into words, by hidden Markov model where the dictionary does not know them; `dictionary` is
    the path of a user dictionary in jieba's format (word, frequency and tag, the last two optional)."""
    if segmenter == "rjieba":
        cut: Cut = _rust(dictionary).cut
        return cut
    tokenizer = _tokenizer(dictionary)
    return lambda text: tokenizer.cut(text, HMM=True)


@functools.cache
def tagger(segmenter: Segmenter, dictionary: str = "") -> Tag:
    """Cuts a text into words with their parts of speech."""
    if segmenter == "rjieba":
        tag: Tag = _rust(dictionary).tag
        return tag
    jieba_package()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from jieba import posseg

    tokenizer = posseg.POSTokenizer(_tokenizer(dictionary))
    return lambda text: ((pair.word, pair.flag) for pair in tokenizer.cut(text))


@functools.cache
def analyse() -> ModuleType:
    """`jieba.analyse`: TF-IDF and TextRank keywords."""
    jieba_package()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it leaves a file to the garbage collector
        import jieba.analyse
    module: ModuleType = jieba.analyse
    return module


def tfidf_extractor(idf: str) -> Any:
    """jieba's TF-IDF extractor with the IDF file of that path, its own for ""."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the same
        return analyse().TFIDF(idf or None)


def user_words(dictionary: str) -> Iterator[tuple[str, int | None, str]]:
    """Word (normalised, as texts are), frequency and tag of each line. Raises SettingsError, naming the
    option, at a malformed line."""
    text = Path(dictionary).read_text("utf-8-sig")
    for number, line in enumerate(text.splitlines(), 1):
        fields = line.split()
        if not fields:
            continue
        word, rest = fields[0], fields[1:]
        frequency = int(rest.pop(0)) if rest and rest[0].isdecimal() else None
        if len(rest) > 1:
            raise SettingsError(
                f"scheme option dictionary={dictionary}: line {number}: not a word, frequency and tag"
            )
        yield normalise(word), frequency, rest[0] if rest else _NO_FLAG


@functools.cache
def _rust(dictionary: str) -> Any:
    own = _rust_engine().Jieba()
    for word, frequency, flag in user_words(dictionary) if dictionary else ():
        own.add_word(word, own.suggest_freq(word) if frequency is None else frequency, flag)
    return own


def _rust_engine() -> ModuleType:
    """rjieba's compiled module. The package around it would load a dictionary of its own at its import, which
    takes as long as ours: 0.13 s of start. Whoever imports the package later gets all of it."""
    name = "rjieba.rjieba"
    if name not in sys.modules:
        package = importlib.util.find_spec("rjieba")
        found = package and PathFinder.find_spec(name, package.submodule_search_locations)
        if found and found.loader:
            sys.modules[name] = module = importlib.util.module_from_spec(found)
            found.loader.exec_module(module)
        else:
            importlib.import_module("rjieba")
    return sys.modules[name]


@functools.cache
def _tokenizer(dictionary: str) -> Any:
    tokenizer = jieba_package().Tokenizer()
    tokenizer.initialize()
    for word, frequency, flag in user_words(dictionary) if dictionary else ():
        tokenizer.add_word(word, frequency, flag)
    return tokenizer


def jieba_package() -> ModuleType:
    """The package, loaded without its warnings and messages."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # jieba's source has invalid escapes
        import jieba
    jieba.setLogLevel(logging.WARNING)
    module: ModuleType = jieba
    return module
