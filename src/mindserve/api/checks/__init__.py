"""One predicate per x-rule of the contract, and the table that ties them together.

A predicate looks at one request and returns a ``Breach`` for the first place that breaks its rule. Texts, fields and
bounds come from the generated rules; nothing is restated here.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from mindserve.api._generated.models import ChatCompletionRequest
from mindserve.api._generated.rules import Rule
from mindserve.api.checks import messages, output, sequences, template, tools
from mindserve.api.checks.breach import Breach, Predicate, Subject
from mindserve.api.expectation import number_text
from mindserve.config.settings import ServeSettings
from mindserve.errors import RequestRefused, shown

PREDICATES: Final = MappingProxyType[str, Predicate](
    {
        "messages-text-length": messages.text_length,
        "tool-call-id-required": messages.tool_call_id_required,
        "content-required": messages.content_required,
        "tool-call-arguments-values": messages.tool_call_arguments_values,
        "tool-call-arguments-json": messages.tool_call_arguments_json,
        "media-parts-limit": messages.media_parts_limit,
        "top-k-zero": output.top_k_zero,
        "seed-range": output.seed_range,
        "stop-total-length": output.stop_total_length,
        "stop-token-ids-null": output.stop_token_ids_null,
        "beam-excludes-stop": sequences.beam_excludes_stop,
        "beam-excludes-stop-token-ids": sequences.beam_excludes_stop_token_ids,
        "best-of-below-n": sequences.best_of_below_n,
        "best-of-differs-from-n-in-stream": sequences.best_of_differs_from_n_in_stream,
        "best-of-needs-temperature": sequences.best_of_needs_temperature,
        "n-needs-temperature": sequences.n_needs_temperature,
        "top-logprobs-need-logprobs": output.top_logprobs_need_logprobs,
        "enable-thinking-type": template.enable_thinking_type,
        "template-kwargs-reserved": template.reserved,
        "template-kwargs-scalar": template.scalar,
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


def check_request(request: ChatCompletionRequest, rules: Mapping[str, Rule], settings: ServeSettings) -> None:
    """Raise ``RequestRefused`` for the first of ``rules``, in the contract's order, that ``request`` breaks."""
    subject = Subject(request=request, settings=settings)
    for identifier, rule in rules.items():
        breach = PREDICATES[identifier](subject, rule)
        if breach is not None:
            raise _refusal(rule, breach)


def _refusal(rule: Rule, breach: Breach) -> RequestRefused:
    field = rule.field.format_map(breach.place)
    bound = rule.bound if breach.bound is None else breach.bound
    message = rule.message.format(
        field=field,
        value=shown(breach.value),
        bound=number_text(bound) if isinstance(bound, int | float) else bound,
        values=", ".join(rule.values),
    )
    return RequestRefused(message, field=field)
