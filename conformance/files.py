"""Where the suite's own files are, and the contract's: beside the package in a checkout, inside it in a wheel."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import yaml

PACKAGE: Final = Path(__file__).parent
CASES: Final = PACKAGE / "cases"
GOLDEN: Final = PACKAGE / "golden"
PROFILES: Final = PACKAGE / "profiles"
SPEC: Final = next((path for path in (PACKAGE / "spec", PACKAGE.parent / "spec") if path.is_dir()), PACKAGE / "spec")


class SuiteError(Exception):
    """The suite cannot do its work: bad arguments, or a fault in its own files. The text names file and place."""


def read_yaml(path: Path) -> Any:
    """A YAML file as data. Raises ``SuiteError``."""
    try:
        return yaml.load(path.read_text("utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - both safe
    except OSError as error:
        raise SuiteError(f"{path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise SuiteError(f"{path}: not a YAML file: {' '.join(str(error).split())}") from error
