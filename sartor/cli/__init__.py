"""The command line, a file for each command (commands.py names them): the only folder that knows Typer."""

from __future__ import annotations

import sys
import traceback
import warnings

import typer

from ..errors import SartorError, readable, reason, unknown
from .commands import COMMANDS
from .console import app, err, out

__all__ = ["app", "err", "main", "out"]


def main() -> None:
    """Run the command line. A mistake in the request is one line on standard error and exit code 2 (--debug: more)."""
    debug = "--debug" in sys.argv
    warnings.formatwarning = lambda message, *_: f"sartor: warning: {readable(str(message))}\n"
    arguments = [a for a in sys.argv[1:] if a != "--debug"] or ["--help"]
    try:
        if not arguments[0].startswith("-") and arguments[0] not in COMMANDS:
            raise unknown("command", arguments[0], COMMANDS)
        code = app(args=arguments, standalone_mode=False, prog_name="sartor")
    except SartorError as e:
        code = _refuse(str(e), debug)
    except (KeyboardInterrupt, typer.Abort):
        code = 130
    except OSError as e:  # a file or folder that the system does not give
        code = _refuse(f"cannot use {'a file' if e.filename is None else e.filename}: {reason(e)}.", debug)
    except MemoryError as e:
        code = _refuse(f"out of memory ({e}): take fewer clients, a smaller model or a smaller --chunk.", debug)
    except Exception as e:
        if not hasattr(e, "format_message"):  # not one of Typer's own
            raise
        of = "" if arguments[0].startswith("-") else f" {arguments[0]}"
        code = _refuse(f"{e.format_message()} See sartor{of} --help.", debug)
    if code == 130:  # Typer itself may have turned the interrupt into this code
        print(
            "sartor: stopped. A run with --out goes on from its last checkpoint with --resume; compare, reproduce and "
            "tune go on when they are called again.",
            file=sys.stderr,
        )
    sys.exit(code if isinstance(code, int) else 0)


def _refuse(message: str, debug: bool) -> int:
    if debug:
        traceback.print_exc()
    print("sartor: " + readable(message), file=sys.stderr)
    return 2
