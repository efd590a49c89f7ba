"""Where clients live: in this process (local, serial)."""

from .local import LocalEngine, SerialEngine

__all__ = ["LocalEngine", "SerialEngine"]
