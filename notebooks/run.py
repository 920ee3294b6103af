"""Run every notebook in a scratch folder, top to bottom; any exception fails the run."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient


def main() -> None:
    """Execute the notebooks named on the command line, or all of this folder."""
    here = Path(__file__).parent
    # Cells call `phrasemem`, which stands beside this interpreter.
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    paths = [Path(name) for name in sys.argv[1:]] or sorted(here.glob("*.ipynb"))
    for path in paths:
        begin = time.perf_counter()
        with tempfile.TemporaryDirectory() as scratch:
            notebook = nbformat.read(path, as_version=4)
            resources = {"metadata": {"path": scratch}}
            NotebookClient(notebook, timeout=900, resources=resources).execute()
        print(f"{path.name}: {len(notebook.cells)} cells, {time.perf_counter() - begin:.0f} s")


if __name__ == "__main__":
    main()
