"""vLLM's engine while it serves: what runs on it, its figures, and its end."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from vllm.lora.request import LoRARequest
from vllm.multimodal import MULTIMODAL_REGISTRY

from mindserve_engine.first_line import first_line
from mindserve_engine.generation import QueuedGeneration, num_media_bytes
from mindserve_engine.interface import EngineError, EngineNotStarted, GenerationFailed, RequestInvalid
from mindserve_engine.media_admission import check_media_room
from mindserve_engine.options import EngineOptions
from mindserve_engine.types import EngineStats, GenerationRequest, MediaItem, SamplingParams
from mindserve_engine.vllm.clock import StepClock
from mindserve_engine.vllm.faults import REFUSALS, EngineDeadError
from mindserve_engine.vllm.launch import Launched
from mindserve_engine.vllm.media import check_items, smallest_prompts
from mindserve_engine.vllm.media_input import MediaReader
from mindserve_engine.vllm.media_processor import normalises_on_device
from mindserve_engine.vllm.params import check_params
from mindserve_engine.vllm.processes import Processes, end_processes
from mindserve_engine.vllm.ranks import Ranks
from mindserve_engine.vllm.running import Running
from mindserve_engine.vllm.search import check_search

_SHUTDOWN_S: Final = 4.0
"""vLLM's processes get so long to end by themselves."""


class Served:
    """One event loop owns it."""

    def __init__(self, launched: Launched, processes: Processes, options: EngineOptions) -> None:
        self._llm = launched.llm
        self._info = launched.info
        self._processes = processes
        self._has_all_temperatures = launched.has_all_temperatures
        self._media = launched.media
        self._reader = None if launched.media is None else _reader(launched)
        self._max_media_bytes = options.max_media_mb * 2**20
        self.running: dict[str, Running] = {}
        """By request id, in the order in which they came."""
        self._adapters: dict[str, LoRARequest] = {}
        self._clock = StepClock(self._name_of)
        self.ranks = Ranks(options.vllm.data_parallel, options.vllm.stall_timeout_s)
        self._num_prompt_tokens = self._num_cached_tokens = 0
        self._watch_steps()

    def _watch_steps(self) -> None:
        """vLLM hands out each step's stamps here alone: what it makes of them later names no request."""
        core = self._llm.engine_core
        get_outputs = core.get_output_async

        async def watched() -> Any:
            outputs = await get_outputs()
            self.ranks.heard(outputs.engine_index)
            self._clock.note(outputs)
            return outputs

        core.get_output_async = watched

    def _name_of(self, internal_id: str) -> str | None:
        state = self._llm.output_processor.request_states.get(internal_id)
        return None if state is None else state.external_req_id

    async def prepare(self, adapters: Mapping[str, Path]) -> None:
        """All that comes before the first request. Raises ``EngineError`` for an adapter that cannot be loaded,
        ``EngineNotStarted`` when vLLM does not answer."""
        await self._load_adapters(adapters)
        await self._warm_up_all()

    async def _load_adapters(self, adapters: Mapping[str, Path]) -> None:
        """Before requests name them: a request with an adapter that cannot be loaded would end vLLM's engine."""
        for number, (name, path) in enumerate(adapters.items(), start=1):
            adapter = LoRARequest(name, number, str(path))
            try:
                if not await self._llm.add_lora(adapter):
                    raise EngineError(f"adapter {name} ({path}): vLLM did not load it")
            except EngineError:
                raise
            except EngineDeadError as error:
                raise EngineNotStarted("vLLM's engine died while it started") from error
            except Exception as error:  # it raises plain ones
                raise EngineError(f"adapter {name} ({path}): vLLM cannot load it ({first_line(error)})") from error
            self._adapters[name] = adapter

    async def _warm_up_all(self) -> None:
        """The first request of all takes seconds, in which kernels are prepared: nobody should wait for that. Each copy
        of the model gets one: those that come together are dealt out."""
        prompts: list[tuple[list[int], tuple[MediaItem, ...]]] = [([0], ())]
        if self._media is not None:
            prompts += [(token_ids, (item,)) for token_ids, item in smallest_prompts(self._media.model)]
        for kind, (token_ids, media) in enumerate(prompts):
            numbers = range(self.ranks.number)
            await asyncio.gather(*(self._warm_up(f"warm-up-{kind}-{number}", token_ids, media) for number in numbers))
        self._num_prompt_tokens = self._num_cached_tokens = 0

    async def _warm_up(self, name: str, token_ids: list[int], media: tuple[MediaItem, ...]) -> None:
        request = GenerationRequest(
            request_id=name,
            prompt_token_ids=token_ids,
            max_tokens=2,
            sampling=SamplingParams(temperature=1.0, top_k=2, top_p=0.9),
            num_logprobs=0,
            ignore_eos=True,
            media=media,
        )
        try:
            async for _ in self.submit(request):
                pass
        except GenerationFailed as error:
            of_what = f" with media of kind {media[0].kind}" if media else ""
            raise EngineNotStarted(f"vLLM does not answer{of_what}: {error}") from error

    def check_media(self, request: GenerationRequest) -> None:
        """Raises ``AdmissionError`` for items that vLLM has no room for, ever or now."""
        if request.media and self._media is not None:
            check_items(request, self._media)
            in_flight = sum(running.generation.num_media_bytes for running in self.running.values())
            check_media_room(num_media_bytes(request), in_flight=in_flight, limit=self._max_media_bytes)

    def submit(self, request: GenerationRequest) -> QueuedGeneration:
        """Raises ``RequestInvalid`` for what vLLM cannot do."""
        if request.beam_width:
            check_search(request, self._info)
        check_params(request, has_all_temperatures=self._has_all_temperatures)
        adapter = None if request.adapter is None else self._adapters[request.adapter]
        try:
            running = Running(
                request, self._llm, self._clock, self._info, self.ranks, adapter=adapter, reader=self._reader
            )
        except REFUSALS as error:
            raise RequestInvalid(field="sampling", reason=first_line(error)) from error
        self.running[request.request_id] = running
        return running.start(self._end)

    def _end(self, running: Running) -> None:
        del self.running[running.request.request_id]
        if running.num_cached_tokens is not None:
            self._num_prompt_tokens += len(running.request.prompt_token_ids)
            self._num_cached_tokens += running.num_cached_tokens

    @property
    def is_dead(self) -> bool:
        """As far as vLLM has noticed."""
        return bool(self._llm.errored)

    @property
    def num_waiting(self) -> int:
        """Requests of which nothing runs, taking vLLM's word that it serves who came first."""
        places = self._info.max_batch_size
        num_waiting = 0
        for running in self.running.values():
            num_waiting += places <= 0
            places -= running.num_places
        return num_waiting

    @property
    def has_place(self) -> bool:
        """Whether one more request would run at once."""
        return sum(running.num_places for running in self.running.values()) < self._info.max_batch_size

    def stats(self) -> EngineStats:
        num_waiting, num_blocks = self.num_waiting, self._info.num_blocks
        return EngineStats(
            num_running=len(self.running) - num_waiting,
            num_waiting=num_waiting,
            num_preemptions_total=self._clock.num_preemptions,
            num_free_blocks=round(num_blocks * (1 - self._clock.kv_usage)),
            num_blocks=num_blocks,
            prefix_query_tokens_total=self._num_prompt_tokens,
            prefix_hit_tokens_total=self._num_cached_tokens,
        )

    def fail_all(self, reason: str) -> None:
        for running in list(self.running.values()):
            running.generation.fail(reason)

    async def close(self, reason: str) -> None:
        """What is in flight fails with ``reason``."""
        self.fail_all(reason)
        await asyncio.gather(*(running.cancel() for running in list(self.running.values())))
        if self._reader is not None:
            self._reader.close()
        own = await asyncio.to_thread(self._processes.living)  # those of a next engine are not ours to end
        await asyncio.to_thread(self._llm.shutdown, _SHUTDOWN_S)
        await asyncio.to_thread(end_processes, own)


def _reader(launched: Launched) -> MediaReader:
    assert launched.media is not None
    config = launched.llm.model_config
    processor = MULTIMODAL_REGISTRY.create_processor(config)
    return MediaReader(launched.media.facts, processor, dtype=config.dtype, are_bytes=normalises_on_device(config))
