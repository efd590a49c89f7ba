"""How a method splits a round's gradients among its own loops."""

from __future__ import annotations

from ...errors import need
from ...solvers import Solver


def each_of(owner: str, cost: int, steps: int) -> int:
    """How often something that costs `cost` gradients goes into `steps` of them; refused where some would be left."""
    low = steps // cost
    near = f"{cost}" if low == 0 else f"{low * cost} or {(low + 1) * cost}"
    need(
        steps % cost == 0 and low > 0,
        f"{owner} takes {cost} gradients at a time, so local_steps must be a multiple of {cost}; got {steps}, "
        f"take {near}.",
    )
    return low


def two_parts(owner: str, first: Solver | None, second: Solver, steps: int) -> tuple[int, int]:
    """Steps for two loops in a row: in the proportion of their own, or halves where one of them counts epochs (or is no
    single loop: None)."""
    need(steps >= 2, f"{owner} needs local_steps >= 2, one for each of its two loops; got {steps}.")
    a, b = (getattr(solver, "steps", None) for solver in (first, second))
    part = steps * a // (a + b) if a and b else steps // 2
    part = min(max(part, 1), steps - 1)
    return part, steps - part


def nested(R: int, K: int | None, steps: int) -> tuple[int, int]:
    """(R, K) with R·K = steps: K the divisor nearest to its own; where that counts epochs (None), R the nearest."""
    divisors = [d for d in range(1, steps + 1) if steps % d == 0]
    if K is None:
        near = min(divisors, key=lambda d: (abs(d - R), d))
        return near, steps // near
    near = min(divisors, key=lambda d: (abs(d - K), d))
    return steps // near, near


def lasting(solver: Solver, steps: int) -> Solver:
    """The solver with so many steps; one that has no number of steps stays as it is."""
    made: Solver = solver.lasting(steps) if hasattr(solver, "lasting") else solver
    return made
