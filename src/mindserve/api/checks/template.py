"""Rules about ``chat_template_kwargs``."""

from __future__ import annotations

from mindserve.api._generated.rules import Rule
from mindserve.api.checks.breach import Breach, Subject
from mindserve.api.presence import given


def enable_thinking_type(subject: Subject, rule: Rule) -> Breach | None:
    value = (given(subject.request.chat_template_kwargs) or {}).get("enable_thinking")
    return Breach(value=value) if value is not None and not isinstance(value, bool) else None


def reserved(subject: Subject, rule: Rule) -> Breach | None:
    for key in given(subject.request.chat_template_kwargs) or ():
        if key in rule.values:
            return Breach(place={"key": key})
    return None


def scalar(subject: Subject, rule: Rule) -> Breach | None:
    for key, value in (given(subject.request.chat_template_kwargs) or {}).items():
        if isinstance(value, dict | list):
            return Breach(value=value, place={"key": key[:64]})
    return None
