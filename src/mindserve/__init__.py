"""The mindserve server: MindIE's documented chat completions over an engine."""

__version__ = "0.1.0"
