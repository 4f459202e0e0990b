"""What a person sees when the server is ready: where it is, what it serves, and a line to try it with."""

from __future__ import annotations

import json
import shlex
from typing import Final

from mindserve.cli.planes import Plane
from mindserve.config.settings import ServeSettings
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
        "try it:",
        curl_line(business, settings.model_name),
    ]


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
