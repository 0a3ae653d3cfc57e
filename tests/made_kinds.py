"""Pages of made words of many kinds, with what their text must have and must not have."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Final, NamedTuple

from tests.made_posts import LANGUAGES, framed, sentences, words

SCRIPTS: Final = ("en", "ru", "el", "ar", "he", "hi", "ja", "zh")
THEMES: Final = 3


class Made(NamedTuple):
    """A page."""

    html: str
    has: list[str]
    """Passages of its text."""
    lacks: list[str]
    """What stands around its text."""


class Maker:
    """Makes passages of a language, and elements as a theme names them."""

    def __init__(self, code: str, theme: int, seed: int) -> None:
        self.language, self.theme, self._seeds = LANGUAGES[code], theme, count(seed * 1000)
        self.has: list[str] = []
        self.lacks: list[str] = []

    def text(self, size: int) -> str:
        """A passage of so many words that belongs to the text."""
        self.has.append(sentences(self.language, size, next(self._seeds)).strip())
        return self.has[-1]

    def name(self, size: int = 2) -> str:
        """Some words that may belong to the text or not."""
        return " ".join(words(self.language, size, next(self._seeds)))

    def around(self, size: int = 4) -> str:
        """Some words that do not belong to the text."""
        self.lacks.append(self.name(size))
        return self.lacks[-1]

    def part(self, name: str, content: str) -> str:
        """An element: a section, a division of that class, or a nameless one."""
        if self.theme == 0:
            return f"<section class='{name}'>{content}</section>"
        return f"<div class='{name}'>{content}</div>" if self.theme == 1 else f"<div>{content}</div>"

    def links(self, name: str, number: int) -> str:
        """A box of links to other pages."""
        listed = "".join(f"<li><a href='/{i}'>{self.around()}</a></li>" for i in range(number))
        return self.part(name, f"<h3>{self.name()}</h3><ul>{listed}</ul>")


def _parts(number: int, make: Callable[[], str]) -> str:
    return "".join(make() for _ in range(number))


def news(m: Maker) -> str:
    lead = f"<p class='lead'><b>{m.text(25)}</b></p>" if m.theme == 1 else f"<p>{m.text(25)}</p>"
    return lead + _parts(5, lambda: f"<p>{m.text(50)}</p>") + m.links("related", 6)


def forum(m: Maker) -> str:
    def post() -> str:
        return m.part("post", f"<p><a href='/u'>{m.name()}</a></p><div>{m.text(35)}</div>")

    return _parts(6, post)


def question(m: Maker) -> str:
    asked = m.part("question", f"<p>{m.text(40)}</p><p>{m.text(20)}</p>")
    return asked + _parts(3, lambda: m.part("answer", f"<p>{m.text(45)}</p><p>{m.name()}</p>"))


def manual(m: Maker) -> str:
    def chapter() -> str:
        return f"<h2>{m.name(3)}</h2><p>{m.text(40)}</p><pre>{m.name(6)}</pre><p>{m.text(15)}</p>"

    return _parts(4, chapter)


def shop(m: Maker) -> str:
    description = f"<div class='description'><p>{m.text(60)}</p><p>{m.text(30)}</p></div>"
    return m.part("product", f"<p>12.50</p>{description}") + m.links("related products", 8)


def listing(m: Maker) -> str:
    def entry() -> str:
        return m.part("entry", f"<h2><a href='/e'>{m.name(4)}</a></h2><p>{m.text(25)}</p>")

    return _parts(8, entry)


def recipe(m: Maker) -> str:
    ingredients = _parts(6, lambda: f"<li>{m.name(3)}</li>")
    steps = _parts(5, lambda: f"<li>{m.text(25)}</li>")
    return f"<p>{m.text(30)}</p><ul>{ingredients}</ul><ol>{steps}</ol>"


def table(m: Maker) -> str:
    heads = _parts(3, lambda: f"<th>{m.name()}</th>")
    rows = _parts(12, lambda: f"<tr><td>{m.name(1)}</td><td>{m.text(8)}</td><td>42</td></tr>")
    return f"<p>{m.text(30)}</p><table><tr>{heads}</tr>{rows}</table>"


def mail(m: Maker) -> str:
    lines = "\n\n".join(m.text(size) for size in (30, 60, 20))
    return f"<ul><li>{m.name()}</li><li>{m.name()}</li></ul><pre>{lines}</pre>"


def terms(m: Maker) -> str:
    return f"<p>{m.text(30)}</p><ol>{_parts(8, lambda: f'<li><p>{m.text(30)}</p></li>')}</ol>"


KINDS: Final = (news, forum, question, manual, shop, listing, recipe, table, mail, terms)


def made(kind: Callable[[Maker], str], code: str, theme: int, seed: int = 1) -> Made:
    """A page of a kind in a language and a theme."""
    maker = Maker(code, theme, seed)
    content = kind(maker)
    title, menu = maker.name(4), [maker.around(2) for _ in range(6)]
    return Made(framed(theme, title, content, menu), maker.has, maker.lacks)


def every(seed: int = 1) -> Iterator[tuple[str, str, int, Made]]:
    """All kinds in all scripts and themes: kind, code of the language, theme and page."""
    for kind in KINDS:
        for code in SCRIPTS:
            for theme in range(THEMES):
                yield kind.__name__, code, theme, made(kind, code, theme, seed)
