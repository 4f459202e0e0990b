"""Log lines as ``key=value`` pairs, one line per record, without any message content.

``logger.info("request finished", extra=fields(request=..., status=...))`` becomes
``time=2026-01-02T03:04:05.678Z level=info logger=mindserve.api event="request finished" request=... status=200``.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from datetime import UTC, datetime
from typing import Final, TextIO

_BARE: Final = re.compile(r"[^\s\"=\\\x00-\x1f\x7f]+")
_FIELDS: Final = "mindserve_fields"


def fields(**values: object) -> dict[str, dict[str, object]]:
    """The ``extra`` argument of a log call."""
    return {_FIELDS: values}


def _quoted(value: object) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return text if _BARE.fullmatch(text) else json.dumps(text, ensure_ascii=False)


class KeyValueFormatter(logging.Formatter):
    """Line breaks and quotes inside values are escaped, so a value cannot forge a line."""

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, tz=UTC).isoformat(timespec="milliseconds")
        pairs: dict[str, object] = {
            "time": moment.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
            **getattr(record, _FIELDS, {}),
        }
        if record.exc_info:
            pairs["traceback"] = self.formatException(record.exc_info)
        return " ".join(f"{key}={_quoted(value)}" for key, value in pairs.items())


def set_up_logging(*, level: str = "INFO", stream: TextIO | None = None) -> None:
    """Send the log of the whole process to ``stream`` (standard error) in this format."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(KeyValueFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
