"""Log-probabilities in answers: one entry for each counted token, in streams with its text; they rank sequences."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mindserve.api.assemble import Answer, AnswerHead
from mindserve.api.logprobs import LogprobWriter
from mindserve.chat.answer import SequenceAnswer
from mindserve.chat.output import SequenceText
from mindserve.chat.tokenizer import ChatTokenizer
from mindserve_engine.types import FinishReason, SequenceEvent, TokenLogprobs, TokenTiming

HEAD = AnswerHead(id="endpoint_common_5", created=17, model="m", call_ids=iter(()))


def event(
    tokens: bytes, finish: FinishReason | None = None, *, index: int = 0, logprob: float = -0.5, num_top: int = 2
) -> SequenceEvent:
    """Every byte is a token; the likeliest tokens are "a", "b", ..."""
    entry = TokenLogprobs(logprob, list(range(97, 97 + num_top)), [-0.25 - rank for rank in range(num_top)])
    timings = [TokenTiming(1, 1, 1.0)] * len(tokens)
    return SequenceEvent("r", index, list(tokens), timings, finish, 9, 0, logprobs=[entry] * len(tokens))


def answer_of(tokenizer: ChatTokenizer, num_sequences: int = 1, *, ranked: bool = False, **options: Any) -> Answer:
    texts = [SequenceAnswer(SequenceText(tokenizer, **options)) for _ in range(num_sequences)]
    return Answer(HEAD, texts, logprobs=LogprobWriter(tokenizer.table.pieces), ranked=ranked)


def plain(body: msgspec.Struct | None) -> Any:
    return json.loads(msgspec.json.encode(body))


def spelled(entries: list[dict[str, Any]]) -> bytes:
    return b"".join(bytes(entry["bytes"]) for entry in entries)


def test_an_entry_for_each_token(tokenizer: ChatTokenizer) -> None:
    answer = answer_of(tokenizer)
    answer.feed(event(b"xy"))
    answer.feed(event(b"z", FinishReason.LENGTH, logprob=-9999.0, num_top=0))
    choice = plain(answer.completion())["choices"][0]
    top = [{"token": "a", "logprob": -0.25, "bytes": [97]}, {"token": "b", "logprob": -1.25, "bytes": [98]}]
    assert choice["logprobs"] == {
        "content": [
            {"token": "x", "logprob": -0.5, "bytes": [120], "top_logprobs": top},
            {"token": "y", "logprob": -0.5, "bytes": [121], "top_logprobs": top},
            {"token": "z", "logprob": -9999.0, "bytes": [122], "top_logprobs": []},
        ]
    }


def test_parts_of_characters_have_their_own_bytes(tokenizer: ChatTokenizer) -> None:
    answer = answer_of(tokenizer)
    answer.feed(event("é".encode(), FinishReason.LENGTH))
    choice = plain(answer.completion())["choices"][0]
    assert choice["message"]["content"] == "é"
    assert [(entry["token"], entry["bytes"]) for entry in choice["logprobs"]["content"]] == [
        ("\N{REPLACEMENT CHARACTER}", [0xC3]),
        ("\N{REPLACEMENT CHARACTER}", [0xA9]),
    ]


def test_end_of_sequence_is_a_token_too(tokenizer: ChatTokenizer) -> None:
    """Its text is hidden, but it is counted."""
    answer = answer_of(tokenizer)
    eos = next(iter(tokenizer.table.special_ids))
    last = SequenceEvent(
        "r", 0, [97, eos], [TokenTiming(1, 1, 1.0)] * 2, FinishReason.EOS, logprobs=[TokenLogprobs(-1.0, [], [])] * 2
    )
    answer.feed(last)
    body = plain(answer.completion())
    assert body["choices"][0]["message"]["content"] == "a"
    entries = body["choices"][0]["logprobs"]["content"]
    assert len(entries) == body["usage"]["completion_tokens"] == 2
    assert spelled(entries[1:]) == tokenizer.table.pieces[eos]


def test_ids_beyond_the_vocabulary_are_nothing() -> None:
    writer = LogprobWriter([b"a"])
    assert plain(writer.entries([7], [TokenLogprobs(-1.0, [0, 9], [-1.0, -2.0])])[0]) == {
        "token": "",
        "logprob": -1.0,
        "bytes": [],
        "top_logprobs": [
            {"token": "a", "logprob": -1.0, "bytes": [97]},
            {"token": "", "logprob": -2.0, "bytes": []},
        ],
    }


@settings(max_examples=200, deadline=None)
@given(
    text=st.text(st.sampled_from("abXYZ é🙂"), min_size=1, max_size=14),
    cuts=st.lists(st.integers(1, 4), min_size=1, max_size=30),
)
def test_streams_lose_no_entry(tokenizer: ChatTokenizer, text: str, cuts: list[int]) -> None:
    """Whatever is held back for half characters and stop strings: the chunks' entries are the whole answer's."""
    tokens = text.encode()
    pieces = []
    while tokens:
        size = cuts[len(pieces) % len(cuts)]
        pieces.append(tokens[:size])
        tokens = tokens[size:]
    events = [event(piece) for piece in pieces[:-1]] + [event(pieces[-1], FinishReason.LENGTH)]
    streamed, whole = answer_of(tokenizer, stops=["XYZ", "Zé"]), answer_of(tokenizer, stops=["XYZ", "Zé"])
    chunks = [chunk for one in events for chunk in streamed.chunks(one, full_text=False)]
    for one in events:
        whole.feed(one)
    choice = plain(whole.completion())["choices"][0]
    entries = [entry for chunk in chunks for entry in plain(chunk)["choices"][0]["logprobs"]["content"]]
    assert entries == choice["logprobs"]["content"]
    assert spelled(entries).decode("utf-8", "replace").startswith(choice["message"]["content"])
    assert len(entries) == plain(whole.completion())["usage"]["completion_tokens"]


def test_tokens_after_a_stop_string_have_no_entries(tokenizer: ChatTokenizer) -> None:
    answer = answer_of(tokenizer, stops=["DE"])
    answer.feed(event(b"ABCDEFG"))
    entries = plain(answer.completion())["choices"][0]["logprobs"]["content"]
    assert spelled(entries) == b"ABCDE"


def test_opening_chunks_have_none(tokenizer: ChatTokenizer) -> None:
    assert [plain(chunk)["choices"][0]["logprobs"] for chunk in answer_of(tokenizer, 2).opening()] == [None, None]


@pytest.mark.parametrize("ranked", [True, False])
def test_ranked_answers_have_the_likeliest_sequence_first(tokenizer: ChatTokenizer, ranked: bool) -> None:
    answer = answer_of(tokenizer, 3, ranked=ranked)
    answer.feed(event(b"long and likely", FinishReason.LENGTH, logprob=-0.1))
    answer.feed(event(b"short", FinishReason.LENGTH, index=2, logprob=-0.2))
    answer.feed(event(b"middle", FinishReason.LENGTH, index=1, logprob=-0.2))
    body = plain(answer.completion())
    order = ["short", "middle", "long and likely"] if ranked else ["long and likely", "middle", "short"]
    assert [choice["message"]["content"] for choice in body["choices"]] == order
    assert [choice["index"] for choice in body["choices"]] == [0, 1, 2]
    assert body["usage"]["completion_tokens"] == 26
    assert len(body["usage"]["batch_size"]) == 15


def test_ranking_counts_only_what_belongs_to_the_answer(tokenizer: ChatTokenizer) -> None:
    """What a sequence says after its stop string does not make it less likely."""
    answer = answer_of(tokenizer, 2, ranked=True, stops=["!"])
    answer.feed(event(b"no no", FinishReason.LENGTH, logprob=-1.0))
    answer.feed(event(b"yes!" + b"x" * 20, FinishReason.LENGTH, index=1, logprob=-1.0))
    assert [choice.message.content for choice in answer.completion().choices] == ["yes", "no no"]
