"""Hooks of schemathesis: every body is made to fit the served model (see ``bodies``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import schemathesis
from schemathesis.generation import GenerationMode

from tests.conformance.fuzzing.bodies import fitted, is_taken, with_served_model


def install(first: Callable[[Any], Any]) -> None:
    """Register the hooks; ``first`` changes bodies before they are made to fit."""

    @schemathesis.hook
    def filter_case(context: Any, case: schemathesis.Case) -> bool:
        """What is meant to be taken and cannot be made to fit is left out."""
        return not (_is_chat(case) and _is_positive(case)) or is_taken(fitted(first(case.body)))

    @schemathesis.hook
    def map_case(context: Any, case: schemathesis.Case) -> schemathesis.Case:
        if _is_chat(case):
            body = first(case.body)
            case.body = fitted(body) if _is_positive(case) else with_served_model(body)
        return case


def _is_chat(case: schemathesis.Case) -> bool:
    return case.operation.path == "/v1/chat/completions" and case.method == "POST"


def _is_positive(case: schemathesis.Case) -> bool:
    return case.meta is not None and case.meta.generation.mode is GenerationMode.POSITIVE
