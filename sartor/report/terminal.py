"""Tables and progress for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table


def progress(console: Console) -> Progress:
    """A live progress display; silent where the output is not a terminal."""
    return Progress(
        TextColumn("{task.description:<24}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
        TextColumn("left"), TimeRemainingColumn(), TextColumn("{task.fields[note]}"),
        console=console, transient=True, disable=not console.is_terminal,
    )


def cell(model: dict[str, Any] | None) -> str:
    """mean ± std over clients, and the worst tenth."""
    if model is None:
        return "-"
    return f"{model['accuracy_mean']:.3f} ±{model['accuracy_std']:.3f} {model['accuracy_worst10']:.3f}"


def megabytes(count: float | None) -> str:
    """Bytes as megabytes, short."""
    if count is None:
        return "-"
    mb = count / 1e6
    return f"{mb:.0f}" if mb >= 100 else f"{mb:.1f}" if mb >= 1 else f"{mb:.2g}"


def comparison(rows: Sequence[dict[str, Any]]) -> Table:
    """A row per method: accuracy of the three models, who gains and loses against local training, bytes, seconds."""
    best = max((r["chosen"]["accuracy_mean"] for r in rows if r["chosen"]), default=None)
    table = Table(title="test accuracy over clients: mean ± standard deviation, worst 10%", title_justify="left", pad_edge=False)
    table.add_column("method", no_wrap=True)
    for name in ("global model", "personal model", "chosen model"):
        table.add_column(name, no_wrap=True)
    table.add_column("vs local", no_wrap=True)
    for name in ("MB up", "MB down", "s"):
        table.add_column(name, justify="right", no_wrap=True)
    for r in rows:
        if r["chosen"] is None:
            table.add_row(r["method"], "failed", "-", "-", "-", "-", "-", "-", style="red")
            continue
        against = "-" if r["gain"] is None else f"+{r['gain']} −{r['lose']} of {r['of']}"
        mark = " *" if r["chosen"]["accuracy_mean"] == best else ""
        table.add_row(r["method"], cell(r["global"]), cell(r["personal"]), cell(r["chosen"]) + mark, against,
                      megabytes(r["bytes_up"]), megabytes(r["bytes_down"]), f"{r['seconds']:.1f}",
                      style="bold" if mark else "")
    return table


def explain(rows: Sequence[dict[str, Any]], seeds: int) -> str:
    """What the columns mean, and what went wrong."""
    lines = [f"Mean over {seeds} seed{'s' if seeds > 1 else ''}. chosen: per client the better of the two on its validation data. "
             "vs local: clients (over all seeds) whose chosen model is better (+) or worse (−) than training alone. * best chosen mean."]
    for r in rows:
        lines += [f"{r['method']} failed, {e}" for e in r["errors"]]
        lines += [f"warning, {r['method']}: {w}" for w in r["warnings"]]
    return "\n".join(lines)


def per_client(clients: Sequence[dict[str, Any]], most: int = 20) -> Table:
    """A row per client of one run."""
    table = Table(title="test accuracy per client", title_justify="left", pad_edge=False)
    table.add_column("client")
    for name in ("train", "validation", "test", "global", "personal", "chosen"):
        table.add_column(name, justify="right")
    table.add_column("takes")
    for row in clients[:most]:
        scores = [row.get(f"{m}_test_accuracy") for m in ("global", "personal", "chosen")]
        table.add_row(row["name"], *(str(row[p]) for p in ("train", "validation", "test")),
                      *("-" if s is None else f"{s:.3f}" for s in scores), row["chosen"])
    if len(clients) > most:
        table.add_row(f"... {len(clients) - most} more in clients.json", *[""] * 7)
    return table


def one_line(summary: dict[str, Any]) -> str:
    """A run in one line."""
    models = ", ".join(f"{m} {summary[m]['accuracy_mean']:.3f} (worst 10% {summary[m]['accuracy_worst10']:.3f})"
                       for m in ("global", "personal", "chosen") if summary[m])
    return (f"{summary['method']} after {summary['rounds']} rounds: {models or 'no test data'}; {megabytes(summary['bytes_up'])} MB up, "
            f"{megabytes(summary['bytes_down'])} MB down, {summary['seconds']:.1f} s")
