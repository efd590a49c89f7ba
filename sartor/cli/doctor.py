"""What is installed, what is found, and what to do about what is missing."""

from __future__ import annotations

import os
import platform
import re
import shutil
from importlib import metadata
from pathlib import Path
from typing import Any

from .. import __version__, data
from ..data.known_sets.places import ADDRESSES, WANTED, folders

PACKAGES = ("torch", "numpy", "safetensors", "scikit-learn", "pyarrow", "pydantic", "rich", "typer")
EXTRAS = {  # what each is for; which packages they are is in the package's own metadata
    "fast": "linear models several times faster",
    "plots": "plots of comparisons, of sartor reproduce and of sartor theory",
    "privacy": "accounts for differential privacy: --dp-noise, --dp-epsilon",
    "tune": "sartor tune --sampler tpe",
    "nvflare": "a real federation: sartor federation, server, client",
    "flower": "a real federation over Flower",
    "ray": "a simulation on more than one machine: --engine ray",
    "text": "columns of free text, embedded by a frozen sentence encoder",
    "adapters": "LoRA and other adapters of peft models",
    "onnx": "export of models to ONNX",
    "tensorboard": "--track tensorboard:DIR",
    "mlflow": "--track mlflow:URI",
}


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
        "extras": _extras(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "cuda": torch.cuda.is_available(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "free_disk_gib": round(shutil.disk_usage(Path.cwd()).free / 2**30, 1),
        "SARTOR_DATA": os.environ.get("SARTOR_DATA"),
        "datasets": sets,
    }


def _extras() -> dict[str, dict[str, str | None]]:
    """Every extra's packages with their versions, None where one is not installed."""
    found: dict[str, dict[str, str | None]] = {}
    wanted_by_us = (metadata.requires("sartor") or []) if _version("sartor") else []  # none: run without installing
    for line in wanted_by_us:
        wanted = re.match(r"([\w.-]+).*extra == ['\"]([\w-]+)['\"]", line)
        if wanted and wanted[2] in EXTRAS:
            found.setdefault(wanted[2], {})[wanted[1]] = _version(wanted[1])
    return found


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
        "",
        "optional extras:",
        *(_extra(name, packages) for name, packages in found["extras"].items()),
        "",
        f"data sets (SARTOR_DATA is {found['SARTOR_DATA'] or 'not set; it names a folder that has data sets'}):",
        *(f"  {name:<14} {_where(name, paths)}" for name, paths in found["datasets"].items()),
        "",
        "to begin: sartor compare; with your own data: sartor run --data FILE.csv --target COLUMN --client-key COLUMN",
    ]
    return "\n".join(lines)


def _extra(name: str, packages: dict[str, str | None]) -> str:
    missing = [p for p, version in packages.items() if version is None]
    if missing:
        return f"  {name:<14} {', '.join(missing)} not installed; for {EXTRAS[name]}: pip install 'sartor[{name}]'"
    return f"  {name:<14} {', '.join(f'{p} {v}' for p, v in packages.items())}"


def _where(name: str, paths: list[str] | None) -> str:
    """Where a set is, or what to do to have it."""
    if paths:
        return f"found: {Path(paths[0]).parent}"
    if paths is not None:
        return "made or embedded, needs no file"
    if name in ADDRESSES:
        return "not found; downloaded and checked when it is first used"
    file, folder = WANTED[name][0][0], folders(name)[-1]
    return f"not found, and not downloaded: put {file} into {folder} (sartor run --data {name} says what it holds)"
