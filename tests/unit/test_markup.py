"""Markup that costs parsers more than its size is read like any other: in linear time and memory."""

from __future__ import annotations

import random

import numpy as np
import pytest

from stream.text.blocks import DEPTH, END, INSIDE, LINKED, PARENT, SIZE, START, read
from stream.text.extract import extract
from tests.fuzz.decoders.html import Html

TIMES = 20_000
DISTINCT = "".join(f"<b a={number}>" for number in range(400))

TRAPS = {
    "formatting": "<p>" + DISTINCT + "<p>x" * TIMES,
    "formatting in cells": "<table><tr><td><p>" + DISTINCT + "<p>x" * TIMES,
    "adoption": "<a>".join(DISTINCT.split(">")) + "<div></b></a>x" * TIMES,
    "nesting": "<div>" * TIMES,
    "nesting in comments": "<div><!--</div>-->" * TIMES,
    "nesting in odd comments": "<div><!-- > </div> -- > <-- </div> --!>" * TIMES,
    "nesting in attributes": "<div a='</div>'>" * TIMES,
    "nesting in scripts": "<div><script></div></script>" * TIMES,
    "nesting in scripts twice": "<div><script><!--<script></script></div>--></script>" * TIMES,
    "names in a script": "<script><!--" + "<a" * 100 * TIMES,
    "no names in a script": "<script><!--" + "<" * 100 * TIMES,
    "nesting in styles": "<div><style></div></style><title></div></title>" * TIMES,
    "nesting in text fields": "<div><textarea></div></textarea>" * TIMES,
    "nesting in sections": "<div><svg><![CDATA[</svg></div>]]></svg>" * TIMES,
    "nesting in pictures": "<svg><title>" + "<div><script></div></script>" * TIMES,
    "nesting in titles of pictures": "<svg><title><title></title>" * TIMES,
    "nesting past raw text that is none": "<template><col><plaintext></template>" + "<div>" * TIMES,
    "nesting past a column": "<col><table></table><i><tr><table><td>" * TIMES,
    "nesting past an end tag": "<span><div></span></div>" * TIMES,
    "nesting past a cell": "<div><table><tr><td></div>" * TIMES,
    "nesting past a list": "<ul><li><span><p></span></p>" * TIMES,
    "many chains": ("<div>" * 900 + "x" + "</div>" * 900) * 50,
    "attributes": "<div " + " ".join(f"a{number}" for number in range(TIMES)) + ">",
    "attributes that touch": "<div " + "".join(f"a{number}=''" for number in range(TIMES)) + ">",
    "attributes of the page": "".join(f"<html a{number}>" for number in range(TIMES)),
    "options": "<select>" + "<option>x" * TIMES,
    "options after others": "<select>" + "<hr>" * TIMES + "<option>" * TIMES,
    "end tags of nothing": "<span>" * 900 + "</x>" * TIMES,
}  # fmt: skip


@pytest.mark.parametrize("name", TRAPS)
def test_what_is_read_of_a_page_is_no_larger_than_the_page(name: str) -> None:
    page = (TRAPS[name] + "<p>the text").encode()
    text, blocks, containers, *_ = read(page)
    assert len(text) <= len(page) + 1
    assert max(len(blocks), len(containers)) <= page.count(b"<") + 2
    assert (blocks[:, START] < blocks[:, END]).all()
    assert (blocks[1:, START] > blocks[:-1, END] - 1).all()
    assert (blocks[:, LINKED] <= blocks[:, SIZE]).all()
    assert (blocks[:, INSIDE] < len(containers)).all()
    assert (containers[1:, PARENT] < np.arange(1, len(containers))).all()
    assert _depth(containers[:, PARENT]) <= DEPTH
    assert len(extract(page.decode())) <= len(page)


def _depth(parents: np.ndarray) -> int:
    depths = np.zeros(len(parents), np.int64)
    for number, parent in enumerate(parents[1:], start=1):
        depths[number] = depths[parent] + 1
    return int(depths.max())


@pytest.mark.parametrize("name", TRAPS)
def test_text_after_a_trap_is_found(name: str) -> None:
    text = read((TRAPS[name] + "<p>the text").encode()).text.tobytes().decode().split()
    assert text[-2:] == ["the", "text"] or any(
        each in name for each in ("script", "picture", "option", "raw text")
    )


@pytest.mark.parametrize("seed", range(20))
def test_any_soup_of_tags_gives_a_text(seed: int) -> None:
    chosen, html = random.Random(seed), Html()
    for _ in range(40):
        html.check(html.make(chosen) * chosen.choice((1, 40)))


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("a<b>b</b>c", "abc"),
        (
            "<p title='>'>x &amp; y&nbsp;z &#65;&#x42; &unknown; &#99999999999;",
            "x & y z AB &unknown; &#99999999999;",
        ),
        ("<script>if (a<b) '</p>'</script>x<style>p</style>y<title>t</title>z", "xyz"),
        ("<!-- <p> -->x<!doctype html>y<?z?><![CDATA[q]]>", "xy"),
        ("1 < 2 <3 </ 4>5", "1 < 2 <3 5"),
        ("x<plaintext>a</plaintext> &amp;<b>", "x a</plaintext> &amp;<b>"),
        ("x<xmp><b>a</b> &lt; b &amp;</XMP >&lt;y", "x <b>a</b> &lt; b &amp; <y"),
        ("<template><xmp>a</xmp><plaintext>b", ""),
        ("<svg><xmp/></svg>x", "x"),
        ("x<noscript>a<!-- </noscript>y--><noscript><div>b</noscript>z<noscript>c", "xy-->z"),
        ("<iframe>a</iframe>x<noembed>b</noembed>y<noframes>c</noframes>z", "xyz"),
        ("<a-b><template shadowrootmode=open><p>x</p></template></a-b>", "x"),
        ("<a-b><template a SHADOWROOTMODE = 'Closed'>x</template>y</a-b>", "x y"),
        ("<template>a<template shadowrootmode=open>b</template></template>x", "x"),
        ("<template shadowrootmode=half>a</template>x<template shadowrootmod=open>b</template>y", "x y"),
        ("<template shadowrootmodel=open>a</template>x<svg shadowrootmode=open>b</svg>y", "x y"),
        ("<template shadowrootmode='open", ""),
        ("灯塔<br>é<p", "灯塔 é"),
        ("", ""),
    ],
)
def test_text_has_no_markup(page: str, text: str) -> None:
    assert extract(page).split() == text.split()
