"""The wheel in empty environments: every Python that is to be had, then the lowest versions that pyproject.toml allows.

    python release/environments.py dist/sartor-0.1.0-py3-none-any.whl

Each environment is made by uv from nothing but the wheel and its plain ranges, outside of this folder; tests/wheel.py
runs in it; then it is removed. A Python that this machine does not have is skipped, and named in the last lines. Writes
a bill of materials of the newest environment (CycloneDX) beside the wheel.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTHONS = ("3.11", "3.12", "3.13")
LOWEST = PYTHONS[0]
TOOLS = Path(sys.executable).parent  # uv and cyclonedx-py are beside this interpreter


def interpreter(version: str) -> Path | None:
    """A Python of this version: of the path, or of pyenv. A name on the path may be a shim without anything behind."""
    named = shutil.which(f"python{version}")
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    ask = "import sys; print('%d.%d' % sys.version_info[:2])"
    for found in [*([Path(named)] if named else []), *sorted(pyenv.glob(f"{version}.*/bin/python"))]:
        answer = subprocess.run([found, "-c", ask], capture_output=True, text=True, check=False)
        if answer.stdout.strip() == version:
            return found
    return None


def uv(*words: object) -> str:
    return subprocess.run([TOOLS / "uv", *map(str, words)], check=True, stdout=subprocess.PIPE, text=True).stdout


def inside() -> dict[str, str]:
    """The surroundings of a program that must see nothing of this checkout."""
    return {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}


def check(python: Path, wheel: Path, folder: Path, first: Path | None = None) -> str:
    """Install and try. `first`: requirements that are there before the wheel, of which it must change none. Returns
    which versions of what matters most were installed."""
    home = folder / "environment"
    uv("venv", "--quiet", "--python", python, home)
    into = ("--quiet", "--python", home / "bin" / "python")
    whole = (*into, "--compile-bytecode")  # else each of the commands would compile PyTorch's files anew
    if first is not None:
        uv("pip", "install", *whole, "--requirement", first)
    before = set(uv("pip", "freeze", *into).splitlines())
    uv("pip", "install", *whole, wheel)
    after = uv("pip", "freeze", *into).splitlines()
    replaced = sorted(before - set(after))
    assert not replaced, f"installing the wheel replaced {', '.join(replaced)}"
    subprocess.run([home / "bin" / "python", ROOT / "tests" / "wheel.py"], cwd=folder, env=inside(), check=True)
    return ", ".join(line for line in after if line.startswith(("torch=", "numpy=", "scikit-learn=", "pydantic=")))


def bill_of_materials(environment: Path, wheel: Path) -> Path:
    path = wheel.parent / f"{'-'.join(wheel.name.split('-')[:2])}.cdx.json"
    words = ["environment", "--output-reproducible", "--pyproject", ROOT / "pyproject.toml", "--mc-type", "library"]
    words += ["--output-file", path, environment / "bin" / "python"]
    subprocess.run([TOOLS / "cyclonedx-py", *map(str, words)], check=True)
    return path


def lowest_versions(folder: Path) -> Path:
    """The lowest version of every range in pyproject.toml, as requirements."""
    path = folder / "lowest.txt"
    how = ("--quiet", "--python-version", LOWEST, "--resolution", "lowest-direct", "--output-file", path)
    uv("pip", "compile", *how, ROOT / "pyproject.toml")
    return path


def main(wheel: Path) -> int:
    found = {version: interpreter(version) for version in PYTHONS}
    had = [version for version, python in found.items() if python is not None]
    assert LOWEST in had, f"a release needs Python {LOWEST}, the oldest that pyproject.toml allows; none is here"
    said = [f"Python {version}: SKIPPED, none on this machine" for version in PYTHONS if version not in had]
    for version in [*had, "lowest"]:
        began = time.monotonic()
        python = found[LOWEST if version == "lowest" else version]
        assert python is not None
        with tempfile.TemporaryDirectory(prefix="sartor-wheel-") as made:
            folder = Path(made)
            first = lowest_versions(folder) if version == "lowest" else None
            versions = check(python, wheel, folder, first)
            if version == had[-1]:
                said.append(f"bill of materials: {bill_of_materials(folder / 'environment', wheel)}")
        name = f"Python {LOWEST}, lowest versions of all ranges" if first else f"Python {version}"
        said.append(f"{name}: works, in {time.monotonic() - began:.0f} s ({versions})")
    print("\n" + "\n".join(said))
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
