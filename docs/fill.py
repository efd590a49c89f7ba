"""Fills what pages take from the code: docstrings, settings and their defaults, what travels, tables of all methods.

    python docs/fill.py            # writes the marked blocks anew
    python docs/fill.py --check    # says which files are out of date, and fails if any is

A block stands between `<!-- code: NAME -->` and `<!-- end -->` (mkdocs.yml: `# code: NAME`, `# end`). Everything else
on a page is written by hand. What a method's file says about it (sartor/methods/entries.py) is said nowhere else; words
for settings that many methods have are in docs/settings.toml. A setting without words, or words without a setting, is
an error. The public names in sartor/methods/__init__.pyi and sartor/__init__.pyi are written here, too.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields
from doctest import DocTestParser
from pathlib import Path
from typing import Any

from played import played

from sartor import methods, solvers
from sartor.aggregators import NAMES as RULES
from sartor.aggregators import Aggregator
from sartor.methods.entries import public
from sartor.run.named_parts import method_from

DOCS = Path(__file__).parent
ROOT = DOCS.parent
FIT = "../api/index.md#sartor.run.play.fit"
STUB = ROOT / "sartor" / "methods" / "__init__.pyi"
PUBLIC = ROOT / "sartor" / "__init__.pyi"  # where methods are a block among other names
BLOCK = re.compile(r"((?:<!-- code: ([a-z ]+) -->|# code: ([a-z ]+))\n).*?( *(?:<!-- end -->|# end))", re.S)
WORDS: dict[str, dict[str, str]] = tomllib.loads((DOCS / "settings.toml").read_text(encoding="utf-8"))


def pages() -> dict[str, list[str]]:
    """Every page and the names that it is about. A method's page is named after its file."""
    found: dict[str, list[str]] = {}
    for name, entry in methods.NAMES.items():
        found.setdefault(entry.file, []).append(name)
    return found


# --- the blocks of a method's page ------------------------------------------------------------------------------------


def about(names: list[str]) -> str:
    """Names, paper, file."""
    lines = ["| name | paper | in one line | starts with |", "|---|---|---|---|"]
    for name in names:
        e, made = methods.NAMES[name], method_from(name, {})
        preset = ", ".join(f"`{k} = {short(getattr(made, k))}`" for k in e.preset) or "its defaults"
        lines.append(f"| `{name}` | {e.paper} | {e.line} | {preset} |")
    shown = example(e.make)
    begun = f"; `model` and `clients` as in [`st.fit`]({FIT})" if any(" clients," in line for line in shown) else ""
    where = f"`st.{e.class_name}` in `sartor/methods/{e.file}.py`{begun}{':' if shown else '.'}"
    return "\n".join([*lines, "", where, *(["", "```python", *shown, "```"] if shown else [])])


def example(make: type) -> list[str]:
    """The example of a docstring as one would write it, what it gives as comments."""
    parts = DocTestParser().get_examples(make.__doc__ or "")
    return [line for e in parts for line in (*e.source.splitlines(), *(f"# {said}" for said in e.want.splitlines()))]


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
    entry = methods.NAMES[names[0]]
    return table_of(entry.make, {**WORDS["common"], **entry.settings})


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
    """What is sent and kept, by playing one round; what newcomers get; what can be made private."""
    rule = "yes" if methods.NAMES[names[0]].make.aggregate is not None else "no"
    each = {}
    for name in names:
        e = methods.NAMES[name]
        each[name] = played(name) | {
            "the scored personal model is": scored(name),
            "`--local-steps N` is": split(name),
            "another aggregator can be chosen": rule,
            "a [newcomer](../cold-start.md) gets": e.cold_start,
            "[privacy](../privacy.md): what a client sends": e.privacy["sends"],
            "noise at the server": e.privacy["server"],
            "noise at the client": e.privacy["client"],
        }
    facts = {what: differing({name: found[what] for name, found in each.items()}) for what in each[names[0]]}
    return "\n".join(["| what | here |", "|---|---|", *(f"| {what} | {said} |" for what, said in facts.items())])


def scored(name: str) -> str:
    """Which model is scored as the personal one."""
    return methods.NAMES[name].personal if played(name)["there are personal models"] == "yes" else "none"


def differing(by_name: Mapping[str, str]) -> str:
    """One word where all names agree, else the names of each."""
    names: dict[str, list[str]] = {}
    for name, word in by_name.items():
        names.setdefault(word, []).append(f"`{name}`")
    return "; ".join(word if len(names) == 1 else f"{word} ({', '.join(those)})" for word, those in names.items())


# --- about all methods ------------------------------------------------------------------------------------------------


def overview(_: list[str]) -> str:
    lines = ["| method | paper | in one line | global | personal | a client sends |", "|---|---|---|---|---|---|"]
    for name, e in methods.NAMES.items():
        f = played(name)
        yes = [f["there is a global model"], f["there are personal models"]]
        cells = [f"[`{name}`]({e.file}.md)", e.paper, e.line, *yes, f["a client sends"]]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def split(name: str) -> str:
    """How a given number of gradients is split; or why it cannot be given."""
    method = method_from(name, {})
    if why := method.unsplit():
        return f"not possible: {why}"
    tuned = "; N more to fine-tune" if hasattr(getattr(method, "finetune", None), "lasting") else ""
    return (methods.NAMES[name].local_steps or "N steps of its solver") + tuned


def steps(_: list[str]) -> str:
    rows = together((name, (split(name),)) for name in methods.NAMES)
    return "\n".join(["| method | N gradients per client and round |", "|---|---|", *rows])


def newcomers(_: list[str]) -> str:
    rows = together((name, (e.cold_start,)) for name, e in methods.NAMES.items())
    return "\n".join(["| method | a newcomer gets |", "|---|---|", *rows])


def private(_: list[str]) -> str:
    keys = ("sends", "server", "client")
    rows = together((name, tuple(e.privacy[k] for k in keys)) for name, e in methods.NAMES.items())
    head = "| method | what a client sends | noise at the server | at the client |"
    return "\n".join([head, "|---|---|---|---|", *rows])


def together(said: Iterable[tuple[str, tuple[str, ...]]]) -> list[str]:
    """A row for all methods of which the same is said."""
    names: dict[tuple[str, ...], list[str]] = {}
    for name, cells in said:
        names.setdefault(cells, []).append(f"`{name}`")
    return [f"| {', '.join(those)} | {' | '.join(cells)} |" for cells, those in names.items()]


def navigation(_: list[str]) -> str:
    lines = (f"- {methods.NAMES[names[0]].title}: methods/{file}.md" for file, names in pages().items())
    return "\n".join(" " * 10 + line for line in lines)


def stub() -> str:
    """The names of sartor.methods, for those who read it without running it."""
    files: dict[str, list[str]] = {"entries": ["NAMES", "Entry", "entry"]}
    for name, file in public().items():
        files.setdefault(file, []).append(name)
    lines = [f"from .{file} import {', '.join(_sorted(own))}" for file, own in sorted(files.items())]
    names = [f'    "{name}",' for name in _sorted(name for own in files.values() for name in own)]
    return "\n".join(["# Written by docs/fill.py.", *lines, "", "__all__ = [", *names, "]", ""])


def public_stub(text: str) -> str:
    """The names of sartor, with the methods that there are, and `__all__`."""
    own = "".join(f"    {name},\n" for name in sorted(public(), key=lambda name: (not name.isupper(), name.lower())))
    text = re.sub(r"from \.methods import \(\n.*?\)\n", f"from .methods import (\n{own})\n", text, flags=re.S)
    tree = ast.parse(text)
    names = [a.asname or a.name for node in tree.body if isinstance(node, ast.ImportFrom) for a in node.names]
    listed = "".join(f'    "{name}",\n' for name in _sorted(names))
    return re.sub(r"__all__ = \[\n.*?\]\n", f"__all__ = [\n{listed}]\n", text, flags=re.S)


def _sorted(names: Iterable[str]) -> list[str]:
    """As ruff sorts them."""
    return sorted(names, key=lambda name: (not name.isupper(), name))


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
    "newcomers": newcomers,
    "local steps": steps,
    "private": private,
    "navigation": navigation,
    "solvers": local_solvers,
}
OF_A_METHOD = ("about", "equations", "settings", "travels")


def filled(text: str, names: list[str]) -> str:
    """A page with its blocks made anew."""

    def anew(m: re.Match[str]) -> str:
        if m[3]:  # in YAML
            return f"{m[1]}{BLOCKS[m[3]](names)}\n{m[4]}"
        return f"{m[1]}\n{BLOCKS[m[2]](names)}\n\n{m[4]}"

    return BLOCK.sub(anew, text)


def complaints() -> list[str]:
    """What is missing or left over: pages, blocks, words for settings."""
    said = []
    for name, about_ in pages().items():
        path = DOCS / "methods" / f"{name}.md"
        if not path.exists():
            said.append(f"{path.name} is missing: {', '.join(about_)} has no page.")
            continue
        text = path.read_text(encoding="utf-8")
        there = {m[2] for m in BLOCK.finditer(text)}
        said += [] if "\n$$" in text else [f"{path.name} has no equation set as mathematics ($$...$$)."]
        said += [f"{path.name} lacks the block {block!r}." for block in OF_A_METHOD if block not in there]
    known = {p.stem for p in (DOCS / "methods").glob("*.md")} - {"index"}
    said += [f"{name}.md is about no method." for name in sorted(known - set(pages()))]
    return said + _words()


def _words() -> list[str]:
    """Facts that a method's file lacks; settings that nobody explained, and explanations of none."""
    said, used = [], set()
    for name, e in methods.NAMES.items():
        lacks = [k for k in ("sends", "server", "client") if k not in e.privacy]
        lacks += [] if scored(name) else ["personal"]
        lacks += [k for k in ("cold_start", "cite") if not getattr(e, k) and not (k == "cite" and e.paper == "-")]
        said += [f"{e.file}.py says no {k!r} for {name}." for k in lacks]
    for file, names in pages().items():
        own, has = methods.NAMES[names[0]].settings, {f.name for f in fields(methods.NAMES[names[0]].make)}
        said += [f"{file}.py explains {k}, which is no setting." for k in own if k not in has]
        said += [f"{file}.py does not explain {k}." for k in has if k not in own and k not in WORDS["common"]]
        used |= has - set(own)
    return said + [f"settings.toml explains {k} of no method." for k in WORDS["common"] if k not in used]


def out_of_date(write: bool = False) -> list[str]:
    """The files whose blocks differ from the code; they are written anew if asked for."""
    some = [DOCS / name for name in ("cold-start.md", "comparing.md", "privacy.md")]
    files = [*sorted((DOCS / "methods").glob("*.md")), *some, ROOT / "mkdocs.yml"]
    old = []
    for path in [*files, STUB, PUBLIC]:
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        made = {STUB: lambda _: stub(), PUBLIC: public_stub}.get(path)
        new = filled(text, pages().get(path.stem, [])) if made is None else made(text)
        if new != text:
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
