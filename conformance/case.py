"""A case: what is sent, what the contract says of it, and what must come back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from conformance.bodies import Body, Change

CHAT: Final = "/v1/chat/completions"


def marker(name: str) -> str:
    """What a prompt contains to get a scripted reply."""
    return f"[case: {name}]"


class Level(StrEnum):
    """How much a fault counts.

    MUST: the document's tables say it, or no client could work without it. SHOULD: only a reading says it, where the
    document is silent or its examples differ; a server written from the document alone may do otherwise.
    """

    MUST = "MUST"
    SHOULD = "SHOULD"


class Kind(StrEnum):
    """What must come back."""

    ANSWER = "answer"
    """200 with a whole answer or a stream, as ``stream`` of the request says."""
    REFUSED = "refused"
    """A status and an error body."""
    FAILED = "failed"
    """A stream that breaks off with an error event."""
    PLANE = "plane"
    """What a path other than the chat's answers: a status and a component of the contract."""


@dataclass(frozen=True)
class Known:
    """What a profile tells of the server that requests are made of; see ``Profile``."""

    max_prompt_tokens: int | None = None
    likely_token: int | None = None


@dataclass(frozen=True)
class Call:
    """One HTTP request. Either ``change`` or ``raw`` is its body, or it has none."""

    method: str = "POST"
    path: str = CHAT
    headers: Mapping[str, str] = field(default_factory=dict)
    change: Change | None = None
    raw: bytes | None = None
    pad_to_limit: bool = False
    """A body of one byte more than the profile's ``max_body_bytes``."""
    fill_prompt: bool = False
    """A message of more tokens than the profile's ``max_prompt_tokens``."""
    likely_token: float | None = None
    """The bias of the profile's ``likely_token``; None: there is none."""
    without: tuple[str, ...] = ()
    """Headers of the run that are not sent."""

    def json_body(self, model: str, adapter: str | None = None, known: Known | None = None) -> Body | None:
        if self.change is None:
            return None
        known = known or Known()
        more: dict[str, Any] = {}
        if self.fill_prompt:  # each word is a token at least, and the template has some of its own
            more["messages[0].content"] = "a " * (known.max_prompt_tokens or 1)
        if self.likely_token is not None:
            more["logit_bias"] = {str(known.likely_token): self.likely_token}
        return self.change.but(put=more).body(model, adapter)

    def content(self, body: Body | None, model: str, max_body_bytes: int | None = None) -> bytes | None:
        """The bytes to send; ``body`` is what ``json_body`` gave."""
        if body is None:
            return None if self.raw is None else self.raw.replace(b'"{model}"', json.dumps(model).encode())
        text = json.dumps(body, ensure_ascii=False).encode("utf-8", "surrogatepass")
        if self.pad_to_limit and max_body_bytes is not None:
            text += b" " * (max_body_bytes + 1 - len(text))
        return text


@dataclass(frozen=True)
class Check:
    """An invariant named by a case, with what it is compared with."""

    id: str
    argument: Any = None


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """What must come back. The invariants of its kind hold without being named."""

    kind: Kind
    status: int = 200
    names: str | None = None
    """The place that a refusal must name."""
    unless: tuple[str, ...] = ()
    """A request that asks for what a server may lack may be refused too, by naming one of these places."""
    checks: tuple[Check, ...] = ()
    same_as: tuple[Change, ...] = ()
    """Requests whose answers say the same, streamed or not."""
    unlike: tuple[Change, ...] = ()
    """Requests whose answers say something else."""
    longer_than: tuple[Change, ...] = ()
    """Requests whose prompts have fewer tokens."""
    component: str | None = None
    """Of a plane's JSON body; None: the body is free."""

    def words(self) -> str:
        """For people."""
        if self.kind is Kind.REFUSED:
            return f"status {self.status}" + (
                f", an error that names {self.names}" if self.names else ", an error body"
            )
        told = {
            Kind.ANSWER: "status 200 and an answer that keeps every invariant",
            Kind.FAILED: "a stream that ends with an error event and without [DONE]",
            Kind.PLANE: f"status {self.status}" + (f" and a {self.component}" if self.component else ""),
        }[self.kind]
        extra = [check.id if check.argument is None else f"{check.id}: {check.argument}" for check in self.checks]
        extra += ["the same answer as to the question in its other forms"] * bool(self.same_as)
        extra += ["another answer than to the other question"] * bool(self.unlike)
        extra += ["more tokens of the prompt than in the shorter question"] * bool(self.longer_than)
        extra += [f"or a refusal that names {' or '.join(self.unless)}"] * bool(self.unless)
        return "; ".join([told, *extra])


@dataclass(frozen=True, kw_only=True)
class Case:
    """One line of the report."""

    id: str
    theme: str
    says: str
    """What it shows, in one sentence."""
    lines: tuple[int, ...] = ()
    """Of the document."""
    readings: tuple[str, ...] = ()
    """Of interpretations.md."""
    level: Level = Level.MUST
    needs: frozenset[str] = frozenset()
    """Capabilities without which it cannot be asked."""
    call: Call
    expect: Expectation
    reply: Mapping[str, Any] | None = None
    """What the scripted engine says to it: a reply of its script without ``match``."""
