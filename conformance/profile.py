"""Profiles: what is known of a server before it is asked. A YAML file, checked against the schema below."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import jsonschema_rs

from conformance.capabilities import capability_names
from conformance.dialects import DIALECTS, VLLM
from conformance.files import PROFILES, SuiteError, read_yaml

_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "dialect": {"enum": list(DIALECTS)},
        "capabilities": {"type": "object", "additionalProperties": {"type": "boolean"}},
        "headers": {"type": "object", "additionalProperties": {"type": "string"}},
        "adapter": {"type": "string", "minLength": 1},
        "limits": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "max_body_bytes": {"type": "integer", "minimum": 1024},
                "max_prompt_tokens": {"type": "integer", "minimum": 1, "maximum": 1 << 20},
                "max_tokens": {"type": "integer", "minimum": 1},
                "likely_token": {"type": "integer", "minimum": 0, "maximum": (1 << 32) - 1},
            },
        },
        "timeouts": {
            "type": "object",
            "additionalProperties": False,
            "properties": {name: {"type": "number", "exclusiveMinimum": 0} for name in ("request_s", "total_s")},
        },
        "pacing": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "rate": {"type": "number", "exclusiveMinimum": 0},
                "concurrency": {"type": "integer", "minimum": 1, "maximum": 256},
            },
        },
    },
}


@dataclass(frozen=True, kw_only=True)
class Profile:
    """What a profile file says; each part may be missing."""

    dialect: str = VLLM
    """Of the server; requests with a header of their own aside (D10)."""
    capabilities: Mapping[str, bool] = field(default_factory=dict)
    """Forced on or off; the others are found out."""
    headers: Mapping[str, str] = field(default_factory=dict)
    adapter: str | None = None
    """Name of a LoRA adapter; None: the first one that ``/v1/models`` lists."""
    max_body_bytes: int | None = None
    """The server's own limit of a request body: one byte more is sent. None: it is not tested."""
    max_prompt_tokens: int | None = None
    """Tokens of the longest prompt (MindIE: the least of maxInputTokenLen, maxSeqLen - 1 and the model's positions): a
    longer one is sent. None: only one that is too long for any server."""
    max_tokens: int | None = None
    """The most tokens that the server generates, whatever is asked for (MindIE: maxIterTimes): an answer that long is
    asked for. None: it is not tested."""
    likely_token: int | None = None
    """Id of a token of the model's answer to ``Name three colours.`` at temperature 0: it is ruled out, and asked for.
    None: what ``logit_bias`` does is not tested."""
    request_s: float | None = None
    total_s: float | None = None
    rate: float | None = None
    concurrency: int | None = None


def load_profile(name: str) -> Profile:
    """A file, or the name of a profile that comes with the suite. Raises ``SuiteError`` naming each fault."""
    shipped = PROFILES / f"{name}.yaml"
    path = shipped if shipped.is_file() and not Path(name).exists() else Path(name)
    document = read_yaml(path)
    document = {} if document is None else document
    errors = jsonschema_rs.Draft202012Validator(_SCHEMA).iter_errors(document)
    faults = [f"{'.'.join(map(str, error.instance_path)) or 'the profile'}: {error.message}" for error in errors]
    if not faults:
        capabilities = capability_names()
        unknown = set(document.get("capabilities", {})) - capabilities
        faults = [
            f"capabilities.{one}: not known; there are {', '.join(sorted(capabilities))}" for one in sorted(unknown)
        ]
    if faults:
        raise SuiteError(f"{path}: {'; '.join(faults)}")
    flat = {key: value for key, value in document.items() if key not in {"limits", "timeouts", "pacing"}}
    for group in ("limits", "timeouts", "pacing"):
        flat |= document.get(group, {})
    return Profile(**flat)
