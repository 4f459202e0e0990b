"""Requests that vLLM works on, and the tasks that carry its outputs to them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from vllm.inputs import tokens_input
from vllm.sampling_params import SamplingParams

from mindserve_engine.generation import QueuedGeneration
from mindserve_engine.interface import GenerationFailed
from mindserve_engine.types import EngineInfo, GenerationRequest, SequenceEvent
from mindserve_engine.vllm.answers import finish_reason, ranked, token_logprobs
from mindserve_engine.vllm.clock import StepClock
from mindserve_engine.vllm.faults import reason
from mindserve_engine.vllm.media_input import MediaReader, ReadyMedia
from mindserve_engine.vllm.params import num_tokens, search_params, sequence_params
from mindserve_engine.vllm.ranks import Ranks
from mindserve_engine.vllm.search import StepOfBeam, run_search


class Running:
    """One admitted request. Each of its sequences is a request of its own for vLLM, so that each can be given up by
    itself; vLLM's ``n`` is the same underneath."""

    def __init__(
        self,
        request: GenerationRequest,
        llm: Any,
        clock: StepClock,
        info: EngineInfo,
        ranks: Ranks,
        *,
        adapter: Any | None,
        reader: MediaReader | None,
    ) -> None:
        """``adapter``: vLLM's ``LoRARequest``; ``reader``: for the request's media. Raises vLLM's refusal for
        parameters that it does not take."""
        self.request = request
        self.generation = QueuedGeneration(request, self._abort)
        self.num_places = request.beam_width or request.num_sequences
        """Sequences of a step that it takes."""
        self.num_cached_tokens: int | None = None
        """Of its prompt; None: nothing has come yet."""
        self._llm, self._clock, self._info = llm, clock, info
        self._adapter = adapter
        self._reader = reader
        self._media: asyncio.Future[ReadyMedia] | None = None
        self._ranks = ranks
        self._rank = 0
        self._params = [] if request.beam_width else [sequence_params(request, i, info) for i in self._indices]
        self._tasks: dict[int, asyncio.Task[None]] = {}

    @property
    def _indices(self) -> range:
        return range(self.request.num_sequences)

    def start(self, on_end: Callable[[Running], None]) -> QueuedGeneration:
        """``on_end`` is called when vLLM has nothing left to do for the request."""
        self._rank = self._ranks.place(self.num_places)
        if self.request.media and self._reader is not None:
            self._media = self._reader.start(self.request.media)
        if self.request.beam_width:
            self._tasks[0] = asyncio.create_task(self._watched(self._search))
        else:
            self._tasks = {i: asyncio.create_task(self._watched(self._sequence, i)) for i in self._indices}
        left = set(self._tasks.values())

        def ended(task: asyncio.Task[None]) -> None:
            left.discard(task)
            if not left:
                if self._media is not None:
                    self._media.cancel()  # where it waits for those of other requests
                self._ranks.leave(self._rank, self.num_places)
                on_end(self)

        for task in self._tasks.values():
            task.add_done_callback(ended)
        return self.generation

    async def cancel(self) -> None:
        """Returns when vLLM has been told."""
        self._abort(self.request.request_id, None)
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _abort(self, _request_id: str, index: int | None) -> None:
        for number, task in self._tasks.items():
            if index is None or (number == index and not self.request.beam_width):
                task.cancel()  # vLLM's generator tells its core

    async def _watched(self, work: Callable[..., Awaitable[None]], *arguments: int) -> None:
        """Whatever goes wrong is the request's end, and nobody else's."""
        try:
            await work(*arguments)
        except GenerationFailed as error:
            self._fail(str(error))
        except Exception as error:  # vLLM's own, and those of the libraries below
            self._fail(reason(error))

    def _fail(self, words: str) -> None:
        """The other sequences would go on for nobody."""
        self.generation.fail(words)
        for task in self._tasks.values():
            if task is not asyncio.current_task():
                task.cancel()

    async def _sequence(self, index: int) -> None:
        async for output, timings in self._outputs(f"{self.request.request_id}/{index}", [], self._params[index]):
            completion = output.outputs[0]
            token_ids = list(completion.token_ids)
            ended = finish_reason(completion, self.request, self._info)
            if completion.finish_reason is not None and ended is None:
                raise GenerationFailed(f"vLLM gave the request up ({completion.finish_reason})")
            if token_ids or ended is not None:
                self._push(index, token_ids, timings, completion, ended)

    def _push(self, index: int, token_ids: list[int], timings: Any, completion: Any, ended: Any) -> None:
        wanted = self.request.num_logprobs
        self.generation.push(
            SequenceEvent(
                request_id=self.request.request_id,
                index=index,
                token_ids=token_ids,
                timings=timings,
                finish_reason=ended,
                num_prompt_tokens=len(self.request.prompt_token_ids),
                num_cached_tokens=self.num_cached_tokens or 0,
                logprobs=[] if wanted is None else token_logprobs(token_ids, completion.logprobs, wanted),
            )
        )

    async def _search(self) -> None:
        max_tokens = num_tokens(self.request, self._info)
        for event in await run_search(self.request, self._info, max_tokens, self._step_of_beam):
            self.generation.push(event)

    async def _step_of_beam(self, name: str, output_token_ids: list[int], num_logprobs: int) -> StepOfBeam:
        whole_name = f"{self.request.request_id}/{name}"
        step = None
        async for output, timings in self._outputs(whole_name, output_token_ids, search_params(num_logprobs)):
            completion = output.outputs[0]
            if completion.finish_reason == "length":
                top = ranked(completion.logprobs[0], num_logprobs)
                step = StepOfBeam(top, timings[0], output.num_cached_tokens or 0)
        if step is None:
            raise GenerationFailed("vLLM gave a beam up")
        return step

    async def _prompt(self, token_ids: list[int]) -> Any:
        """vLLM's input."""
        if self._media is None:
            return tokens_input(token_ids)
        return (await asyncio.shield(self._media)).prompt(token_ids)

    async def _outputs(
        self, name: str, output_token_ids: list[int], params: SamplingParams
    ) -> AsyncIterator[tuple[Any, Any]]:
        """vLLM's outputs for the prompt and what follows it, with the timings of their tokens."""
        prompt = await self._prompt(self.request.prompt_token_ids + output_token_ids)
        rank = self._rank if self._ranks.number > 1 else None
        self._clock.open(name)
        self._ranks.open(self._rank)
        try:
            async for output in self._llm.generate(
                prompt, params, name, lora_request=self._adapter, data_parallel_rank=rank
            ):
                cached = output.num_cached_tokens
                if cached is not None and output.outputs[0].token_ids:
                    # sequences of one request find each other's prompt in the cache: the first of them counts
                    known = self.num_cached_tokens
                    self.num_cached_tokens = cached if known is None else min(known, cached)
                yield output, self._clock.take(name, len(output.outputs[0].token_ids))
        finally:
            self._ranks.close(self._rank)
            self._clock.close(name)
