"""An installed wheel, looked at: `make test-wheel` runs this with the interpreter of an empty environment."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
import tempfile
from importlib import resources
from pathlib import Path

import sartor

NEEDED = ("py.typed", "recipes/flame-table3.toml", "recipes/published/flame-table3.toml", "recipes/results")


def main() -> int:
    assert "site-packages" in sartor.__file__, f"not the installed package: {sartor.__file__}"
    package = resources.files("sartor")
    for name in NEEDED:
        thing = package.joinpath(*name.split("/"))
        assert thing.is_file() or thing.is_dir(), f"the wheel lacks {name}"
    command = [str(Path(sysconfig.get_path("scripts"), "sartor"))]
    with tempfile.TemporaryDirectory() as folder:
        for arguments in (
            ["doctor"],
            ["list", "recipes"],
            ["compare", "--methods", "flame,local", "--rounds", "2", "--seeds", "0", "--out", "runs/a"],
        ):
            subprocess.run([*command, *arguments], cwd=folder, check=True)
        summaries = json.loads(Path(folder, "runs", "a", "compare.json").read_text(encoding="utf-8"))
    assert [s["method"] for s in summaries] == ["flame", "local"]
    print(f"sartor {sartor.__version__} from {Path(sartor.__file__).parent}: the wheel works")
    return 0


if __name__ == "__main__":
    sys.exit(main())
