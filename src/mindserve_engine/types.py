"""The values that cross the engine's border: requests going in, events coming out, figures about both.

Everything here is plain data (msgspec structs), so that it can travel to an engine process as it is. Units stand in the
names: ``_us`` microseconds, ``_ms`` milliseconds, ``_s`` seconds, ``num_`` a count of tokens unless it says otherwise.
"""

from __future__ import annotations

import enum
from typing import Final

import msgspec

SEED_MAX: Final = 2**64 - 1
LOGPROB_FLOOR: Final = -9999.0


class Capability(enum.StrEnum):
    """What an engine can do beyond plain generation."""

    PARALLEL_SAMPLING = "parallel_sampling"
    """``num_sequences`` above 1."""
    BEAM_SEARCH = "beam_search"
    LOGPROBS = "logprobs"
    GRAMMAR = "grammar"
    """Constrained decoding: enforced tool choices, strict schemas, response formats."""
    LOGIT_BIAS = "logit_bias"
    LORA = "lora"
    MEDIA = "media"


class FinishReason(enum.StrEnum):
    """Why the engine ended a sequence. The wire's ``finish_reason`` is made from it by the server."""

    EOS = "eos"
    """An end-of-sequence token of the model; it is the last of the event's ``token_ids``."""
    STOP_TOKEN = "stop_token"
    """A token of the request's ``stop_token_ids``; it is the last of the event's ``token_ids``."""
    LENGTH = "length"
    """``max_tokens`` or the end of the context was reached."""


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True):
    """How one token is drawn from the model's distribution.

    Applied in this order: bias, repetition penalty, presence and frequency penalties, temperature, top-k, top-p.
    """

    temperature: float = 1.0
    """>= 0; 0 takes the most probable token."""
    top_k: int = 0
    """Number of candidates kept; 0 keeps all. May exceed the vocabulary."""
    top_p: float = 1.0
    """In (0, 1]: the smallest set of candidates whose probability reaches it is kept."""
    seed: int = 0
    """0..2^64-1. The random stream depends on (seed, sequence index, position) only."""
    repetition_penalty: float = 1.0
    """Above 0: over prompt and output, as transformers defines it."""
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    """Both finite, over the output only, as OpenAI defines them."""
    logit_bias: tuple[tuple[int, float], ...] = ()
    """(token id, what is added to its logit, finite), each id once and inside the vocabulary (capability
    ``LOGIT_BIAS``)."""


class Vocabulary(msgspec.Struct, frozen=True, array_like=True):
    """What a grammar must know of the model's tokens."""

    token_bytes: list[bytes]
    """By token id; ``b""`` where the id stands for no text."""
    special_token_ids: list[int]
    """Control tokens: their bytes are names, not text that a grammar could ask for."""
    eos_token_ids: tuple[int, ...]
    """Those that end a sequence, at least one: what follows a grammar's end."""
    tokenizer_json: str = ""
    """The tokenizer in the format of the ``tokenizers`` library, so that text which a grammar dictates is cut into the
    tokens that the model was taught; without it, into the longest ones."""


class MediaKind(enum.StrEnum):
    IMAGE = "image"
    VIDEO = "video"
    AUDIO = "audio"


class MediaItem(msgspec.Struct, frozen=True, kw_only=True):
    """One image, video or recording of a prompt, decoded and brought to the size that the model sees.

    The engine makes embeddings of it, one for each of its placeholders (capability ``MEDIA``)."""

    kind: MediaKind
    start: int
    """Index of its first placeholder in ``prompt_token_ids``; the others follow without a gap."""
    num_tokens: int
    """Placeholders, at least 1: what ``EngineInfo.media`` gives for ``shape``."""
    shape: tuple[int, ...]
    """Image: (height, width, 3). Video: (frames, height, width, 3). Recording: (samples,)."""
    data: bytes
    """In C order. Pixels: RGB in uint8. Samples: float32, one channel at ``MediaModel.sample_rate``."""
    digest: bytes
    """SHA-256 of ``kind``, ``shape``, ``seconds_per_frame`` and ``data``: items that are equal to the model, and no
    others, have the same."""
    seconds_per_frame: float = 0.0
    """Video: time between the frames that were taken."""


class MediaModel(msgspec.Struct, frozen=True, kw_only=True):
    """What a model takes beside text, as far as its caller must know it to cut media to size and count them."""

    image_token_id: int | None = None
    """The placeholder; None: the model takes none of the kind."""
    video_token_id: int | None = None
    audio_token_id: int | None = None
    patch_size: int = 0
    """Pixels on a side of a patch."""
    merge_size: int = 0
    """Patches on a side that become one token: heights and widths are multiples of ``patch_size * merge_size``."""
    frames_per_patch: int = 0
    """Frames of a video that become one grid step; an odd last frame is doubled."""
    min_pixels: int = 0
    """Of an image, and of a frame: smaller ones are enlarged."""
    max_pixels: int = 0
    """Of an image: larger ones are made smaller."""
    sample_rate: int = 0
    """Of recordings, in Hz."""
    samples_per_frame: int = 0
    """Samples between two frames of features."""
    max_samples: int = 0
    """The longest recording, in samples."""

    def token_id(self, kind: MediaKind) -> int | None:
        """The placeholder of a kind; None: the model takes none of it."""
        ids = {
            MediaKind.IMAGE: self.image_token_id,
            MediaKind.VIDEO: self.video_token_id,
            MediaKind.AUDIO: self.audio_token_id,
        }
        return ids[kind]

    def num_tokens(self, kind: MediaKind, shape: tuple[int, ...]) -> int:
        """Placeholders of an item of that shape (``MediaItem.shape``); none: the recording is too short."""
        if kind is MediaKind.AUDIO:
            num_frames = -(-shape[0] // self.samples_per_frame)
            num_halved = (num_frames + 1) // 2  # a convolution of stride 2, then pairs are averaged
            return num_halved // 2
        height, width = shape[-3] // self.patch_size, shape[-2] // self.patch_size
        num_steps = -(-shape[0] // self.frames_per_patch) if kind is MediaKind.VIDEO else 1
        return num_steps * (height // self.merge_size) * (width // self.merge_size)


class GenerationRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One prompt to be continued."""

    request_id: str
    """Unique among the requests that are running or waiting."""
    prompt_token_ids: list[int]
    """At least one token, every id inside the vocabulary."""
    max_tokens: int
    """At least 1; the engine clamps it to the room left in the context."""
    sampling: SamplingParams = SamplingParams()
    stop_token_ids: tuple[int, ...] = ()
    """Ids that end the sequence when generated. Ids outside the vocabulary never match."""
    ignore_eos: bool = False
    num_sequences: int = 1
    """Sequences that are given out; without beam search also the number generated (capability ``PARALLEL_SAMPLING``
    above 1). Each draws from a random stream of its own."""
    beam_width: int = 0
    """Above 0: beam search of this width, whose ``num_sequences`` best are given out at its end, the best first
    (capability ``BEAM_SEARCH``). Penalties and bias count on log-probabilities, as transformers has it; temperature,
    top-k and top-p mean nothing."""
    num_logprobs: int | None = None
    """Report each token's log-probability and those of so many likeliest tokens, 0 or more (``LOGPROBS``)."""
    adapter: str | None = None
    """Name of a LoRA adapter of ``EngineOptions.adapters`` (``LORA``)."""
    media: tuple[MediaItem, ...] = ()
    """In the order of their placeholders (``MEDIA``)."""
    grammar: str | None = None
    """What the text must follow, in llguidance's Lark form (``GRAMMAR``). After its end only an end-of-sequence token
    can come, so ``ignore_eos`` would make a sequence of those."""


class TokenTiming(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What the loop measured for one generated token."""

    queue_wait_us: int
    """First token: from arrival to the first step that worked on the prompt. Later: idle time since the last token."""
    batch_size: int
    """Sequences that took part in the step that produced the token."""
    step_ms: float
    """First token: from the start of its first prefill step to the token. Later: duration of the decode step."""


class TokenLogprobs(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Log-probabilities at one output position, natural logarithm, from the model's own distribution: before penalties,
    temperature and truncation. Finite: what the model rules out is ``LOGPROB_FLOOR``."""

    logprob: float
    """Of the token that was taken."""
    top_token_ids: list[int]
    """The likeliest tokens, the likeliest first."""
    top_logprobs: list[float]


class SequenceEvent(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """New tokens of one sequence, or its end, or both."""

    request_id: str
    index: int
    """Sequence of the request, 0..num_sequences-1."""
    token_ids: list[int]
    timings: list[TokenTiming]
    """As long as ``token_ids``."""
    finish_reason: FinishReason | None = None
    num_prompt_tokens: int = 0
    num_cached_tokens: int = 0
    """Prompt tokens whose keys and values came from the prefix cache."""
    failure: str | None = None
    """Set when the sequence cannot go on (its logits became NaN): there is no finish reason and nothing follows."""
    logprobs: list[TokenLogprobs] = []
    """As long as ``token_ids`` when the request asked for them, else empty."""
    beam_score: float | None = None
    """Of a hypothesis of beam search: its sum of log-probabilities divided by its number of tokens."""


class EngineInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What is fixed once the model is loaded."""

    model_type: str
    """``model_type`` of the model's config ("llama", "qwen2", ...)."""
    vocab_size: int
    max_context: int
    """Tokens of prompt and output together: the least of maxSeqLen, the model's limit and what the KV memory holds."""
    max_prompt_tokens: int
    is_context_cut_by_memory: bool = False
    """The KV memory holds less than the model and the options would allow."""
    eos_token_ids: tuple[int, ...] = ()
    default_top_k: int | None = None
    """``top_k`` of the model's files, if they have one; 0 keeps all candidates."""
    block_size: int = 0
    num_blocks: int = 0
    max_batch_size: int = 0
    """Sequences in one step; 0: not limited."""
    capabilities: frozenset[Capability] = frozenset()
    adapters: tuple[str, ...] = ()
    """Names of the LoRA adapters that were loaded."""
    media: MediaModel | None = None
    """None: the model takes text alone."""
    device: str = "cpu"
    weights: str = ""
    """How the weights are held ("int4", "bfloat16", "float32"), for the start-up line."""


class EngineState(enum.StrEnum):
    LOADING = "loading"
    READY = "ready"
    RESTARTING = "restarting"
    """The engine process died or hung; a new one is being started with back-off."""
    FAILED = "failed"
    """Will not come back by itself."""
    CLOSED = "closed"


class EngineHealth(msgspec.Struct, frozen=True, kw_only=True):
    state: EngineState
    reason: str = ""
    """For people: what is being loaded, why it failed; of a ready engine, which part of it is missing."""
    progress: float | None = None
    """0..1 while loading, where it can be told."""


class EngineStats(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of the moment, for /metrics. Counters (``_total``) never decrease while the server lives."""

    num_running: int = 0
    """Requests with a sequence that runs."""
    num_waiting: int = 0
    """Requests of which nothing runs."""
    num_swapped: int = 0
    num_preemptions_total: int = 0
    num_free_blocks: int = 0
    num_blocks: int = 0
    prefix_query_tokens_total: int = 0
    """Prompt tokens looked up in the prefix cache."""
    prefix_hit_tokens_total: int = 0
    num_restarts_total: int = 0
