"""A user's script that forgets the main guard; run by test_failures.py."""

import sys
from pathlib import Path

from phrasemem.pipeline.config import load_config
from phrasemem.pipeline.run import build

config, out = map(Path, sys.argv[1:])
build(load_config(config), out, base=config.parent, workers=1)
