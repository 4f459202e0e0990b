"""Servers whose whole answers are wrong in one way."""

from __future__ import annotations

import copy
import gzip
import itertools
import json
from typing import Any, Final

from tests.conformance.mutants.faults import (
    Json,
    Mutant,
    on_choices,
    on_completion,
    on_entries,
    on_request,
    on_success,
    turned,
)
from tests.conformance.mutants.proxy import Answer, Fault

# ------------------------------------------------------------------------------------------------------------- shape


def _set(**values: Any) -> Fault:
    return on_completion(lambda body, fields: body.update(values))


def _turned_body(answer: Answer) -> Answer:
    return answer.with_body(json.dumps(turned(json.loads(answer.body)), separators=(",", ":")).encode())


def _tool_calls(choice: Json) -> None:
    choice["message"]["tool_calls"] = None


def _no_content(choice: Json) -> None:
    choice["message"]["content"] = None


def _packed(answer: Answer) -> Answer:
    return answer.with_body(gzip.compress(answer.body)).with_header("content-encoding", "gzip")


def _spaced(answer: Answer) -> Answer:
    return answer.with_body(json.dumps(json.loads(answer.body), indent=1).encode())


SHAPE: Final = (
    Mutant("a key that no answer has", _set(system_fingerprint=None), "golden.length.shape", "transcript-shape"),
    Mutant("a key of another API", _set(service_tier="default"), "whole.plain", "body-known-keys"),
    Mutant("full_text in a whole answer", _set(full_text="Red"), "whole.plain", "body-full-text"),
    Mutant("another model's name", _set(model="gpt-4"), "whole.plain", "body-model"),
    Mutant("a whole answer called a chunk", _set(object="chat.completion.chunk"), "whole.plain", "body-schema"),
    Mutant("an id of OpenAI's shape", _set(id="chatcmpl-123"), "whole.plain", "body-schema"),
    Mutant("the same id again", _set(id="endpoint_common_0"), "request.temperature.zero", "ids-differ"),
    Mutant(
        "milliseconds for seconds",
        on_completion(lambda body, fields: body.update(created=body["created"] * 1000)),
        "whole.plain",
        "body-created",
    ),
    Mutant("keys in another order", on_success(_turned_body, stream=False), "whole.plain", "body-key-order"),
    Mutant("JSON with blanks", on_success(_spaced, stream=False), "whole.plain", "body-compact"),
    Mutant("tool_calls null", on_choices(_tool_calls), "whole.plain", "body-schema"),
    Mutant(
        "no tool_calls", on_choices(lambda choice: choice["message"].pop("tool_calls")), "whole.plain", "body-schema"
    ),
    Mutant("content null", on_choices(_no_content), "whole.plain", "body-schema"),
    Mutant("no logprobs key", on_choices(lambda choice: choice.pop("logprobs")), "whole.plain", "body-schema"),
    Mutant(
        "finish reason null", on_choices(lambda choice: choice.update(finish_reason=None)), "whole.plain", "body-schema"
    ),
    Mutant(
        "another speaker",
        on_choices(lambda choice: choice["message"].update(role="user")),
        "whole.plain",
        "body-schema",
    ),
    Mutant(
        "no prefill_time", on_completion(lambda body, fields: body.pop("prefill_time")), "whole.plain", "body-schema"
    ),
    Mutant("a compressed answer", on_success(_packed, stream=False), "whole.plain", "answer-not-encoded"),
    Mutant(
        "an answer called plain text",
        on_success(lambda answer: answer.with_header("content-type", "text/plain"), stream=False),
        "whole.plain",
        "body-content-type",
    ),
)

# ----------------------------------------------------------------------------------------------------------- figures


def _usage(change: Any) -> Fault:
    return on_completion(lambda body, fields: change(body["usage"]))


def _one_less(name: str) -> Fault:
    return _usage(lambda usage: usage.update({name: usage[name][:-1]}))


def _all_of_the_prompt_cached(usage: Json) -> None:
    usage["prompt_tokens_details"]["cached_tokens"] = usage["prompt_tokens"] + 1


def _split_microseconds(usage: Json) -> None:
    usage["queue_wait_time"] = [wait + 0.5 for wait in usage["queue_wait_time"]]


def _uncounted_end(body: Json, fields: Json) -> None:
    """As if the end-of-sequence token were none."""
    usage = body["usage"]
    if body["choices"][0]["finish_reason"] == "stop" and usage["completion_tokens"] > 1:
        usage["completion_tokens"] -= 1
        usage["total_tokens"] -= 1
        for name in ("batch_size", "queue_wait_time"):
            usage[name].pop()
        body["decode_time_arr"].pop()


def _uncounted_prompt(usage: Json) -> None:
    usage.update(prompt_tokens=0, total_tokens=usage["completion_tokens"])
    usage["prompt_tokens_details"]["cached_tokens"] = 0


def _milliseconds_of_waiting(usage: Json) -> None:
    usage["queue_wait_time"] = [wait // 1000 for wait in usage["queue_wait_time"]]


FIGURES: Final = (
    Mutant("an end token that does not count", on_completion(_uncounted_end), "whole.scripted.ends", "tokens"),
    Mutant("a prompt that does not count", _usage(_uncounted_prompt), "whole.plain", "usage-prompt"),
    Mutant("waiting in milliseconds", _usage(_milliseconds_of_waiting), "whole.scripted.figures", "usage-figures"),
    Mutant("parts of milliseconds", _set(prefill_time=0.25), "whole.plain", "body-whole-milliseconds"),
    Mutant(
        "a wrong sum",
        _usage(lambda usage: usage.update(total_tokens=usage["total_tokens"] + 1)),
        "whole.plain",
        "usage-total",
    ),
    Mutant("batch_size without the first token", _one_less("batch_size"), "whole.plain", "usage-arrays"),
    Mutant("queue_wait_time without the first token", _one_less("queue_wait_time"), "whole.plain", "usage-arrays"),
    Mutant("parts of microseconds", _usage(_split_microseconds), "whole.plain", "body-schema"),
    Mutant(
        "decode_time_arr with the first token",
        on_completion(lambda body, fields: body["decode_time_arr"].append(body["prefill_time"])),
        "whole.plain",
        "body-decode-times",
    ),
    Mutant("a negative time", _set(prefill_time=-1), "whole.plain", "body-schema"),
    Mutant("more cached than there is", _usage(_all_of_the_prompt_cached), "whole.plain", "usage-cached"),
    Mutant(
        "no prompt_tokens_details",
        _usage(lambda usage: usage.pop("prompt_tokens_details")),
        "whole.plain",
        "body-schema",
    ),
)

# ----------------------------------------------------------------------------------------------------------- choices


def _one_too_many(body: Json, fields: Json) -> None:
    if fields.get("best_of"):
        body["choices"].append({**copy.deepcopy(body["choices"][-1]), "index": len(body["choices"])})


def _only_one(body: Json, fields: Json) -> None:
    del body["choices"][1:]


def _from_one(body: Json, fields: Json) -> None:
    for choice in body["choices"]:
        choice["index"] += 1


def _always_zero(body: Json, fields: Json) -> None:
    for choice in body["choices"]:
        choice["index"] = 0


def _worst_first(body: Json, fields: Json) -> None:
    body["choices"].reverse()
    for index, choice in enumerate(body["choices"]):
        choice["index"] = index


def _stop_for_length(choice: Json) -> None:
    if choice["finish_reason"] == "length":
        choice["finish_reason"] = "stop"


CHOICES: Final = (
    Mutant("one sequence too many for best_of", on_completion(_one_too_many), "whole.best-of", "body-indices"),
    Mutant("n ignored", on_completion(_only_one), "whole.several", "body-indices"),
    Mutant("index from 1", on_completion(_from_one), "whole.several", "body-indices"),
    Mutant("index always 0 in a whole answer", on_completion(_always_zero), "whole.several", "body-indices"),
    Mutant(
        "choices in no order",
        on_completion(lambda body, fields: body["choices"].reverse()),
        "whole.several",
        "body-indices",
    ),
    Mutant("the likeliest sequence last", on_completion(_worst_first), "whole.scripted.ranked", "sequence-order"),
    Mutant("stop where the limit was reached", on_choices(_stop_for_length), "whole.length", "finish"),
)

# ------------------------------------------------------------------------------------------------- log-probabilities


def _not_a_number(answer: Answer) -> Answer:
    body, numbers = answer.body, itertools.count()
    return answer.with_body(
        b'"logprob":'.join(
            b"NaN" + piece.lstrip(b"-.0123456789e") if next(numbers) else piece for piece in body.split(b'"logprob":')
        )
    )


def _each(change: Any) -> Fault:
    def changed(entries: list[Json]) -> None:
        for entry in entries:
            change(entry)

    return on_entries(changed)


def _lesser(entry: Json) -> Json:
    """A candidate that fits behind all others."""
    return {**entry["top_logprobs"][-1], "logprob": entry["top_logprobs"][-1]["logprob"] - 1}


def _too_many(entry: Json) -> None:
    if entry["top_logprobs"]:
        entry["top_logprobs"].append(_lesser(entry))


def _too_few(entry: Json) -> None:
    entry["top_logprobs"] = entry["top_logprobs"][:-1]


def _without_the_likeliest(entry: Json) -> None:
    if entry["top_logprobs"]:
        entry["top_logprobs"] = [*entry["top_logprobs"][1:], _lesser(entry)]


def _sure_of_all(entry: Json) -> None:
    for one in (entry, *entry["top_logprobs"]):
        one["logprob"] = -0.1


def _another_token(entry: Json) -> None:
    entry.update(token="Q", bytes=[81])


LOGPROBS: Final = (
    Mutant("probabilities that add up to more than 1", _each(_sure_of_all), "whole.logprobs", "logprobs-mass"),
    Mutant("tokens of another text", _each(_another_token), "whole.logprobs", "logprobs-text"),
    Mutant(
        "a log-probability less than tokens",
        on_entries(lambda entries: entries.pop()),
        "whole.logprobs",
        "logprobs-count",
    ),
    Mutant(
        "candidates in no order",
        _each(lambda entry: entry["top_logprobs"].reverse()),
        "whole.logprobs",
        "top-logprobs-order",
    ),
    Mutant("a candidate too few", _each(_too_few), "whole.logprobs", "top-logprobs-count"),
    Mutant("a candidate too many", _each(_too_many), "whole.logprobs", "top-logprobs-count"),
    Mutant(
        "candidates without the token that was taken",
        _each(_without_the_likeliest),
        "whole.logprobs",
        "top-logprobs-taken",
    ),
    Mutant(
        "log-probabilities that are no numbers",
        on_success(_not_a_number, stream=False),
        "whole.logprobs",
        "body-schema",
    ),
    Mutant("probabilities above 1", _each(lambda entry: entry.update(logprob=0.5)), "whole.logprobs", "logprobs-range"),
    Mutant(
        "bytes of another token",
        _each(lambda entry: entry.update(bytes=[*entry["bytes"], 33])),
        "whole.logprobs",
        "logprobs-bytes",
    ),
    Mutant("bytes null", _each(lambda entry: entry.update(bytes=None)), "whole.logprobs", "body-schema"),
    Mutant(
        "log-probabilities that nobody wanted",
        on_choices(lambda choice: choice.update(logprobs={"content": []})),
        "whole.plain",
        "logprobs-presence",
    ),
)

# -------------------------------------------------------------------------------------------------------------- text


def _one_token_more(fields: Json) -> Json:
    return {
        **fields,
        **{name: fields[name] + 1 for name in LIMITS if type(fields.get(name)) is int and fields[name] > 0},
    }


def _older_name_wins(fields: Json) -> Json:
    if None in (fields.get("max_tokens"), fields.get("max_completion_tokens")):
        return fields
    return {**fields, "max_completion_tokens": None}


LIMITS: Final = ("max_tokens", "max_completion_tokens")


def _one_token_less(fields: Json) -> Json:
    return {
        **fields,
        **{name: fields[name] - 1 for name in LIMITS if type(fields.get(name)) is int and fields[name] > 1},
    }


TEXT: Final = (
    Mutant("cut off a token too early", on_request(_one_token_less), "whole.length", "finish-length"),
    Mutant("a token more than max_tokens", on_request(_one_token_more), "whole.length", "body-completion-tokens"),
    Mutant(
        "max_completion_tokens ignored", on_request(_older_name_wins), "request.max_completion_tokens.wins", "finish"
    ),
    Mutant(
        "the stop text kept",
        on_request(lambda fields: {**fields, "include_stop_str_in_output": True}),
        "whole.scripted.stop-across-tokens",
        "text",
    ),
    Mutant(
        "the stop text cut though it is wanted",
        on_request(lambda fields: {**fields, "include_stop_str_in_output": False}),
        "whole.scripted.stop-kept",
        "text",
    ),
    Mutant(
        "stop ignored", on_request(lambda fields: {**fields, "stop": None}), "whole.scripted.stop-across-tokens", "text"
    ),
    Mutant(
        "ignore_eos ignored", on_request(lambda fields: {**fields, "ignore_eos": False}), "request.ignore_eos", "finish"
    ),
    Mutant(
        "stream ignored", on_request(lambda fields: {**fields, "stream": False}), "stream.plain", "stream-content-type"
    ),
    Mutant(
        "logprobs ignored",
        on_request(lambda fields: {**fields, "logprobs": False, "top_logprobs": None}),
        "whole.logprobs",
        "logprobs-presence",
    ),
)

MUTANTS: Final = (*SHAPE, *FIGURES, *CHOICES, *LOGPROBS, *TEXT)
