"""Run every benchmark, each in a process of its own: ``python -m benchmarks [--full]``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def main() -> int:
    """Return the number of benchmarks that failed to run."""
    folder = Path(__file__).parent
    names = sorted(p.stem for p in folder.glob("*.py") if not p.stem.startswith("_"))
    failed = 0
    for name in names:
        print(f"== {name}", flush=True)
        command = [sys.executable, "-m", f"benchmarks.{name}", *sys.argv[1:]]
        failed += subprocess.run(command, cwd=folder.parent, check=False).returncode != 0
    return failed


if __name__ == "__main__":
    raise SystemExit(main())
