"""Equations as MathML, made while the pages are built: browsers show it without scripts, offline. A hook of mkdocs.

A page has `$...$` in a line, or `$$...$$` as a paragraph; pymdownx.arithmatex marks both. An equation that cannot be
read stops the build.
"""

from __future__ import annotations

import html
import re
from typing import Any

from latex2mathml.converter import convert

MARKED = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.S)
NORM = "<mo>&#x02016;</mo>"  # ‖ as converted: browsers stretch the left one, but not the right one with an exponent


def mathml(found: re.Match[str]) -> str:
    tag, kind, latex = found[1], found[2], html.unescape(found[3]).strip()
    made = convert(latex, display="block" if kind == "[" else "inline")
    unread = re.findall(r"\\[A-Za-z]*", made)  # commands that the converter does not know
    if unread:
        raise ValueError(f"the equation {latex!r} has {', '.join(unread)}, which cannot be shown")
    made = made.replace(NORM, NORM.replace("<mo>", '<mo stretchy="false" lspace="0" rspace="0">'))
    return f'<{tag} class="equation">{made}</{tag}>'


def on_page_content(content: str, **_: Any) -> str:
    """Called by mkdocs with each page's HTML."""
    return MARKED.sub(mathml, content)
