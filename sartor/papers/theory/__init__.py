"""The theory bench: what the papers prove, computed in closed form and measured through the library's own methods.

One paper's closed forms are one file (`flame*`, `ditto`, `lp_proj`, `pfedme`, `fedamp`), each a small function with its
equation number. `replicas` plays many federations at once; `checks_*` compare the two, and `NAMES` lists the checks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import get_type_hints

from ...errors import need, unknown
from ...run.named_parts import convert
from . import (
    checks_ditto,
    checks_fedamp,
    checks_flame,
    checks_flame_convergence,
    checks_flame_propositions,
    checks_lp_proj,
    checks_lp_proj_convergence,
    checks_pfedme,
    checks_pfedme_lemmas,
)
from .findings import Check, Finding, Row

NAMES: dict[str, type[Check]] = {
    check.name: check
    for check in (
        checks_ditto.DittoFigure1,
        checks_ditto.Figure2,
        checks_ditto.DittoLinear,
        checks_ditto.DittoRate,
        checks_lp_proj.LpProjFigure1,
        checks_lp_proj.LpProjAttacks,
        checks_lp_proj.Fairness,
        checks_lp_proj_convergence.LpProjLemma1,
        checks_lp_proj_convergence.LpProjTheorem1,
        checks_flame.Solutions,
        checks_flame.FlameAttacks,
        checks_flame_propositions.Proposition2,
        checks_flame_propositions.Proposition3,
        checks_flame_convergence.Theorem1,
        checks_flame_convergence.Lyapunov,
        checks_flame_convergence.FlameRate,
        checks_pfedme.Envelope,
        checks_pfedme.PFedMeRate,
        checks_pfedme_lemmas.Lemmas,
        checks_pfedme_lemmas.PFedMeTheorem2,
        checks_fedamp.FedAMPRate,
        checks_fedamp.Factor2,
    )
}


def check(name: str, values: Mapping[str, object] | None = None) -> Check:
    """The named check with these parameters; what is unknown, no number or not finite is refused."""
    if name not in NAMES:
        raise unknown("theory", name, [*NAMES, "all"])
    made = NAMES[name]
    known, hints = [f.name for f in fields(made)], get_type_hints(made)  # type: ignore[arg-type]
    given = {}
    for key, value in (values or {}).items():
        if key not in known:
            raise unknown(f"parameter of {name}", key, known)
        given[key] = convert(f"{name}'s {key}", value, hints[key])
        numbers = given[key] if isinstance(given[key], tuple) else (given[key],)
        finite = all(math.isfinite(v) for v in numbers if isinstance(v, float))
        need(finite, f"{name}'s {key} must be a finite number; got {value!r}.")
    return made(**given)


__all__ = ["NAMES", "Check", "Finding", "Row", "check"]
