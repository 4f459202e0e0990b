"""Servers with wrong defaults, and servers that lose what a request says of chance."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tests.conformance.mutants.faults import Json, Mutant, on_request
from tests.conformance.mutants.proxy import Fault


def by_default(**values: Any) -> Fault:
    """What a request does not say, or says with null, is one of ``values``."""

    def change(fields: Json) -> Json:
        return {**fields, **{name: value for name, value in values.items() if fields.get(name) is None}}

    return on_request(change)


def always(name: str, change: Callable[[Any], Any]) -> Fault:
    """A field that is given has another value."""
    return on_request(lambda fields: {**fields, name: change(fields[name])} if fields.get(name) is not None else fields)


SCRIPTED: Final = (
    Mutant(
        "control tokens kept by default",
        by_default(skip_special_tokens=False),
        "whole.scripted.special-tokens",
        "text",
    ),
    Mutant(
        "control tokens kept where the request does not say",
        by_default(skip_special_tokens=False),
        "request.skip_special_tokens.absent",
        "same-answer",
    ),
    Mutant(
        "the stop text kept by default",
        by_default(include_stop_str_in_output=True),
        "request.include_stop_str_in_output.absent",
        "same-answer",
    ),
    Mutant("ignore_eos by default", by_default(ignore_eos=True), "request.ignore_eos.absent", "same-answer"),
    Mutant("two sequences by default", by_default(n=2), "request.n.absent", "body-indices"),
    Mutant("beam search by default", by_default(use_beam_search=True, n=2), "whole.plain", "body-indices"),
    Mutant("a stream by default", by_default(stream=True), "whole.by-default", "body-content-type"),
    Mutant("fewer tokens by default", by_default(max_tokens=16), "request.max_tokens.by-default", "tokens"),
    Mutant("a lower limit than is told", always("max_tokens", lambda most: min(most, 100)),
           "request.max_tokens.own-limit", "tokens"),
)  # fmt: skip
"""In front of an engine that says what its script says."""

COMPUTED: Final = (
    Mutant(
        "presence_penalty 0.5 by default",
        by_default(presence_penalty=0.5),
        "request.presence_penalty.absent",
        "same-answer",
    ),
    Mutant(
        "frequency_penalty 0.5 by default",
        by_default(frequency_penalty=0.5),
        "request.frequency_penalty.absent",
        "same-answer",
    ),
    Mutant(
        "repetition_penalty 1.1 by default",
        by_default(repetition_penalty=1.1),
        "request.repetition_penalty.absent",
        "same-answer",
    ),
    Mutant("temperature 0.7 by default", by_default(temperature=0.7), "request.temperature.absent", "same-answer"),
    Mutant("top_p 0.9 by default", by_default(top_p=0.9), "request.top_p.absent", "same-answer"),
    Mutant("seeds as floats", always("seed", lambda seed: int(float(seed))), "request.seed.exact", "another-answer"),
    Mutant("seeds that do not count", always("seed", lambda seed: None), "request.seed.repeats", "same-answer"),
)
"""In front of an engine that computes: what a penalty or a seed does, no script says."""
