"""From the arguments of a call to the bytes of a request body: what is wrong with it is told before it is sent."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from pydantic import BaseModel, ValidationError

from mindserve_client._generated import models, openai_models
from mindserve_client.errors import Fault, InvalidRequest
from mindserve_client.options import DialectName
from mindserve_client.rules import broken_rules
from mindserve_client.shown import shown

REQUEST_MODELS: Final[Mapping[DialectName, type[models.ChatCompletionRequest]]] = {
    "vllm": models.ChatCompletionRequest,
    "openai": openai_models.ChatCompletionRequest,
}


def encode_request(params: Mapping[str, Any], dialect: DialectName, extra_body: Mapping[str, Any] | None) -> bytes:
    """The body for ``params``: model instances become objects, None is left out. ``extra_body``: fields that the
    contract does not know, sent as they are. Raises ``InvalidRequest``."""
    body = _body(params)
    unknown = [name for name in body if name not in REQUEST_MODELS[dialect].model_fields]
    if unknown:
        raise InvalidRequest([Fault(name, _unknown(name, dialect)) for name in unknown])
    try:
        REQUEST_MODELS[dialect].model_validate(body)
    except ValidationError as error:
        raise InvalidRequest(list(_faults(error, body))) from None
    broken = list(broken_rules(body, dialect))
    if broken:
        raise InvalidRequest(broken)
    return b"".join(_encoded({**body, **(extra_body or {})}))


def _body(params: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return {name: _plain(value, name) for name, value in params.items() if value is not None}
    except RecursionError:
        raise InvalidRequest([Fault("", "the request is nested too deeply, or holds itself")]) from None


def _unknown(name: str, dialect: DialectName) -> str:
    owners = [other for other, model in REQUEST_MODELS.items() if name in model.model_fields]
    if owners:
        return f"{name} does not exist in the {dialect} dialect, only in {owners[0]}"
    return f"{name} is not a parameter of the contract; extra_body sends it all the same"


def _plain(value: Any, path: str) -> Any:
    """As JSON has it: models and mappings as dict, sequences as list."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True, exclude_unset=True)
    if isinstance(value, Mapping):
        wrong = [key for key in value if not isinstance(key, str)]
        if wrong:
            raise InvalidRequest([Fault(path, f"{path}: keys must be strings, got {shown(wrong[0])}")])
        return {key: _plain(item, f"{path}.{key}") for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray):
        return [_plain(item, f"{path}[{index}]") for index, item in enumerate(value)]
    return value


def _faults(error: ValidationError, body: object) -> Iterator[Fault]:
    """One per field. Of a union every member complains; those that got furthest are heard."""
    by_path: dict[tuple[str | int, ...], list[Any]] = {}
    for item in error.errors(include_url=False):
        path = _path(item["loc"], item["type"] == "missing", body)
        if item["type"].startswith("union_tag_"):
            path = (*path, item["ctx"]["discriminator"].strip("'"))
        by_path.setdefault(path, []).append(item)
    for path, items in by_path.items():
        if any(other[: len(path)] == path and len(other) > len(path) for other in by_path):
            continue
        field = _text(path)
        reasons = " or ".join(dict.fromkeys(item["msg"] for item in items))
        missing = items[0]["type"] == "missing"
        yield Fault(field, f"{field} is required" if missing else f"{field}: {reasons}; got {shown(items[0]['input'])}")


def _path(location: tuple[str | int, ...], missing: bool, body: object) -> tuple[str | int, ...]:
    """Without the steps that name members of unions: those lead nowhere in the request itself."""
    path: list[str | int] = []
    value: Any = body
    for step in location[:-1] if missing else location:
        in_object = isinstance(value, dict) and step in value
        in_list = isinstance(value, list) and isinstance(step, int) and step < len(value)
        if in_object or in_list:
            path.append(step)
            value = value[step]
    return (*path, location[-1]) if missing else tuple(path)


def _text(path: tuple[str | int, ...]) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")


def _encoded(body: Mapping[str, Any]) -> Iterator[bytes]:
    """In pieces, one per field, so that what is no JSON is told with its name."""
    for index, (name, value) in enumerate(body.items()):
        try:
            text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
            piece = f"{',' if index else '{'}{json.dumps(name)}:{text}".encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidRequest([Fault(name, f"{name} cannot be written as JSON: {error}")]) from error
        yield piece
    yield b"}"
