"""What a server of this API may lack: names, and how each is found out (``capabilities.yaml``)."""

from __future__ import annotations

from functools import cache
from typing import Any

from conformance.files import PACKAGE, read_yaml


@cache
def probes() -> dict[str, dict[str, Any]]:
    """Name -> how it is found out."""
    named: dict[str, dict[str, Any]] = read_yaml(PACKAGE / "capabilities.yaml")
    return named


def capability_names() -> frozenset[str]:
    return frozenset(probes())
