"""An installed wheel, looked at: `make test-wheel` runs this with the interpreter of an empty environment."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import sartor

SOURCE = Path(__file__).resolve().parent.parent / "sartor"


def main() -> int:
    assert "site-packages" in sartor.__file__, f"not the installed package: {sartor.__file__}"
    installed = Path(sartor.__file__).parent
    wanted = {p.relative_to(SOURCE) for p in SOURCE.rglob("*") if p.is_file() and "__pycache__" not in p.parts}
    lacking = sorted(str(p) for p in wanted if not (installed / p).is_file())
    assert not lacking, f"the wheel lacks {lacking}; see package-data in pyproject.toml"
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
    print(f"sartor {sartor.__version__} from {installed}: all {len(wanted)} files are there, and it works")
    return 0


if __name__ == "__main__":
    sys.exit(main())
