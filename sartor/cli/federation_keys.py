"""`sartor federation request`, `sign`, `join`, `add`, `remove`, `revoke`, `rotate`: a federation's keys and members."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..errors import need, printable
from .federation_group import federation, needs_nvflare

Kits = Annotated[Path, typer.Argument(help="the folder with the authority, made by sartor federation init")]
Lists = Annotated[Path, typer.Argument(help="the folder with the authority, or the server's kit")]
SiteName = Annotated[str, typer.Argument(help="the site's name")]
AnswerFile = Annotated[Path, typer.Option("--out", help="a file for the answer; it holds nothing secret")]


def _say(lines: list[str]) -> None:
    print(printable("\n".join(lines)))


@federation.command("request")
def federation_request(
    name: Annotated[str, typer.Option(help="what the federation is called")],
    site: Annotated[str, typer.Option(help="this site's name, or server")],
    folder: Annotated[Path, typer.Option("--out", help="a folder for the key, which becomes the kit; or a kit")],
) -> None:
    """Make this site's own key, which never leaves it, and a request to have it signed."""
    needs_nvflare()
    from ..federation import own_key, signing_requests

    made = own_key.request(name, site, folder)
    _say(
        [
            f"{folder / own_key.KEY} is the key of {site}: it stays here, and nobody else may read it.",
            f"Send {folder / own_key.REQUEST} to whoever keeps the authority of {name}, and compare over another way:",
            f"  {signing_requests.words(made)}",
            f"With the answer: sartor federation join {folder} ANSWER",
        ]
    )


@federation.command("sign")
def federation_sign(
    kits: Kits,
    request: Annotated[Path, typer.Argument(help="a request that sartor federation request has made")],
    answer: AnswerFile,
) -> None:
    """Sign a site's own key, or the server's, with the federation's authority."""
    needs_nvflare()
    from ..federation import authority, certificates, signing_requests

    asked, signer = signing_requests.read_request(request), authority.Authority.load(kits)
    _answered(signer.sign(asked), answer)
    _say(
        [
            f"signed for {certificates.name_of(asked.subject)}: send back {answer}, which is no secret. Compare first:",
            f"  {signing_requests.words(asked)}",
            f"  the authority of {signer.book.federation} has the fingerprint "
            + certificates.key_words(signer.certificate.public_key()),
        ]
    )


def _answered(answer: object, path: Path) -> None:
    from ..federation.authority import Answer
    from ..storage import write_json

    assert isinstance(answer, Answer)
    write_json(path, answer.model_dump())


@federation.command("join")
def federation_join(
    folder: Annotated[Path, typer.Argument(help="the folder with this site's own key")],
    answer: Annotated[Path, typer.Argument(help="what the authority has answered")],
) -> None:
    """Put this site's kit together: its own key, and what the authority has answered."""
    needs_nvflare()
    from ..federation import certificates, own_key

    kit = own_key.join(folder, answer)
    root = certificates.read(folder / "startup" / certificates.ROOT)
    start = (
        f"sartor server {folder} --recipe recipe.toml" if kit.who == "server" else f"sartor client {folder} --data FILE"
    )
    _say(
        [
            f"{folder} is the kit of {kit.who} in {kit.federation} on {kit.host}:{kit.port}. Compare over another way:",
            f"  the authority of {kit.federation} has the fingerprint {certificates.key_words(root.public_key())}",
            f"Start it with: {start}",
        ]
    )


@federation.command("add")
def federation_add(kits: Lists, site: SiteName) -> None:
    """Take a site onto the list: it can take part in the next run."""
    needs_nvflare()
    from ..federation import membership

    _say(membership.add(kits, site))


@federation.command("remove")
def federation_remove(kits: Lists, site: SiteName) -> None:
    """Take a site off the list; its certificate stays good, so it can be added again."""
    needs_nvflare()
    from ..federation import membership

    _say(membership.remove(kits, site))


@federation.command("revoke")
def federation_revoke(kits: Kits, site: SiteName) -> None:
    """Take a site's certificate out of use for good: the server and all other sites refuse it."""
    needs_nvflare()
    from ..federation import membership

    _say(membership.revoke(kits, site))


@federation.command("rotate")
def federation_rotate(
    kits: Kits,
    site: Annotated[str, typer.Argument(help="the site's name, or server")],
    request: Annotated[Path | None, typer.Option(help="the new key's request, where its owner made the key")] = None,
    answer: Annotated[Path | None, typer.Option("--out", help="with --request: a file for the answer")] = None,
) -> None:
    """Give a site, or the server, a new certificate; the old one is revoked."""
    needs_nvflare()
    from ..federation import membership

    need((request is None) == (answer is None), "--request and --out go together: a new key that its owner made.")
    found, said = membership.rotate(kits, site, request)
    if found is not None and answer is not None:
        _answered(found, answer)
        said = [f"signed for {site}: send {answer} back; there: sartor federation join FOLDER {answer.name}", *said]
    _say(said)
