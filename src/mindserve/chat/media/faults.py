"""Why a medium cannot be had: what the client is told, and what the log alone may know."""

from __future__ import annotations


class MediaFault(Exception):
    """``text`` follows the name of the field in the answer: no address, path or word of a resolver is in it. ``reason``
    is for the log; it may name what the text hides."""

    def __init__(self, text: str, reason: str = "") -> None:
        super().__init__(text)
        self.text = text
        self.reason = reason or text


class Abandoned(Exception):
    """The request is over: a worker thread stops what it does for it."""
