"""The group `sartor federation`, whose commands are in federation.py and federation_keys.py."""

from __future__ import annotations

import importlib.util

import typer

from ..errors import need, see
from .console import app

federation = typer.Typer(help="Prepare a real federation, show its progress, export its models.")
app.add_typer(federation, name="federation")


def needs_nvflare() -> None:
    """Refuse where it is not installed."""
    have = importlib.util.find_spec("nvflare") is not None
    need(have, "a real federation needs NVFlare: pip install 'sartor[nvflare]'." + see("extras"))
