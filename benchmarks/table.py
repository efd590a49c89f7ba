"""Results as a page: a table for each part, with what was asked for and whether it was met."""

from __future__ import annotations

from typing import Any

Result = dict[str, Any]  # part, case; and what is known of ours, theirs, ratio, target, sense, difference, same, note

INTRODUCTION = {
    "plain loop": "Seconds per round; ratio = loop / ours; the loop has PyTorch's default number of threads.",
    "plain loop, one thread": "The same against the loop with one thread: what `make bench-quick` looks at again.",
    "roofline": "Seconds per round, evaluation at every tenth; ratio = bare products / ours.",
    "Flower's simulation": "Seconds per round; ratio = Flower / ours.",
    "pfl-research": "Seconds per round; ratio = pfl / ours.",
    "workers": "Seconds per round; theirs is one worker; ratio = one worker / two.",
    "scaling": "Seconds per round, no evaluation.",
    "lockstep": "Processor seconds of 100 runs of each method (20 settings on 5 cuts); theirs is one by one; ratio = "
    "one by one / together. The demo and tunings: seconds.",
    "against the version before": "Seconds of what people play, on all cores; theirs is the same by the version before "
    "runs went together (benchmarks/before.py); ratio = theirs / ours.",
    "Ray": "Seconds per round; ours is the local engine with two workers, theirs Ray with two actors on this machine, "
    "which write all states to disk; ratio = Ray / local.",
    "Ray on two nodes": "Seconds per round; two nodes with an actor each, in two network namespaces; ours is Ray, "
    "theirs the local engine with two workers, both with states on disk; ratio = Ray / local.",
    "secure aggregation": "Seconds per round of three sites in one process, which take turns; ours is with secure "
    "aggregation, theirs without; ratio = with / without.",
    "a federation over NVFlare": "Seconds per round of three sites with own processes, mutual TLS, one local step; "
    "theirs is what was asked for; ratio = ours / that.",
    "a federation over Flower": "The same over a SuperLink and three SuperNodes: a new process for every message.",
}


def met(result: Result) -> bool | None:
    """Whether the target was met; None where there is none."""
    if result.get("failed"):
        return False
    if result.get("target") is None or result.get("ratio") is None:
        return None
    reached = result["ratio"] >= result["target"] if result["sense"] == ">=" else result["ratio"] <= result["target"]
    return reached and result.get("same") is not False


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _same(result: Result) -> str:
    if result.get("same") is None:
        return ""
    far = result.get("difference")
    return ("yes" if result["same"] else "NO") + ("" if far is None else f" ({far:.0e})")


def _row(result: Result) -> str:
    target = "" if result.get("target") is None else f"{result['sense']} {_number(result['target'])}"
    verdict = {None: "", True: "met", False: "**missed**"}[met(result)]
    verdict = "**failed**" if result.get("failed") else verdict
    cells = [result["case"], _same(result), _number(result.get("ours")), _number(result.get("theirs"))]
    cells += [_number(result.get("ratio")), target, verdict, result.get("note") or ""]
    return "| " + " | ".join(cells) + " |"


def page(about: dict[str, Any], results: list[Result]) -> str:
    """The whole page in Markdown."""
    lines = ["# Benchmarks", ""]
    lines += ["Written by `make bench`. Programs take turns; times are medians; only ratios should be compared.", ""]
    lines += [f"- {name}: {value}" for name, value in about.items()]
    judged = [met(r) for r in results if met(r) is not None]
    lines += [f"- targets met: {sum(judged)} of {len(judged)}", ""]
    for part in dict.fromkeys(r["part"] for r in results):
        lines += [f"## {part[0].upper()}{part[1:]}", "", INTRODUCTION.get(part, ""), ""]
        lines += ["| case | same numbers | ours | theirs | ratio | target | | |", "|---|---|---|---|---|---|---|---|"]
        lines += [_row(r) for r in results if r["part"] == part] + [""]
    return "\n".join(lines)
