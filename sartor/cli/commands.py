"""The application and its commands. Each is a file that is read when it is called: help and the tab key are quick."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from .. import __version__

if TYPE_CHECKING:
    import click  # Typer from 0.26 on has a copy of its own, and does not bring this one

# In the order in which sartor --help names them: the file, and the function whose docstring says what it is for.
COMMANDS = {
    "init": ("init", "init"),
    "advise": ("advise", "advise"),
    "run": ("run", "run"),
    "compare": ("compare", "compare"),
    "tune": ("tune", "tune"),
    "bench": ("bench", "bench"),
    "report": ("report", "report"),
    "watch": ("report", "watch"),
    "predict": ("predict", "predict"),
    "export": ("predict", "export"),
    "reproduce": ("reproduce", "reproduce"),
    "theory": ("theory", "theory_"),
    "federation": ("federation", ""),
    "server": ("federation", "server"),
    "client": ("federation", "client"),
    "list": ("lookup", "list_"),
    "doctor": ("lookup", "doctor_"),
    "version": ("lookup", "version"),
}


def first_line(command: str) -> str:
    """What a command is for, read from its file without running it."""
    file, function = COMMANDS[command]
    tree = ast.parse(Path(__file__).with_name(f"{file}.py").read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == function:
            return (ast.get_docstring(node) or "").splitlines()[0]
    return (ast.get_docstring(tree) or "").partition(": ")[2].splitlines()[0].capitalize()


class Commands(TyperGroup):
    """A group whose commands are loaded one by one."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """For the list of commands: the name and its line."""
        return TyperCommand(cmd_name, help=first_line(cmd_name)) if cmd_name in COMMANDS else None

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Plain: Rich's panels, which the commands have, take longer to load than all the rest."""
        super(TyperGroup, self).format_help(ctx, formatter)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """For the command that is called: the whole of it."""
        if args[0] not in COMMANDS:
            return super().resolve_command(ctx, args)
        return args[0], load(args[0]), args[1:]


def load(command: str) -> click.Command:
    """The command with its options."""
    importlib.import_module(f".{COMMANDS[command][0]}", __package__)
    how: dict[str, Any] = {"pretty_exceptions_short": True, "rich_markup_mode": app.rich_markup_mode}
    for group in app.registered_groups:
        if group.name == command:
            return typer.main.get_group_from_info(group, suggest_commands=False, **how)
    info = next(i for i in app.registered_commands if command in (i.name, getattr(i.callback, "__name__", "")))
    made = typer.main.get_command_from_info(info, **how)
    for option in made.params:
        if help := getattr(option, "help", None):
            option.help = help.replace("[", r"\[")  # type: ignore[attr-defined]  # brackets are ours, not Rich's markup
    return made


app = typer.Typer(
    cls=Commands,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help=(
        "Personalised federated learning: clients with different data train together, and each gets a model that fits "
        "its own."
    ),
)


def _tell_version(asked: bool) -> None:
    if asked:
        print(f"sartor {__version__}")
        raise typer.Exit


@app.callback()
def _everywhere(
    version: Annotated[
        bool, typer.Option("--version", callback=_tell_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass
