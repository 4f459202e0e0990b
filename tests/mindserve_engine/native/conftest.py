"""Makes the fakes importable here, and in the engine processes that tests start."""

import os
import sys
from pathlib import Path

FAKES = str(Path(__file__).parent / "fakes")
sys.path.insert(0, FAKES)
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (FAKES, os.environ.get("PYTHONPATH"))))
