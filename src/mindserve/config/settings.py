"""What the HTTP front end needs to know about its set-up, as plain values.

Made by ``mindserve.config.lower`` from a ``config.json``; a test or a library user may fill it by hand. The defaults
are those of an empty ``config.json``. MindIE's key stands in brackets where there is one.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final

import msgspec

from mindserve.config.api_keys import ApiKeys
from mindserve.config.packaged import DEFAULT_MODEL

MIB: Final = 1024 * 1024


class Dialect(enum.StrEnum):
    """The two shapes in which the same operation answers [openAiSupport]."""

    VLLM = "vllm"
    OPENAI = "openai"


class LogSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What is logged."""

    level: str = "INFO"
    """Least level, as the standard library names it [dynamicLogLevel]."""
    requests: bool = True
    """One line per finished request [accessLogEnabled]."""


class ModelTypeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the operator says of one type of model; ``None``: what the model's own files say [models.<type>]."""

    enable_reasoning: bool | None = None
    """Whether the chain of thought is told from the answer [enable_reasoning]."""
    tool_call_parser: str | None = None
    """How tool calls are written [tool_call_options.tool_call_parser]."""
    chat_template: str | None = None
    """Jinja source, or the path of a ``.jinja`` file [chat_template]."""


class DecodeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How media become arrays, and what that may cost [MediaConfig]."""

    workers: int = 2
    """Processes that decode [decodeWorkers]."""
    timeout_s: float = 20.0
    """Longest time for one item [decodeTimeout]."""
    cpu_time_s: int = 30
    """Most processor time for one item [decodeCpuTime]."""
    memory_bytes: int = 1536 * MIB
    """Address space of a process [decodeMemory, in MiB there]."""
    max_image_pixels: int = 64 * 1024 * 1024
    """[maxImagePixels]"""
    max_image_tokens: int = 4096
    """Most tokens of an image; it is made smaller until it fits [maxImageTokens]."""
    max_video_frames: int = 64
    """Most frames taken of a video, even [maxVideoFrames]."""
    video_fps: float = 2.0
    """Frames taken of each second of a video [videoFps]."""
    max_video_tokens: int = 8192
    """Most tokens of a video; its frames are made smaller until it fits [maxVideoTokens]."""
    truncate_audio: bool = False
    """Cut recordings that the model cannot hear to their end, instead of refusing them [truncateAudio]."""


class MediaSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where media may come from and how large they may be [MediaConfig]."""

    root: str = "/data/multimodal_inputs"
    """Absolute path of the folder that names in requests mean [mediaRoot]."""
    max_image_bytes: int = 40 * MIB
    """[maxImageSize, in MiB there, as all sizes]"""
    max_video_bytes: int = 512 * MIB
    """[maxVideoSize]"""
    max_audio_bytes: int = 40 * MIB
    """Of an ``audio_url`` [maxAudioSize]."""
    max_input_audio_bytes: int = 20 * MIB
    """Of an ``input_audio`` [maxInputAudioSize]."""
    max_parts: int = 20
    """Most items of a request [maxMediaParts]."""
    max_total_bytes: int = 1000 * MIB
    """Most bytes of all items of a request [maxMediaTotal]."""
    max_in_flight_bytes: int = 1024 * MIB
    """Most bytes of the items of all requests at a time [maxMediaInFlight]."""
    allowed_hosts: tuple[str, ...] = ()
    """Canonical names and addresses of hosts that files are fetched from [variable ALLOWED_MEDIA_DOMAINS_ENV]."""
    allowed_networks: tuple[str, ...] = ()
    """Networks that those hosts may lie in although they are not public [allowedAddresses]."""
    connect_timeout_s: float = 5.0
    """For finding an address, and for connecting [connectTimeout]."""
    read_timeout_s: float = 30.0
    """Longest silence of a host [readTimeout]."""
    fetch_timeout_s: float = 60.0
    """Longest time for one file [fetchTimeout]."""
    decode: DecodeSettings = DecodeSettings()


class ServeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Limits and choices of the front end. Counts are inclusive; ``None`` means: no own limit, take the engine's."""

    model_name: str = DEFAULT_MODEL.title
    """The name requests must give [modelName]."""
    lora_names: tuple[str, ...] = ()
    """Further names requests may give [LoraModules[].name]."""
    dialect: Dialect = Dialect.VLLM
    """[openAiSupport]: absent or "vllm" is this API, anything else OpenAI's."""
    api_keys: ApiKeys | None = None
    """Those of which a request must give one [apiKeyFile]; ``None``: anybody may ask."""
    cors_allow_origins: tuple[str, ...] = ()
    """Origins whose pages may read answers, or ``*`` [corsAllowOrigins]."""
    browser_pages: bool = True
    """Serve the pages for a browser [browserPages]."""
    max_iter_times: int = 512
    """Most tokens one request may generate, and the default of ``max_tokens`` [maxIterTimes]."""
    max_input_token_len: int | None = None
    """Most prompt tokens [maxInputTokenLen]; the engine's ``max_prompt_tokens`` has the model's own limit in it."""
    max_seq_len: int | None = None
    """Most tokens of prompt and output together [maxSeqLen]."""
    token_timeout_s: float = 600.0
    """Longest wait for the next token, queueing included [tokenTimeout]."""
    e2e_timeout_s: float = 600.0
    """Longest life of a request [e2eTimeout]."""
    max_request_bytes: int = 64 * MIB
    """Size limit of a request body [maxRequestLength, in MiB there]."""
    max_messages_length: int = 4 * MIB
    """Most characters of text in all messages together [maxMessagesLength]."""
    max_json_depth: int = 10
    """Deepest nesting of arrays and objects in a request body [maxJsonDepth]."""
    full_text_enabled: bool = False
    """Stream deltas are cumulative and the last chunk carries ``full_text`` [fullTextEnabled]."""
    allow_empty_content: bool = False
    """Empty message content passes [allowEmptyContent]."""
    drain_timeout_s: float = 30.0
    """How long running requests may go on after SIGTERM [drainTimeout]."""
    keep_alive_s: int = 75
    """How long an idle connection stays open, and how long the head of a request may take [keepAliveTimeout]."""
    heartbeat_s: float | None = None
    """Silence after which a stream gets an SSE comment [streamHeartbeat]; ``None``: never."""
    max_connections: int = 1000
    """Connections that may be open beside those that wait [maxLinkNum, for each of modelInstanceNumber]."""
    max_waiting: int = 2000
    """Requests that may wait for the engine; one more is refused [maxQueueSize]."""
    tokenizer_workers: int = 8
    """Workers that render and tokenise prompts [tokenizerProcessNumber]."""
    tokenizer_timeout_s: float = 60.0
    """Time limit of rendering and tokenising one prompt [tokenizerTimeout]."""
    model_types: Mapping[str, ModelTypeSettings] = {}
    """Settings by model type, as the file spells it [models]; see ``config.model_types``."""
    media: MediaSettings = MediaSettings()
    """Images, videos and recordings [MediaConfig]."""
    tool_call_parser: str | None = None
    """How a packaged model writes tool calls, unless ``model_types`` says something else."""
    trust_remote_code: bool = False
    """The tokenizer may run code that came with the model [trustRemoteCode]."""
