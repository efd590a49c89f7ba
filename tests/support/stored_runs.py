"""Stored folders of each version, in tests/federation/stored: a federation in the middle of its run, a private site.

    python tests/support/stored_runs.py

Done once for each version, and never again: later versions must read what this one wrote.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from sites import NAMES, QUICK, Federation, tables

from sartor import __version__
from sartor.run.recipe import Recipe

STORED = Path(__file__).parents[1] / "federation" / "stored"
ROUNDS, PLAYED = 4, 2
PLAIN = Recipe(method="flame", **QUICK | {"rounds": ROUNDS, "evaluate_every": 2})
PRIVATE = PLAIN.replace(dp_noise=2.0, dp_where="client")


def main() -> None:
    """Stopped after some rounds, as by a kill."""
    folder = STORED / __version__
    folder.mkdir()
    paths = tables(folder / "tables")
    for name, recipe in (("plain", PLAIN), ("private", PRIVATE)):
        fed = Federation(folder / name, recipe, paths)
        for result in fed.lead(fed.calls()).play():
            if result.run.round == PLAYED:
                break
    for name in ("server", *NAMES[1:]):
        shutil.rmtree(folder / "private" / name)  # one private site is enough


if __name__ == "__main__":
    main()
