"""The contract's x-rules, checked before a request is sent: one predicate per rule, texts and bounds generated."""

from __future__ import annotations

from collections.abc import Iterator
from types import MappingProxyType
from typing import Final

from mindserve_client._generated.rules import RULES, Rule
from mindserve_client.errors import Fault
from mindserve_client.rules import messages, output, tools
from mindserve_client.rules.breach import Body, Breach, Predicate
from mindserve_client.shown import shown

UNCHECKED: Final = MappingProxyType(
    {
        "messages-text-length": "the setting maxMessagesLength is the bound",
        "content-required": "the setting allowEmptyContent lifts it",
        "seed-range": "the model of the request has the bound",
    }
)
"""Rules without a predicate, and why."""
PREDICATES: Final = MappingProxyType[str, Predicate](
    {
        "tool-call-id-required": messages.tool_call_id_required,
        "tool-call-arguments-values": messages.tool_call_arguments_values,
        "tool-call-arguments-json": messages.tool_call_arguments_json,
        "media-parts-limit": messages.media_parts_limit,
        "top-k-zero": output.top_k_zero,
        "stop-total-length": output.stop_total_length,
        "stop-token-ids-null": output.stop_token_ids_null,
        "beam-excludes-stop": output.beam_excludes_stop,
        "beam-excludes-stop-token-ids": output.beam_excludes_stop_token_ids,
        "best-of-below-n": output.best_of_below_n,
        "best-of-differs-from-n-in-stream": output.best_of_differs_from_n_in_stream,
        "best-of-needs-temperature": output.best_of_needs_temperature,
        "n-needs-temperature": output.n_needs_temperature,
        "top-logprobs-need-logprobs": output.top_logprobs_need_logprobs,
        "enable-thinking-type": messages.enable_thinking_type,
        "template-kwargs-reserved": messages.template_kwargs_reserved,
        "template-kwargs-scalar": messages.template_kwargs_scalar,
        "tool-parameters-types": tools.parameters_types,
        "strict-schema-size": tools.strict_schema_size,
        "tool-choice-needs-tools": tools.choice_needs_tools,
        "tool-choice-unknown-tool": tools.choice_unknown_tool,
        "tools-exclude-stop": tools.exclude_stop,
        "tools-exclude-stop-token-ids": tools.exclude_stop_token_ids,
        "tools-exclude-include-stop-str": tools.exclude_include_stop_str,
        "tools-exclude-beam": tools.exclude_beam,
        "tools-exclude-best-of": tools.exclude_best_of,
        "tools-exclude-n": tools.exclude_n,
        "tools-exclude-logprobs": tools.exclude_logprobs,
        "tools-exclude-top-logprobs": tools.exclude_top_logprobs,
        "logit-bias-token": output.logit_bias_token,
        "response-format-needs-schema": output.response_format_needs_schema,
        "response-format-excludes-beam": output.response_format_excludes_beam,
        "response-schema-size": output.response_schema_size,
    }
)


def broken_rules(body: Body, dialect: str) -> Iterator[Fault]:
    """A fault per rule of the dialect that ``body`` breaks, in the contract's order."""
    for identifier, rule in RULES.items():
        predicate = PREDICATES.get(identifier)
        if predicate is not None and dialect in rule.dialects and (breach := predicate(body, rule)) is not None:
            yield _fault(rule, breach)


def _fault(rule: Rule, breach: Breach) -> Fault:
    field = rule.field.format_map(breach.place)
    bound = rule.bound if breach.bound is None else breach.bound
    text = rule.message.format(field=field, value=shown(breach.value), bound=bound, values=", ".join(rule.values))
    return Fault(field, text)
