"""The table that opens docs/reproductions.md: every claim that a paper makes in its text about its experiments, and
whether it holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ...storage import read_json, write_json
from .experiment import FOLDER, Claim, Experiment, read
from .verdicts import FAILS, HOLDS, ONLY, OPEN, RULE, Verdict, decided

THEORY = FOLDER / "theory.json"
PAPERS = ("FLAME", "FedAMP", "pFedMe", "Lp-Proj", "Ditto")


class DecidedClaim(NamedTuple):
    """A claim with its place and what was decided."""

    paper: str
    number: int
    file: str  # of published/, and the name of the experiment
    claim: Claim
    decision: Verdict


def record_theory(reports: Mapping[str, Mapping[str, Any]], path: Path = THEORY) -> Path:
    """Keep what checks of `sartor theory` found, beside what is kept of other checks."""
    kept = dict(read_json(path)) if path.exists() else {}
    for name, report in reports.items():
        rows = [{k: row[k] for k in ("what", "relation", "theory", "measured", "agrees")} for row in report["rows"]]
        kept[name] = {"agrees": report["agrees"], "verdict": report["verdict"], "rows": rows}
    write_json(path, dict(sorted(kept.items())))
    return path


def files(folder: Path = FOLDER) -> list[tuple[str, dict[str, Any]]]:
    """The published files by name."""
    return [(p.stem, read(p)[1]) for p in sorted((folder / "published").glob("*.toml"))]


def entries(
    known: Mapping[str, Experiment], stored: Callable[[str], Sequence[Mapping[str, Any]]], folder: Path = FOLDER
) -> list[DecidedClaim]:
    """Every claim of the published files, paper by paper."""
    theory = read_json(folder / "theory.json") if (folder / "theory.json").exists() else {}
    found: list[DecidedClaim] = []
    counts: Counter[str] = Counter()
    for paper in PAPERS:
        for name, file in files(folder):
            for raw in file.get("claims", []) if file["paper"] == paper else []:
                claim = Claim.model_validate(raw)
                counts[paper] += 1
                decision = decided(claim, known.get(name), stored(name), theory)
                if claim.fair and (experiment := known.get(claim.fair)) is not None:
                    decision = decision.with_fair(decided(claim, experiment, stored(claim.fair), theory), claim.fair)
                found.append(DecidedClaim(paper, counts[paper], name, claim, decision))
    return found


def markdown(found: list[DecidedClaim], sections: set[str]) -> str:
    """The table, how many are decided, and the rule."""
    lines = ["| | where | the paper says | verdict | by |", "|---|---|---|---|---|"]
    for e in found:
        where = f"[{e.claim.where}](#{e.file})" if e.file in sections else e.claim.where
        words = [f"{e.paper} {e.number}", where, f"“{e.claim.text}”", f"**{e.decision.verdict}**", e.decision.detail]
        lines.append("| " + " | ".join(w.replace("|", "\\|") for w in words) + " |")
    kinds = Counter(_kind(e.decision.verdict) for e in found)
    counted = ", ".join(f"{kinds[k]} {words}" for k, words in _KINDS.items() if kinds[k])
    share = kinds[OPEN] / max(len(found), 1)
    return "\n".join([*lines, "", f"Of {len(found)} claims: {counted} ({share:.0%} not decided).", "", RULE, ""])


_KINDS = {HOLDS: "hold", ONLY: "hold only with what is said", FAILS: "fail", OPEN: "not decided"}


def _kind(verdict: str) -> str:
    return next(k for k in (ONLY, HOLDS, FAILS, OPEN) if verdict.startswith(k))
