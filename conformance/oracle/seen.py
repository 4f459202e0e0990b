"""An exchange as the invariants look at it: parsed, beside what was asked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from conformance.bodies import Body
from conformance.client import Exchange
from conformance.contract import Contract
from conformance.dialects import VLLM
from conformance.profile import Profile
from conformance.wishes import Wishes

Json = Any


class NotJson(ValueError):
    """The text is no JSON; the text says why."""


def parse_json(text: bytes | str) -> Json:
    """Strict JSON in UTF-8: no NaN, no deep nesting. Raises ``NotJson``."""
    try:
        return json.loads(text if isinstance(text, str) else text.decode("utf-8"), parse_constant=_refuse)
    except UnicodeDecodeError as error:
        raise NotJson(f"not UTF-8 at byte {error.start}") from error
    except RecursionError as error:
        raise NotJson("nested too deeply") from error
    except ValueError as error:
        raise NotJson(str(error)) from error


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


@dataclass
class Sequence:
    """What an answer says of one sequence, streamed or not."""

    text: str = ""
    reasoning: str = ""
    calls: list[dict[str, str]] = field(default_factory=list)
    """Name and arguments of each call."""
    finish: str | None = None
    entries: list[dict[str, Any]] = field(default_factory=list)
    """Log-probabilities, one per token."""

    def told(self) -> tuple[Any, ...]:
        """What two answers to the same question have in common."""
        return self.text, self.reasoning, [(call["name"], call["arguments"]) for call in self.calls], self.finish


class Seen(Wishes):
    """One exchange. Properties that read an answer may raise what reading odd JSON raises; see ``registry.ask``."""

    def __init__(
        self, contract: Contract, profile: Profile, model: str, asked: Body | None, exchange: Exchange
    ) -> None:
        self.contract = contract
        self.profile = profile
        self.model = model
        self.asked = asked
        self.exchange = exchange
        self.stumbles: list[Exception] = []
        """What invariants raised that could not make sense of the answer, see ``registry.ask``."""
        self.names: str | None = None
        """The place that a refusal must name."""
        self.is_excused = False
        """Whether it is refused for a reason of the server's own, told by a word that need not be a place."""
        self.status = 200
        """What was expected."""
        self.others: list[Seen] = []
        """Answers to the same question in other forms."""
        self.unlike: list[Seen] = []
        """Answers to questions that must be answered otherwise."""
        self.shorter: list[Seen] = []
        """Answers to questions with less in them."""

    @property
    def offers_tools(self) -> bool:
        return bool(self.get("tools")) and self.get("tool_choice") != "none"

    @property
    def max_tokens(self) -> int | None:
        """R23, as far as the request says it."""
        limit = self.get("max_completion_tokens", self.get("max_tokens"))
        return None if limit is None else int(limit)

    @cached_property
    def body(self) -> Json:
        """Raises ``NotJson``."""
        return parse_json(self.exchange.body)

    @cached_property
    def events(self) -> list[Json]:
        """The JSON of each event but ``[DONE]``; what is no JSON is left out (``chunk-json`` tells it)."""
        return [value for _, value in self.parsed_events if value is not None]

    @cached_property
    def parsed_events(self) -> list[tuple[str, Json]]:
        """Data and JSON of each event but ``[DONE]``; None where it is no JSON."""
        found = []
        for frame in self.exchange.frames:
            if frame.data is not None and not frame.is_done:
                try:
                    found.append((frame.data, parse_json(frame.data)))
                except NotJson:
                    found.append((frame.data, None))
        return found

    @property
    def error(self) -> dict[str, Any]:
        """A refusal's ``message`` and ``type``; in the ``openai`` dialect ``param`` and ``code``, too."""
        return self.contract.dialect.error_of(self.body)

    @property
    def chunks(self) -> list[dict[str, Any]]:
        """Events that are chunks of the answer and not errors."""
        return [event for event in self.events if isinstance(event, dict) and "error" not in event]

    def choices_of_chunks(self) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        """Each chunk with its choice."""
        for chunk in self.chunks:
            for choice in chunk["choices"]:
                yield chunk, choice

    @cached_property
    def sequences(self) -> dict[int, Sequence]:
        """What the answer says, by index."""
        return self._streamed() if self.exchange.is_stream else self._whole()

    @property
    def usages(self) -> list[dict[str, Any]]:
        """Every usage that the answer has; in a chunk null is none (D13)."""
        if self.exchange.is_stream:
            return [chunk["usage"] for chunk in self.chunks if chunk.get("usage") is not None]
        return [self.body["usage"]]

    @property
    def tells_usage(self) -> bool:
        """Whether there must be a usage: streams of the ``openai`` dialect have one on request (D1)."""
        return not self.exchange.is_stream or self.contract.dialect.name == VLLM or self.wants_usage

    def _whole(self) -> dict[int, Sequence]:
        told = {}
        for choice in self.body["choices"]:
            message = choice["message"]
            calls = [{"id": call["id"], **call["function"]} for call in message.get("tool_calls") or []]
            entries = (choice.get("logprobs") or {}).get("content", [])
            reasoning = message.get("reasoning_content", "")
            text = message["content"] or ""  # null beside calls (D13)
            told[choice["index"]] = Sequence(text, reasoning, calls, choice["finish_reason"], entries)
        return told

    def _streamed(self) -> dict[int, Sequence]:
        told: dict[int, Sequence] = {}
        texts: dict[int, list[str]] = {}
        thoughts: dict[int, list[str]] = {}
        is_cumulative = self.contract.dialect.name == VLLM and any("full_text" in chunk for chunk in self.chunks)
        for _, choice in self.choices_of_chunks():
            one, delta = told.setdefault(choice["index"], Sequence()), choice["delta"]
            texts.setdefault(choice["index"], []).append(delta.get("content") or "")
            thoughts.setdefault(choice["index"], []).append(delta.get("reasoning_content") or "")
            for piece in delta.get("tool_calls") or []:
                if piece["index"] == len(one.calls):
                    one.calls.append(
                        {"id": piece.get("id", ""), "name": piece["function"].get("name", ""), "arguments": ""}
                    )
                one.calls[piece["index"]]["arguments"] += piece["function"].get("arguments", "")
            one.entries += (choice.get("logprobs") or {}).get("content", [])
            one.finish = choice["finish_reason"] or one.finish
        for index, one in told.items():
            one.text = texts[index][-1] if is_cumulative else "".join(texts[index])
            one.reasoning = "".join(thoughts[index])
        return told
