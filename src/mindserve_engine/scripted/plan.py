"""What will be generated for one request, decided when it is admitted."""

from __future__ import annotations

from dataclasses import dataclass

from mindserve_engine.scripted.script import Finish, Reply, Voice, figure_at
from mindserve_engine.scripted.vocabulary import Vocabulary
from mindserve_engine.types import FinishReason, GenerationRequest, TokenLogprobs, TokenTiming


@dataclass(slots=True, frozen=True)
class SequencePlan:
    """Everything that will be generated for one sequence."""

    voice: Voice
    token_ids: list[int]
    """The reply's tokens; longer plans start over."""
    num_tokens: int
    finish_reason: FinishReason
    vocab_size: int

    def token_at(self, position: int) -> int:
        return self.token_ids[position % len(self.token_ids)]

    def timing_at(self, position: int) -> TokenTiming:
        voice = self.voice
        return TokenTiming(
            figure_at(voice.queue_wait_us, position),
            figure_at(voice.batch_size, position),
            figure_at(voice.step_ms, position),
        )

    def logprobs_at(self, position: int, num_top: int) -> TokenLogprobs:
        """The script's log-probability for the token; it is the likeliest one, after it come the first ids of the
        vocabulary, each one less likely by 1."""
        token_id, logprob = self.token_at(position), float(figure_at(self.voice.logprobs, position))
        others = (other for other in range(self.vocab_size) if other != token_id)
        top = [token_id, *(next(others) for _ in range(min(num_top, self.vocab_size) - 1))][:num_top]
        return TokenLogprobs(logprob, top, [logprob - rank for rank in range(len(top))])

    @property
    def score(self) -> float:
        """As beam search has it: the mean log-probability."""
        logprobs = [figure_at(self.voice.logprobs, position) for position in range(self.num_tokens)]
        return sum(logprobs) / len(logprobs)


@dataclass(slots=True, frozen=True)
class Plan:
    """Everything that will be generated for one request."""

    request: GenerationRequest
    reply: Reply
    sequences: list[SequencePlan]
    num_prompt_tokens: int


def make_plan(request: GenerationRequest, reply: Reply, vocabulary: Vocabulary, max_context: int) -> Plan:
    """Apply the request's limits and stop tokens to the reply. Sequences beyond the reply's voices start over."""
    limit = min(request.max_tokens, max_context - len(request.prompt_token_ids))
    voices: list[Voice] = [reply, *reply.others]
    sequences = [
        _plan_sequence(request, voices[index % len(voices)], vocabulary, limit)
        for index in range(request.num_sequences)
    ]
    num_prompt_tokens = len(request.prompt_token_ids) if reply.prompt_tokens is None else reply.prompt_tokens
    return Plan(request, reply, sequences, num_prompt_tokens)


def _plan_sequence(request: GenerationRequest, voice: Voice, vocabulary: Vocabulary, limit: int) -> SequencePlan:
    token_ids = [vocabulary.id_of(piece) for piece in voice.pieces]
    endless = voice.repeat or (voice.finish is Finish.EOS and request.ignore_eos)
    if voice.finish is Finish.EOS and not endless:
        token_ids.append(vocabulary.turn_end_id)
    num_tokens, finish_reason = limit, FinishReason.LENGTH
    if not endless and len(token_ids) <= limit:
        num_tokens = len(token_ids)
        finish_reason = FinishReason.STOP_TOKEN if voice.finish is Finish.STOP else FinishReason(voice.finish)
    stop_token_ids = frozenset(request.stop_token_ids)
    for position, token_id in enumerate(token_ids[:num_tokens]):
        if token_id in stop_token_ids and token_id != vocabulary.turn_end_id:
            num_tokens, finish_reason = position + 1, FinishReason.STOP_TOKEN
            break
    return SequencePlan(voice, token_ids, num_tokens, finish_reason, len(vocabulary))
