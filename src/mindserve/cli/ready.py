"""What a person sees when the server is ready: where it is, what it serves, and a line to try it with."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from typing import Final

from mindserve.chat.parsing.formats import PARSERS
from mindserve.cli.planes import Plane
from mindserve.config.model_types import settings_of_type
from mindserve.config.settings import ModelTypeSettings, ServeSettings
from mindserve.errors import shown
from mindserve_engine.types import EngineInfo

_NO_DEVICE: Final = "none"
"""What an engine without a device, such as the scripted one, says."""


def ready_lines(planes: tuple[Plane, ...], settings: ServeSettings, info: EngineInfo) -> list[str]:
    """Lines to print; the last one can be pasted into a shell."""
    business, *others = planes
    device = "" if info.device == _NO_DEVICE else f"on {info.device}"
    cut = ", cut to what the KV memory holds" if info.is_context_cut_by_memory else ""
    facts = [info.model_type, info.weights, device, f"context of {info.max_context} tokens{cut}"]
    return [
        f"ready: {business.url}",
        f"model: {settings.model_name} ({', '.join(fact for fact in facts if fact)})",
        *(f"health and metrics also at {plane.url}" for plane in others),
        *_type_notes(settings, info.model_type),
        *([f"in a browser: {business.url}/"] if settings.browser_pages else []),
        "try it:",
        curl_line(business, settings.model_name),
    ]


def _type_notes(settings: ServeSettings, model_type: str) -> Iterator[str]:
    """What is set for types of models and has no effect on the one that is served."""
    served = settings_of_type(settings.model_types, model_type)
    if settings.model_types and served == ModelTypeSettings():
        yield f"note: models: {', '.join(settings.model_types)}: nothing is set for the served type, {model_type}"
    parser = served.tool_call_parser
    if parser is not None and parser not in PARSERS:
        yield f"note: tool_call_parser: {shown(parser)} is none of {', '.join(PARSERS)}; the model's own way is used"


def curl_line(plane: Plane, model_name: str) -> str:
    """A command that asks for one answer."""
    words = ["curl", f"{plane.url}/v1/chat/completions"]
    if plane.address.tls is not None:
        words += ["--cacert", str(plane.address.tls.cert)]
        if plane.address.tls.ca:
            words += ["--cert", "client.pem", "--key", "client.key"]
    body = {"model": model_name, "messages": [{"role": "user", "content": "Say hello."}]}
    words += ["-H", "Content-Type: application/json", "-d", json.dumps(body, ensure_ascii=False)]
    return shlex.join(words)
