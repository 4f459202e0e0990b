"""Integral floats for integers: JSON Schema says that 2.0 is an integer, the typed decoder it is not (reading R3).

Only a body that the decoder refused comes here. It is read twice more, each time typed: for the literals of its integer
fields, and for everything else. So it costs what any request costs, and floats of free-form maps stay what they are.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, UnsetType, inspect

from mindserve.api._generated.models import ChatCompletionRequest

_MAX_DIGITS: Final = 20
"""As many as 2^64-1 has, the largest bound of the contract; longer ones are refused, not expanded (1e999999999)."""


def _is_integer(kind: inspect.Type) -> bool:
    return isinstance(kind, inspect.IntType) or (
        isinstance(kind, inspect.UnionType) and any(map(_is_integer, kind.types))
    )


def integer_fields(model: type[ChatCompletionRequest]) -> tuple[str, ...]:
    """The contract has integers in requests at the top level only."""
    info = inspect.type_info(model)
    assert isinstance(info, inspect.StructType)
    return tuple(field.name for field in info.fields if _is_integer(field.type))


class IntegralDecoder:
    """For bodies of ``model`` that its own decoder refused for their integers."""

    def __init__(self, model: type[ChatCompletionRequest]) -> None:
        fields, names = msgspec.structs.fields(model), integer_fields(model)
        self._model = model
        self._names = names
        self._fields = fields
        self._literals = _decoder([(name, Raw | UnsetType, UNSET) for name in names])
        self._integers = _decoder([(field.name, field.type, field.default) for field in fields if field.name in names])
        self._others = _decoder(
            [
                (field.name, field.type) if field.required else (field.name, field.type, field.default)
                for field in fields
                if field.name not in names
            ]
        )

    def decode(self, body: bytes) -> ChatCompletionRequest | None:
        """The request with its integral floats as integers, exactly; None when no integer field holds one.

        Raises ``msgspec.DecodeError`` as the request's own decoder does.
        """
        literals = self._literals.decode(body)
        given: dict[str, Any] = {name: getattr(literals, name) for name in self._names}
        literal_of = {name: bytes(memoryview(raw)) for name, raw in given.items() if raw is not UNSET}
        integral = {name: value for name, text in literal_of.items() if (value := _as_integer(text)) is not None}
        if not integral:
            return None
        # As JSON once more, so that whatever is wrong with another of these fields is told with its place.
        numbers = {**literal_of, **{name: b"%d" % value for name, value in integral.items()}}
        integers = self._integers.decode(
            b"{%s}" % b",".join(b'"%s":%s' % (name.encode(), text) for name, text in numbers.items())
        )
        others = self._others.decode(body)
        values = {
            field.name: getattr(integers if field.name in self._names else others, field.name) for field in self._fields
        }
        return self._model(**values)


def _decoder(fields: list[Any]) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(msgspec.defstruct("Part", fields, kw_only=True))


def _as_integer(literal: bytes) -> int | None:
    """The value of a number that is written as a float and is whole."""
    if literal[:1] not in b"-0123456789" or literal.lstrip(b"-").isdigit():
        return None
    try:
        value = Decimal(literal.decode())
        is_whole = value.adjusted() < _MAX_DIGITS and value == value.to_integral_value()
    except ArithmeticError:  # an exponent of 20 digits
        return None
    return int(value) if is_whole else None
