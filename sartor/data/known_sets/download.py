"""Fetch a published file once, verify it, and keep it in the cache folder."""

from __future__ import annotations

import http.client
import os
import tempfile
import urllib.error
import urllib.request
from pathlib import Path
from typing import BinaryIO

from ...errors import SartorError, need
from ..file_formats import check_digest, first_line


def cache_folder() -> Path:
    """Where fetched files are kept: $SARTOR_CACHE, else sartor in $XDG_CACHE_HOME or ~/.cache."""
    own = os.environ.get("SARTOR_CACHE")
    if own:
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sartor"


def fetch(url: str, digest: str | None, target: Path, content: bool = True, timeout: float = 30.0) -> Path:
    """Download `url` to `target` unless its digest is wrong; never leaves a partial file.

    `digest` is the md5 or sha256 of the uncompressed content, or with `content=False` of the file as it is; None: its
    publisher states none.
    """
    need(url.startswith(("http://", "https://")), f"only http and https addresses are fetched; got {url!r}.")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=".partial-")
    except OSError as error:
        raise SartorError(f"cannot write to {target.parent} ({first_line(error)}); set SARTOR_CACHE.") from None
    partial = Path(name)
    try:
        with os.fdopen(handle, "wb") as out:
            _copy(url, out, timeout)
        try:
            if digest is not None:
                check_digest(partial, digest, content)
        except SartorError as error:
            reason = str(error).replace(f"{partial} is", "it is").replace("; delete it and load again.", ".")
            raise SartorError(f"{url} was refused: {reason}") from None
        partial.chmod(0o644)  # mkstemp's files are for their owner only; a cache may be shared
        os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)
    return target


def _copy(url: str, out: BinaryIO, timeout: float) -> None:
    request = urllib.request.Request(url, headers={"User-Agent": "sartor"})
    got = 0
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            expected = answer.headers.get("Content-Length")
            while piece := answer.read(1 << 20):
                out.write(piece)
                got += len(piece)
    except http.client.IncompleteRead:
        raise SartorError(f"{url} broke off before its end.") from None
    except urllib.error.HTTPError as error:
        error.close()
        raise SartorError(f"{url} answered {error.code} {error.reason}.") from None
    except (urllib.error.URLError, OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise SartorError(f"{url} could not be reached ({reason}).") from None
    if expected is not None and got != int(expected):
        raise SartorError(f"{url} broke off: {got} of {expected} bytes came.")
