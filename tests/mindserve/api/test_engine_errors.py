"""What the engine says of its request is said of the client's."""

from __future__ import annotations

import pytest

from mindserve.api.engine_errors import engine_errors
from mindserve.errors import RequestRefused
from mindserve_engine.interface import RequestInvalid

PARTS = ["messages[0].content[1]", "messages[2].content[0]"]


@pytest.mark.parametrize(
    ("field", "wire"),
    [("media[1]", PARTS[1]), ("media", "messages"), ("num_sequences", "n"), ("grammar", "grammar")],
)
def test_a_field_is_named_as_the_client_wrote_it(field: str, wire: str) -> None:
    with pytest.raises(RequestRefused) as error, engine_errors(PARTS):
        raise RequestInvalid(field=field, reason="is wrong")
    assert (error.value.field, error.value.message) == (wire, f"{wire}: is wrong")
