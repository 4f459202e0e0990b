"""One case for each feature that a server may lack: it has it, or says by name that it has it not."""

from __future__ import annotations

from collections.abc import Iterator

from conformance.bodies import change_of
from conformance.capabilities import probes
from conformance.case import Call, Case, Expectation, Kind, Level
from conformance.contract import listed


def feature_cases() -> Iterator[Case]:
    """``feature.<capability>``: the probe by which the feature is found out, judged."""
    for name, probe in probes().items():
        if probe["by"] == "refusal":
            yield Case(
                id=f"feature.{name}",
                theme="features",
                says=f"A server without {probe['says']} refuses the wish and names the field; it ignores nothing",
                readings=("C19",),
                level=Level.SHOULD,
                call=Call(change=change_of(probe)),
                expect=Expectation(kind=Kind.ANSWER, unless=tuple(listed(probe["field"]))),
            )
