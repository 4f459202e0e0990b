"""The script of a scripted engine: which prompt gets which tokens, when, with which figures.

A script is a YAML file: a list of replies, or a mapping with ``replies`` and settings of the pretended model.

    - match: "capital of France"
      pieces: ["Par", "is", "."]
      queue_wait_us: [5149, 60, 39, 28]
      step_ms: [200, 28]
    - default: true
      pieces: [" la"]
      finish: length
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec
import yaml

from mindserve_engine.interface import EngineError

Number = TypeVar("Number", int, float)
Count = Annotated[int, msgspec.Meta(ge=0)]
Duration = Annotated[float, msgspec.Meta(ge=0)]
Counts = Count | Annotated[list[Count], msgspec.Meta(min_length=1)]
Durations = Duration | Annotated[list[Duration], msgspec.Meta(min_length=1)]
Logprob = Annotated[float, msgspec.Meta(le=0)]
Logprobs = Logprob | Annotated[list[Logprob], msgspec.Meta(min_length=1)]


class ScriptError(EngineError):
    """The script cannot be used; the text names the file and the place in it."""


class Finish(StrEnum):
    EOS = "eos"
    """After the pieces comes the end-of-sequence token, a token of its own."""
    LENGTH = "length"
    """The last piece ends the sequence as if the limit of tokens were reached."""
    STOP = "stop"
    """The last piece is taken for one of the request's stop tokens."""


class Voice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """What one sequence says. Lists of figures have one entry per token; when they are shorter, their last entry holds
    for the rest."""

    pieces: Annotated[list[str], msgspec.Meta(min_length=1)]
    """Each entry is one token. ``!!binary`` entries may be parts of a character; here their bytes are escaped as
    Python's ``surrogateescape`` does."""
    finish: Finish = Finish.EOS
    repeat: bool = False
    """Go through the pieces again and again until ``max_tokens``. Under ``ignore_eos`` so does a reply that would end
    with the end-of-sequence token."""
    queue_wait_us: Counts = 0
    batch_size: Counts = 1
    step_ms: Durations = 0.0
    logprobs: Logprobs = 0.0


class Reply(Voice, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """One answer. Of ``match``, ``contains`` and ``default`` exactly one is given.

    The first reply that fits the prompt is used; the default one when no other fits.
    """

    match: str | None = None
    """A regular expression, searched in the decoded prompt (special tokens included)."""
    contains: str | None = None
    """Text the decoded prompt contains."""
    default: bool = False
    others: list[Voice] = []
    """What the request's further sequences say; the first one says the reply's own pieces."""
    prompt_tokens: Count | None = None
    """Reported instead of the prompt's real number of tokens."""
    cached_tokens: Count = 0
    delay_ms: Durations = 0.0
    """Real time that passes before each step; 0 is as fast as it is consumed. A step gives every sequence a token."""
    fail_after: Count | None = None
    """The engine gives the request up after so many steps (``GenerationFailed``)."""
    fail_sequence_after: Count | None = None
    """The first sequence fails alone after so many steps (``SequenceEvent.failure``)."""
    hang_after: Count | None = None
    """Nothing more comes after so many steps, until the request is aborted."""
    crash_after: Count | None = None
    """The whole engine dies after so many steps: every request fails, and it comes back after ``restart_ms``."""

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """``match`` or ``contains`` as one compiled expression; the default reply's matches everything."""
        if self.match is not None:
            return re.compile(self.match)
        return re.compile(re.escape(self.contains or ""))


class Load(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the pretended model loads."""

    delay_ms: Duration = 0.0
    failure: str | None = None
    """The reason why it cannot be loaded."""


class Script(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Replies, and what the pretended model is like."""

    replies: Annotated[list[Reply], msgspec.Meta(min_length=1)]
    chat_template: str | None = None
    """Jinja template of the written tokenizer; the default is the ChatML one of ``scripted.model``."""
    max_context: Annotated[int, msgspec.Meta(ge=2)] = 1_048_576
    media: bool = False
    """Whether the model takes images, videos and recordings; what it says of them is the replies' affair."""
    load: Load = Load()
    restart_ms: Duration = 0.0

    def reply_to(self, prompt: str) -> Reply | None:
        """The reply for the decoded prompt, or None when no reply fits and there is no default."""
        for reply in self.replies:
            if not reply.default and reply.pattern.search(prompt):
                return reply
        return next((reply for reply in self.replies if reply.default), None)


class _Loader(yaml.SafeLoader):
    """Reads ``!!binary`` as text with escaped bytes, so that every piece is text."""

    def construct_yaml_binary(self, node: yaml.ScalarNode) -> str:  # type: ignore[override]  # text instead of bytes
        return super().construct_yaml_binary(node).decode("utf-8", "surrogateescape")


_Loader.add_constructor("tag:yaml.org,2002:binary", _Loader.construct_yaml_binary)


def load_script(path: Path) -> Script:
    """Read and check a script file. Raises ``ScriptError``."""
    try:
        document = yaml.load(path.read_text("utf-8"), _Loader)  # noqa: S506 - a safe loader
    except OSError as error:
        raise ScriptError(f"{path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ScriptError(f"{path}: not a YAML file: {' '.join(str(error).split())}") from error
    try:
        script = _convert(document)
    except msgspec.ValidationError as error:
        raise ScriptError(f"{path}: {error}") from error
    faults = list(_faults(script))
    if faults:
        raise ScriptError(f"{path}: {'; '.join(faults)}")
    return script


def _convert(document: object) -> Script:
    if isinstance(document, list):
        return Script(replies=msgspec.convert(document, list[Reply]))
    return msgspec.convert(document, Script)


def _faults(script: Script) -> Iterator[str]:
    if not script.replies:
        yield "there are no replies"
    if sum(reply.default for reply in script.replies) > 1:
        yield "more than one reply is the default"
    for number, reply in enumerate(script.replies):
        for fault in _reply_faults(reply):
            yield f"replies[{number}]: {fault}"


def _reply_faults(reply: Reply) -> Iterator[str]:
    if (reply.match is not None) + (reply.contains is not None) + reply.default != 1:
        yield "give exactly one of match, contains and default"
    try:
        _ = reply.pattern
    except re.error as error:
        yield f"match: not a regular expression: {error}"
    yield from _voice_faults(reply, ("queue_wait_us", "batch_size", "step_ms", "logprobs", "delay_ms"))
    for number, voice in enumerate(reply.others):
        for fault in _voice_faults(voice, ("queue_wait_us", "batch_size", "step_ms", "logprobs")):
            yield f"others[{number}]: {fault}"


def _voice_faults(voice: Voice, names: tuple[str, ...]) -> Iterator[str]:
    if any(not piece for piece in voice.pieces):
        yield "pieces: a piece is empty"
    num_tokens = len(voice.pieces) + (voice.finish is Finish.EOS)
    for name in names:
        figures = getattr(voice, name)
        if isinstance(figures, list) and len(figures) > num_tokens and not voice.repeat:
            yield f"{name}: {len(figures)} values for {num_tokens} tokens"


def figure_at(figures: Number | list[Number], position: int) -> Number:
    """The figure of the token at ``position``: a list's last entry holds for all later tokens."""
    if isinstance(figures, list):
        return figures[min(position, len(figures) - 1)]
    return figures
