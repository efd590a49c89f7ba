"""Processes of ours that somebody else starts end with whoever started them."""

from __future__ import annotations

import os
import threading
import time

_LOOK = 1.0  # seconds between two looks whether the parent process still lives


def die_with_parent() -> None:
    """End this process soon after the one that started it: without it, it would hold states, memory and ports."""
    parent = int(os.environ.get("SARTOR_DAEMON", os.getppid()))  # it may be gone before this is asked

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_LOOK)
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name="parent watch").start()
