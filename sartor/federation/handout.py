"""What `sartor federation init` says, and leaves as README.txt: who gets which folder, and what must stay secret."""

from __future__ import annotations

from collections.abc import Sequence

from .authority import PRIVATE


def words(name: str, server: str, sites: Sequence[str], requests: bool = False) -> str:
    """Who gets which folder, and what must stay secret."""
    return (_REQUESTS if requests else _ONE_PLACE).format(
        name=name,
        server=server,
        host=server.rpartition(":")[0],
        private=PRIVATE,
        each="\n".join(f"  {site}/  goes to site {site}, and to nobody else" for site in sites),
        first=sites[0],
        all=", ".join(sites),
    )


_ONE_PLACE = """The federation {name!r} on {server}.

  server/  goes to the host {host}
{each}
  {private}/  goes to nobody: with it anyone can make new members. Lock it away, off these machines.

All keys were made here, in one place: whoever could read this folder can act as any of the parties. That is good for a
demonstration, or where one party runs everything. Between institutions let each make its own key: add --requests.

Each folder holds a private key (startup/*.key) that says who somebody is: send a folder over a secure way only, do not
put it where others can read it. If one is lost: sartor federation rotate.

At the server:    sartor server server --recipe recipe.toml
At a site:        sartor client {first} --data mine.csv --target outcome
"""

_REQUESTS = """The authority of the federation {name!r} on {server}, for the sites {all}.

  {private}/  holds its key, with which anyone can make new members. Keep it here, on a machine that need not be online.

No other key was made. Each party makes its own, which never leaves it:

At a site:        sartor federation request --name {name} --site {first} --out {first}
At the server:    sartor federation request --name {name} --site server --out server
They send you request.csr. Here, after comparing its fingerprint with them over another way (by telephone):
                  sartor federation sign FOLDER request.csr --out {first}.answer
You send the answer, which holds nothing secret. There:
                  sartor federation join {first} {first}.answer
"""
