"""The pictures of the report in docs/, from a real comparison on the embedded digits: `make report-shots`.

Needs Chromium. With a folder as its argument the comparison there is used, in place of a new one.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from PIL import Image

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests" / "support"))

import chromium  # noqa: E402

# name, width, height, dark, pixels of the screen for each of the page
SHOTS = (("desktop", 1280, 1900, False, 1.0), ("dark", 1280, 1900, True, 1.0), ("phone", 390, 1700, False, 1.5))


def main() -> None:
    program = chromium.find()
    if program is None:
        sys.exit(chromium.MISSING)
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE.parent / "runs" / "report-shots"
    if not (folder / "report.html").is_file():
        subprocess.run([Path(sys.executable).parent / "sartor", "compare", "--out", folder], check=True)
    browser = chromium.Browser(program)
    try:
        for name, width, height, dark, scale in SHOTS:
            with browser.page(width, 900, dark, scale) as page:
                page.open(folder / "report.html")
                path = HERE / f"report-{name}.png"
                page.screenshot(path, height)
            small = Image.open(path).convert("RGB").quantize(256, dither=Image.Dither.NONE)  # a page has few colours
            small.save(path, optimize=True)
            print(f"{path}: {path.stat().st_size / 1000:.0f} kB")
    finally:
        browser.close()


if __name__ == "__main__":
    main()
