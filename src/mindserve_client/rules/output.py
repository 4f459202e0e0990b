"""Rules about what shapes the output: sampling, stopping, several sequences, log-probabilities, format."""

from __future__ import annotations

import re
from typing import Final

from mindserve_client._generated.rules import Rule
from mindserve_client.rules.breach import Body, Breach, exceeds, num_json_bytes

_TOKEN_ID: Final = re.compile("0|[1-9][0-9]{0,9}")


def top_k_zero(body: Body, rule: Rule) -> Breach | None:
    return Breach(value=0) if body.get("top_k") == 0 else None


def stop_total_length(body: Body, rule: Rule) -> Breach | None:
    stop = body.get("stop")
    return exceeds(sum(map(len, stop)), rule) if isinstance(stop, list) else None


def stop_token_ids_null(body: Body, rule: Rule) -> Breach | None:
    tokens = body.get("stop_token_ids") or []
    return Breach(place={"i": tokens.index(None)}) if None in tokens else None


def beam_excludes_stop(body: Body, rule: Rule) -> Breach | None:
    return Breach() if body.get("use_beam_search") and body.get("stop") else None


def beam_excludes_stop_token_ids(body: Body, rule: Rule) -> Breach | None:
    return Breach() if body.get("use_beam_search") and body.get("stop_token_ids") else None


def best_of_below_n(body: Body, rule: Rule) -> Breach | None:
    n, best_of = body.get("n"), body.get("best_of")
    if body.get("use_beam_search") or body.get("stream") or n is None or best_of is None:
        return None
    return Breach(value=best_of, bound=n) if best_of < n else None


def best_of_differs_from_n_in_stream(body: Body, rule: Rule) -> Breach | None:
    n, best_of = body.get("n") or 1, body.get("best_of")
    if body.get("use_beam_search") or not body.get("stream") or best_of is None:
        return None
    return Breach(value=best_of, bound=n) if best_of != n else None


def best_of_needs_temperature(body: Body, rule: Rule) -> Breach | None:
    return _needs_temperature(body, body.get("best_of"))


def n_needs_temperature(body: Body, rule: Rule) -> Breach | None:
    return _needs_temperature(body, body.get("n"))


def _needs_temperature(body: Body, num_sequences: int | None) -> Breach | None:
    if body.get("use_beam_search") or num_sequences in (None, 1) or body.get("temperature") != 0:
        return None
    return Breach(value=num_sequences)


def top_logprobs_need_logprobs(body: Body, rule: Rule) -> Breach | None:
    return Breach(value=body["top_logprobs"]) if body.get("logprobs") is False and body.get("top_logprobs") else None


def logit_bias_token(body: Body, rule: Rule) -> Breach | None:
    wrong = [key for key in body.get("logit_bias") or () if not _TOKEN_ID.fullmatch(key)]
    return Breach(place={"key": wrong[0][:64]}) if wrong else None


def response_format_needs_schema(body: Body, rule: Rule) -> Breach | None:
    wanted = body.get("response_format") or {}
    return Breach() if wanted.get("type") == "json_schema" and wanted.get("json_schema") is None else None


def response_format_excludes_beam(body: Body, rule: Rule) -> Breach | None:
    kind = (body.get("response_format") or {}).get("type", "text")
    return Breach(value=kind) if kind != "text" and body.get("use_beam_search") else None


def response_schema_size(body: Body, rule: Rule) -> Breach | None:
    wanted = (body.get("response_format") or {}).get("json_schema")
    return exceeds(num_json_bytes(wanted["schema"]), rule) if wanted is not None else None
