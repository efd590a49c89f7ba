"""Execute the notebooks in examples/ and keep their outputs: `python docs/notebooks.py [NAME ...]`.

Each runs in an empty folder with this interpreter. tests/documents/test_notebooks.py does the same and keeps nothing.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
LONGEST = 600  # seconds of one cell: a federation on a busy machine


def executed(path: Path, folder: Path) -> NotebookNode:
    """The notebook with its outputs; raises where a cell does. `folder`: where it runs."""
    book = nbformat.read(path, as_version=4)
    commands = str(Path(sys.executable).parent)  # `sartor` is beside the interpreter
    env = os.environ | {"PATH": f"{commands}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "110", "TQDM_DISABLE": "1"}
    client = NotebookClient(book, timeout=LONGEST, kernel_name="python3", resources={"metadata": {"path": str(folder)}})
    client.execute(env=env)
    return tidied(book, f"{folder}/")


def tidied(book: NotebookNode, folder: str) -> NotebookNode:
    """Without what differs from machine to machine and says nothing: times of cells, the kernel's version, colours, the
    folder's name. What came in pieces is one output."""
    for cell in book.cells:
        cell.metadata = {}
        whole: list[NotebookNode] = []
        for output in cell.get("outputs", []):
            if output.get("name") == "stderr" and "site-packages" in output.text:
                continue  # a warning of some library, with folders of this machine
            if output.output_type != "stream":
                output.metadata = {}
            elif whole and whole[-1].get("name") == output.name:
                whole[-1].text += output.text
                continue
            whole.append(output)
        for output in whole:
            if "text" in output:
                output.text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", output.text).replace(folder, "")
        if cell.cell_type == "code":
            cell.outputs = whole
    book.metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    return book


def main(names: list[str]) -> None:
    for path in sorted(EXAMPLES.glob("*.ipynb")):
        if not names or path.stem in names:
            with tempfile.TemporaryDirectory() as folder:
                nbformat.write(executed(path, Path(folder)), path)
            print(path.name, f"{path.stat().st_size / 1000:.0f} kB", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
