"""Counts of tokens and log-probabilities, in whole answers and streams alike."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any, Final

from conformance.case import Level
from conformance.dialects import VLLM
from conformance.oracle.registry import Scope, invariant
from conformance.oracle.seen import Seen, Sequence

_FLOOR: Final = -9999.0
_ROUNDING: Final = 1e-4
_PENALTIES: Final = {"presence_penalty": 0, "frequency_penalty": 0, "repetition_penalty": 1}


@invariant(
    "usage-total",
    Scope.ANSWER,
    "total_tokens is prompt_tokens and completion_tokens together",
    fields="Usage.total_tokens Usage.prompt_tokens",
)
def usage_total(seen: Seen, _: Any) -> Iterator[str]:
    for usage in seen.usages:
        total = usage["prompt_tokens"] + usage["completion_tokens"]
        if usage["total_tokens"] != total:
            yield f"total_tokens is {usage['total_tokens']}, the sum is {total}"


@invariant(
    "usage-prompt",
    Scope.ANSWER,
    "The prompt has tokens, and every usage of an answer tells the same number",
    fields="Usage.prompt_tokens",
)
def usage_prompt(seen: Seen, _: Any) -> Iterator[str]:
    numbers = {usage["prompt_tokens"] for usage in seen.usages}
    if seen.tells_usage and (len(numbers) != 1 or min(numbers) < 1):
        yield f"prompt_tokens is {sorted(numbers)}"


@invariant(
    "usage-cached",
    Scope.ANSWER,
    "No more tokens are cached than the prompt has",
    fields="PromptTokensDetails.cached_tokens Usage.prompt_tokens_details",
)
def usage_cached(seen: Seen, _: Any) -> Iterator[str]:
    for usage in seen.usages:
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        if cached > usage["prompt_tokens"]:
            yield f"cached_tokens is {cached}, the prompt has {usage['prompt_tokens']}"


@invariant(
    "usage-arrays",
    Scope.ANSWER,
    "batch_size and queue_wait_time have an entry for each token of the longest sequence",
    readings="S3 E7",
    fields="Usage.batch_size Usage.queue_wait_time",
    dialects=(VLLM,),
)
def usage_arrays(seen: Seen, _: Any) -> Iterator[str]:
    for usage in seen.usages:
        sizes, waits = len(usage["batch_size"]), len(usage["queue_wait_time"])
        if sizes != waits:
            yield f"batch_size has {sizes} entries, queue_wait_time {waits}"


@invariant(
    "usage-reasoning",
    Scope.ANSWER,
    "Reasoning is counted, and no more of it than was generated",
    readings="S14",
    fields="CompletionTokensDetails.reasoning_tokens Usage.completion_tokens_details",
)
def usage_reasoning(seen: Seen, _: Any) -> Iterator[str]:
    for usage in seen.usages:
        num = _num_reasoning(usage)
        if num > usage["completion_tokens"]:
            yield f"reasoning_tokens is {num}, generated were {usage['completion_tokens']}"
    # a stream has one usage for each sequence, whose order is not told here
    thinks = any(one.reasoning for one in seen.sequences.values())
    if seen.tells_usage and thinks and not any(map(_num_reasoning, seen.usages)):
        yield "there is reasoning_content, but no usage counts it"


def _num_reasoning(usage: dict[str, Any]) -> int:
    num: int = (usage.get("completion_tokens_details") or {}).get("reasoning_tokens", 0)
    return num


@invariant(
    "finish-length",
    Scope.ANSWER,
    "A single sequence that ends for its length has as many tokens as were asked for",
    readings="S9 R23",
    fields="Choice.finish_reason",
    level=Level.SHOULD,
)
def finish_length(seen: Seen, _: Any) -> Iterator[str]:
    if seen.max_tokens is None or not seen.tells_usage:
        return
    limit = min(seen.max_tokens, seen.profile.max_tokens or seen.max_tokens)
    if seen.num_choices == 1 and seen.sequences[0].finish == "length":
        num = seen.usages[0]["completion_tokens"]
        if num != limit:
            yield f"it has {num} tokens, asked for were {limit} (a lower limit of the server's own stands in a profile)"


@invariant(
    "logprobs-presence",
    Scope.ANSWER,
    "logprobs is there when asked for, and null when not",
    readings="R11 S2 S6",
    fields="Choice.logprobs ChunkChoice.logprobs",
)
def logprobs_presence(seen: Seen, _: Any) -> Iterator[str]:
    for index, one in seen.sequences.items():
        if bool(one.entries) != (seen.num_top is not None):
            wanted = "none" if seen.num_top is None else "some"
            yield f"choice {index} has {len(one.entries)} entries; {wanted} were asked for"
    if seen.num_top is None:
        choices = (
            [choice for _, choice in seen.choices_of_chunks()] if seen.exchange.is_stream else seen.body["choices"]
        )
        for choice in choices:
            if choice["logprobs"] is not None:
                yield f"a choice has logprobs {str(choice['logprobs'])[:80]}, though none were asked for"


@invariant(
    "logprobs-count",
    Scope.ANSWER,
    "There is an entry for each generated token",
    readings="S12 C28",
    fields="ChoiceLogprobs.content",
)
def logprobs_count(seen: Seen, _: Any) -> Iterator[str]:
    if seen.num_top is None or not seen.tells_usage:
        return
    entries = sum(len(one.entries) for one in seen.sequences.values())
    tokens = sum(usage["completion_tokens"] for usage in seen.usages)
    if entries != tokens:
        yield f"there are {entries} entries for {tokens} tokens"


@invariant(
    "top-logprobs-count",
    Scope.ANSWER,
    "Each token has as many candidates as were asked for",
    readings="C7",
    fields="TokenLogprob.top_logprobs",
)
def top_logprobs_count(seen: Seen, _: Any) -> Iterator[str]:
    for entry in _entries(seen):
        if len(entry["top_logprobs"]) != seen.num_top:
            yield f"{entry['token']!r} has {len(entry['top_logprobs'])} candidates, asked for were {seen.num_top}"


@invariant("top-logprobs-order", Scope.ANSWER, "Candidates come with the likeliest first", fields="TopLogprob.logprob")
def top_logprobs_order(seen: Seen, _: Any) -> Iterator[str]:
    for entry in _entries(seen):
        values = [one["logprob"] for one in entry["top_logprobs"]]
        if values != sorted(values, reverse=True):
            yield f"the candidates of {entry['token']!r} have {values}"


@invariant(
    "top-logprobs-taken",
    Scope.ANSWER,
    "Where the likeliest token is taken, it is the first candidate",
    readings="C29 R6 D12",
    fields="TokenLogprob.top_logprobs",
)
def top_logprobs_taken(seen: Seen, _: Any) -> Iterator[str]:
    is_greedy = seen.get("temperature") == 0 and not seen.has_beams and not seen.get("logit_bias")
    if not is_greedy or any(seen.get(name, neutral) != neutral for name, neutral in _PENALTIES.items()):
        return
    for entry in _entries(seen):
        first = entry["top_logprobs"][:1]
        if first and abs(first[0]["logprob"] - entry["logprob"]) > _ROUNDING:
            yield f"{entry['token']!r} has {entry['logprob']}, its first candidate {first[0]['logprob']}"


@invariant(
    "logprobs-range",
    Scope.ANSWER,
    "Log-probabilities are finite and not above 0",
    readings="S12 C29",
    fields="TokenLogprob.logprob TopLogprob.logprob",
)
def logprobs_range(seen: Seen, _: Any) -> Iterator[str]:
    for entry in _entries(seen):
        for one in (entry, *entry["top_logprobs"]):
            if not (math.isfinite(one["logprob"]) and _FLOOR <= one["logprob"] <= _ROUNDING):
                yield f"{one['token']!r} has {one['logprob']}"


@invariant(
    "logprobs-mass",
    Scope.ANSWER,
    "The probabilities of a place's candidates add up to no more than 1",
    readings="C29",
    fields="TopLogprob.logprob",
    level=Level.SHOULD,
)
def logprobs_mass(seen: Seen, _: Any) -> Iterator[str]:
    for entry in _entries(seen):
        mass = sum(math.exp(one["logprob"]) for one in entry["top_logprobs"])
        if mass > 1 + 1e-3:
            yield f"the candidates of {entry['token']!r} add up to {mass:.4f}"


@invariant(
    "logprobs-bytes",
    Scope.ANSWER,
    "bytes are the token's own, in UTF-8",
    readings="S12",
    fields="TokenLogprob.token TokenLogprob.bytes TopLogprob.token TopLogprob.bytes",
)
def logprobs_bytes(seen: Seen, _: Any) -> Iterator[str]:
    for entry in _entries(seen):
        for one in (entry, *entry["top_logprobs"]):
            if bytes(one["bytes"]).decode("utf-8", "replace") != one["token"]:
                yield f"the bytes {one['bytes']} are not {one['token']!r}"


@invariant(
    "logprobs-text",
    Scope.ANSWER,
    "The tokens' bytes, one after the other, begin with the text",
    readings="S12 S10",
    fields="TokenLogprob.bytes",
    level=Level.SHOULD,
)
def logprobs_text(seen: Seen, _: Any) -> Iterator[str]:
    for index, one in seen.sequences.items():
        if one.entries and not one.calls and not one.reasoning:
            whole = b"".join(bytes(entry["bytes"]) for entry in one.entries).decode("utf-8", "replace")
            if not whole.startswith(one.text):
                yield f"the tokens of choice {index} spell {whole[:80]!r}, its text is {one.text[:80]!r}"


@invariant(
    "sequence-order",
    Scope.ANSWER,
    "Several sequences of a whole answer come with the likeliest first",
    readings="R7 C30",
    level=Level.SHOULD,
)
def sequence_order(seen: Seen, _: Any) -> Iterator[str]:
    sequences = list(seen.sequences.values())
    if seen.is_stream or seen.num_top is None or len(sequences) < 2:
        return
    scores = [_score(one, is_mean=seen.has_beams) for one in sequences]
    if any(first < second - _ROUNDING for first, second in itertools.pairwise(scores)):
        yield f"the log-probabilities of the sequences are {scores}"


def _score(one: Sequence, *, is_mean: bool) -> float:
    total = sum(float(entry["logprob"]) for entry in one.entries)
    return total / len(one.entries) if is_mean else total


def _entries(seen: Seen) -> Iterator[dict[str, Any]]:
    for one in seen.sequences.values():
        yield from one.entries
