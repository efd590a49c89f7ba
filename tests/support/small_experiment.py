"""A small experiment on the embedded digits, with printed numbers, a grid, a quick size and authors' switches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

PUBLISHED = """
paper = "FLAME"
citation = "-"
where = "Table 0"
measure = "accuracy"
unit = "percent"
notes = []
differs.synthetic = "drawn anew"
[[cells]]
dataset = "digits"
partition = "labels(k=3)"
method = "flame"
model = "personal"
value = 95.0
std = 1.0
row = "FLAME-PM"
[[cells]]
dataset = "digits"
partition = "labels(k=3)"
method = "flame"
model = "global"
value = 5.0
row = "FLAME-GM"
[[cells]]
dataset = "digits"
partition = "labels(k=3)"
method = "flame"
model = "chosen"
value = 99.9
row = "FLAME-HM"
[[cells]]
dataset = "digits"
partition = "labels(k=3)"
method = "ditto"
lam = "best"
model = "personal"
value = 95.0
row = "Ditto"
[[cells]]
dataset = "digits"
partition = "labels(k=3)"
method = "ditto"
lam = 0.5
model = "personal"
value = 95.0
row = "Ditto 0.5"
[[cells]]
dataset = "CelebA"
available = false
partition = "natural"
method = "ditto"
model = "personal"
value = 91.0
row = "Ditto, CelebA"
[[claims]]
text = "all is well"
where = "Sec. 1"
orders = [[{ model = "personal", method = "flame" }, { model = "global", method = "flame" }]]
"""
SMALL = """
title = "A small experiment"
seeds = [0, 1]
remarks = ["Plain words."]
figure = "agreement"
[read]
round = "best"
[run]
clients = 5
rounds = 3
evaluate_every = 1
model = "softmax"
[run.solver]
lr = 0.1
batch = 20
[methods.flame]
anchor = "local"
lam = 0.5
rho = 0.1
[tune.ditto]
by = "personal"
lam = [0.01, 0.5]
[authors]
why = "the anchor is global"
[authors.read]
round = "best-test"
choice = "test"
[authors.methods.flame]
anchor = "global"
[quick]
only = { method = ["flame"] }
[quick.run]
rounds = 2
"""


def write(folder: Path, text: str = SMALL, published: str = PUBLISHED, name: str = "small") -> Path:
    (folder / "published").mkdir(parents=True, exist_ok=True)
    (folder / "published" / f"{name}.toml").write_text(published, encoding="utf-8")
    (folder / f"{name}.toml").write_text(text, encoding="utf-8")
    return folder / f"{name}.toml"


def table(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "table.json").read_text())
    return found


def times(folder: Path) -> dict[str, int]:
    return {p.name: p.stat().st_mtime_ns for p in (folder / "runs").glob("*.json")}
