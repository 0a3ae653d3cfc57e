"""HTML templates of the demo's two sites, which present the same article in different markup."""

from __future__ import annotations

from html import escape
from typing import Final

from stream.demo.texts import Text

PAPER: Final = """<!DOCTYPE html>
<html lang="zh">
<head><meta charset="{charset}"><title>{title} - 青石晚报</title>
<style>body{{margin:0 auto;width:60em}} nav a{{margin-right:1em}}</style></head>
<body>
<header><a href="/">青石晚报</a>
<nav><a href="/news">要闻</a><a href="/city">城市</a><a href="/life">生活</a><a href="/video">视频</a></nav>
</header>
<main><article><h1>{title}</h1>
{body}
</article></main>
<footer>版权所有 青石晚报社 未经许可不得转载
<a href="/about">关于我们</a> <a href="/contact">联系方式</a></footer>
<script>window.pv = (window.pv || 0) + 1;</script>
</body></html>
"""
READER: Final = """<!DOCTYPE html>
<html><head>
<meta http-equiv="Content-Type" content="text/html; charset={charset}">
<title>{title}_好文阅读</title>
</head>
<body>
<div id="top" class="navbar"><ul class="menu"><li><a href="/">首页</a></li><li><a href="/hot">热门</a></li>
<li><a href="/login">登录</a></li><li><a href="/register">注册</a></li></ul></div>
<div class="content"><div class="post"><h1 class="post-title">{title}</h1>
<div class="post-body">
{body}
</div></div></div>
<div class="sidebar" role="complementary"><h3>猜你喜欢</h3><ul><li><a href="/1">周末去哪里</a></li>
<li><a href="/2">十道家常菜</a></li></ul></div>
<div class="footer" role="contentinfo"><a href="/app">下载客户端</a> <a href="/help">帮助中心</a></div>
</body></html>
"""
READER_TRADITIONAL: Final = READER.translate(
    str.maketrans("阅读页热门录册欢里载户帮", "閱讀頁熱門錄冊歡裡載戶幫")
)
SHELL: Final = """<!DOCTYPE html>
<html lang="zh"><head><meta charset="utf-8"><title>青石晚报</title></head>
<body><div id="app"></div><noscript>请启用脚本</noscript><script src="/assets/app.js"></script></body></html>
"""
"""A page whose text is loaded by JavaScript only."""


def render(template: str, text: Text, charset: str, *, edited: bool = False) -> bytes:
    """Render an article in a site's template and charset; with `edited`, its sentence is corrected."""
    paragraphs = text.paragraphs
    if edited:
        paragraphs = tuple(paragraph.replace(*text.edit) for paragraph in paragraphs)
    body = "\n".join(f"<p>{escape(paragraph)}</p>" for paragraph in paragraphs)
    return template.format(charset=charset, title=escape(text.title), body=body).encode(charset)
