"""What is installed, what is found, and what to do about what is missing."""

from __future__ import annotations

import os
import platform
import shutil
from importlib import metadata
from pathlib import Path
from typing import Any

from . import __version__, data

EXTRAS = {
    "numba": "fast: linear models several times faster",
    "opacus": "privacy: accounts for differential privacy",
    "onnxscript": "onnx: models as .onnx files",
}
PACKAGES = ("torch", "numpy", "safetensors", "scikit-learn", "pyarrow", "pydantic", "rich", "typer")


def examine() -> dict[str, Any]:
    """The facts."""
    import torch

    sets = {}
    for name in data.DATASETS:
        found = data.find(name)
        sets[name] = None if found is None else [str(p) for p in found]
    return {
        "sartor": __version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        "packages": {p: metadata.version(p) for p in PACKAGES},
        "extras": {p: _version(p) for p in EXTRAS},
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "cuda": torch.cuda.is_available(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "free_disk_gib": round(shutil.disk_usage(Path.cwd()).free / 2**30, 1),
        "SARTOR_DATA": os.environ.get("SARTOR_DATA"),
        "datasets": sets,
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def words(found: dict[str, Any]) -> str:
    """The facts as lines to read."""
    lines = [
        f"sartor {found['sartor']}, Python {found['python']}, {found['system']}",
        f"{found['cores']} cores ({found['threads']} threads for torch), {found['memory_gib']} GiB of memory, "
        f"{found['free_disk_gib']} GiB free here, {'a' if found['cuda'] else 'no'} CUDA device",
        "packages: " + ", ".join(f"{k} {v}" for k, v in found["packages"].items()),
        *(f"{p}: {v or f'not installed (the extra {EXTRAS[p]})'}" for p, v in found["extras"].items()),
        f"SARTOR_DATA: {found['SARTOR_DATA'] or 'not set (a folder with data sets; see sartor list datasets)'}",
        "data sets:",
    ]
    for name, paths in found["datasets"].items():
        where = "made or embedded, needs no file"
        if paths is None:
            where = f"not found: downloaded when first used, or `sartor run --data {name}` says what is wanted"
        elif paths:
            where = f"found: {Path(paths[0]).parent}"
        lines.append(f"  {name:<14} {where}")
    return "\n".join(lines)
