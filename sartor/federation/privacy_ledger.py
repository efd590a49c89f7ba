"""What a site's clients have spent of their privacy: in this run, and in all runs of this folder. It never goes down.

A line of the ledger is one run of one client: how many private messages were made of it, with which noise, and in which
round the last. A message is entered before it is computed, once for each round: a site that is killed then computes it
again, as it has not left, and one that has left is never computed again (rounds/remote_clients.py). Each message is a
Gaussian mechanism of its own, at rate 1: a server that asks knows whom it asks. Where samples are protected, each of
the gradients behind a message is one, of samples by chance. Opacus' accountant adds them up.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..errors import SartorError
from ..run.privacy_account import composed_epsilon
from ..storage import read_json, write_json
from .limits import OverLimit, SiteLimits

LEDGER = "privacy.json"
DELTA = SiteLimits.epsilon_delta


@dataclass(frozen=True)
class PrivateMessages:
    """One client in one run."""

    noise: float  # on each message, as a multiple of what is protected can change in it; or on each gradient
    messages: int
    last: int  # the round of the last one
    rate: float = 1.0  # of the samples, where those are protected
    gradients: int = 1  # of samples behind a message, each a mechanism

    def event(self, more: int = 0) -> tuple[float, float, int]:
        """What the accountant is told, after so many messages more."""
        return self.noise, self.rate, (self.messages + more) * self.gradients


Lines = dict[str, dict[str, PrivateMessages]]  # by client and run


def _read(path: Path) -> Lines:
    found: dict[str, dict[str, Any]] = read_json(path) if path.exists() else {}
    try:
        return {client: {run: PrivateMessages(**line) for run, line in runs.items()} for client, runs in found.items()}
    except (TypeError, AttributeError) as e:
        raise SartorError(f"{path} is not a ledger of privacy as Sartor writes it. Take it from a backup.") from e


def _write(path: Path, lines: Lines) -> None:
    write_json(path, {name: {run: vars(line) for run, line in runs.items()} for name, runs in lines.items()})


class PrivacyLedger:
    """The clients of one site, by the names that they have there."""

    def __init__(
        self,
        folder: Path,
        run: str,
        noise: Sequence[float | None],
        names: Sequence[str],
        limits: SiteLimits,
        rates: Sequence[float] = (),
        gradients: int = 1,
    ) -> None:
        """`noise`: of each client; None: there is none. `rates` and `gradients`: of each client's samples, and behind
        each message, where samples are protected."""
        self.path, self.run, self.noise, self.names, self.limits = folder / LEDGER, run, noise, names, limits
        each = zip(names, noise, rates or [1.0] * len(names), strict=True)
        self.new = {name: PrivateMessages(z or 0.0, 0, -1, q, gradients) for name, z, q in each}

    def epsilon(self, client: str, more: int = 0) -> tuple[float, float]:
        """(in this run, in all runs) ε of a client at the site's δ, after so many messages more."""
        return self._epsilon(_read(self.path).get(client, {}), client, more)

    def _epsilon(self, runs: Mapping[str, PrivateMessages], client: str, more: int = 0) -> tuple[float, float]:
        here = runs.get(self.run, self.new[client]).event(more)
        others = [line.event() for run, line in runs.items() if run != self.run]
        delta = self.limits.epsilon_delta
        return composed_epsilon([here], delta), composed_epsilon([here, *others], delta)

    def _check(self, lines: Lines, clients: Sequence[int]) -> None:
        """Refuse another message of one of these clients that would exceed what the site allows."""
        for name in [self.names[at] for at in clients]:
            runs = lines.get(name, {})
            spent = self._epsilon(runs, name), self._epsilon(runs, name, 1)
            for at, limit in enumerate(("most_epsilon", "most_epsilon_total")):
                most = getattr(self.limits, limit)
                if most is not None and spent[1][at] > most:
                    raise OverLimit(limit, _words(name, spent[0][at], spent[1][at], most, self.limits.epsilon_delta))

    def check_first(self) -> None:
        """Refuse a run of which a client could not make a single message."""
        lines = _read(self.path)
        self._check(lines, [at for at, name in enumerate(self.names) if self.run not in lines.get(name, {})])

    def enter(self, round: int, clients: Sequence[int]) -> None:
        """One private message more of each of these clients; when this returns it is on the disk. Where one of them
        would exceed what the site allows it is refused, and none is entered."""
        if None in self.noise:
            return
        lines = _read(self.path)
        new = [
            at
            for at in clients
            if round > lines.get(self.names[at], {}).get(self.run, PrivateMessages(0.0, 0, -1)).last
        ]
        self._check(lines, new)
        for name in [self.names[at] for at in new]:
            runs = lines.setdefault(name, {})
            before = runs.get(self.run, self.new[name])
            runs[self.run] = replace(before, messages=before.messages + 1, last=round)
        if new:
            _write(self.path, lines)

    def most(self) -> tuple[float, float]:
        """(in this run, in all runs) ε of the client that has spent most."""
        lines = _read(self.path)
        spent = [self._epsilon(lines.get(name, {}), name) for name in self.names]
        return max(here for here, _ in spent), max(total for _, total in spent)

    def words(self) -> str:
        """The same for people."""
        here, total = self.most()
        return f"epsilon {here:.3g} in this run, {total:.3g} in all, at delta {self.limits.epsilon_delta:g}"


def spent_in_all(folder: Path) -> dict[str, float]:
    """By client: ε of all runs in this folder at the δ that sites count with where they say no other."""
    lines = _read(folder / LEDGER)
    return {name: composed_epsilon([r.event() for r in runs.values()], DELTA) for name, runs in lines.items()}


def later(folder: Path, copy: Path) -> list[str]:
    """The clients of whom the ledger in `folder` has entries that the one in `copy` lacks."""
    now, then = _read(folder / LEDGER), _read(copy / LEDGER)
    new = PrivateMessages(0.0, 0, -1)
    return [
        name
        for name, runs in now.items()
        if any(line.messages > then.get(name, {}).get(run, new).messages for run, line in runs.items())
    ]


def charge_to_the_end(folder: Path, rounds: Mapping[str, int]) -> int:
    """Enter for each run all messages that its agreed rounds could still bring, and how many clients that concerns.
    The last round that was entered stays: if one of them is played again, that is another message."""
    lines, charged = _read(folder / LEDGER), 0
    for runs in lines.values():
        more = {run: max(0, rounds.get(run, 0) - 1 - line.last) for run, line in runs.items()}
        charged += any(more.values())
        runs |= {run: replace(line, messages=line.messages + more[run]) for run, line in runs.items()}
    if charged:
        _write(folder / LEDGER, lines)
    return charged


def _words(name: str, spent: float, after: float, most: float, delta: float) -> str:
    cost = "no epsilon at all is promised" if math.isinf(after) else f"epsilon would be {after:.3g}"
    so_far = f"at delta {delta:g}; {spent:.3g} is spent, at most {most:g} are allowed"
    return f"the server asks for a message of client {name}: {cost} {so_far}"
