"""Rules about single fields that shape the output: sampling, stopping, log-probabilities, format."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from mindserve.api._generated.rules import Rule
from mindserve.api.checks.breach import Breach, Subject, required_bound
from mindserve.api.openai_fields import logit_bias
from mindserve.api.presence import given

_TOKEN_ID: Final = re.compile("0|[1-9][0-9]{0,9}")


def top_k_zero(subject: Subject, rule: Rule) -> Breach | None:
    return Breach(value=0) if subject.request.top_k == 0 else None


def seed_range(subject: Subject, rule: Rule) -> Breach | None:
    seed = given(subject.request.seed)
    return Breach(value=seed) if seed is not None and not 0 <= seed <= required_bound(rule) else None


def stop_total_length(subject: Subject, rule: Rule) -> Breach | None:
    stop = given(subject.request.stop)
    length = sum(map(len, stop)) if isinstance(stop, list) else 0
    return Breach(value=length) if length > required_bound(rule) else None


def stop_token_ids_null(subject: Subject, rule: Rule) -> Breach | None:
    for i, element in enumerate(given(subject.request.stop_token_ids) or ()):
        if element is None:
            return Breach(place={"i": i})
    return None


def top_logprobs_need_logprobs(subject: Subject, rule: Rule) -> Breach | None:
    top_logprobs = given(subject.request.top_logprobs)
    return Breach(value=top_logprobs) if subject.request.logprobs is False and top_logprobs else None


def logit_bias_token(subject: Subject, rule: Rule) -> Breach | None:
    for key in logit_bias(subject.request):
        if not _TOKEN_ID.fullmatch(key):
            return Breach(place={"key": key[:64]})
    return None


def response_format_needs_schema(subject: Subject, rule: Rule) -> Breach | None:
    wanted = given(subject.request.response_format)
    if wanted is None or wanted.type != "json_schema" or given(wanted.json_schema) is not None:
        return None
    return Breach()


def response_format_excludes_beam(subject: Subject, rule: Rule) -> Breach | None:
    wanted = given(subject.request.response_format)
    if wanted is None or wanted.type == "text" or subject.request.use_beam_search is not True:
        return None
    return Breach(value=wanted.type)


def response_schema_size(subject: Subject, rule: Rule) -> Breach | None:
    wanted = given(subject.request.response_format)
    schema = given(wanted.json_schema) if wanted is not None else None
    if schema is None:
        return None
    num_bytes = len(msgspec.json.encode(schema.schema))
    return Breach(value=num_bytes) if num_bytes > required_bound(rule) else None
