"""Every method with settings for a small task, and other ways through the same code."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import sartor as st
from sartor.core import Method
from sartor.methods import NAMES
from sartor.run.named_parts import method_from

SOLVER = st.SGD(lr=0.1, epochs=2, batch=7, momentum=0.3, weight_decay=0.01)
PRESETS: dict[str, dict[str, Any]] = {  # what the small task needs; the rest is the method's own default
    "flame-lp-proj": {"d_sub": 5},
    "lp-proj-1": {"d_sub": 5},
    "lp-proj-2": {"d_sub": 5},
}
EXTRA = {  # other ways through the same code
    "flame-global-anchor": lambda: st.FLAME(anchor="global", weighting="size", solver=SOLVER),
    "flame-inexact": lambda: st.FLAME(solver=st.Inexact(lr=0.2, eps=1e-2, max_steps=20)),
    "pfedme-train-all": lambda: st.PFedMe(
        train_all=True, start="w", weighting="size", solver=st.SGD(lr=0.05, steps=3, reuse=True, batch=7)
    ),
    "ditto-finetuned": lambda: st.Ditto(joint=False, global_solver=st.Adam(lr=0.01, batch=7), solver=SOLVER),
    "lp-proj-1.5-adam": lambda: st.LpProj(
        p=1.5, d_sub=4, R=2, train_all=True, solver=st.Adam(lr=0.01, steps=3, batch=7)
    ),
    "ditto-scaffold": lambda: st.Ditto(global_method=st.SCAFFOLD(solver=SOLVER), solver=SOLVER),
    "ditto-flame": lambda: st.Ditto(global_method=st.FLAME(solver=SOLVER), solver=SOLVER),
    "scaffold-ii": lambda: st.SCAFFOLD(option="II", server_lr=0.8, solver=st.SGD(lr=0.1, epochs=2, batch=7)),
    "rsa-2": lambda: st.RSA(p=2, lam=0.1, decay=0.01, solver=SOLVER),
    "fedadmm-size": lambda: st.FedADMM(weighting="size", solver=st.Inexact(lr=0.2, eps=1e-2, max_steps=20)),
    "mapper-inexact": lambda: st.Mapper(solver=st.Inexact(lr=0.2, eps=1e-2, max_steps=20)),
    "fedamp-cohort": lambda: st.FedAMP(among="cohort", sigma=5.0, solver=SOLVER),
    "fedamp-alpha": lambda: st.FedAMP(alpha=0.3, sigma=5.0, beta_decay=0.5, beta_every=2, solver=SOLVER),
}
METHODS = [*NAMES, *EXTRA]


def make(name: str) -> Method:
    if name in EXTRA:
        return EXTRA[name]()
    own = [f.name for f in fields(NAMES[name].make)]  # type: ignore[arg-type]
    settings = PRESETS.get(name, {}) | ({"solver": SOLVER} if "solver" in own else {})
    return replace(method_from(name, {}), **settings)  # type: ignore[type-var]
