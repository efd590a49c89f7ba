"""Equations as MathML, made while the pages are built: browsers show it without scripts, offline. A hook of mkdocs.

A page has `$...$` in a line, or `$$...$$` as a paragraph; pymdownx.arithmatex marks both. An equation that cannot be
read stops the build.
"""

from __future__ import annotations

import html
import re
from typing import Any

from latex2mathml.converter import convert

# With the signs before and after it that must not stand on another line.
MARKED = re.compile(r"""([("]*)<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\2>((?:-\w+)?[),.;:?"']*)""", re.S)
TIGHT = re.compile("<mo>(&#x02016;|&#x0007C;|&#x0002F;)</mo>")  # ‖ and |: browsers stretch the left one, but not the
# right one with an exponent; and /, which they set apart from what it divides
NAMES = re.compile("<mo>([a-z]{2,})</mo>")  # var, argmin, ...: browsers set them too far from their neighbours


def mathml(found: re.Match[str]) -> str:
    before, tag, kind, latex, after = found.groups()
    latex = html.unescape(latex).strip()
    made = convert(latex, display="block" if kind == "[" else "inline")
    unread = re.findall(r"\\[A-Za-z]*|(?<=<mi>)&(?=<)", made)  # what the converter does not know
    if unread:
        raise ValueError(f"the equation {latex!r} has {', '.join(unread)}, which cannot be shown")
    made = TIGHT.sub(r'<mo stretchy="false" lspace="0" rspace="0">\1</mo>', made)
    made = NAMES.sub(r'<mo lspace="0.17em" rspace="0.17em">\1</mo>', made)
    return f'<{tag} class="equation">{before}{made}{after}</{tag}>'


def on_page_content(content: str, **_: Any) -> str:
    """Called by mkdocs with each page's HTML."""
    return MARKED.sub(mathml, content)
