"""The tests' own patience ends when nothing happens any more, not after a time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
from waiting import Watch, ended

WORK = "import time\nwhile True:\n sum(range(10**6)); time.sleep(0.3)"


@pytest.mark.parametrize("program", ["import time; time.sleep(600)", WORK], ids=["asleep", "at work"])
def test_processes_are_given_up_when_none_does_anything(program: str) -> None:
    """A shell that waits for a child: the child's work counts."""
    shell = ["sh", "-c", '"$@" & wait', "sh", sys.executable, "-S", "-c", program]
    with subprocess.Popen(shell, start_new_session=True) as process:
        watch, why = Watch(lambda: [process.pid], still=1.5), ""
        try:
            for _ in range(4):  # looks, each a second or more after the one before
                time.sleep(1.01)
                watch.check()
        except AssertionError as e:
            why = str(e)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
    assert ("nothing has happened" in why) == (program != WORK)


def test_a_process_s_end_is_waited_for() -> None:
    program = "print('a', flush=True); import time; time.sleep(1.5); print('b')"
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-S", "-c", program], stdout=pipe, stderr=pipe, text=True) as process:
        assert ended(process) == ("a\nb\n", "")
