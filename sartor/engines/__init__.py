"""Where clients are computed: in this process (local, serial), in forked workers, on a Ray cluster."""

from .local import LocalEngine, SerialEngine

__all__ = ["LocalEngine", "SerialEngine"]
