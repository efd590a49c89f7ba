"""An installed wheel, looked at: `make test-wheel` and `make release` run this with the interpreter of an empty
environment, in an empty folder: the files are all there, a comparison, and a table's way to predictions."""

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
        subprocess.run([sys.executable, "-m", "sartor.data.hospitals"], cwd=folder, check=True)
        table = ["--data", "patients.csv", "--target", "outcome", "--client-key", "hospital", "--seed", "0"]
        for arguments in (
            ["--version"],
            ["doctor"],
            ["list", "recipes"],
            ["compare", "--methods", "flame,local", "--rounds", "2", "--seeds", "0", "--out", "runs/a"],
            ["run", *table, "--method", "ditto", "--rounds", "3", "--quiet", "--out", "runs/b"],
            ["run", "--resume", "runs/b", "--rounds", "4", "--quiet"],
            ["predict", "--run", "runs/b", "--data", "new.csv"],
        ):
            answer = subprocess.run([*command, *arguments], cwd=folder, check=True, stdout=subprocess.PIPE, text=True)
            print(answer.stdout)
        assert len(answer.stdout.strip().splitlines()) == 4, "a header and three patients were expected"
        assert Path(folder, "runs", "b", "report.html").stat().st_size > 1_000_000
        summaries = json.loads(Path(folder, "runs", "a", "compare.json").read_text(encoding="utf-8"))
    assert [s["method"] for s in summaries] == ["flame", "local"]
    print(f"sartor {sartor.__version__} from {installed}: all {len(wanted)} files are there, and it works")
    return 0


if __name__ == "__main__":
    sys.exit(main())
