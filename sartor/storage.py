"""Reading and writing files: atomic, without pickle, and with one clear line when the disk says no."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from safetensors import SafetensorError, safe_open

from .errors import SartorError, readable, reason

if TYPE_CHECKING:
    import torch

    from .core import State

T = TypeVar("T")
SEAL = "sha256"  # the checksum's name in a note


@contextmanager
def replacing(path: Path, durable: bool = True) -> Iterator[Path]:
    """A temporary file beside `path` that takes its place when the block ends well; else `path` stays as it was.

    A `durable` one outlives the machine; another one outlives the process, which is much faster.
    """
    temporary = path.with_name(f".{path.name}.part")  # always the same: what a killed run leaves is overwritten
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        if durable:
            with open(temporary, "rb") as f:
                os.fsync(f.fileno())
        os.replace(temporary, path)
        if durable:
            sync_folder(path.parent)
    except (OSError, SafetensorError) as e:
        raise SartorError(
            f"cannot write {path}: {reason(e)}. What was saved there before is unharmed; "
            "free some space or choose another folder with --out."
        ) from e
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def sync_folder(folder: Path) -> None:
    """See to it that the new name is on the disk, too: who answers after a write must not find the old file again."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_text(path: Path, text: str, durable: bool = True) -> None:
    """Write a text file atomically."""
    with replacing(path, durable) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any, indent: int | None = 1) -> None:
    """Write JSON atomically; NaN and Inf are refused, never written. Without an indent it is one line, which is written
    six times as fast: for what nobody reads by eye."""
    write_text(path, json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False) + "\n")


def read_json(path: Path, shape: Any = Any) -> Any:
    """Read JSON; `shape` is the type that it must have (run/folder_schema.py)."""
    return shaped(_parsed(path, _loads), shape, str(path))


def read_lines(path: Path) -> list[Any]:
    """Read JSON lines."""
    return _parsed(path, lambda text: [_loads(line) for line in text.splitlines() if line.strip()])


def _parsed(path: Path, parse: Callable[[str], T]) -> T:
    try:
        return parse(path.read_text(encoding="utf-8"))
    except OSError as e:
        raise SartorError(f"cannot read {path}: {reason(e)}.") from e
    except (ValueError, RecursionError) as e:
        raise SartorError(f"cannot read {path}: {e}. It was cut off or changed after it was written.") from e


def _loads(text: str) -> Any:
    return json.loads(text, parse_constant=_no_number)


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is not a number")


def shaped(value: T, shape: Any, where: str) -> T:
    """The value, which must have this shape; one line that names the first place that has not."""
    from pydantic import TypeAdapter, ValidationError

    try:
        TypeAdapter(shape).validate_python(value, strict=True)
    except ValidationError as e:
        wrong = e.errors(include_url=False)[0]
        place = ".".join(map(str, wrong["loc"]))
        said = wrong["msg"].split(" or instance")[0].removeprefix("Value error, ")
        got = "" if wrong["type"] == "missing" else f"; got {readable(repr(wrong['input']), 80)}"
        raise SartorError(f"{where} is not as Sartor writes it: {f'{place}: ' if place else ''}{said}{got}.") from e
    return value


def read_toml(path: Path, missing: str = "") -> dict[str, Any]:
    """Read TOML; `missing` is added to the refusal of a file that is not there."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
        json.dumps(found, default=str)  # refuses tables too deep, and numbers too long, to be shown in a message
        return found
    except OSError as e:
        raise SartorError(f"cannot read {path}: {reason(e)}. {missing}") from e
    except (ValueError, RecursionError) as e:
        raise SartorError(f"cannot read {path}, it is not valid TOML: {e}.") from e


def save_tensors(
    path: Path, tensors: State, about: Mapping[str, Any], durable: bool = True, sealed: bool = False
) -> None:
    """Write tensors and a JSON note to one safetensors file, atomically; `sealed` with a checksum of both."""
    from safetensors.torch import save_file

    whole: State = {}
    for k, v in tensors.items():
        v = v.detach().cpu().contiguous()
        taken = {other.untyped_storage().data_ptr() for other in whole.values()}
        lone = v.untyped_storage().nbytes() == v.nbytes and v.untyped_storage().data_ptr() not in taken
        whole[k] = v if lone else v.clone()  # the format wants every tensor in memory of its own
    note = dict(about) | ({SEAL: _digest(whole, about)} if sealed else {})
    # One entry: the format writes several in any order, and files shall be equal.
    with replacing(path, durable) as temporary:
        save_file(whole, temporary, metadata={"sartor": json.dumps(note, allow_nan=False)})


def _digest(tensors: State, about: Mapping[str, Any]) -> str:
    """The SHA-256 of the note and of every tensor's name, type, shape and bytes."""
    found = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    for name, tensor in sorted(tensors.items()):
        array = tensor.detach().cpu().contiguous().numpy()
        found.update(f"{name} {array.dtype.str} {array.shape}".encode())
        found.update(array.reshape(-1).view("u1").data)
    return found.hexdigest()


def load_tensors(path: Path, device: str | torch.device = "cpu") -> tuple[State, dict[str, Any]]:
    """What `save_tensors` wrote; a sealed file that was changed since is refused."""
    with _opened(path, device) as f:
        tensors, note = {k: f.get_tensor(k) for k in f.keys()}, _note(f)  # noqa: SIM118 (not a dict)
    seal = note.pop(SEAL, None)
    if seal is not None and seal != _digest(tensors, note):
        raise SartorError(
            f"{path} was changed after it was written: its checksum does not fit what it holds. Take it from a copy, "
            "or run again."
        )
    return tensors, note


def load_sealed(path: Path) -> tuple[State, dict[str, Any]]:
    """The same for a file that must have a checksum."""
    if SEAL not in read_note(path):
        raise SartorError(f"{path} has no checksum: it is not as Sartor wrote it, or of an earlier version. Run again.")
    return load_tensors(path)


def read_note(path: Path) -> dict[str, Any]:
    """The JSON note alone, without the tensors."""
    with _opened(path) as f:
        return _note(f)


@contextmanager
def _opened(path: Path, device: str | torch.device = "cpu") -> Iterator[Any]:
    try:
        with safe_open(path, framework="pt", device=str(device)) as f:
            yield f
    except (OSError, SafetensorError, ValueError) as e:
        raise SartorError(f"cannot read {path}: {e}. It is missing, truncated or not a file that Sartor wrote.") from e


def _note(file: Any) -> dict[str, Any]:
    found = json.loads((file.metadata() or {}).get("sartor", "{}"))
    return found if isinstance(found, dict) else {}
