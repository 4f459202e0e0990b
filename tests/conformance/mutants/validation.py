"""Servers that take what they should refuse, or refuse what they should take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mindserve.api._generated.models import ChatCompletionRequest
from tests.conformance.mutants.faults import Json, Mutant, accepting, on_request, refusing
from tests.conformance.mutants.proxy import Fault

INT32_MAX: Final = 2**31 - 1
UINT64_MAX: Final = 2**64 - 1


def _is(name: str, value: object) -> Callable[[Json], bool]:
    """The field has exactly this value, of this type."""
    return lambda fields: type(fields.get(name)) is type(value) and fields[name] == value


def _over(name: str, bound: float) -> Callable[[Json], bool]:
    return lambda fields: _is_number(fields.get(name)) and fields[name] > bound


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _of_type(name: str, kind: type) -> Callable[[Json], bool]:
    return lambda fields: type(fields.get(name)) is kind


def _has(*names: str) -> Callable[[Json], bool]:
    return lambda fields: all(fields.get(name) not in (None, False, []) for name in names)


def _null(name: str) -> Callable[[Json], bool]:
    return lambda fields: name in fields and fields[name] is None


def _longer_than(name: str, size: int) -> Callable[[Json], bool]:
    return lambda fields: isinstance(fields.get(name), str | list) and len(fields[name]) > size


def _without_nulls(name: str) -> Fault:
    def change(fields: Json) -> Json:
        value = fields.get(name)
        return {**fields, name: [one for one in value if one is not None]} if isinstance(value, list) else fields

    return on_request(change)


def _first_message(fields: Json) -> Json:
    messages = fields.get("messages")
    return messages[0] if isinstance(messages, list) and messages and isinstance(messages[0], dict) else {}


HELLO: Final = [{"role": "user", "content": "Say hello."}]


# ------------------------------------------------------------------------------------------------------------ bounds

BOUNDS: Final = (
    Mutant("the greatest n refused", refusing(_is("n", 128), "n"), "request.n.at-maximum", "status"),
    Mutant("n beyond its maximum", accepting(_over("n", 128), n=1), "request.n.above-maximum", "status"),
    Mutant("n 0", accepting(_is("n", 0), n=1), "request.n.below-minimum", "status"),
    Mutant(
        "top_logprobs beyond its maximum",
        accepting(_is("top_logprobs", 21), top_logprobs=20),
        "request.top_logprobs.above-maximum",
        "status",
    ),
    Mutant(
        "the greatest top_logprobs refused",
        refusing(_is("top_logprobs", 20), "top_logprobs"),
        "request.top_logprobs.at-maximum",
        "status",
    ),
    Mutant(
        "the least presence_penalty refused",
        refusing(_is("presence_penalty", -2.0), "presence_penalty"),
        "request.presence_penalty.at-minimum",
        "status",
    ),
    Mutant(
        "frequency_penalty beyond its maximum",
        accepting(_over("frequency_penalty", 2), frequency_penalty=2),
        "request.frequency_penalty.above-maximum",
        "status",
    ),
    Mutant(
        "repetition_penalty 0",
        accepting(lambda f: f.get("repetition_penalty") == 0, repetition_penalty=1),
        "request.repetition_penalty.at-bound",
        "status",
    ),
    Mutant(
        "top_p at its open bound",
        accepting(lambda f: f.get("top_p") == 1e-6, top_p=1),
        "request.top_p.at-bound",
        "status",
    ),
    Mutant("top_p above 1", accepting(_over("top_p", 1), top_p=1), "request.top_p.above-maximum", "status"),
    Mutant(
        "temperature 0 refused",
        refusing(lambda f: _is_number(f.get("temperature")) and f["temperature"] == 0, "temperature"),
        "request.temperature.at-minimum",
        "status",
    ),
    Mutant(
        "negative temperature",
        accepting(lambda f: _is_number(f.get("temperature")) and f["temperature"] < 0, temperature=1),
        "request.temperature.below-minimum",
        "status",
    ),
    Mutant("top_k -1 refused", refusing(_is("top_k", -1), "top_k"), "request.top_k.at-minimum", "status"),
    Mutant(
        "max_tokens beyond 32 bits",
        accepting(_over("max_tokens", INT32_MAX), max_tokens=2),
        "request.max_tokens.above-maximum",
        "status",
    ),
    Mutant(
        "a seed above 63 bits refused", refusing(_over("seed", 2**63 - 1), "seed"), "request.seed.at-maximum", "status"
    ),
    Mutant("an empty stop text", accepting(_is("stop", ""), stop=None), "request.stop.too-short", "status"),
    Mutant(
        "a stop text too long", accepting(_longer_than("stop", 32768), stop=None), "request.stop.too-long", "status"
    ),
    Mutant("no messages", accepting(_is("messages", []), messages=HELLO), "request.messages.too-few", "status"),
)

# ------------------------------------------------------------------------------------------------------------- types


def _is_integral_float(fields: Json) -> bool:
    names = ("n", "best_of", "max_tokens", "top_k", "top_logprobs", "seed", "max_completion_tokens")
    return any(type(fields.get(name)) is float and fields[name].is_integer() for name in names)


def _optional_null(fields: Json) -> bool:
    return any(value is None for name, value in fields.items() if name not in ("model", "messages"))


def _is_unknown(fields: Json) -> bool:
    return not set(fields) <= KNOWN


KNOWN: Final = frozenset(ChatCompletionRequest.__struct_fields__)

TYPES: Final = (
    Mutant(
        "1.0 refused for an integer", refusing(_is_integral_float, "the number"), "request.n.integral-float", "status"
    ),
    Mutant(
        "1 refused for a number",
        refusing(_of_type("temperature", int), "temperature"),
        "request.temperature.integer",
        "status",
    ),
    Mutant("null refused", refusing(_optional_null, "a field"), "request.temperature.null", "status"),
    Mutant("unknown fields refused", refusing(_is_unknown, "a field"), "request.unknown-fields", "status"),
    Mutant(
        "text taken for a number",
        accepting(_of_type("temperature", str), temperature=1),
        "request.temperature.as-string",
        "status",
    ),
    Mutant(
        "true taken for a number",
        accepting(_of_type("max_tokens", bool), max_tokens=1),
        "request.max_tokens.as-boolean",
        "status",
    ),
    Mutant("1 taken for true", accepting(_of_type("stream", int), stream=True), "request.stream.as-integer", "status"),
    Mutant(
        "half an integer",
        accepting(lambda f: type(f.get("n")) is float and f["n"] % 1 != 0, n=1),
        "request.n.as-float",
        "status",
    ),
    Mutant("a number taken for text", accepting(_of_type("stop", int), stop=None), "request.stop.as-integer", "status"),
    Mutant("a model of null", accepting(_null("model"), model="m"), "request.model.null", "status"),
    Mutant("no model at all", accepting(lambda f: "model" not in f, model="m"), "request.model.missing", "status"),
    Mutant(
        "a tool choice that does not exist",
        accepting(
            lambda f: isinstance(f.get("tool_choice"), str) and f["tool_choice"] not in ("none", "auto", "required"),
            tools=None,
            tool_choice=None,
        ),
        "request.tool_choice.not-listed",
        "status",
    ),
    Mutant(
        "a role of null",
        accepting(lambda f: "role" in _first_message(f) and _first_message(f)["role"] is None, messages=HELLO),
        "request.messages.role.null",
        "status",
    ),
    Mutant(
        "an unknown model",
        accepting(lambda f: isinstance(f.get("model"), str) and f["model"] != "m", model="m"),
        "request.unknown-model",
        "status",
    ),
)

# ------------------------------------------------------------------------------------------------------------- rules

RULES: Final = (
    Mutant("top_k 0 not refused", accepting(_is("top_k", 0), top_k=-1), "rules.top-k-zero.breaks", "status"),
    Mutant("seed above 64 bits", accepting(_over("seed", UINT64_MAX), seed=1), "rules.seed-range.breaks", "status"),
    Mutant(
        "nulls among stop_token_ids", _without_nulls("stop_token_ids"), "rules.stop-token-ids-null.breaks", "status"
    ),
    Mutant(
        "beam search with stop",
        accepting(_has("use_beam_search", "stop"), stop=None),
        "rules.beam-excludes-stop.breaks",
        "status",
    ),
    Mutant(
        "best_of below n",
        accepting(
            lambda f: _has("n", "best_of")(f) and _over("n", f["best_of"])(f) and not f.get("stream"), best_of=None
        ),
        "rules.best-of-below-n.breaks",
        "status",
    ),
    Mutant(
        "top_logprobs without logprobs",
        accepting(lambda f: f.get("logprobs") is False and _has("top_logprobs")(f), top_logprobs=0),
        "rules.top-logprobs-need-logprobs.breaks",
        "status",
    ),
    Mutant(
        "several sequences without chance",
        accepting(lambda f: f.get("temperature") == 0 and _over("n", 1)(f), n=1, best_of=None),
        "rules.n-needs-temperature.breaks",
        "status",
    ),
    Mutant(
        "tools with stop", accepting(_has("tools", "stop"), tools=None), "rules.tools-exclude-stop.breaks", "status"
    ),
    Mutant(
        "a tool choice without tools",
        accepting(lambda f: not f.get("tools"), tool_choice=None),
        "rules.tool-choice-needs-tools.breaks",
        "status",
    ),
    Mutant(
        "empty content",
        accepting(lambda f: _first_message(f).get("content") == "", messages=HELLO),
        "rules.content-required.breaks",
        "status",
    ),
    Mutant(
        "reserved template variables",
        accepting(lambda f: "chat_template" in (f.get("chat_template_kwargs") or {}), chat_template_kwargs=None),
        "rules.template-kwargs-reserved.breaks",
        "status",
    ),
    Mutant(
        "a beam search of several refused",
        refusing(lambda f: _has("use_beam_search")(f) and _over("n", 1)(f), "use_beam_search"),
        "whole.beams",
        "status",
    ),
)

MUTANTS: Final = (*BOUNDS, *TYPES, *RULES)
