"""Rules between ``n``, ``best_of``, ``use_beam_search`` and what they go with."""

from __future__ import annotations

from mindserve.api._generated.rules import Rule
from mindserve.api.checks.breach import Breach, Subject
from mindserve.api.presence import filled, given


def beam_excludes_stop(subject: Subject, rule: Rule) -> Breach | None:
    return Breach() if subject.request.use_beam_search is True and filled(subject.request.stop) else None


def beam_excludes_stop_token_ids(subject: Subject, rule: Rule) -> Breach | None:
    return Breach() if subject.request.use_beam_search is True and filled(subject.request.stop_token_ids) else None


def best_of_below_n(subject: Subject, rule: Rule) -> Breach | None:
    request = subject.request
    n, best_of = given(request.n), given(request.best_of)
    if request.use_beam_search is True or request.stream is True or n is None or best_of is None:
        return None
    return Breach(value=best_of, bound=n) if best_of < n else None


def best_of_differs_from_n_in_stream(subject: Subject, rule: Rule) -> Breach | None:
    request = subject.request
    n, best_of = given(request.n) or 1, given(request.best_of)
    if request.use_beam_search is True or request.stream is not True or best_of is None:
        return None
    return Breach(value=best_of, bound=n) if best_of != n else None


def best_of_needs_temperature(subject: Subject, rule: Rule) -> Breach | None:
    return _needs_temperature(subject, given(subject.request.best_of))


def n_needs_temperature(subject: Subject, rule: Rule) -> Breach | None:
    return _needs_temperature(subject, given(subject.request.n))


def _needs_temperature(subject: Subject, num_sequences: int | None) -> Breach | None:
    request = subject.request
    if request.use_beam_search is True or num_sequences is None or num_sequences == 1:
        return None
    return Breach(value=num_sequences) if request.temperature == 0 else None
