"""Tables and progress for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

MODELS = ("global", "personal", "chosen")
ORACLE = "oracle (chosen on TEST data, only to compare with papers)"


def progress(console: Console) -> Progress:
    """A live progress display; silent where the output is not a terminal."""
    return Progress(
        TextColumn("{task.description:<21}", markup=False),
        BarColumn(None),
        MofNCompleteColumn(),
        TimeRemainingColumn(compact=True),
        TextColumn("left  {task.fields[note]:<12}"),
        console=console,
        transient=True,
        disable=not console.is_terminal,
        expand=True,
    )


def note(history: Sequence[dict[str, Any]]) -> str:
    """How well it goes, for the progress display."""
    last = history[-1]["chosen"] if history else None
    return f"chosen {last['accuracy_mean']:.3f}" if last else ""


def done(summary: dict[str, Any]) -> str:
    """A finished cell of a comparison, for logs."""
    name = f"{summary['method']}, seed {summary['seed']}"
    if "error" in summary:
        return f"{name}: failed, {summary['error']}"
    return f"{name}: {note([summary]) or 'no test data'}, {summary['seconds']:.1f} s"


def number(value: float | None) -> str:
    """Three digits, or a dash."""
    return "-" if value is None else f"{value:.3f}"


def cell(model: dict[str, Any] | None) -> str:
    """The mean over clients, ± the standard deviation, and the worst tenth."""
    if model is None:
        return "-"
    return f"{model['accuracy_mean']:.3f} ±{model['accuracy_std']:.2f} {model['accuracy_worst10']:.3f}"


def megabytes(count: float | None) -> str:
    """Bytes as megabytes, short."""
    if count is None:
        return "-"
    mb = count / 1e6
    return f"{mb:.0f}" if mb >= 100 else f"{mb:.1f}" if mb >= 1 else f"{mb:.2g}"


def against(row: dict[str, Any]) -> str:
    """How many clients gain and lose against local training."""
    return "-" if row["gain"] is None else f"+{row['gain']} −{row['lose']}"


def comparison(rows: Sequence[dict[str, Any]], console: Console) -> Table:
    """Accuracy of the three models of each method, who gains and loses against local training, bytes, seconds.

    A row per method where the console is wide enough for it, else a row per model.
    """
    table = _comparison(rows, wide=True)
    needed = console.measure(table, options=console.options.update(width=1000)).maximum
    return table if needed <= console.width else _comparison(rows, wide=False)


def _comparison(rows: Sequence[dict[str, Any]], wide: bool) -> Table:
    best = max((r["chosen"]["accuracy_mean"] for r in rows if r["chosen"]), default=None)
    table = _table("test accuracy over clients (R² for regression)")
    table.add_column("method", no_wrap=True)
    for name in [f"{m}\nmean   ±std worst" for m in MODELS] if wide else ["model", "mean", "std", "worst"]:
        table.add_column(name, no_wrap=True, justify="left" if wide or name == "model" else "right")
    for name in ("vs\nlocal", "MB\nup", "MB\ndown", "s"):
        table.add_column(name, justify="right", no_wrap=True)
    for r in rows:
        seconds = "-" if r["seconds"] is None else f"{r['seconds']:.1f}"
        cost = [against(r), megabytes(r["bytes_up"]), megabytes(r["bytes_down"]), seconds]
        star = "*" if r["chosen"] and r["chosen"]["accuracy_mean"] == best else ""
        look = "red" if not r["seeds"] else "bold" if star else ""
        for line in (_one_row if wide else _row_per_model)(r, cost, star):
            table.add_row(*line, style=look)
    return table


def _table(title: str) -> Table:
    return Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))


def _one_row(r: dict[str, Any], cost: list[str], star: str) -> list[list[str]]:
    words = [cell(r[m]) for m in MODELS] if r["seeds"] else ["failed", "failed", "failed"]
    return [[r["method"], *words[:-1], words[-1] + star, *cost]]


def _row_per_model(r: dict[str, Any], cost: list[str], star: str) -> list[list[str]]:
    """A row for each model that the method has; the costs stand in the last one."""
    fields = ("accuracy_mean", "accuracy_std", "accuracy_worst10")
    lines = [[m, *(number(r[m][k]) for k in fields)] for m in MODELS if r[m]]
    lines = lines or [["-" if r["seeds"] else "failed", "-", "-", "-"]]
    lines[-1][0] += star
    names, costs = [r["method"]] + [""] * len(lines), [[""] * len(cost)] * (len(lines) - 1) + [cost]
    return [[name, *line, *own] for name, line, own in zip(names, lines, costs, strict=False)]


def explain(rows: Sequence[dict[str, Any]], seeds: int) -> str:
    """What the columns mean, and what went wrong."""
    of = max((r["of"] or 0 for r in rows), default=0)
    lines = [
        f"Mean over {seeds} seed{'s' if seeds > 1 else ''}; std: over clients; worst: the worst 10% of clients; "
        "chosen: per client the better of its two models on validation data; *: the best."
    ]
    if of:
        lines.append(
            f"vs local: of {of} clients over all seeds, how many are better (+) and worse (−) off with their "
            "chosen model than alone."
        )
    for r in rows:
        lines += [f"{r['method']} failed, {e}" for e in r["errors"]]
        lines += [f"warning, {r['method']}: {w}" for w in r["warnings"]]
    return "\n".join(lines)


def per_client(clients: Sequence[dict[str, Any]], most: int = 20) -> Table:
    """A row per client of one run."""
    table = _table("test accuracy per client (R² for regression)")
    table.add_column("client")
    for name in ("train", "validation", "test", *MODELS):
        table.add_column(name, justify="right")
    table.add_column("takes")
    for row in clients[:most]:
        name = row["name"] if row["name"].isprintable() else ascii(row["name"])  # no control codes for the terminal
        table.add_row(
            name,
            *(str(row[p]) for p in ("train", "validation", "test")),
            *(number(row.get(f"{m}_test_accuracy")) for m in MODELS),
            row["chosen"],
        )
    if len(clients) > most:
        table.add_row(f"... {len(clients) - most} more")
    return table


def one_line(summary: dict[str, Any]) -> str:
    """A run in one line."""
    models = ", ".join(
        f"{m} {summary[m]['accuracy_mean']:.3f} (worst 10% {summary[m]['accuracy_worst10']:.3f})"
        for m in MODELS
        if summary[m]
    )
    if oracle := summary.get("oracle"):
        models += f", {ORACLE} {oracle['accuracy_mean']:.3f}"
    rounds = f"{summary['rounds']} round{'s' if summary['rounds'] > 1 else ''}"
    if summary["report"] == "best":
        rounds += f" (reported: round {summary['reported_round']}, the best on validation data)"
    return (
        f"{summary['method']} after {rounds}: {models or 'no test data'}; {megabytes(summary['bytes_up'])} MB up, "
        f"{megabytes(summary['bytes_down'])} MB down, {summary['seconds']:.1f} s"
    )
