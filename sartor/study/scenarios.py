"""Grids: scenarios (an attack, its share of attackers, an aggregator) as products of lists, each scenario once."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

from ..errors import SartorError, need


class Scenario(NamedTuple):
    """What a method is put through. Fields have the names of a recipe's."""

    attack: str = "none"
    attackers: float = 0.0
    aggregator: str = "mean"

    @property
    def attacked(self) -> tuple[str, float]:
        """Without the defence: what methods are compared under."""
        return self.attack, self.attackers

    def words(self) -> list[str]:
        """What is not plain about it: ["sign-flip 20%", "median"]."""
        return [attacked(self)] * (self.attack != "none") + [self.aggregator] * (self.aggregator != "mean")


PLAIN = Scenario()


def attacked(scenario: Scenario) -> str:
    """The attack in words: "sign-flip 20%", or "no attack"."""
    return "no attack" if scenario.attack == "none" else f"{scenario.attack} {100 * scenario.attackers:.4g}%"


def scenarios(attacks: Sequence[str], attackers: Sequence[float], aggregators: Sequence[str]) -> list[Scenario]:
    """The product of the lists. No attack and no attackers are the same thing, and come once."""
    need(bool(attacks and attackers and aggregators), "a grid needs at least one attack, share and aggregator.")
    for share in attackers:
        if not 0 <= share < 1:
            raise SartorError(f"attackers must be a share in [0, 1), so that some clients are benign; got {share}.")
    found = (
        Scenario("none", 0.0, rule) if attack == "none" or share == 0 else Scenario(attack, share, rule)
        for attack, share, rule in product(attacks, attackers, aggregators)
    )
    return list(dict.fromkeys(found))
