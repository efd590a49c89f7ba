"""axe-core, which finds what keeps people with a keyboard or a screen reader from using a page."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from chromium import Page

PLACE = Path(__file__).parents[2] / "build" / "axe" / "axe.min.js"
MISSING = "no axe-core: make axe, or say where axe.min.js is in $SARTOR_AXE"
# Every rule but those that are best practice only; what is said of a page that cannot be decided is not a finding.
_RUN = """axe.run(document, {resultTypes: ['violations']}).then((found) => found.violations.map((rule) =>
    ({id: rule.id, impact: rule.impact, where: rule.nodes.map((node) => node.target.join(' ')).slice(0, 5)})))"""


def find() -> Path | None:
    """Where axe-core's script is; None: nowhere."""
    path = Path(os.environ.get("SARTOR_AXE") or PLACE)
    return path if path.is_file() else None


def findings(page: Page) -> list[dict[str, Any]]:
    """What axe-core finds in the page as it is now, folded parts opened."""
    script = find()
    assert script is not None, MISSING
    page.run("document.querySelectorAll('details').forEach((part) => { part.open = true })")
    page.run(script.read_text(encoding="utf-8") + ";0")
    found: list[dict[str, Any]] = page.run(_RUN)
    return found


def grave(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those that are serious or critical."""
    return [one for one in found if one["impact"] in ("serious", "critical")]
