"""Fills what the method pages take from the code: docstrings, settings and their defaults, what travels.

    python docs/fill.py            # writes the marked blocks of docs/methods/*.md anew
    python docs/fill.py --check    # says which pages are out of date, and fails if any is

A block stands between `<!-- code: NAME -->` and `<!-- end -->`. Everything else on a page is written by hand. What a
setting does is said once, in docs/settings.toml; a setting without words, or words without a setting, is an error.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from played import played

from sartor import methods, solvers
from sartor.aggregators import NAMES as RULES
from sartor.aggregators import Aggregator
from sartor.core import Method

DOCS = Path(__file__).parent
BLOCK = re.compile(r"(<!-- code: ([a-z ]+) -->\n).*?(<!-- end -->)", re.S)
WORDS: dict[str, dict[str, str]] = tomllib.loads((DOCS / "settings.toml").read_text(encoding="utf-8"))


def page(make: type[Method]) -> str:
    """A method's page is named after its file: fedper for sartor/methods/fedper.py."""
    return make.__module__.rpartition(".")[2]


def pages() -> dict[str, list[str]]:
    """Every page and the names that it is about."""
    found: dict[str, list[str]] = {}
    for name, entry in methods.NAMES.items():
        found.setdefault(page(entry.make), []).append(name)
    return found


# --- the blocks of a method's page ------------------------------------------------------------------------------------


def about(names: list[str]) -> str:
    """Names, paper, file."""
    lines = ["| name | paper | in one line | starts with |", "|---|---|---|---|"]
    for name in names:
        e = methods.NAMES[name]
        preset = ", ".join(f"`{k} = {short(v)}`" for k, v in e.preset.items()) or "its defaults"
        lines.append(f"| `{name}` | {e.paper} | {e.line} | {preset} |")
    make = methods.NAMES[names[0]].make
    return "\n".join([*lines, "", f"`st.{make.__name__}` in `sartor/methods/{page(make)}.py`."])


def equations(names: list[str]) -> str:
    """The file's docstring: what is set apart is shown as it stands, the rest is text."""
    text = (sys.modules[methods.NAMES[names[0]].make.__module__].__doc__ or "").strip()
    out = []
    for paragraph in text.split("\n\n"):
        if all(line.startswith("    ") for line in paragraph.splitlines()):
            lines = [re.sub(r" {4,}(?=\(\d+\)(, \(\d+\))*$)", "   ", line[4:]) for line in paragraph.splitlines()]
            out.append("\n".join(["```text", *lines, "```"]))
        else:
            out.append(escaped(paragraph))
    return "\n\n".join(out)


def escaped(text: str) -> str:
    """Text in which only what stands in backticks is marked up."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(p if p.startswith("`") else re.sub(r"([\\*_\[\]])", r"\\\1", p).replace("<", "&lt;") for p in parts)


def settings(names: list[str]) -> str:
    """Every field, its default, what it does."""
    make = methods.NAMES[names[0]].make
    return table_of(make, WORDS["common"] | WORDS.get(make.__name__, {}))


def table_of(make: type, words: Mapping[str, str]) -> str:
    lines = ["| setting | default | what it does |", "|---|---|---|"]
    for f in fields(make):
        default = f.default if f.default is not MISSING else f.default_factory()  # type: ignore[misc]
        lines.append(f"| `{f.name}` | `{short(default)}` | {words[f.name]} |")
    return "\n".join(lines)


def short(value: Any) -> str:
    """A default as one would write it: SGD(steps=5, reuse=True)."""
    if isinstance(value, Aggregator):
        return next(n for n, rule in RULES.items() if isinstance(value, rule))
    if type(value) in solvers.NAMES.values():
        own = [f"{f.name}={getattr(value, f.name)!r}" for f in fields(value) if getattr(value, f.name) != f.default]
        return f"{type(value).__name__}({', '.join(own)})"
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def travels(names: list[str]) -> str:
    """What is sent and kept, by playing one round; and the method's rows of the pages on newcomers and privacy."""
    each = {name: played(name) for name in names}
    facts = {what: differing({name: found[what] for name, found in each.items()}) for what in each[names[0]]}
    rule = "yes" if methods.NAMES[names[0]].make.aggregate is not None else "no"
    newcomer = row("cold-start.md", names[0])
    privacy = row("privacy.md", names[0])
    privacy = [cell.replace("see below", "[see there](../privacy.md#method-by-method)") for cell in privacy]
    lines = ["| what | here |", "|---|---|"]
    lines += [f"| {what} | {facts[what]} |" for what in facts]
    lines += [f"| another aggregator can be chosen | {rule} |"]
    lines += [f"| a [newcomer](../cold-start.md) gets | {newcomer[1]} |"]
    lines += [f"| [privacy](../privacy.md): what a client sends | {privacy[1]} |"]
    lines += [f"| noise at the server | {privacy[2]} |", f"| noise at the client | {privacy[3]} |"]
    return "\n".join(lines)


def differing(by_name: Mapping[str, str]) -> str:
    """One word where all names agree, else a word for each."""
    if len(set(by_name.values())) == 1:
        return next(iter(by_name.values()))
    return "; ".join(f"{word} (`{name}`)" for name, word in by_name.items())


def row(file: str, name: str) -> list[str]:
    """The row of a page's table of methods that begins with this name."""
    for line in (DOCS / file).read_text(encoding="utf-8").splitlines():
        cells = [c.strip() for c in line.strip().strip("|").split("|")]
        if line.startswith("|") and f"`{name}`" in cells[0]:
            return cells
    raise SystemExit(f"docs/{file} has no row for {name}.")


# --- the page about all methods ---------------------------------------------------------------------------------------


def overview(_: list[str]) -> str:
    lines = ["| method | paper | in one line | global | personal | a client sends |", "|---|---|---|---|---|---|"]
    for name, e in methods.NAMES.items():
        f = played(name)
        yes = [f["there is a global model"], f["there are personal models"]]
        cells = [f"[`{name}`]({page(e.make)}.md)", e.paper, e.line, *yes, f["a client sends"]]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def local_solvers(_: list[str]) -> str:
    out = []
    for name, make in solvers.NAMES.items():
        first = (make.__doc__ or "").strip().splitlines()[0]
        out.append(f"### `{name}`: `st.{make.__name__}`\n\n{escaped(first)}")
        if fields(make):
            out.append(table_of(make, WORDS["solvers"]))
    return "\n\n".join(out)


BLOCKS: dict[str, Callable[[list[str]], str]] = {
    "about": about,
    "equations": equations,
    "settings": settings,
    "travels": travels,
    "overview": overview,
    "solvers": local_solvers,
}
OF_A_METHOD = ("about", "equations", "settings", "travels")


def filled(text: str, names: list[str]) -> str:
    """A page with its blocks made anew."""
    return BLOCK.sub(lambda m: f"{m[1]}\n{BLOCKS[m[2]](names)}\n\n{m[3]}", text)


def complaints() -> list[str]:
    """What is missing or left over: pages, blocks, words for settings."""
    said = []
    for name, about_ in pages().items():
        path = DOCS / "methods" / f"{name}.md"
        if not path.exists():
            said.append(f"{path.name} is missing: {', '.join(about_)} has no page.")
            continue
        there = {m[2] for m in BLOCK.finditer(path.read_text(encoding="utf-8"))}
        said += [f"{path.name} lacks the block {block!r}." for block in OF_A_METHOD if block not in there]
    known = {p.stem for p in (DOCS / "methods").glob("*.md")} - {"index"}
    said += [f"{name}.md is about no method." for name in sorted(known - set(pages()))]
    return said + _words()


def _words() -> list[str]:
    """Settings that nobody explained, and explanations of none."""
    said, used = [], set()
    makes = {e.make.__name__: e.make for e in methods.NAMES.values()}
    for name, make in makes.items():
        own = WORDS.get(name, {})
        has = {f.name for f in fields(make)}
        said += [f"settings.toml explains {name}.{k}, which is no setting." for k in own if k not in has]
        said += [f"settings.toml lacks {name}.{k}." for k in has if k not in own and k not in WORDS["common"]]
        used |= has - set(own)
    said += [f"settings.toml explains {k} of no method." for k in WORDS["common"] if k not in used]
    said += [f"settings.toml has words for {k}, no method." for k in WORDS if k not in (*makes, "common", "solvers")]
    return said


def out_of_date(write: bool = False) -> list[str]:
    """The pages whose blocks differ from the code; they are written anew if asked for."""
    old = []
    for path in sorted((DOCS / "methods").glob("*.md")):
        text = path.read_text(encoding="utf-8")
        if (new := filled(text, pages().get(path.stem, []))) != text:
            old.append(path.name)
            if write:
                path.write_text(new, encoding="utf-8")
    return old


def main() -> int:
    wrong = complaints()
    changed = [] if wrong else out_of_date(write="--check" not in sys.argv)
    for line in wrong:
        print(line, file=sys.stderr)
    if changed:
        print(f"{'out of date' if '--check' in sys.argv else 'written'}: {', '.join(changed)}")
    return int(bool(wrong) or ("--check" in sys.argv and bool(changed)))


if __name__ == "__main__":
    sys.exit(main())
