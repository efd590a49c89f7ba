"""`sartor federation`, `server`, `client`: a federation of real sites."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from ..errors import need, printable
from ..federation.limits import LIMITS
from .console import app, out
from .options import Json, takes

federation = typer.Typer(help="Prepare a real federation, show its progress, export its models.")
app.add_typer(federation, name="federation")
KitFolder = Annotated[Path, typer.Argument(help="a folder made by sartor federation init")]


def _saying(as_json: bool) -> Callable[[str], None]:
    """Where a federation says what happens: beside the result, where that is to be read by a program."""
    return lambda text: print(printable(text), file=sys.stderr if as_json else sys.stdout, flush=True)


def _needs_nvflare() -> None:
    have = importlib.util.find_spec("nvflare") is not None
    need(have, "a real federation needs NVFlare: pip install 'sartor[nvflare]'.")


@federation.command("init")
def federation_init(
    name: Annotated[str, typer.Option(help="what the federation is called")],
    server: Annotated[str, typer.Option(help="HOST:PORT at which sites reach the server")],
    sites: Annotated[str, typer.Option(help="the sites' names, separated by commas")],
    folder: Annotated[Path, typer.Option("--out", help="a new folder for the kits")],
    days: Annotated[int, typer.Option(help="days for which the kits' certificates are valid, 1 to 36500")] = 360,
) -> None:
    """Make a kit for the server and one for each site: certificates, keys and restrictive settings."""
    _needs_nvflare()
    from ..federation import kits

    named = [s.strip() for s in sites.split(",")]
    kits.make(name, server, named, folder, days)
    out.print(kits.words(name, server, named), soft_wrap=True, end="")


@federation.command("status")
def federation_status(kit: KitFolder, as_json: Json = False) -> None:
    """Show the progress of a kit's run."""
    _needs_nvflare()
    from ..federation import commands

    found = commands.status(kit)
    print(json.dumps(found, indent=1) if as_json else printable(commands.words(found)))


@federation.command("audit")
def federation_audit(kit: KitFolder, as_json: Json = False) -> None:
    """Read and verify a site's audit log: what was asked of it, and what left."""
    _needs_nvflare()
    from ..federation import commands

    lines, said = commands.audit(kit)
    print(json.dumps(lines, indent=1) if as_json else printable(said))


@federation.command("export")
def federation_export(
    kit: KitFolder,
    folder: Annotated[Path, typer.Option("--out", help="a new folder for the models")],
    as_json: Json = False,
) -> None:
    """Copy a kit's models: the global model at the server, personal models at a site."""
    _needs_nvflare()
    from ..federation import commands

    lines = commands.export(kit, folder)
    print(json.dumps(lines, indent=1, ensure_ascii=False) if as_json else printable("\n".join(lines)))


@app.command()
def server(
    kit: KitFolder,
    recipe: Annotated[Path, typer.Option(help="a recipe.toml: the method, its settings, the rounds")],
    min_clients: Annotated[
        int, typer.Option(help="answers needed in a round; with fewer it waits, then is skipped")
    ] = 2,
    round_timeout: Annotated[float, typer.Option(help="seconds to wait for one round's answers")] = 120.0,
    leave_out_after: Annotated[
        int, typer.Option(help="timeouts in a row after which the server no longer waits for a site")
    ] = 3,
    join_timeout: Annotated[float, typer.Option(help="seconds to wait for all sites before the first round")] = 600.0,
    as_json: Json = False,
) -> None:
    """Run the server of a federation.

    After a crash, start it again: it continues, with identical results.
    """
    _needs_nvflare()
    from ..federation.rounds import Waiting
    from ..federation.supervise_server import ServerSupervisor
    from ..report import terminal
    from ..storage import read_json

    waiting = Waiting(round_timeout, min_clients, leave_out_after)
    left = ServerSupervisor(kit, recipe, waiting, join_timeout, _saying(as_json)).play()
    rows, found = read_json(left / "clients.json"), read_json(left / "summary.json")
    if as_json:
        print(json.dumps(found, indent=1))
        return
    out.print(terminal.per_client(rows))
    out.print(terminal.one_line(found))
    out.print(f"everything is in {left}; personal models are at the sites", soft_wrap=True)


@app.command()
@takes("data", only=("target", "client_key", "leave_out", "text", "task"), also=LIMITS)
def client(
    ctx: typer.Context,
    kit: KitFolder,
    data: Annotated[str, typer.Option(help="this site's .csv, .parquet or .npz file; it never leaves the site")],
    recipe: Annotated[Path | None, typer.Option(help="take part only if the server's recipe equals this one")] = None,
    share: Annotated[
        str | None,
        typer.Option(help="which scores are sent: metrics=each, mean (over this site) or none  [metrics=each]"),
    ] = None,
    policy: Annotated[
        Path | None, typer.Option(help="a TOML file with this site's limits, and share = each, mean or none")
    ] = None,
    connect_timeout: Annotated[float, typer.Option(help="seconds to try to reach the server")] = 600.0,
    as_json: Json = False,
) -> None:
    """Take part in a federation with this site's data.

    After a crash, start it again: it continues, with identical results.
    """
    _needs_nvflare()
    from ..federation.limits import SiteLimits
    from ..federation.limits import policy as read_policy
    from ..federation.site_config import SiteConfig
    from ..federation.supervise_site import SiteSupervisor

    what, _, value = (share or "metrics=each").partition("=")
    need(what == "metrics", f"--share takes metrics=each, mean or none; got {share!r}.")
    path = None if recipe is None else str(recipe.resolve())
    given = ctx.params
    leave_out, text = (tuple(given[name] or ()) for name in ("leave_out", "text"))
    limits = SiteLimits(**{name: given[name] for name in LIMITS})
    if policy is not None:
        options = {name: given[name] for name, about in LIMITS.items() if given[name] != about.default}
        limits, allowed = read_policy(policy, options)
        need(allowed is None or share is None, f"share stands in {policy} and is given as an option; say it once.")
        value = allowed or value
    own = SiteConfig(
        str(Path(data).resolve()),
        given["target"],
        given["client_key"],
        value,
        path,
        leave_out,
        text,
        limits,
        given["task"],
    )
    left = SiteSupervisor(kit, own, connect_timeout, _saying(as_json)).play()
    print(json.dumps({"models": str(left)}) if as_json else f"finished: this site's models are in {left}")
