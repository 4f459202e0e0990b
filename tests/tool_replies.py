"""What a scripted model that calls tools and thinks says, by a word of the question."""

from __future__ import annotations

from typing import Any

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
NOW = {"type": "function", "function": {"name": "now"}}
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{% if message.reasoning_content %}<think>{{ message.reasoning_content }}</think>{% endif %}"
    "{{ message.content or '' }}{% for call in message.tool_calls or [] %}{{ call.function | tojson }}{% endfor %}"
    "<|im_end|>\n{% endfor %}"
    "{% for tool in tools or [] %}{{ tool | tojson }}{% endfor %}<|im_start|>assistant\n"
    "{% if enable_thinking is not defined or enable_thinking %}<think>\n{% else %}<think></think>{% endif %}"
    "{# calls: <tool_call> #}"
)
"""Of a model that thinks unless it is told not to, and may call tools."""


def call_text(name: str, arguments: str) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


OSLO, PEKING = call_text("get_weather", '{"city": "Oslo"}'), call_text("get_weather", '{"city": "北京"}')
REPLIES: list[dict[str, Any]] = [
    {
        "match": "(?s)<think>I need it.</think>.*21 degrees",
        "pieces": ["Warm.", "</think>", "\n\n", "As", " I", " thought."],
    },
    {"contains": "21 degrees", "pieces": ["It", " is", " 21", " degrees", "."]},
    {"contains": "two cities", "pieces": ["Let", " me", " see", ".\n", *OSLO, "\n", *PEKING]},
    {"contains": "half way", "pieces": [OSLO, "\n", *PEKING], "hang_after": 9},
    {"contains": "in one token", "pieces": [f"Now: {OSLO}{PEKING} done"]},
    {"contains": "Oslo", "pieces": list(OSLO)},
    {"contains": "time", "pieces": list(call_text("now", "{}"))},
    {"contains": "broken", "pieces": ["<tool_call>", "{'name'", ": 1}", "</tool_call>"]},
    {"contains": "unknown", "pieces": [call_text("launch", "{}")]},
    {"contains": "cut", "pieces": list(OSLO[:-20]), "finish": "length"},
    {"contains": "swallowed", "pieces": ["ok", "\n", "<tool_call>"]},
    {"contains": "ponder then call", "pieces": ["I need it.", "</think>", "\n\n", *OSLO]},
    {"contains": "ponder", "pieces": ["Be", "cause", ".", "</th", "ink>", "\n\n", "Yes", "."]},
    {"contains": "muse", "pieces": ["still", " thinking"], "finish": "length"},
    {"default": True, "pieces": ["Hello", "."]},
]
