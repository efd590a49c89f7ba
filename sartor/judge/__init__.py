"""Judging: pure functions on scores, one number per client. Nothing here knows methods, engines or files."""

from .metrics import choose, gains, summarise, worst

__all__ = ["choose", "gains", "summarise", "worst"]
