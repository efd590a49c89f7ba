"""Tables and progress for the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from ..judge.metrics import SHOWN
from ..judge.prediction_metrics import score_name
from ..run.bytes import written
from ..study.compare import Cell
from ..study.scenarios import Scenario
from .sentences import mean_and_worst, private, unseen

ORACLE = "oracle (chosen on TEST data, only to compare with papers)"


class _Left(TimeRemainingColumn):
    """How long it still takes: as the task says where it knows (methods differ in speed), else as it goes."""

    def render(self, task: Task) -> Text:
        known = task.fields["left"]
        return Text(known or f"{super().render(task)} left", style="progress.remaining")


def progress(console: Console) -> Progress:
    """A live progress display; silent where the output is not a terminal."""
    return Progress(
        TextColumn("{task.description:<21}", markup=False),
        BarColumn(None),
        MofNCompleteColumn(),
        _Left(compact=True),
        TextColumn("{task.fields[note]:<12}"),
        console=console,
        transient=True,
        disable=not console.is_terminal,
        expand=True,
    )


def waiting(console: Console, what: str, quiet: bool = False) -> Progress:
    """A sign of life for work that cannot say how far it is: what is done, and for how long."""
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    found = Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal)
    found.add_task(what, total=None)
    return found


def note(history: Sequence[dict[str, Any]]) -> str:
    """How well it goes, for the progress display."""
    last = history[-1]["chosen"] if history else None
    return f"chosen {last['accuracy_mean']:.3f}" if last else ""


def cell_name(method: str, scenario: Scenario, seed: int) -> str:
    """A cell of a comparison: "flame, sign-flip 20%, median, seed 0"."""
    return ", ".join([method, *scenario.words(), f"seed {seed}"])


def done(found: Cell) -> str:
    """A finished cell of a comparison, for logs."""
    name, summary = cell_name(found.method, found.scenario, found.seed), found.summary
    if "error" in summary:
        return f"{name}: {'refused' if 'refused' in summary else 'failed'}, {summary['error']}"
    return f"{name}: {note([summary]) or 'no test data'}, {summary['seconds']:.1f} s"


def left(seconds: float | None) -> str:
    """How long it will still take: "about 3 min left"; nothing where it is soon over or not known."""
    if seconds is None or seconds < 10:
        return ""
    amount = f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
    amount = amount if seconds < 5400 else f"{seconds / 3600:.1f} h"
    return f"about {amount} left"


def number(value: float | None) -> str:
    """Three digits, or a dash."""
    return "-" if value is None else f"{value:.3f}"


def cell(model: dict[str, Any] | None) -> str:
    """The mean over clients, ± the standard deviation, and the worst tenth."""
    if model is None:
        return "-"
    if model["accuracy_std"] is None:  # only the mean is known
        return number(model["accuracy_mean"])
    return f"{model['accuracy_mean']:.3f} ±{model['accuracy_std']:.2f} {model['accuracy_worst10']:.3f}"


def megabytes(count: float | None) -> str:
    """Bytes as megabytes, short."""
    if count is None:
        return "-"
    mb = count / 1e6
    return f"{mb:.0f}" if mb >= 100 else f"{mb:.1f}" if mb >= 1 else f"{mb:.2g}"


def thrifty(rows: Sequence[dict[str, Any]]) -> bool:
    """Whether bytes were saved or counted in this comparison, so that their columns are of interest."""
    names = ("budget", "target_accuracy")
    return any(r["compress"] != "none" or r["compress_down"] != "none" or any(r[k] for k in names) for r in rows)


def worth(rows: Sequence[dict[str, Any]]) -> dict[str, list[str]]:
    """What was to be had for the bytes: a column for each heading, where it is of interest."""
    if not thrifty(rows):
        return {}
    found = {"acc.\nper MB": ["-" if (v := r["accuracy_per_megabyte"]) is None else f"{v:.3g}" for r in rows]}
    if any(r["target_accuracy"] is not None for r in rows):
        target = next(r["target_accuracy"] for r in rows if r["target_accuracy"] is not None)
        to = f"to {target:g}"
        found[f"rounds\n{to}"] = ["-" if (v := r["rounds_to_target"]) is None else f"{v:.4g}" for r in rows]
        found[f"MB\n{to}"] = [megabytes(r["bytes_to_target"]) for r in rows]
    return found


def against(row: dict[str, Any]) -> str:
    """How many clients gain and lose against local training."""
    return "-" if row["gain"] is None else f"+{row['gain']} −{row['lose']}"


def gradients(row: dict[str, Any], rows: Sequence[dict[str, Any]] = ()) -> str:
    """Minibatch gradients per client in training, and those of fine-tuning: "1000+20"; marked where a method's are its
    own among others that have the same."""
    found = row["gradients"]
    if found is None:
        return "-"
    mark = "†" if row["own_work"] and any(r["local_steps"] for r in rows) else ""
    tuned = f"+{found['finetuning']:.0f}" if found["finetuning"] else ""
    return f"{found['training']:.0f}{tuned}{mark}"


def work(steps: int | None, own: Mapping[str, str]) -> str:
    """What each client computes in a round, and whose number cannot be chosen."""
    if steps is None:
        return "Work: each method takes its own local steps (--local-steps N makes them the same)."
    text = f"Work: {steps} minibatch gradients per client and round for every method, split among its loops."
    return text + "".join(f" † {who} takes its own: {why}." for who, why in own.items())


def work_of(rows: Sequence[dict[str, Any]]) -> str:
    """The same from a comparison's rows; where they do not agree, each has its own."""
    given = {r["local_steps"] for r in rows if not r["own_work"] and r["seeds"] and not r["reference"]}
    own = {row_name(r): r["own_work"] for r in rows if r["own_work"]}
    return work(given.pop() if len(given) == 1 else None, own)


def comparison(rows: Sequence[dict[str, Any]], console: Console) -> Table:
    """Accuracy of the three models of each method, who gains and loses against local training, bytes, seconds.

    A row per method where the console is wide enough for it, else a row per model.
    """
    if len({r["scenario"] for r in rows}) > 1:
        return grid(rows)
    table = _comparison(rows, wide=True)
    needed = console.measure(table, options=console.options.update(width=1000)).maximum
    return table if needed <= console.width else _comparison(rows, wide=False)


def grid(rows: Sequence[dict[str, Any]]) -> Table:
    """Mean accuracy of benign clients: a row for each model of each method with its aggregator under each attack, a
    column for each share of attackers."""
    shares = sorted({r["attackers"] for r in rows})
    attacks = list(dict.fromkeys(r["attack"] for r in rows if r["attack"] != "none")) or ["none"]
    table = _table(_titled("mean test {} over benign clients{}, by share of attackers", _metric(rows)))
    for name in ("attack", "method", "model"):
        table.add_column(name, overflow="fold", no_wrap=name == "model")
    for share in shares:
        table.add_column(f"{100 * share:.3g}%", justify="right", no_wrap=True)
    for attack in attacks:
        for entrant in dict.fromkeys(r["entrant"] for r in rows):
            mine = {r["attackers"]: r for r in rows if r["entrant"] == entrant and r["attack"] in (attack, "none")}
            for i, line in enumerate(_by_share(mine, shares)):
                table.add_row(attack if not i else "", entrant if not i else "", *line)
    return table


def _by_share(mine: dict[float, dict[str, Any]], shares: Sequence[float]) -> list[list[str]]:
    """A line for each model that differs from the chosen one, and one for that."""
    models = [m for m in SHOWN if any(r[m] for r in mine.values())]
    models = ["chosen"] if len(models) == 2 else models  # the method has one model, and that is chosen
    return [[model, *(_score(mine.get(share), model) for share in shares)] for model in models or ["chosen"]]


def _score(row: dict[str, Any] | None, model: str) -> str:
    """A number, or why there is none."""
    if row is None:
        return ""
    if row[model]:
        return number(row[model]["accuracy_mean"])
    return "no test data" if row["seeds"] else "refused" if row["refused"] else "failed"


def _metric(rows: Sequence[dict[str, Any]]) -> str | None:
    """What the rows of a comparison go by, where it is not accuracy or R²."""
    return next((r["metric"] for r in rows), None)


def _titled(title: str, metric: str | None) -> str:
    """A title with the name of its scores."""
    if metric is None:
        return title.format("accuracy", " (R² for regression)")
    return title.format(score_name(metric), "")


def _comparison(rows: Sequence[dict[str, Any]], wide: bool) -> Table:
    best = max((r["chosen"]["accuracy_mean"] for r in rows if r["chosen"]), default=None)
    table = _table(_titled("test {} over clients{}", _metric(rows)))
    table.add_column("method", no_wrap=True)
    for name in [f"{m}\nmean   ±std worst" for m in SHOWN] if wide else ["model", "mean", "std", "worst"]:
        table.add_column(name, no_wrap=True, justify="left" if wide or name == "model" else "right")
    more = worth(rows)
    for name in ("vs\nlocal", "grads", "MB\nup", "MB\ndown", *more, "s"):
        table.add_column(name, justify="right", no_wrap=True)
    for i, r in enumerate(rows):
        seconds = "-" if r["seconds"] is None else f"{r['seconds']:.1f}"
        spent = [megabytes(r["bytes_up"]), megabytes(r["bytes_down"]), *(column[i] for column in more.values())]
        cost = [against(r), gradients(r, rows), *spent, seconds]
        star = "*" if r["chosen"] and r["chosen"]["accuracy_mean"] == best else ""
        look = "red" if not r["seeds"] else "bold" if star else ""
        for line in (_one_row if wide else _row_per_model)(r, cost, star):
            table.add_row(*line, style=look)
    return table


def _table(title: str) -> Table:
    return Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))


def lines(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Any table of words: the first column is the widest, the others stay in one piece."""
    table = _table(title)
    for i, name in enumerate(head):
        table.add_column(name, overflow="fold", no_wrap=False, ratio=None if i else 2)
    for row in rows:
        table.add_row(*row)
    return table


def _one_row(r: dict[str, Any], cost: list[str], star: str) -> list[list[str]]:
    words = [cell(r[m]) for m in SHOWN] if r["seeds"] else ["failed", "failed", "failed"]
    return [[_marked(r), *words[:-1], words[-1] + star, *cost]]


def _marked(row: dict[str, Any]) -> str:
    """The method; a reference with its mark, which `explain` explains."""
    return f"{row['method']} ‡" if row["reference"] else str(row["method"])


def _row_per_model(r: dict[str, Any], cost: list[str], star: str) -> list[list[str]]:
    """A row for each model that the method has; the costs stand in the last one."""
    fields = ("accuracy_mean", "accuracy_std", "accuracy_worst10")
    lines = [[m, *(number(r[m][k]) for k in fields)] for m in SHOWN if r[m]]
    lines = lines or [["-" if r["seeds"] else "failed", "-", "-", "-"]]
    lines[-1][0] += star
    names, costs = [_marked(r)] + [""] * len(lines), [[""] * len(cost)] * (len(lines) - 1) + [cost]
    return [[name, *line, *own] for name, line, own in zip(names, lines, costs, strict=False)]


def explain(rows: Sequence[dict[str, Any]], seeds: int) -> str:
    """What the columns mean, and what went wrong."""
    of = max((r["of"] or 0 for r in rows), default=0)
    grid = len({r["scenario"] for r in rows}) > 1
    parts = [
        f"Mean over {seeds} seed{'s' if seeds > 1 else ''}",
        *([] if grid else ["std: over clients", "worst: the worst 10% of clients"]),
        "chosen: per client its personal model, the global one or a mixture, by validation data",
        *([] if grid else ["*: the best"]),
    ]
    lines = ["; ".join(parts) + ".", work_of(rows)]
    if any(r["gradients"] for r in rows) and not grid:
        lines.append(
            "grads: minibatch gradients that a client evaluated in the whole run, in the mean; +: for fine-tuning its "
            "last model."
        )
    if of and not grid:
        lines.append(
            f"vs local: of {of} clients over all seeds, how many are better (+) and worse (−) off with their "
            "chosen model than alone."
        )
    scored: dict[str, list[str]] = {}
    for r in rows:
        if r.get("personal_model") and row_name(r) not in scored.setdefault(r["personal_model"], []):
            scored[r["personal_model"]].append(row_name(r))
    if scored:
        each = [f"{words} ({', '.join(who)})" for words, who in scored.items()]
        lines.append(f"Scored as personal models: {'; '.join(each)}.")
    if any(r["reference"] for r in rows):
        lines.append(
            "‡ reference, not federated: scikit-learn on everybody's samples (pooled) or on each client's own (local), "
            "training and validation together."
        )
    if any(r["unseen"] for r in rows):
        lines += [f"unseen, {row_name(r)}: {unseen(r['unseen'])}." for r in rows if r["unseen"]]
    promised: dict[str, list[str]] = {}
    for r in rows:
        if r["privacy"]:
            promised.setdefault(private(r["privacy"]), []).append(row_name(r))
    lines += [f"{words}: {', '.join(who)}." for words, who in promised.items()]
    if len({r["attackers"] for r in rows}) > 1:
        lines.append(
            "Scores are of benign clients: with more attackers they are fewer, so columns are of other clients."
        )
    if thrifty(rows):
        lines.append(
            "MB: bytes of all clients asked, as on the wire; acc. per MB: chosen accuracy by megabytes up and down. "
            "Targets are met on validation data, in evaluated rounds."
        )
    if any(r["oracle"] for r in rows):
        best = ", ".join(f"{row_name(r)} {r['oracle']['accuracy_mean']:.3f}" for r in rows if r["oracle"])
        lines.append(f"{ORACLE}: {best}.")
    refused: dict[str, list[str]] = {}
    for r in rows:
        if r["refused"]:
            refused.setdefault(r["refused"].split(";")[0].rstrip("."), []).append(r["entrant"])
    lines += [f"refused, {', '.join(dict.fromkeys(who))}: {why}." for why, who in refused.items()]
    lines += [f"{row_name(r)} failed, {e}" for r in rows for e in r["errors"]]
    said: dict[str, list[str]] = {}
    for r in rows:
        for w in r["warnings"]:
            said.setdefault(w, []).append(row_name(r))
    lines += [f"warning, {', '.join(who)}: {w}" for w, who in said.items()]
    return "\n".join(lines)


def row_name(row: dict[str, Any]) -> str:
    """A row of a comparison in words: "fedavg, sign-flip 20%, median"."""
    return ", ".join([row["method"], *row["scenario"].words()])


def per_client(clients: Sequence[dict[str, Any]], most: int = 20, metric: str | None = None) -> Table:
    """A row per client of one run."""
    table = _table(_titled("test {} per client{}", metric))
    table.add_column("client")
    for name in ("train", "validation", "test", *SHOWN):
        table.add_column(name, justify="right")
    table.add_column("takes")
    for row in clients[:most]:
        name = row["name"] if row["name"].isprintable() else ascii(row["name"])  # no control codes for the terminal
        table.add_row(
            name,
            *(str(row[p]) for p in ("train", "validation", "test")),
            *(number(row.get(f"{m}_test_accuracy")) for m in SHOWN),
            takes(row),
        )
    if len(clients) > most:
        table.add_row(f"... {len(clients) - most} more")
    return table


SHORT = ("auroc", "balanced-accuracy", "log-loss", "ece", "mae", "rmse")  # what a run prints of its metrics


def ranged(found: Mapping[str, Any]) -> str:
    """A value with its interval: "0.904 [0.860, 0.943]"."""
    if found["low"] is None or found["high"] is None:
        return number(found["value"])
    return f"{number(found['value'])} [{number(found['low'])}, {number(found['high'])}]"


def metrics(found: Mapping[str, Any]) -> Table:
    """The few that matter most, of the chosen models; the others are in metrics.json and in the report."""
    own = found["models"]["chosen"]
    table = _table(f"the chosen models on test data, with {found['level']:.0%} intervals")
    for name in ("", "averaged over clients", "pooled over samples"):
        table.add_column(name, no_wrap=True)
    for name in SHORT:
        if name in found["metrics"]:
            title = found["metrics"][name]["title"]
            table.add_row(title, *(ranged(own[how][name]) for how in ("averaged", "pooled")))
    return table


def by_client(rows: Sequence[dict[str, Any]], metric: str | None = None) -> Table:
    """A row per client, a column per method: the test accuracy of its chosen model."""
    methods = list(dict.fromkeys(k for r in rows for k in r if k != "client"))
    table = _table(_titled("test {} of each client's chosen model{}, mean over seeds", metric))
    table.add_column("client")
    for method in methods:
        table.add_column(method, justify="right")
    for r in rows:
        name = r["client"] if r["client"].isprintable() else ascii(r["client"])
        table.add_row(name, *(number(r.get(m)) for m in methods))
    return table


def takes(row: dict[str, Any]) -> str:
    """Which model a client takes; or that it attacks, or took no part."""
    return "(hostile)" if row["hostile"] else f"{row['chosen']}{' (unseen)' if row['unseen'] else ''}"


def one_line(summary: dict[str, Any]) -> str:
    """A run in one line."""
    models = ", ".join(f"{m} {mean_and_worst(summary[m])}" for m in SHOWN if summary[m])
    if oracle := summary.get("oracle"):
        models += f", {ORACLE} {oracle['accuracy_mean']:.3f}"
    rounds = f"{summary['rounds']} round{'s' if summary['rounds'] > 1 else ''}"
    if summary["report"] == "best":
        rounds += f" (reported: round {summary['reported_round']}, the best on validation data)"
    return (
        f"{summary['method']} after {rounds}: {_scored_by(summary)}{models or 'no test data'}; "
        f"{megabytes(summary['bytes_up'])} MB up, "
        f"{megabytes(summary['bytes_down'])} MB down, {evaluated(summary)}{summary['seconds']:.1f} s{speed(summary)}"
        f"{thrift(summary)}"
        f"{trouble(summary)}"
        f"{'; ' + unseen(held) if (held := summary.get('unseen')) else ''}"
        f"{'; ' + private(found) if (found := summary.get('privacy')) else ''}"
        f"{'; personal models are ' + said if (said := summary.get('personal_model')) else ''}"
    )


def _scored_by(summary: dict[str, Any]) -> str:
    return f"{score_name(summary['metric'])} " if summary.get("metric") else ""


def evaluated(summary: dict[str, Any]) -> str:
    """The gradients of a client, in training and in fine-tuning."""
    found = summary.get("gradients_per_client")
    if found is None:
        return ""
    tuned = f" and {found['finetuning']:.0f} to fine-tune" if found["finetuning"] else ""
    return f"{found['training']:.0f} gradients per client{tuned}, "


def thrift(summary: dict[str, Any]) -> str:
    """How messages were compressed, and why the run stopped where it was not at its last round."""
    ways = (("compress", "messages"), ("compress_down", "downlinks"))
    said = [f"{what} by {summary[k]}" for k, what in ways if summary[k] != "none"]
    if summary["target_accuracy"] is not None:
        took = summary["bytes_to_target"]
        reached = "not reached" if took is None else f"after {summary['rounds_to_target']} rounds, {written(took)}"
        said.append(f"validation accuracy {summary['target_accuracy']:g} {reached}")
    if summary["stopped"] == "budget":
        said.append(f"budget of {written(summary['budget'])} spent")
    return "".join(f"; {what}" for what in said)


def speed(summary: dict[str, Any]) -> str:
    """How fast clients were trained, evaluation not counted."""
    spent = max(summary["seconds"], 1e-3)
    return f" ({summary['trained'] / spent:,.0f} clients/s, {summary['steps'] / spent:,.0f} steps/s)"


def trouble(summary: dict[str, Any]) -> str:
    """Who attacked and who failed, where anybody did."""
    words = {
        "excluded": "answers with NaN or Inf left out",
        "dropped": "answers lost",
        "late": "answers late",
        "skipped": "rounds skipped as nobody answered",
    }
    said = [f"{summary[k]} {word}" for k, word in words.items() if summary[k]]
    if summary["hostile"]:
        benign = summary["clients"] - summary["hostile"]
        said.insert(
            0, f"{summary['hostile']} clients hostile ({summary['attack']}), scores are of {benign} benign ones"
        )
    return "".join(f"; {what}" for what in said)
