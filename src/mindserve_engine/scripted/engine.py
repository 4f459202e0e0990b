"""The scripted engine: admission, waiting, failures and health like a real engine's, answers from a script."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from mindserve_engine.admission import check_request
from mindserve_engine.interface import Engine, EngineError, EngineUnavailable, QueueFull, RequestInvalid
from mindserve_engine.options import EngineOptions
from mindserve_engine.scripted.generation import ScriptedGeneration
from mindserve_engine.scripted.model import MODEL_TYPE, media_model
from mindserve_engine.scripted.plan import make_plan
from mindserve_engine.scripted.script import Reply, Script, load_script
from mindserve_engine.scripted.vocabulary import Vocabulary
from mindserve_engine.types import (
    Capability,
    EngineHealth,
    EngineInfo,
    EngineState,
    EngineStats,
    GenerationRequest,
)
from mindserve_engine.types import Vocabulary as EngineVocabulary

_CAPABILITIES: Final = frozenset(
    {
        Capability.PARALLEL_SAMPLING,
        Capability.BEAM_SEARCH,
        Capability.LOGPROBS,
        Capability.LOGIT_BIAS,
        Capability.LORA,
        Capability.GRAMMAR,
    }
)
"""What adapters say, and that grammars are followed, is the script's affair."""


def create(options: EngineOptions) -> Engine:
    """An engine that replays the script at ``options.model_path``."""
    return ScriptedEngine(options)


class ScriptedEngine:
    """Implements ``interface.Engine``. Of the options it honours max_context, max_prompt_tokens, max_batch_size and
    max_waiting."""

    def __init__(self, options: EngineOptions) -> None:
        self._options = options
        self._health = EngineHealth(state=EngineState.LOADING, reason=f"reading {options.model_path}")
        self._script: Script | None = None
        self._live: dict[str, ScriptedGeneration] = {}
        self._waiting: deque[ScriptedGeneration] = deque()
        self._num_restarts = 0
        self._num_prompt_tokens = 0
        self._num_cached_tokens = 0
        self._restart: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        """Read the script. Raises ``EngineError`` when it is unusable or says that loading fails."""
        if self._script is not None:
            return
        try:
            script = load_script(self._options.model_path)
            await self._load(script)
        except EngineError as error:
            self._health = EngineHealth(state=EngineState.FAILED, reason=str(error))
            raise
        if self._health.state is EngineState.CLOSED:
            raise EngineUnavailable("the engine was closed while it started")
        self._vocabulary = Vocabulary(script)
        self._info = _engine_info(script, self._vocabulary, self._options)
        self._script = script
        self._health = EngineHealth(state=EngineState.READY)

    async def _load(self, script: Script) -> None:
        await asyncio.sleep(script.load.delay_ms / 1000)
        if script.load.failure is not None:
            raise EngineError(script.load.failure)

    @property
    def info(self) -> EngineInfo:
        return self._info

    def learn(self, vocabulary: EngineVocabulary) -> None:
        """It follows its script."""

    async def check_grammar(self, grammar: str) -> None:
        """Any will do: that the answers follow it is the script's affair."""

    async def admit(self, request: GenerationRequest) -> ScriptedGeneration:
        if self._script is None or self._health.state is not EngineState.READY:
            raise EngineUnavailable(self._health.reason or f"the engine is {self._health.state}")
        check_request(request, self._info)
        if request.request_id in self._live:
            raise RequestInvalid(field="request_id", reason=f"{request.request_id} is in use")
        reply = self._reply_to(request)
        self._check_room()
        plan = make_plan(request, reply, self._vocabulary, self._info.max_context)
        generation = ScriptedGeneration(plan, on_end=self._release, on_crash=self._crash)
        self._num_prompt_tokens += plan.num_prompt_tokens
        self._num_cached_tokens += reply.cached_tokens
        self._live[request.request_id] = generation
        self._waiting.append(generation)
        self._fill_batch()
        return generation

    def health(self) -> EngineHealth:
        return self._health

    def stats(self) -> EngineStats:
        return EngineStats(
            num_running=len(self._live) - len(self._waiting),
            num_waiting=len(self._waiting),
            prefix_query_tokens_total=self._num_prompt_tokens,
            prefix_hit_tokens_total=self._num_cached_tokens,
            num_restarts_total=self._num_restarts,
        )

    async def close(self) -> None:
        """What still runs fails: it did not come to its end."""
        if self._restart is not None:
            self._restart.cancel()
        self._health = EngineHealth(state=EngineState.CLOSED)
        self._fail_all("the engine was closed")

    def _reply_to(self, request: GenerationRequest) -> Reply:
        assert self._script is not None
        reply = self._script.reply_to(self._vocabulary.decode(request.prompt_token_ids))
        if reply is None:
            raise RequestInvalid(field="prompt_token_ids", reason="no reply of the script fits the prompt")
        return reply

    def _check_room(self) -> None:
        num_waiting, limit = len(self._waiting), self._options.max_waiting
        if len(self._live) - num_waiting >= self._options.max_batch_size and num_waiting >= limit:
            raise QueueFull(num_waiting=num_waiting, limit=limit)

    def _fill_batch(self) -> None:
        while self._waiting and len(self._live) - len(self._waiting) < self._options.max_batch_size:
            self._waiting.popleft().sit_down()

    def _release(self, generation: ScriptedGeneration) -> None:
        del self._live[generation.request_id]
        if not generation.seated:
            self._waiting.remove(generation)
        self._fill_batch()

    def _fail_all(self, reason: str) -> None:
        self._waiting.clear()
        for generation in list(self._live.values()):
            generation.seated = True
            generation.fail(reason)

    def _crash(self) -> None:
        assert self._script is not None
        self._health = EngineHealth(state=EngineState.RESTARTING, reason="the script made the engine crash")
        self._fail_all("the engine died")
        delay_s = self._script.restart_ms / 1000
        self._restart = asyncio.get_running_loop().call_later(delay_s, self._restarted)

    def _restarted(self) -> None:
        self._num_restarts += 1
        self._health = EngineHealth(state=EngineState.READY)


def _engine_info(script: Script, vocabulary: Vocabulary, options: EngineOptions) -> EngineInfo:
    max_context = min(options.max_context or script.max_context, script.max_context)
    return EngineInfo(
        model_type=MODEL_TYPE,
        vocab_size=len(vocabulary),
        max_context=max_context,
        max_prompt_tokens=min(options.max_prompt_tokens or max_context - 1, max_context - 1),
        eos_token_ids=vocabulary.eos_token_ids,
        device="none",
        weights="script",
        max_batch_size=options.max_batch_size,
        capabilities=_CAPABILITIES | {Capability.MEDIA} if script.media else _CAPABILITIES,
        media=media_model(vocabulary) if script.media else None,
        adapters=tuple(options.adapters),
    )
