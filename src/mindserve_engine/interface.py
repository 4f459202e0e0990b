"""The engine as its callers see it: one protocol, one stream of events per request, one tree of errors.

EngineError
├── EngineNotStarted         it died or hung while it started; another start may go well
├── AdmissionError           refused before anything was done; the request never existed
│   ├── QueueFull            recoverable: try again after ``retry_after_s``
│   ├── PromptTooLong        the caller's fault
│   ├── RequestInvalid       the caller's fault; names the field
│   └── EngineUnavailable    recoverable: loading, restarting, draining or failed
└── GenerationFailed         an admitted request could not be finished; the engine may be well
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from mindserve_engine.types import EngineHealth, EngineInfo, EngineStats, GenerationRequest, SequenceEvent, Vocabulary


class EngineError(Exception):
    """Root of everything an engine raises on purpose."""


class EngineNotStarted(EngineError):
    """The engine died while it started, or did not start in time: of what it was told nothing is known to be wrong."""


class AdmissionError(EngineError):
    """The request was refused; no resources are held for it."""


class QueueFull(AdmissionError):
    """Too many requests are waiting. Recoverable."""

    def __init__(self, *, num_waiting: int, limit: int, retry_after_s: int = 1) -> None:
        super().__init__(f"{num_waiting} requests are waiting, the limit is {limit}")
        self.num_waiting = num_waiting
        self.limit = limit
        self.retry_after_s = retry_after_s


class PromptTooLong(AdmissionError):
    """The prompt has more tokens than fit."""

    def __init__(self, *, num_tokens: int, limit: int, limit_name: str) -> None:
        super().__init__(f"the prompt has {num_tokens} tokens, {limit_name} allows {limit}")
        self.num_tokens = num_tokens
        self.limit = limit
        self.limit_name = limit_name


class RequestInvalid(AdmissionError):
    """A field of the request cannot be honoured by this engine."""

    def __init__(self, *, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field
        self.reason = reason


class EngineUnavailable(AdmissionError):
    """The engine is not taking requests now. Recoverable."""

    def __init__(self, reason: str, *, retry_after_s: int = 1) -> None:
        super().__init__(reason)
        self.retry_after_s = retry_after_s


class GenerationFailed(EngineError):
    """Raised from a ``Generation`` when the request cannot be finished. Recoverable by sending the request again."""


class Generation(Protocol):
    """The events of one admitted request, in order, ending after the last sequence's finish reason.

    Iterate it once. Iteration raises ``GenerationFailed`` when the engine cannot go on with this request.
    """

    def __aiter__(self) -> AsyncIterator[SequenceEvent]: ...

    def stop(self, index: int) -> None:
        """Give one sequence up and let the others go on: it ends without a finish reason, within one step. Like
        ``abort`` for the last open sequence; harmless for one that has ended."""

    def abort(self) -> None:
        """Give the request up: it stops within one step, waiting or running, and its iteration ends. Idempotent, never
        blocks, harmless after the end."""


class Engine(Protocol):
    """A model that continues prompts. One event loop owns it; all methods are called from that loop."""

    async def start(self) -> None:
        """Load the model and return when requests can be admitted.

        ``health()`` tells the progress meanwhile. Raises ``EngineError`` with one clear line when it cannot start."""

    @property
    def info(self) -> EngineInfo:
        """Fixed facts about the loaded model. Valid after ``start()`` returned."""

    def learn(self, vocabulary: Vocabulary) -> None:
        """Be told the tokens' bytes, which grammars need. Once, after ``start()`` and before the first such request;
        engines that lack the capability ``GRAMMAR`` or read the vocabulary themselves pass over it."""

    async def check_grammar(self, grammar: str) -> None:
        """Raise ``RequestInvalid`` naming ``grammar`` when it cannot be followed, as ``admit`` does, and
        ``EngineUnavailable`` when that cannot be told now."""

    async def admit(self, request: GenerationRequest) -> Generation:
        """Take the request or raise ``AdmissionError``; nothing is generated for a refused request."""

    def health(self) -> EngineHealth:
        """Never blocks."""

    def stats(self) -> EngineStats:
        """Figures of the moment; may be up to one heartbeat old. Never blocks."""

    async def close(self) -> None:
        """Abort what runs, free the device, end the process. Idempotent."""
