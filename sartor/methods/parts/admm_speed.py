"""ρ in its natural unit: the speed λα/ρ with α = 1/m, for methods that have a λ and are solved by ADMM."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

from ...errors import need, positive


class Penalised(Protocol):
    """What such a method has."""

    @property
    def lam(self) -> Any:
        """λ, a number or [c, 1]."""
        ...

    @property
    def speed(self) -> Any:
        """λα/ρ."""
        ...

    @property
    def rho(self) -> float | None:
        """ρ itself, in place of it."""
        ...


Made = TypeVar("Made")


def set_speed(method: Penalised, owner: str, usual: float = 1.0) -> None:
    """Refuse both; take the usual speed where neither is given."""
    both = method.speed is not None and method.rho is not None
    need(not both, f"{owner} takes speed = λα/ρ, or rho itself, not both; got {method.speed} and {method.rho}.")
    if method.rho is None and method.speed is None:
        object.__setattr__(method, "speed", usual)
    positive(owner, **{name: v for name in ("speed", "rho") if (v := getattr(method, name)) is not None})


def penalty(method: Penalised, m: int) -> float:
    """ρ among m clients."""
    found: float = method.lam / (m * method.speed) if method.rho is None else method.rho
    return found


def same_penalty(made: Made, before: Penalised) -> Made:
    """A method with another λ (of each client's own, perhaps) and the same ρ: all clients must have one, or the mean of
    their messages is not the minimiser."""
    if before.rho is None:
        object.__setattr__(made, "speed", before.speed * (made.lam / before.lam))  # type: ignore[attr-defined]
    return made
