"""Workers as processes: forked from this one, they see its data, and share the tables that they write.

Threads take turns at Python's lock, which for small models costs as much as the second core gains. Nothing is pickled:
workers inherit method, task and data by the fork; requests and answers are short JSON; tensors lie in shared memory.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import math
import mmap
import multiprocessing
import os
import signal
import sys
import traceback
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from multiprocessing.connection import Connection, wait
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from ..client_table import rows_of, span
from ..core import State
from ..errors import Diverged, SartorError

Request = dict[str, Any]
Train = Callable[[int, np.ndarray, State], tuple[State, State]]  # round, ids, downlink → states, messages
Keep = Callable[[Tensor, State], None]
Serve = Callable[[Request], Request | None]
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # as in malloc.h
_ASK_AGAIN = 1.0  # seconds after which an idle worker looks whether its parent still lives


def available() -> bool:
    """Whether this process may fork workers: on Linux, and where it is not itself somebody's daemon."""
    return sys.platform == "linux" and not multiprocessing.current_process().daemon


def shared(shape: Sequence[int], dtype: torch.dtype, device: torch.device | None = None) -> Tensor:
    """An empty tensor in memory that forked processes share."""
    count = math.prod(shape)
    if count == 0:
        return torch.empty(tuple(shape), dtype=dtype)
    return torch.frombuffer(mmap.mmap(-1, count * dtype.itemsize), dtype=dtype, count=count).view(tuple(shape))


class Team:
    """Processes that train a cohort, chunk by chunk. What goes to them and comes back has one row per client, in
    shared memory."""

    def __init__(self, workers: int, train: Train, keep: Keep, room: int, down: State, messages: State) -> None:
        """`train` a chunk of clients, and `keep` their new states in tables that are shared already.

        There is `room` for so many clients in a round; `down` and `messages` are a round's and show the shapes.
        """
        self.train, self.keep, self.room = train, keep, room
        self.ids, self.order = shared([self.room], torch.int64), shared([self.room], torch.int64)
        self.down = {k: shared([1 if v.stride(0) == 0 else self.room, *v.shape[1:]], v.dtype) for k, v in down.items()}
        self.messages = {k: shared([self.room, *v.shape[1:]], v.dtype) for k, v in messages.items()}
        self.trained: list[tuple[Tensor, State]] = []  # at a worker: new states that are not yet kept
        self.workers = Workers(workers, self._serve)
        del self.train, self.keep  # the workers have them; here they would keep the engine alive, and so its workers

    def fits(self, ids: Tensor, down: State) -> bool:
        """Whether a round with these clients and this downlink has the shapes that were agreed on."""
        return (
            self.workers.alive
            and len(ids) <= self.room
            and down.keys() == self.down.keys()
            and all(
                v.shape[1:] == (box := self.down[k]).shape[1:] and (v.stride(0) == 0) == (len(box) == 1 < self.room)
                for k, v in down.items()
            )
        )

    def play(self, round: int, ids: Tensor, chunks: Sequence[np.ndarray], down: State) -> State:
        """One round of the clients `ids`: their messages, to be used before the next round overwrites them.

        No state changes unless every client has finished.
        """
        n = len(ids)
        self.ids[:n], self.order[:n] = ids, torch.from_numpy(np.concatenate(chunks))
        for k, v in down.items():
            self.down[k][: 1 if v.stride(0) == 0 else n] = v[:1] if v.stride(0) == 0 else v
        edges = np.cumsum([0, *map(len, chunks)]).tolist()
        done = False
        try:
            self.workers.share([{"round": round, "from": lo, "to": hi} for lo, hi in pairwise(edges)])
            done = True
        finally:
            if self.workers.alive:
                self.workers.all({"keep": done})
        return {k: v[:n] for k, v in self.messages.items()}

    def _serve(self, request: Request) -> None:
        if "keep" in request:
            for ids, state in self.trained if request["keep"] else []:
                self.keep(ids, state)
            self.trained.clear()
            return
        here = self.order[request["from"] : request["to"]]
        ids = self.ids[here]
        state, message = self.train(request["round"], ids.numpy(), rows_of(self.down, here))
        for k, v in message.items():
            self.messages[k][span(here)] = v
        self.trained.append((ids, state))


class Workers:
    """Processes that answer requests with `serve`, a function of this process as it was when they were made."""

    def __init__(self, count: int, serve: Serve) -> None:
        context = multiprocessing.get_context("fork")
        self.lines: list[Connection] = []
        processes = []
        for _ in range(count):
            ours, theirs = context.Pipe()
            with warnings.catch_warnings():  # other threads of this process hold no lock that a worker needs
                warnings.simplefilter("ignore", DeprecationWarning)
                process = context.Process(target=_work, args=(theirs, serve, os.getpid()), daemon=True)
                process.start()
            theirs.close()
            self.lines.append(ours)
            processes.append(process)
        self.close = weakref.finalize(self, _end, os.getpid(), self.lines, processes)

    @property
    def alive(self) -> bool:
        """Whether they can still be asked."""
        return self.close.alive

    def share(self, requests: Sequence[Request]) -> None:
        """Have all requests served, each by whichever worker is free; the first error is raised when all is quiet."""
        waiting, busy, errors = list(reversed(requests)), 0, []
        with self._there():
            for line in self.lines[: len(requests)]:
                _send(line, waiting.pop())
                busy += 1
            while busy:
                for free in wait(self.lines):
                    answer = _receive(cast(Connection, free))
                    errors += [answer] if "error" in answer else []
                    if waiting and not errors:
                        _send(cast(Connection, free), waiting.pop())
                    else:
                        busy -= 1
        _raise(errors)

    def all(self, request: Request) -> None:
        """Have every worker serve the request."""
        with self._there():
            for line in self.lines:
                _send(line, request)
            answers = [_receive(line) for line in self.lines]
        _raise([answer for answer in answers if "error" in answer])

    @contextlib.contextmanager
    def _there(self) -> Iterator[None]:
        """When one worker is gone, or this process is interrupted while they work, all are ended."""
        try:
            yield
        except (OSError, EOFError) as e:
            self.close()
            raise SartorError(_GONE) from e
        except BaseException:
            self.close()
            raise


def _raise(errors: list[Request]) -> None:
    for answer in errors[:1]:
        kinds: dict[str, type[Exception]] = {"Diverged": Diverged, "SartorError": SartorError}
        raise kinds.get(answer["error"], RuntimeError)(answer["text"])


def _send(line: Connection, message: Request) -> None:
    line.send_bytes(json.dumps(message).encode())


def _receive(line: Connection) -> Request:
    found: Request = json.loads(line.recv_bytes())
    return found


_GONE = (
    "a worker process has ended (killed, or out of memory?). What was saved is unharmed; "
    "go on with --resume, with --workers 1 or a smaller --chunk."
)


def _work(line: Connection, serve: Serve, parent: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is interrupted, and ends its workers
    torch.set_num_threads(1)
    _keep_freed_memory()
    while True:
        while not line.poll(_ASK_AGAIN):
            if os.getppid() != parent:  # killed: nobody will ever ask again
                os._exit(0)
        try:
            request = _receive(line)
        except (EOFError, OSError):
            os._exit(0)
        try:
            answer = serve(request) or {}
        except SartorError as e:
            answer = {"error": type(e).__name__, "text": str(e)}
        except BaseException:
            answer = {"error": "other", "text": "in a worker process:\n" + traceback.format_exc()}
        _send(line, answer)


def _keep_freed_memory() -> None:
    """Steps free and take the same megabytes again and again; giving them back to the system between costs a tenth."""
    with contextlib.suppress(OSError, AttributeError):  # not the GNU C library
        set_option = ctypes.CDLL(None).mallopt
        set_option(_TRIM_THRESHOLD, (1 << 31) - 1)
        set_option(_MMAP_THRESHOLD, 32 << 20)


def _end(owner: int, lines: list[Connection], processes: list[Any]) -> None:
    if os.getpid() != owner:  # a worker's copy of another engine's workers
        return
    for line in lines:
        with contextlib.suppress(OSError):
            line.close()
    for process in processes:
        process.kill()  # they hold nothing that is not in shared memory
        process.join()
        process.close()
