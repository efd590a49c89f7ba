"""Processes that see no network but this machine's own (lo), and that are all ended with the first of them."""

from __future__ import annotations

import fcntl
import functools
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from waiting import ended

_UP = 0x1
_SIOCSIFFLAGS = 0x8914
_PATIENT = {  # Ray's own patience with its processes, of half a minute where they are not told otherwise
    "RAY_raylet_start_wait_time_s": "900",
    "RAY_worker_register_timeout_seconds": "900",
    "RAY_agent_register_timeout_ms": "900000",
}


@functools.cache
def _prefix() -> list[str] | None:
    """`unshare`, as far as this system allows it: a network, and numbers of processes, of their own."""
    for user in ([], ["--user", "--map-root-user"]):
        words = ["unshare", *user, "--net", "--pid", "--fork", "--mount-proc", "--kill-child"]
        if (
            shutil.which("unshare")
            and subprocess.run([*words, "true"], capture_output=True, check=False).returncode == 0
        ):
            return words
    return None


def start(program: Path, *arguments: object, env: Mapping[str, str]) -> subprocess.Popen[str]:
    """Python with this program, apart from everything; a test that cannot have that is skipped."""
    words = _prefix()
    if words is None:
        pytest.skip("unshare is not allowed here, and Ray must not listen on a network")
    command = [*words, sys.executable, __file__, str(program), *map(str, arguments)]
    own = {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, _path()))}
    kept = os.environ | _PATIENT | own | dict(env)
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=kept)


def _path() -> list[str | None]:
    here = Path(__file__).parent
    return [str(here), str(here.parents[1]), os.environ.get("PYTHONPATH")]


def run(program: Path, *arguments: object) -> str:
    """The same to its end, which must be a good one; what it printed."""
    with (
        tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as short,  # the names of Ray's sockets must be short
        start(program, *arguments, env={"TMPDIR": short}) as process,
    ):
        out, err = ended(process)
    assert process.returncode == 0, f"{program.name}: {process.returncode}\n{out}\n{err}"
    return out


def lo_up() -> None:
    """What `ip link set lo up` does."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", _UP))


if __name__ == "__main__":
    import runpy

    lo_up()
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")
