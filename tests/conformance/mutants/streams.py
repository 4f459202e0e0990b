"""Servers whose streams are wrong in one way."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import Final

from tests.conformance.mutants.faults import (
    DONE,
    Json,
    Mutant,
    choice_of,
    compact,
    delta_of,
    is_finish,
    on_chunks,
    on_each_chunk,
    on_frames,
    on_request,
    on_success,
    turned,
    with_text,
)
from tests.conformance.mutants.proxy import Answer

# ------------------------------------------------------------------------------------------------------------ frames


def _two_lines_in_one_event(frames: list[bytes]) -> list[bytes]:
    first, second, *others = frames
    return [first + b"\n" + second, *others]


def _pretty(frames: list[bytes]) -> list[bytes]:
    return [frame if frame == DONE else b"data: " + json.dumps(json.loads(frame[6:])).encode() for frame in frames]


def _broken_off(answer: Answer) -> Answer:
    body = answer.body.removesuffix(DONE + b"\n\n")
    return replace(answer.with_body(body), is_cut=True)


def _failure_as_success(frames: list[bytes]) -> list[bytes]:
    error = compact({"error": "the engine failed", "error_type": "Incomplete Generation"})
    return [*frames[:-1], b"data: " + error, DONE]


def _cut_json(frames: list[bytes]) -> list[bytes]:
    return [frames[0][:-1], *frames[1:]]


def _endless(frames: list[bytes]) -> list[bytes]:
    return [frames[0], *frames[1:-1] * 100, frames[-1]]


def _is_failure(frame: bytes) -> bool:
    return frame.startswith(b'data: {"error"')


def _ends_after_failure(frames: list[bytes]) -> list[bytes]:
    return [*frames, DONE] if _is_failure(frames[-1]) else frames


def _finishes_before_failure(frames: list[bytes]) -> list[bytes]:
    if not _is_failure(frames[-1]) or len(frames) < 2:
        return frames
    last = json.loads(frames[-2].removeprefix(b"data: "))
    choice_of(last)["finish_reason"] = "stop"
    return [*frames[:-2], b"data: " + compact(last), frames[-1]]


def _finishes_instead_of_failing(frames: list[bytes]) -> list[bytes]:
    return [*_finishes_before_failure(frames)[:-1], DONE] if _is_failure(frames[-1]) else frames


FRAMES: Final = (
    Mutant(
        "a key of another API in chunks",
        on_each_chunk(lambda chunk: chunk.update(service_tier="default")),
        "stream.plain",
        "chunk-known-keys",
    ),
    Mutant(
        "milliseconds for seconds in chunks",
        on_each_chunk(lambda chunk: chunk.update(created=chunk["created"] * 1000)),
        "stream.plain",
        "stream-created",
    ),
    Mutant("JSON cut off in a chunk", on_frames(_cut_json), "stream.plain", "chunk-json"),
    Mutant("a stream without end", on_frames(_endless), "stream.plain", "answer-size", bounds={"max_events": 100}),
    Mutant("an end mark after a failure", on_frames(_ends_after_failure), "stream.scripted.failure", "failure-last"),
    Mutant(
        "a finish before a failure",
        on_frames(_finishes_before_failure),
        "stream.scripted.failure",
        "failure-no-finish",
    ),
    Mutant(
        "a finish instead of a failure",
        on_frames(_finishes_instead_of_failing),
        "stream.scripted.failure",
        "failure-last",
    ),
    Mutant("no end mark", on_frames(lambda frames: frames[:-1]), "stream.plain", "done-last"),
    Mutant("two end marks", on_frames(lambda frames: [*frames, DONE]), "stream.plain", "done-last"),
    Mutant(
        "end mark before the last chunk",
        on_frames(lambda frames: [*frames[:-2], DONE, frames[-2]]),
        "stream.plain",
        "done-last",
    ),
    Mutant(
        "connection broken instead of an end mark",
        on_success(_broken_off, stream=True),
        "stream.plain",
        "answer-complete",
    ),
    Mutant(
        "lines that end with CR LF",
        on_success(lambda answer: answer.with_body(answer.body.replace(b"\n", b"\r\n")), stream=True),
        "stream.plain",
        "frame-bytes",
    ),
    Mutant("two chunks in one event", on_frames(_two_lines_in_one_event), "stream.plain", "frame-bytes"),
    Mutant(
        "no blank line at the end",
        on_success(lambda answer: answer.with_body(answer.body.removesuffix(b"\n")), stream=True),
        "stream.plain",
        "frame-bytes",
    ),
    Mutant(
        "event names",
        on_frames(lambda frames: [b"event: message\n" + frame for frame in frames]),
        "stream.plain",
        "frame-bytes",
    ),
    Mutant(
        "no blank after data:",
        on_frames(lambda frames: [frame.replace(b": ", b":", 1) for frame in frames]),
        "stream.plain",
        "frame-bytes",
    ),
    Mutant("blanks in the JSON of chunks", on_frames(_pretty), "stream.plain", "chunk-compact"),
    Mutant(
        "a retry field first",
        on_frames(lambda frames: [b"retry: 3000\n" + frames[0], *frames[1:]]),
        "stream.plain",
        "frame-bytes",
    ),
    Mutant(
        "a byte order mark first",
        on_success(lambda answer: answer.with_body(b"\xef\xbb\xbf" + answer.body), stream=True),
        "stream.plain",
        "frame-bytes",
    ),
    Mutant("an error event in a stream that ends well", on_frames(_failure_as_success), "stream.plain", "chunk-schema"),
    Mutant(
        "a stream called JSON",
        on_success(lambda answer: answer.with_header("content-type", "application/json"), stream=True),
        "stream.plain",
        "stream-content-type",
    ),
    Mutant(
        "a stream that caches may keep",
        on_success(lambda answer: answer.with_header("cache-control", None), stream=True),
        "stream.plain",
        "stream-headers",
    ),
)

# ------------------------------------------------------------------------------------------------------------ chunks


def _usage_in_every_chunk(chunks: list[Json]) -> list[Json]:
    usage = next(chunk["usage"] for chunk in chunks if "usage" in chunk)
    return [_with_usage(chunk, usage) for chunk in chunks]


def _with_usage(chunk: Json, usage: Json) -> Json:
    """In its place, before the choices."""
    choices = chunk["choices"]
    return {**{name: value for name, value in chunk.items() if name != "choices"}, "usage": usage, "choices": choices}


def _usage_in_a_chunk_of_its_own(chunks: list[Json]) -> list[Json]:
    last = copy.deepcopy(chunks[-1])
    last["choices"] = []
    return [*({name: value for name, value in chunk.items() if name != "usage"} for chunk in chunks), last]


def _finish_twice(chunks: list[Json]) -> list[Json]:
    return [*chunks, copy.deepcopy(chunks[-1])]


def _text_after_the_finish(chunks: list[Json]) -> list[Json]:
    late = copy.deepcopy(chunks[0])
    delta_of(late)["content"] = "more"
    return [*chunks, late]


def _no_opening(chunks: list[Json]) -> list[Json]:
    return [chunk for chunk in chunks if delta_of(chunk)["content"] or is_finish(chunk)]


def _empty_delta(chunks: list[Json]) -> list[Json]:
    return [*chunks[:-1], copy.deepcopy(chunks[0]), chunks[-1]]


def _lost_character(chunks: list[Json]) -> None:
    for chunk in with_text(chunks)[-1:]:
        delta_of(chunk)["content"] = delta_of(chunk)["content"][:-1]


def _repeated_delta(chunks: list[Json]) -> list[Json]:
    at = chunks.index(with_text(chunks)[0]) if with_text(chunks) else 0
    return [*chunks[: at + 1], *([] if is_finish(chunks[at]) else [copy.deepcopy(chunks[at])]), *chunks[at + 1 :]]


def _half_characters(chunk: Json) -> None:
    """As if the bytes of each token were decoded for themselves."""
    text = delta_of(chunk)["content"]
    delta_of(chunk)["content"] = "".join(one if ord(one) < 128 else "\ufffd\ufffd" for one in text)


def _two_choices(chunks: list[Json]) -> None:
    for chunk in chunks:
        chunk["choices"].append({**copy.deepcopy(choice_of(chunk)), "index": 1})


def _short_logprobs(chunk: Json) -> None:
    logprobs = choice_of(chunk)["logprobs"]
    if logprobs is not None and is_finish(chunk):
        logprobs["content"] = logprobs["content"][:-1]


def _wrong_sum(chunk: Json) -> None:
    if "usage" in chunk:
        chunk["usage"]["total_tokens"] += 1


def _longer_prompt(chunk: Json) -> None:
    if "usage" in chunk:
        chunk["usage"]["prompt_tokens"] += 1
        chunk["usage"]["total_tokens"] += 1


def _no_first_role(chunks: list[Json]) -> None:
    del delta_of(chunks[0])["role"]


def _role_once(chunks: list[Json]) -> None:
    for chunk in chunks[1:]:
        del delta_of(chunk)["role"]


def _no_finish(chunk: Json) -> None:
    choice_of(chunk)["finish_reason"] = None


def _stop_for_length(chunk: Json) -> None:
    if choice_of(chunk)["finish_reason"] == "length":
        choice_of(chunk)["finish_reason"] = "stop"


def _turned_keys(chunks: list[Json]) -> list[Json]:
    return [turned(chunk) for chunk in chunks]


def _in_pieces(chunks: list[Json]) -> list[Json]:
    """What comes with a finish comes in two chunks."""
    told: list[Json] = []
    for chunk in chunks:
        text = delta_of(chunk)["content"]
        if is_finish(chunk) and len(text) > 1:
            told.append(copy.deepcopy({name: value for name, value in chunk.items() if name != "usage"}))
            choice_of(told[-1])["finish_reason"] = None
            delta_of(told[-1])["content"], delta_of(chunk)["content"] = text[:1], text[1:]
        told.append(chunk)
    return told


def _strange_key(chunk: Json) -> None:
    chunk["system_fingerprint"] = "fp_1"


def _one_more_in_streams(fields: Json) -> Json:
    is_short = bool(fields.get("stream")) and type(fields.get("max_tokens")) is int and fields["max_tokens"] > 0
    return {**fields, "max_tokens": fields["max_tokens"] + 1} if is_short else fields


def _unstopped_streams(fields: Json) -> Json:
    return {**fields, "stop": None} if fields.get("stream") else fields


CHUNKS: Final = (
    Mutant("beams in pieces", on_chunks(_in_pieces), "stream.beams", "beam-pseudo-stream"),
    Mutant("a key that no chunk has", on_each_chunk(_strange_key), "golden.stream-length", "transcript"),
    Mutant("a token too many in streams", on_request(_one_more_in_streams), "stream.one-token", "stream-length"),
    Mutant("stop ignored in streams", on_request(_unstopped_streams), "stream.stop", "text-without"),
    Mutant("usage in every chunk", on_chunks(_usage_in_every_chunk), "stream.plain", "usage-with-finish"),
    Mutant(
        "no usage in the last chunk",
        on_each_chunk(lambda chunk: chunk.pop("usage", None)),
        "stream.plain",
        "usage-with-finish",
    ),
    Mutant("usage in a chunk of its own", on_chunks(_usage_in_a_chunk_of_its_own), "stream.plain", "chunk-one-choice"),
    Mutant("a wrong sum in a stream's usage", on_each_chunk(_wrong_sum), "stream.plain", "usage-total"),
    Mutant("another prompt's length in streams", on_each_chunk(_longer_prompt), "stream.joins", "same-usage"),
    Mutant("no role in the first delta", on_chunks(_no_first_role), "stream.plain", "chunk-role"),
    Mutant("a role in the first delta only", on_chunks(_role_once), "stream.plain", "chunk-role"),
    Mutant(
        "index always 0",
        on_each_chunk(lambda chunk: choice_of(chunk).update(index=0)),
        "stream.several",
        "stream-indices",
    ),
    Mutant("two finishing chunks", on_chunks(_finish_twice), "stream.plain", "one-finish"),
    Mutant("no finish reason in a stream", on_each_chunk(_no_finish), "stream.plain", "one-finish"),
    Mutant(
        "stop where the limit was reached, in a stream", on_each_chunk(_stop_for_length), "stream.one-token", "finish"
    ),
    Mutant("text after the finish", on_chunks(_text_after_the_finish), "stream.plain", "one-finish"),
    Mutant("no opening chunk", on_chunks(_no_opening), "stream.plain", "opening-chunk"),
    Mutant("an empty delta on the way", on_chunks(_empty_delta), "stream.plain", "no-empty-deltas"),
    Mutant(
        "an id that changes",
        on_chunks(lambda chunks: chunks[-1].update(id="endpoint_common_999999")),
        "stream.plain",
        "stream-constants",
    ),
    Mutant(
        "a time that changes",
        on_chunks(lambda chunks: chunks[-1].update(created=chunks[0]["created"] + 1)),
        "stream.plain",
        "stream-constants",
    ),
    Mutant(
        "chunks called whole answers",
        on_each_chunk(lambda chunk: chunk.update(object="chat.completion")),
        "stream.plain",
        "chunk-schema",
    ),
    Mutant(
        "another model in chunks",
        on_each_chunk(lambda chunk: chunk.update(model="gpt-4")),
        "stream.plain",
        "stream-model",
    ),
    Mutant("keys of chunks in another order", on_chunks(_turned_keys), "stream.plain", "chunk-key-order"),
    Mutant("two choices in a chunk", on_chunks(_two_choices), "stream.several", "chunk-one-choice"),
    Mutant(
        "no logprobs key in chunks",
        on_each_chunk(lambda chunk: choice_of(chunk).pop("logprobs")),
        "stream.plain",
        "chunk-schema",
    ),
    Mutant(
        "a log-probability less than tokens, in a stream",
        on_each_chunk(_short_logprobs),
        "stream.logprobs",
        "logprobs-count",
    ),
    Mutant("a delta that loses a character", on_chunks(_lost_character), "stream.joins", "same-answer"),
    Mutant("a delta that comes twice", on_chunks(_repeated_delta), "stream.joins", "same-answer"),
    Mutant(
        "characters broken between tokens", on_each_chunk(_half_characters), "stream.scripted.split-characters", "text"
    ),
)

MUTANTS: Final = (*FRAMES, *CHUNKS)
