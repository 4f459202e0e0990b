"""The model of requests in one dialect, with what reads a body into it and what its contract says."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Annotated, Any, Final, get_args, get_origin

import msgspec

from mindserve.api._generated.models import ChatCompletionRequest
from mindserve.api.contract import openapi_json
from mindserve.api.expectation import Expectations
from mindserve.api.integral import IntegralDecoder
from mindserve.config.settings import Dialect

_COMPONENT: Final = "ChatCompletionRequest"


def _map_values(model: type[ChatCompletionRequest]) -> Iterator[tuple[str, msgspec.json.Decoder[Any]]]:
    for field in msgspec.structs.fields(model):
        for member in get_args(field.type):
            plain = get_args(member)[0] if get_origin(member) is Annotated else member
            if get_origin(plain) is dict and (values := get_args(plain)[1]) is not Any:
                yield field.name, msgspec.json.Decoder(values)


class RequestModel:
    """``model`` is the generated class of ``dialect``."""

    def __init__(self, dialect: Dialect, model: type[ChatCompletionRequest]) -> None:
        self.dialect: Final = dialect
        self.decoder: Final = msgspec.json.Decoder(model)
        self.integral: Final = IntegralDecoder(model)

        self.map_values: Final = dict(_map_values(model))
        """What takes a value of a field that is a map, where the values have a type."""

    @property
    def document(self) -> bytes:
        """The contract of the dialect as JSON."""
        return openapi_json(self.dialect)

    @cached_property
    def expectations(self) -> Expectations:
        """Built when the first malformed request comes."""
        return Expectations(msgspec.json.decode(self.document), _COMPONENT)
