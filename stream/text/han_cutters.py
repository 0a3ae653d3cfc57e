"""Word segmenters, part-of-speech taggers and keyword extractors of jieba and rjieba, its Rust port, with an
optional user dictionary."""

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
    """A function that cuts a text into words. Words that the dictionary lacks are found by a hidden Markov
    model. `dictionary` is the path of a user dictionary in jieba's format: word, frequency and tag, the last
    two optional."""
    if segmenter == "rjieba":
        cut: Cut = _rust(dictionary).cut
        return cut
    tokenizer = _tokenizer(dictionary)
    return lambda text: tokenizer.cut(text, HMM=True)


@functools.cache
def tagger(segmenter: Segmenter, dictionary: str = "") -> Tag:
    """A function that cuts a text into (word, part of speech) pairs; parameters as for `cutter`."""
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
    """The module `jieba.analyse`: TF-IDF and TextRank keywords."""
    jieba_package()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # ResourceWarning: jieba does not close a file
        import jieba.analyse
    module: ModuleType = jieba.analyse
    return module


def tfidf_extractor(idf: str) -> Any:
    """jieba's TF-IDF extractor with the IDF file at that path, or with jieba's own for ""."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # ResourceWarning, as above
        return analyse().TFIDF(idf or None)


def user_words(dictionary: str) -> Iterator[tuple[str, int | None, str]]:
    """The entries of a user dictionary: word (normalised like page texts), frequency and tag. Raises
    SettingsError, which names the option and the line, at a malformed line."""
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
    """rjieba's extension module, imported without its package. The package's `__init__` loads a dictionary
    that we would not use, which costs 0.13 s at start. A later import of the package still works."""
    name = "rjieba.rjieba"
    if name not in sys.modules:
        package = importlib.util.find_spec("rjieba")
        spec = package and PathFinder.find_spec(name, package.submodule_search_locations)
        if spec and spec.loader:
            sys.modules[name] = module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
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
    """The package `jieba`, imported with its warnings and log messages silenced."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # jieba's source has invalid escapes
        import jieba
    jieba.setLogLevel(logging.WARNING)
    module: ModuleType = jieba
    return module
