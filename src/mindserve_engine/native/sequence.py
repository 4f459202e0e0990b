"""One sequence on its way through the loop: its tokens, its blocks, how far its keys and values are computed."""

from __future__ import annotations

from dataclasses import dataclass, field

from mindserve_engine.types import FinishReason, GenerationRequest


@dataclass(slots=True, eq=False)
class Sequence:
    """Mutable state of one sequence. Created waiting; the scheduler moves it between waiting and running."""

    sequence_id: int
    """Unique in the engine process, ascending in order of arrival."""
    request: GenerationRequest
    arrived: float
    """Monotonic seconds, taken when the request was admitted."""
    index: int = 0
    """Of the request's sequences."""
    cache_key: bytes = b""
    """What shapes the keys and values beside the tokens (adapter, media contents): part of every block hash."""
    token_ids: list[int] = field(default_factory=list)
    """Prompt and output."""
    output_token_ids: list[int] = field(default_factory=list)
    block_ids: list[int] = field(default_factory=list)
    """The KV blocks of the sequence, in order of position."""
    block_hashes: list[bytes] = field(default_factory=list)
    """Hash chain of the full blocks of ``token_ids``, as far as it was needed."""
    num_computed: int = 0
    """Tokens whose keys and values are in the cache."""
    num_published: int = 0
    """Blocks, from the first, that the prefix cache has been told about."""
    num_cached_tokens: int | None = None
    """Prompt tokens taken from the prefix cache when it first ran; ``None`` before that."""
    last_token_at: float = 0.0
    """Monotonic seconds of the last token; the arrival before the first one."""
    work_began_at: float | None = None
    """Start of the first step that worked towards the next token."""

    stop_token_ids: frozenset[int] = frozenset()
    """The request's; a set because a request may bring very many."""

    def __post_init__(self) -> None:
        self.stop_token_ids = frozenset(self.request.stop_token_ids)
        self.token_ids = list(self.request.prompt_token_ids)
        self.last_token_at = self.arrived

    @property
    def num_remaining(self) -> int:
        """Tokens still to be run through the model before the next one can be drawn; at least 1."""
        return len(self.token_ids) - self.num_computed

    def append(self, token_id: int) -> None:
        """Add a generated token."""
        self.token_ids.append(token_id)
        self.output_token_ids.append(token_id)

    def finish_reason(self, eos_token_ids: tuple[int, ...], max_context: int) -> FinishReason | None:
        """Why the sequence ends with its last token, if it does."""
        request, token_id = self.request, self.token_ids[-1]
        if token_id in eos_token_ids and not request.ignore_eos:
            return FinishReason.EOS
        if token_id in self.stop_token_ids:
            return FinishReason.STOP_TOKEN
        if len(self.output_token_ids) >= request.max_tokens or len(self.token_ids) >= max_context:
            return FinishReason.LENGTH
        return None
