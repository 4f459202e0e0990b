"""``POST /v1/chat/completions``: the life of a request, in order.

Everything that can be refused is refused before a header is sent: content type, JSON, model, rules, features, template,
prompt length, media, room in the queue. From admission on, what goes wrong is told inside the answer.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any, Final

import msgspec
from litestar import Request, post
from litestar.datastructures import State
from litestar.response.base import ASGIResponse
from litestar.types import ASGIApp

from mindserve.api.answers import answer_format, sequence_answers
from mindserve.api.api_keys import require_api_key
from mindserve.api.assemble import Answer, AnswerHead
from mindserve.api.body import read_body
from mindserve.api.connection import watched_client
from mindserve.api.constraint import admit, constraint_of
from mindserve.api.deadlines import Deadlines
from mindserve.api.decode import check_content_encoding, check_content_type
from mindserve.api.dialect import Dialect
from mindserve.api.edge import uuid_of
from mindserve.api.engine_errors import engine_errors
from mindserve.api.inflight import InFlight
from mindserve.api.logprobs import LogprobWriter
from mindserve.api.lower import lower_request
from mindserve.api.observed import observed
from mindserve.api.presence import given
from mindserve.api.question import Prompt, Question, prompt_of, read_question
from mindserve.api.readiness import require_ready
from mindserve.api.run import Run
from mindserve.api.sequences import sequence_wishes
from mindserve.api.server import Server, dialect_of, server_of
from mindserve.api.sse import EventStream, with_heartbeat
from mindserve.chat.media.limits import SizeLimit
from mindserve.observe.request import RequestObservation

_ENCODER: Final = msgspec.json.Encoder()


@post("/v1/chat/completions", status_code=200, guards=[require_api_key])
async def create_chat_completion(request: Request[Any, Any, State]) -> ASGIApp:
    """Answer with a body or a stream of events. Raises ``RequestRefused`` or ``EngineFault`` before any header."""
    server = server_of(request)
    in_flight = InFlight(uuid_of(request.scope), arrived_at=server.unix_time(), last_words_s=server.last_words_s)
    async with AsyncExitStack() as resources:
        observation = resources.enter_context(observed(server.metrics, in_flight))
        resources.enter_context(server.lifecycle.in_flight(in_flight))
        deadlines = _deadlines(server, in_flight)
        resources.callback(deadlines.close)
        dialect = dialect_of(request)
        require_ready(server.engine, server.lifecycle)
        check_content_type(request.headers.get("content-type"))
        check_content_encoding(",".join(request.headers.getall("content-encoding", [])))
        held = server.held_bytes.lease(SizeLimit(server.settings.max_request_bytes, "maxRequestLength"))
        resources.callback(held.release)
        body = await in_flight.run(read_body(request, server.settings.max_request_bytes, held))
        await resources.enter_async_context(watched_client(request.receive, in_flight))
        question = await in_flight.run(read_question(body, server, dialect))
        del body  # media make it large, and the answer may take long
        decoded = server.media.lease()
        resources.callback(decoded.release)
        prompt = await in_flight.run(prompt_of(question, server, decoded))
        held.release()
        run = await _admit(question, prompt, server, dialect, in_flight, deadlines, observation)
        resources.callback(run.generation.abort)
        del prompt
        decoded.release()  # the engine has them now
        if given(question.chat.stream):
            return _stream(run, server, resources.pop_all())
        return ASGIResponse(body=_ENCODER.encode(await run.complete()))


def _deadlines(server: Server, in_flight: InFlight) -> Deadlines:
    return Deadlines(
        started_at=asyncio.get_running_loop().time(),
        token_timeout_s=server.settings.token_timeout_s,
        e2e_timeout_s=server.settings.e2e_timeout_s,
        expire=in_flight.give_up,
    )


async def _admit(
    question: Question,
    prompt: Prompt,
    server: Server,
    dialect: Dialect,
    in_flight: InFlight,
    deadlines: Deadlines,
    observation: RequestObservation,
) -> Run:
    """Hand the request to the engine."""
    chat = question.chat
    head = AnswerHead(
        id=next(server.completion_ids),
        created=int(in_flight.arrived_at),
        model=chat.model,
        call_ids=server.call_ids,
    )
    lowered = lower_request(
        chat,
        settings=server.settings,
        info=server.engine.info,
        prompt_token_ids=prompt.token_ids,
        media=prompt.media,
        request_id=head.id,
        random_seed=server.random_seed,
    )
    wishes, form = sequence_wishes(chat), answer_format(chat, server)
    answer = Answer(
        head,
        await in_flight.run(sequence_answers(chat, form, server, lowered)),
        logprobs=None if wishes.num_logprobs is None else LogprobWriter(server.tokenizer.table.pieces),
        ranked=wishes.ranked,
        can_reason=form.has_reasoning,
    )
    constraint = await in_flight.run(constraint_of(chat, form, server, prompt.token_ids))
    with engine_errors([place.field for place in question.places]):
        generation = await admit(server.engine, lowered, constraint)
    in_flight.stop_with(generation.abort)
    in_flight.raise_if_given_up()
    return Run(
        generation=generation,
        request=in_flight,
        deadlines=deadlines,
        observation=observation,
        answer=answer,
        dialect=dialect,
        form=dialect.stream(chat, full_text=server.settings.full_text_enabled),
    )


def _stream(run: Run, server: Server, resources: AsyncExitStack) -> EventStream:
    frames = run.frames()
    heartbeat_s = server.settings.heartbeat_s
    return EventStream(frames if heartbeat_s is None else with_heartbeat(frames, heartbeat_s), resources=resources)
