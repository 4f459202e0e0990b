"""``plugin_params``: MindIE's features by name, an object or, in most files, a string that holds one."""

from __future__ import annotations

from typing import Final

from mindserve.config.reading import JsonInvalid, parse_json
from mindserve.errors import shown

ALWAYS_ON: Final = frozenset({"prefix_cache", "splitfuse"})
"""Features this server has whether they are named or not."""


MTP: Final = "mtp"
"""A model's own head guesses the next tokens: with the vllm engine."""
_MAX_SPECULATIVE_TOKENS: Final = 16


class PluginParamsInvalid(ValueError):
    """The text says what is wrong with the value."""


def plugin_types(params: object) -> tuple[str, ...]:
    """The names in ``plugin_type``, a comma list; none for null, absent and an empty string."""
    names = _content(params).get("plugin_type", "")
    if not isinstance(names, str):
        raise PluginParamsInvalid(f"plugin_type: {shown(names)} is not a string")
    return tuple(name.strip() for name in names.split(",") if name.strip())


def speculative_tokens(params: object) -> int:
    """Tokens that mtp guesses at a time; 0: it is not asked for."""
    if MTP not in plugin_types(params):
        return 0
    number = _content(params).get("num_speculative_tokens", 1)
    if not isinstance(number, int) or isinstance(number, bool) or not 1 <= number <= _MAX_SPECULATIVE_TOKENS:
        raise PluginParamsInvalid(f"num_speculative_tokens: {shown(number)} is not in 1 to {_MAX_SPECULATIVE_TOKENS}")
    return number


def _content(params: object) -> dict[str, object]:
    if params is None or params == "":
        return {}
    content = _object(params) if isinstance(params, str) else params
    if not isinstance(content, dict):
        raise PluginParamsInvalid(f"{shown(params)} is neither an object nor a string that holds one")
    return content


def _object(text: str) -> object:
    try:
        return parse_json(text)
    except JsonInvalid as error:
        raise PluginParamsInvalid(f"{shown(text)}: {error}") from error
