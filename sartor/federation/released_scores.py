"""The scores that leave a site."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from ..core import State


def released(scores: State, rows: Mapping[str, Tensor], share: str, least: int, digits: int) -> State:
    """Scores over at least `least` rows of a client, rounded: each client's, all clients' mean in place of each, or
    none (NaN). `rows` [c] by part. Numbers that are no scores are sent as they are."""
    out: State = {}
    for name, value in scores.items():
        part = name.split("/")[1]  # "personal/test/loss"
        if part not in rows:
            out[name] = value
            continue
        kept = torch.where(rows[part] >= least, value, torch.nan)
        if share == "none":
            kept = torch.full_like(kept, torch.nan)
        elif share == "mean":
            kept = kept.nanmean().expand(len(kept)).clone()
        out[name] = rounded(kept, digits)
    return out


def rounded(values: Tensor, digits: int) -> Tensor:
    """To so many significant digits; NaN, Inf and 0 stay. With 17 a number stays as it is."""
    if digits >= 17:
        return values
    plain = values.double()
    size = torch.where((plain == 0) | ~torch.isfinite(plain), 1.0, plain.abs())
    scale = 10.0 ** (digits - 1 - size.log10().floor())
    return torch.where(torch.isfinite(plain), (plain * scale).round() / scale, plain).to(values.dtype)
